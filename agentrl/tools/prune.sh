# Leave a repository only the history of the commit it is at. Run as: sh -c THIS sh WORKDIR
set -eu
export LC_ALL=C GIT_TERMINAL_PROMPT=0 GIT_CONFIG_COUNT=5
export GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
export GIT_CONFIG_KEY_1=core.hooksPath GIT_CONFIG_VALUE_1=/dev/null
export GIT_CONFIG_KEY_2=core.fsmonitor GIT_CONFIG_VALUE_2=false
export GIT_CONFIG_KEY_3=core.protectNTFS GIT_CONFIG_VALUE_3=false
export GIT_CONFIG_KEY_4=core.protectHFS GIT_CONFIG_VALUE_4=false

command -v git >/dev/null 2>&1 || { echo 'git is not installed in this sandbox' >&2; exit 3; }
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
