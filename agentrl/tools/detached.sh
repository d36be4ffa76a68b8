# A command that outlives the connection that started it. Run as: sh -c THIS sh VERB FOLDER ...
#
#   start FOLDER               run FOLDER/command once, however often this is asked; the nonce comes on stdin
#   wait FOLDER TENTHS         wait for its end at most so long; stdout: its marker, "running" or "lost"
#   output FOLDER NAME BYTES   the end of FOLDER/NAME
set -u
verb=$1 folder=$2

start() {
    IFS= read -r nonce
    # mkdir succeeds for one caller only.
    mkdir "$folder/started" 2>/dev/null || exit 0
    # Whoever is killed before it began has said nothing.
    : >"$folder/stdout" && : >"$folder/stderr" || exit
    command -v setsid >/dev/null 2>&1 || setsid() { "$@"; }
    # The nonce lives in the memory of this shell and the next one: the command cannot write the marker in their place.
    printf '%s\n' "$nonce" | setsid sh -c '
        IFS= read -r nonce
        echo $$ >"$1/pid"
        bash "$1/command" </dev/null >"$1/stdout" 2>"$1/stderr"
        # No marker is better than half of one, on a full disk.
        printf "%s %s\n" "$nonce" $? >"$1/exit.new" && mv "$1/exit.new" "$1/exit"
    ' sh "$folder" >/dev/null 2>&1 &
}

gone() {
    [ -d "$folder" ] || return 0
    pid=$(cat "$folder/pid" 2>/dev/null)
    [ -n "$pid" ] || { absent=$((absent + 1)) && [ $absent -gt 100 ] && return; return 1; }
    [ ! -d "/proc/$pid" ] || grep -qs '^State:.[ZX]' "/proc/$pid/status"
}

wait() {
    left=$3 absent=0 marker=exit
    while [ ! -e "$folder/exit" ]; do
        # Asked again: it may have ended in between, or had no process left for mv.
        if gone && [ ! -e "$folder/exit" ]; then
            [ -f "$folder/exit.new" ] && [ -s "$folder/exit.new" ] || { echo lost && exit; }
            marker=exit.new && break
        fi
        left=$((left - 1))
        [ $left -ge 0 ] || { echo running && exit; }
        sleep 0.1 2>/dev/null || sleep 1
    done
    head -c 1000 "$folder/$marker"
}

output() { tail -c "$4" "$folder/$3"; }

"$verb" "$@"
