# Leave a repository only the history of the commit it is at. Run as: sh -c THIS sh WORKDIR SCRATCH
set -eu
for name in $(env | sed -n 's/^\(GIT_[A-Z0-9_]*\)=.*/\1/p'); do unset "$name"; done
export LC_ALL=C GIT_TERMINAL_PROMPT=0 GIT_CONFIG_NOSYSTEM=1 HOME="$2" XDG_CONFIG_HOME="$2"
mkdir -p -m 700 "$2"
trap 'rm -rf "$2"' EXIT
# Whoever owns it: not every git listens to the command line here.
printf '[safe]\n\tdirectory = *\n' >"$2/.gitconfig"
git() { command git -c core.hooksPath=/dev/null -c core.fsmonitor= -c core.protectNTFS=false -c core.protectHFS=false "$@"; }

git version >/dev/null 2>&1 || { echo 'git is not installed in this sandbox' >&2; exit 3; }
cd "$1/"
[ -d .git ] && [ -d .git/objects ] && [ ! -e .git/commondir ] && [ ! -e .git/reftable ] ||
    { echo "$1/.git is not the directory of an ordinary repository" >&2; exit 6; }
base=$(git rev-parse --verify 'HEAD^{commit}')

# Everything but HEAD that names a commit.
(
    cd .git
    for name in *_HEAD; do case $name in HEAD) ;; *) rm -f -- "$name" ;; esac; done
    rm -rf refs logs packed-refs worktrees modules rr-cache lost-found branches remotes rebase-* sequencer BISECT_* \
        AUTO_MERGE MERGE_* SQUASH_MSG COMMIT_EDITMSG info/refs info/grafts objects/info/commit-graph* objects/info/packs \
        objects/pack/*.keep objects/pack/*.bitmap objects/pack/multi-pack-index* gc.log gc.pid
    mkdir -p refs/heads refs/tags
)
if git symbolic-ref -q HEAD >/dev/null; then git update-ref HEAD "$base"; fi
git config --local --name-only --get-regexp '^(remote|branch)\.' | sed 's/\.[^.]*$//' | sort -u |
    while IFS= read -r section; do git config --local --remove-section "$section"; done
git config --local --unset-all extensions.partialClone || :

# Submodules lost their repositories above: they stay as folders of files.
find . -path ./.git -prune -o -name .git -type f -exec grep -q '/modules/' {} \; -exec rm -f {} \;

# All that is reachable into one pack of our own, also what an alternate lent; the rest goes.
rm -f .git/index
git read-tree "$base"
git update-index -q --refresh >/dev/null || :
git -c repack.writeBitmaps=false -c gc.writeCommitGraph=false repack -a -d -q
rm -rf .git/objects/info/alternates .git/objects/info/http-alternates .git/objects/pack/tmp_* .git/objects/pack/*.promisor
git prune --expire=now
git prune-packed -q

kept=$(git rev-list --count "$base")
there=$(git cat-file --batch-all-objects --unordered --batch-check='%(objecttype)' | grep -c '^commit$')
[ "$kept" = "$there" ] || { echo "$there commits are left, $kept belong to the base's history" >&2; exit 1; }
