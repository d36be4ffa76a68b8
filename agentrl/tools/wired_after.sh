# What may come after a command of wired.sh, whose functions these use:
#
#   stop NAME                    end it with everything below it; a launch that comes later does nothing
#   collect NAME BYTES           the ends of its outputs into out.end and err.end; says their sizes and the folder
#   take NAME NEW                collected by another user: make both our own, as out.end and err.end of NEW
#   empty NAME                   remove what is in its folder; the folder itself still bars a late launch
#   stage NAME, open NAME FILE   a folder for uploads; let everybody read an uploaded file, and say its size
#   remove NAME                  remove a folder altogether
ended() { [[ -e $_folder/exit ]] || lost; }

stop() {
    local _peeked _absent=0 _round _child
    if mkdir -m 700 "$_folder"; then say stopped . && return; fi
    # The folder may be another user's: no file of it is written or believed.
    mkdir "$_folder/stop"
    for ((_round = 0; _round < 100; _round++)); do
        _child=
        if ! ended && peek child && owned_alike "$_folder" "/proc/$_peeked"; then _child=$_peeked; fi
        killall "AGENTRL_TREE=$_name" $_child >/dev/null
        if ended; then say stopped . && return; fi
        sleep 0.05 || sleep 1
    done
    say alive .
}

owned_alike() { [[ $(stat -c %u "$1") == $(stat -c %u "$2") ]]; }

collect() {
    local _stream
    for _stream in out err; do
        cat "$_folder/$_stream.old" "$_folder/$_stream" | tail -c "$1" >"$_folder/$_stream.end"
        say "$(wc -c <"$_folder/$_stream.end")"
    done
    say "$_folder" .
}

take() {
    local _new=${_folder%/*}/.agentrl-$1 _stream
    [[ -d $_new ]] || mkdir -m 700 "$_new" || return
    for _stream in out err; do
        # A link in a folder of ours stays what it is: a file of the same owner, and not a link to something else.
        ln -f "$_folder/$_stream.end" "$_new/$_stream.end" || return
        [[ -f $_new/$_stream.end && ! -L $_new/$_stream.end ]] && owned_alike "$_folder" "$_new/$_stream.end" || return
    done
    say "$_new" .
}

empty() { rm -rf "$_folder/"* && say .; }

stage() { [[ -d $_folder ]] || mkdir -m 711 "$_folder" && say "$_folder" .; }

open() { chmod 644 "$_folder/$1" && say "$(wc -c <"$_folder/$1")" .; }

remove() { rm -rf "$_folder" && say .; }
