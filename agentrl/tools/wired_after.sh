# What may come after a command of wired.sh, whose functions these use:
#
#   stop ROOM NAME               end it with everything below it; a launch that comes later does nothing
#   collect ROOM NAME BYTES      the ends of its outputs into files; says their sizes and what their names begin with
#   take ROOM NAME NEW           collected by another user: make both our own, in the folder NEW
#   empty ROOM NAME              remove what it left; that it ran is still known, which bars a late launch
#   stage - NAME, open - NAME FILE   a folder for uploads; let everybody read an uploaded file, and say its size
#   remove - NAME                remove a folder altogether
over() { ended || lost; }

stop() {
    local _line _out _err _absent=0 _round _child _bar
    apart
    _bar=$_folder
    # First the bar, which a launch looks for after it has made itself known, see "become".
    mkdir -m 700 "$_bar"
    if ! known; then say stopped . && return; fi
    for ((_round = 0; _round < 100; _round++)); do
        _child=
        # The room may be another user's: no file of it is written or believed.
        if ! over && { read -r _ && read -r _child; } <"$_folder/$_name"; then
            owned_alike "$_folder" "/proc/$_child" || _child=
        fi
        killall "AGENTRL_TREE=$_name" $_child >/dev/null
        if over; then
            rmdir "$_bar"
            say stopped . && return
        fi
        sleep 0.05 || sleep 1
    done
    say alive .
}

owned_alike() { [[ $(stat -c %u "$1") == $(stat -c %u "$2") ]]; }

collect() {
    local _line _out _err _absent=0 _stream _file _text
    until ended || lost; do sleep 0.1 || sleep 1; done
    for _stream in out err; do
        _file=$_folder/$_name.$_stream _text=_$_stream
        if [[ ${!_text} == =* ]]; then printf %b "${!_text#=}"; else cat "$_file.old" "$_file" | tail -c "$1"; fi >"$_file.end"
        say "$(wc -c <"$_file.end")"
    done
    say "$_folder/$_name." .
}

take() {
    local _new=${_folder%/*}/.agentrl-$1 _stream _file
    [[ -d $_new ]] || mkdir -m 700 "$_new" || return
    for _stream in out err; do
        _file=$_folder/$_name.$_stream.end
        # A link in a folder of ours stays what it is: a file of the same owner, and not a link to something else.
        ln -f "$_file" "$_new/$_stream.end" || return
        [[ -f $_new/$_stream.end && ! -L $_new/$_stream.end ]] && owned_alike "$_folder" "$_new/$_stream.end" || return
    done
    say "$_new/" .
}

empty() { rm -f -- "$_folder/$_name."* && say .; }

# apart: a folder of its own, where it is or will be.
apart() {
    local _base
    for _base in "${_bases[@]}"; do
        _folder=$_base/.agentrl-$_name
        if [[ -d $_folder ]]; then return 0; fi
    done
    for _base in "${_bases[@]}"; do
        _folder=$_base/.agentrl-$_name
        if [[ -d $_base && -w $_base && -x $_base ]]; then return 0; fi
    done
    say nowhere . && exit
}

stage() { apart && { [[ -d $_folder ]] || mkdir -m 711 "$_folder"; } && say "$_folder" .; }

open() { apart && chmod 644 "$_folder/$1" && say "$(wc -c <"$_folder/$1")" .; }

remove() { apart && rm -rf "$_folder" && say .; }
