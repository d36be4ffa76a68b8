# git on the raw bytes of a work tree, deaf to every configuration but its own. No line endings are converted, no
# filter, hook, alias, replacement or lock of the repository takes part: a scratch repository that borrows the
# objects looks at the tree instead.
#
#   sh -c THIS sh VERB SCRATCH WORKDIR [ARGUMENT...]      SCRATCH: a fresh path; removed at the end
#
#   at                                     stdout: the commit that WORKDIR is at
#   capture BASE MAX_BYTES [EXCLUDED...]   SCRATCH/patch: all that differs from BASE (kept); stdout: ignored paths, NUL-ended
#   apply BASE                             SCRATCH/patch onto BASE in WORKDIR
#   changed BASE                           stdout: paths that differ from BASE, NUL-ended
#   restore BASE                           the paths in SCRATCH/paths (NUL-ended) as in BASE; stdout: what that changed
#   show BASE PATH                         stdout: PATH as in BASE
#   freeze                                 commit whatever is in WORKDIR; stdout: the commit
#
# Exit codes: 3 no git here, 4 BASE is not here, 5 the patch does not apply, 6 WORKDIR is not the top of a repository.
set -eu
verb=$1 scratch=$2 work=${3%/}
shift 3

fail() {
    code=$1
    shift
    printf '%s\n' "$*" >&2
    exit "$code"
}

# NUL-ended names as lines and back (a newline inside a name becomes NUL), for tools that know lines only.
swap() { tr '\n\000' '\000\n'; }

# The lines of file $2 that match $1, or ($3 = -v) that do not; none is fine.
lines() { grep -a ${3-} -e "$1" "$2" || [ $? -eq 1 ]; }

# A name as git quotes it in listings without -z, plain. Ends in a slash, lest the shell cut a newline off.
plain() {
    case $1 in
    '"'*'"')
        quoted=${1#?}
        printf -- "$(printf '%s' "${quoted%?}" | sed 's/%/%%/g; s/\\"/"/g')"
        ;;
    *) printf '%s' "$1" ;;
    esac
    echo /
}

isolate() {
    for name in $(env | sed -n 's/^\(GIT_[A-Z0-9_]*\)=.*/\1/p'); do unset "$name"; done
    mkdir -p -m 700 "$scratch"
    case $verb in
    capture) trap 'rm -rf "$scratch/git" "$scratch"/index* "$scratch"/list*' EXIT ;;
    *) trap 'rm -rf "$scratch"' EXIT ;;
    esac
    export LC_ALL=C HOME="$scratch" XDG_CONFIG_HOME="$scratch" GIT_CONFIG_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0
    # Whoever owns the tree: not every git listens to the command line or the environment here.
    printf '[safe]\n\tdirectory = *\n' >"$HOME/.gitconfig"
}

# own: this work tree's git directory; common: the one with the objects. Found without asking the configuration.
locate() {
    own=$work/.git
    if [ -f "$own" ]; then
        own=$(sed -n 's/^gitdir: //p' "$own")
        case $own in /*) ;; *) own=$work/$own ;; esac
    fi
    common=$own
    if [ -f "$own/commondir" ]; then
        common=$(cat "$own/commondir")
        case $common in /*) ;; *) common=$own/$common ;; esac
    fi
    [ -d "$common/objects" ] || fail 6 "$work is not the top of a git repository"
    common=$(cd "$common" && pwd -P)
}

# borrow FORMAT: the scratch repository.
borrow() {
    export GIT_DIR="$scratch/git"
    case $1 in sha256) git init -q --bare --template= --object-format=sha256 "$GIT_DIR" ;; *) git init -q --bare --template= "$GIT_DIR" ;; esac
    mkdir -p "$GIT_DIR/info" "$GIT_DIR/objects/info"
    printf '%s\n' "$common/objects" >"$GIT_DIR/objects/info/alternates"
    # The highest level of attributes: it wins over every .gitattributes in the tree.
    echo '* -text -ident !eol !crlf !filter !working-tree-encoding !diff !merge !whitespace' >"$GIT_DIR/info/attributes"
    case $scratch in "$work"/*) printf '%s\n' "${scratch#"$work"}" >"$GIT_DIR/info/exclude" ;; esac
    cat >>"$GIT_DIR/config" <<'CONFIG'
[core]
	bare = false
	fileMode = true
	symlinks = true
	ignoreCase = false
	precomposeUnicode = false
	protectNTFS = false
	protectHFS = false
	autocrlf = false
	excludesFile = /dev/null
	attributesFile = /dev/null
	looseCompression = 0
	bigFileThreshold = 64m
CONFIG
}

# open BASE: all of the above for a known base.
open() {
    locate
    case ${#1} in 64) borrow sha256 ;; *) borrow sha1 ;; esac
    git cat-file -e "$1^{commit}" 2>/dev/null || fail 4 "the base commit $1 is not in $work any more"
    export GIT_WORK_TREE="$work/"
    cd "$work/"
}

# force: paths that git ignores and that $own/index tracks nevertheless belong to the tree.
force() {
    [ -f "$own/index" ] || return 0
    cp "$own/index" "$list.theirs"
    # An index that cannot be read tracks nothing.
    GIT_INDEX_FILE=$list.theirs git ls-files -c -i --exclude-standard -z >"$list.forced" 2>/dev/null || return 0
    [ -s "$list.forced" ] || return 0
    git ls-files -o -i --exclude-standard -z >"$list.ignored"
    swap <"$list.forced" | sort -u >"$list.left"
    swap <"$list.ignored" | sort -u >"$list.right"
    comm -12 "$list.left" "$list.right" | swap >"$list.both"
    git update-index --add --replace -z --stdin <"$list.both"
}

# dissolve: a submodule (or a file that became a repository) whose folder holds files is a folder of files.
dissolve() {
    git ls-files -s >"$list"
    lines '^160000 ' "$list" | cut -f 2- >"$list.links"
    while IFS= read -r name; do
        path=$(plain "$name")
        path=${path%/}
        if [ -d "$path" ] && [ ! -L "$path" ] && [ -n "$(ls -A "./$path")" ]; then
            git update-index --force-remove -- "$path"
        fi
    done <"$list.links"
}

# snapshot DIR START DEPTH: the tree of DIR's files, START (a tree, or empty) saying which are tracked. A repository
# inside is a folder of files like any other.
snapshot() (
    set -eu
    work=$1 list=$scratch/list.$3
    cd "$1/"
    export GIT_WORK_TREE="$1/" GIT_INDEX_FILE="$scratch/index.$3"
    find . -name .git -prune -o -type d ! -perm -700 -exec chmod u+rwx {} \; -o -type f ! -perm -400 -exec chmod u+r {} \; >&2
    if [ -n "$2" ]; then git read-tree "$2"; else git read-tree --empty; fi

    dissolve
    git add -u -- .
    dissolve
    own=$work/.git
    if [ -f "$own" ]; then locate; fi
    force

    git ls-files -o --exclude-standard -z >"$list"
    swap <"$list" >"$list.lines"
    lines '/$' "$list.lines" -v >"$list.files"
    swap <"$list.files" >"$list"
    git update-index --add --replace -z --stdin <"$list"
    lines '/$' "$list.lines" >"$list.nested"
    if [ -s "$list.nested" ]; then
        git ls-files -o --exclude-standard >"$list"
        lines '/"\{0,1\}$' "$list" >"$list.nested"
    fi
    while IFS= read -r name; do
        path=$(plain "$name")
        path=${path%//}
        nested=$(snapshot "$work/$path" '' $(($3 + 1)))
        git read-tree --prefix="$path/" "$nested"
    done <"$list.nested"
    git write-tree
)

# switch TREE: the work tree, which the index describes, becomes TREE.
switch() { git read-tree --reset -u "$1"; }

# reset_to BASE: whatever the work tree is, it becomes BASE; ignored files stay.
reset_to() {
    export GIT_INDEX_FILE="$scratch/index.tree"
    git read-tree "$1"
    git update-index -q --refresh >/dev/null || :
    switch "$1"
    git clean -ffdq
}

at() {
    [ -e "$work/.git" ] || fail 6 "$work is not the top of a git repository"
    cd "$work/"
    git rev-parse --verify 'HEAD^{commit}'
}

capture() {
    base=$1 max=$2
    shift 2
    open "$base"
    tree=$(snapshot "$work" "$base" 0)
    for path in "$@"; do
        set -- "$@" ":(exclude,top,literal)$path"
        shift
    done
    { git diff-tree -r -p --binary --full-index --no-renames --no-ext-diff --no-textconv --no-color \
        --src-prefix=a/ --dst-prefix=b/ "$base" "$tree" -- . "$@" || echo $? >"$scratch/failed"; } |
        head -c "$((max + 1))" >"$scratch/patch"
    size=$(wc -c <"$scratch/patch")
    [ ! -e "$scratch/failed" ] || [ "$size" -gt "$max" ] || fail 1 "git diff-tree failed"
    export GIT_INDEX_FILE="$scratch/index.0"
    git ls-files -o -i --exclude-standard --directory -z | head -c 100000
    # Older ones do not look into folders of new files then.
    case $(git version) in *' 2.'[0-9].* | *' 2.'[12][0-9].* | *' 2.3'[0-5].*)
        git ls-files -o -i --exclude-standard -z | head -c 100000
        ;;
    esac
}

# try HOW...: the patch into the index; not to apply is one thing, to be killed another.
try() {
    code=0
    git apply --whitespace=nowarn "$@" "$scratch/patch" >&2 || code=$?
    [ $code -le 128 ] || fail 1 "git apply ended with $code"
    return $code
}

# merge: like try, with the help of the patch's own blobs. Before git 2.32 that needed a work tree.
merge() (
    mkdir "$scratch/merge"
    export GIT_WORK_TREE="$scratch/merge"
    git checkout-index -a -u
    cd "$scratch/merge"
    try --3way
)

# apply BASE: the result is made in an index first, so that a patch that does not apply never touches the tree.
apply() {
    umask 022
    open "$1"
    wanted=
    [ -s "$scratch/patch" ] || wanted=$(git rev-parse "$1^{tree}")
    for how in 'try --cached' merge; do
        [ -z "$wanted" ] || break
        export GIT_INDEX_FILE="$scratch/index.wanted"
        git read-tree "$1"
        if $how; then wanted=$(git write-tree); fi
    done
    reset_to "$1"
    [ -n "$wanted" ] || fail 5 "the patch does not apply"
    switch "$wanted"
    found=$(snapshot "$work" "$wanted" 0)
    [ "$found" = "$wanted" ] && return
    reset_to "$1"
    fail 1 "the patched tree is $found instead of $wanted"
}

changed() {
    open "$1"
    tree=$(snapshot "$work" "$1" 0)
    git diff-tree -r -z --name-only --no-renames "$1" "$tree"
}

restore() {
    umask 022
    open "$1"
    now=$(snapshot "$work" "$1" 0)
    cp "$scratch/index.0" "$scratch/index.tree"
    export GIT_INDEX_FILE="$scratch/index.0"
    xargs -0 git --literal-pathspecs rm --cached -r -f -q --ignore-unmatch -- <"$scratch/paths"
    GIT_INDEX_FILE=$scratch/index.base git read-tree "$1"
    GIT_INDEX_FILE=$scratch/index.base xargs -0 git --literal-pathspecs ls-files -s -z -- <"$scratch/paths" >"$scratch/list"
    git update-index --replace -z --index-info <"$scratch/list"
    wanted=$(git write-tree)
    export GIT_INDEX_FILE="$scratch/index.tree"
    switch "$wanted"
    git diff-tree -r -z --name-only --no-renames "$now" "$wanted"
}

show() {
    open "$1"
    git cat-file blob "$1:$2"
}

# freeze: author and date are fixed, so that one start state is one commit id wherever it is made.
freeze() {
    cd "$work/"
    work=$(pwd -P)
    top=$(git rev-parse --show-toplevel 2>/dev/null || :)
    case $top in
    "$work") ;;
    '') git init -q --template= . && git symbolic-ref HEAD refs/heads/main ;;
    *) fail 6 "$work lies inside the repository $top: name its top as the workdir" ;;
    esac
    locate
    head=$(git rev-parse -q --verify 'HEAD^{commit}' || :)
    format=$(git rev-parse --show-object-format 2>/dev/null || echo sha1)
    (
        borrow "$format"
        export GIT_OBJECT_DIRECTORY="$common/objects"
        snapshot "$work" "$head" 0 >"$scratch/tree"
    )
    tree=$(cat "$scratch/tree")
    if [ -z "$head" ] || [ "$tree" != "$(git rev-parse "$head^{tree}")" ]; then
        export GIT_AUTHOR_NAME=task GIT_AUTHOR_EMAIL=task@localhost GIT_AUTHOR_DATE='2000-01-01T00:00:00+0000'
        export GIT_COMMITTER_NAME=task GIT_COMMITTER_EMAIL=task@localhost GIT_COMMITTER_DATE='2000-01-01T00:00:00+0000'
        head=$(git commit-tree -m 'Start state of the task' ${head:+-p "$head"} "$tree")
        git update-ref HEAD "$head"
    fi
    rm -f "$own/index" "$own/index.lock"
    plainly="git -c core.fsmonitor= -c core.protectNTFS=false -c core.protectHFS=false"
    $plainly read-tree "$head"
    $plainly update-index -q --refresh >/dev/null || :
    printf '%s\n' "$head"
}

command -v git >/dev/null 2>&1 || fail 3 "git is not installed in this sandbox"
[ -d "$work/" ] || fail 6 "$work is not a directory"
isolate
"$verb" "$@"
