# Kill processes until none is left, with nothing but a shell and /proc. Run as: sh -c THIS sh [TAG [PID]]
#
# Without TAG: everything but pid 1, this shell, the processes above it (the exec server), those that keep its output (wired.sh
# says in AGENTRL_TREE which) and kernel threads.
# With TAG: what has TAG in its environment or is PID, and all below that. Stdout: how many were killed; exit code 1: some survive.
set -u
tag=${1-} root=${2-}

# parent PID: sets $parent and $alive (a user process that is no zombie).
parent() {
    parent= state= memory=
    while read -r key value _; do
        case $key in State:) state=$value ;; PPid:) parent=$value ;; VmSize:) memory=$value ;; esac
    done 2>/dev/null <"/proc/$1/status"
    case $state$memory in Z* | X* | ? | '') alive= ;; *) alive=1 ;; esac
}

# The way from here up to the first process is spared, its own name included.
spared=" 1 $$ "
parent $$
while [ "${parent:-0}" -gt 1 ]; do
    spared="$spared$parent "
    parent "$parent"
done 2>/dev/null
keepers=$(printf %s "${AGENTRL_TREE-}" | tr . ' ')
spared="$spared$keepers "

victims() {
    tagged=' '
    [ -z "$tag" ] || tagged="$root "$(grep -sl "$tag" /proc/[0-9]*/environ | tr -c '0-9' ' ')
    found= missed= tree=$tagged more=1
    # Children may have lower numbers than their parents: until a round adds nothing.
    while [ -n "$more" ]; do
        more=
        for folder in /proc/[0-9]*; do
            pid=${folder#/proc/}
            case "$spared$found " in *" $pid "*) continue ;; esac
            parent "$pid"
            if [ -z "$alive" ]; then
                # Listed and dead by now: it may have left a child that was not listed yet.
                case $dead in *" $pid "*) ;; *) dead="$dead$pid " missed=1 ;; esac
                continue
            fi
            case " $keepers " in *" $parent "*) continue ;; esac
            case ${tag:+" $tree $found "} in
            '' | *" $pid "* | *" $parent "*) found="$found $pid" more=$tag ;;
            *)
                # While it becomes another program it has neither environment nor command line: each is looked at twice.
                line=
                IFS= read -r line <"/proc/$pid/cmdline"
                case ${line:+"$seen"} in *" $pid "*) ;; *) seen="$seen$pid " missed=1 ;; esac
                ;;
            esac
        done
    done 2>/dev/null
}

killed=' ' dead=' ' seen=' ' rounds=0
while :; do
    victims
    [ -n "$found$missed" ] || break
    for pid in $found; do
        # Stopped first: what is stopped forks no more.
        kill -STOP "$pid"
        case $killed in *" $pid "*) ;; *) killed="$killed$pid " ;; esac
    done 2>/dev/null
    for pid in $found; do kill -KILL "$pid"; done 2>/dev/null
    rounds=$((rounds + 1))
    if [ $rounds -gt 100 ]; then
        [ -n "$found" ] || break
        for pid in $found; do printf '%s %s\n' "$pid" "$(tr '\000' ' ' <"/proc/$pid/cmdline")"; done >&2
        exit 1
    fi
    [ $rounds -lt 3 ] || sleep 0.05 2>/dev/null || sleep 1
done
set -- $killed
echo $#
