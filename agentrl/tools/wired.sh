# Commands that outlive the connection that started them. Run as: bash -p -c THIS bash VERB NAME ...
#
#   launch NAME TENTHS [OLD...]  run the command once, however often this is asked, and wait for its end at most so long;
#                                the folders of the commands OLD are removed at its end. What to run comes in AGENTRL_*
#                                variables, what it must not know on fd 3.
#   watch NAME TENTHS            wait for its end; says what "launch" says
#
# Further verbs are in wired_after.sh: a shell reads this text for every command, so it holds what every command needs.
#
# What launch and watch say: "running", "lost", "nowhere", or "ended MARK CODE SIZE KIND SIZE KIND" (stdout's and stderr's)
# and, if they are small, both of them, see "tell". Every answer ends with a dot.
# Our own variables begin with _ : whatever the sandbox's environment holds must reach the command unchanged.
_verb=$1 _name=$2 _path=${PATH-} _path_set=${PATH+yes}
shift 2
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin${PATH:+:$PATH}
_cap=$((10 << 20)) _small=90000 _end_size=32

say() { printf '%s\n' "$@"; }

# Where the command's folder is, or will be: in the first folder that we can write to.
place() {
    local _base
    for _base in /tmp /var/tmp /dev/shm /run; do
        _folder=$_base/.agentrl-$_name
        [[ ! -d $_folder ]] || return 0
    done
    for _base in /tmp /var/tmp /dev/shm /run; do
        _folder=$_base/.agentrl-$_name
        [[ ! -d $_base || ! -w $_base || ! -x $_base ]] || return 0
    done
    say nowhere . && exit
}

# The end of stdin into a file, of bounded size: once there is more than the cap it becomes $1.old and the next one begins.
# dd, because it writes what it has read at once. Says at the end: size and kind.
keep() {
    local _file=$_folder/$1 _size=0 _kind=whole _report
    while _report=$(LC_ALL=C exec dd bs=65536 count=256 2>&1 >>"$_file"); do
        if [[ $_report =~ $'\n'([0-9]+)' bytes ' ]]; then ((_size += BASH_REMATCH[1])); else _size=$(wc -c <"$_file"); fi
        [[ $_report =~ ([0-9]+)\+([0-9]+) ]]
        if ((BASH_REMATCH[1] + BASH_REMATCH[2] < 256)); then say "$_size $_kind" && return; fi
        if ((_size > _cap)); then mv -f "$_file" "$_file.old" && _size=0 _kind=tail; fi
    done
    # The disk is full, or nobody wants it any more. Whoever writes goes on.
    exec cat >/dev/null
}

# settle NAME FD PIPE: wait until what the command wrote is kept; sets $_kept. FD is the keeper's stdout. The keeper ends with
# the command, unless a child holds the pipe: then the pipe has run empty. What was kept must have the end mark in it then.
settle() {
    local _round _quiet=0 _state _part
    _kept=
    for ((_round = 0; _round < 100 && _quiet < 3; _round++)); do
        IFS= read -r -t 0.02 -u "$2" _part
        _state=$?
        # The time may run out in the middle of the line.
        _kept+=$_part
        if ((_state == 0)); then return; fi
        if ((_state <= 128)); then _kept='0 lost' && return; fi
        if read -t 0 -u "$3"; then _quiet=0; else ((_quiet++)); fi
    done
    _kept='0 held'
}

# The command itself. It has a process group of its own and nothing of ours open.
become() {
    local _fd _variable _value _command
    exec 1>&4 2>&5
    if [[ -n $_stdin ]]; then exec <"$_stdin"; else exec </dev/null; fi
    for _fd in "/proc/$BASHPID/fd/"*; do
        _fd=${_fd##*/}
        if ((_fd > 2 && _fd != 255)); then exec {_fd}>&-; fi
    done
    if [[ -n ${AGENTRL_CWD-} ]]; then
        printf -v _value %b "$AGENTRL_CWD"
        cd -- "$_value" || exit 1
    fi
    if [[ -n $_path_set ]]; then PATH=$_path; else unset PATH; fi
    for _variable in "${!AGENTRL_ENV_@}"; do
        printf -v _value %b "${!_variable}"
        export "${_variable#AGENTRL_ENV_}=$_value"
    done
    # The mark of its tree, and for killall.sh who keeps its output.
    export AGENTRL_TREE=$_name.$_keepers
    printf -v _command %b "$AGENTRL_COMMAND"
    [[ ! -e $_folder/stop ]] || exit 137
    # The kernel takes no argument of more than 128 KiB.
    if ((${#AGENTRL_COMMAND} < 100000)); then exec -a bash "$BASH" -c "$_command"; fi
    printf %s "$_command" >"$_folder/command"
    exec -a bash "$BASH" "$_folder/command"
}

# supervise OLD...
supervise() {
    local _go _code _keepers _kept _out _line
    # Not before the other side holds its end of our pipe.
    read -r _go
    say "$BASHPID" >"$_folder/pid"
    coproc _keeper { keep out; }
    _keepers=$_keeper_PID
    exec 4>&"${_keeper[1]}" 6<&"${_keeper[0]}"
    exec {_keeper[1]}>&- {_keeper[0]}<&-
    coproc _keeper { exec 4>&- 6<&-; keep err; }
    exec 5>&"${_keeper[1]}" 7<&"${_keeper[0]}"
    exec {_keeper[1]}>&- {_keeper[0]}<&-
    _keepers+=.$_keeper_PID
    set -m
    become &
    set +m
    say $! >"$_folder/child"
    trap '' PIPE
    wait $!
    _code=$?
    exec 8</proc/self/fd/4 9</proc/self/fd/5
    printf %s "$_end" >&4
    printf %s "$_end" >&5
    exec 4>&- 5>&-
    settle out 6 8 && _out=$_kept
    settle err 7 9
    exec 8<&- 9<&-
    # A one-time code over the exit code: whoever sees it cannot make another.
    _line="$((_key_a * _code + _key_b)) $_code $_out $_kept"
    # First to whoever waits; the file makes good for an answer that is lost.
    say "$_line"
    until say "$_line" >"$_folder/exit.new" && mv "$_folder/exit.new" "$_folder/exit"; do
        # The disk is full, or nobody wants to know any more.
        if [[ ! -d $_folder ]]; then break; fi
        sleep 1
    done
    if (($#)); then exec rm -rf "${@/#/${_folder%/*}/.agentrl-}" >/dev/null; fi
}

# size NAME SIZE KIND: sets $_size; what a child may still add to is measured. Small files without another program: a command
# that has used up its processes must get its answer all the same.
size() {
    local LC_ALL=C _part
    _size=$2
    if [[ $3 != held ]]; then return; fi
    if [[ -e $_folder/$1.old ]]; then _size=$_cap && return; fi
    _size=0
    while IFS= read -r -d '' -n $_small _part; do
        ((_size += ${#_part} + (${#_part} < _small)))
        if ((_size > _small)); then _size=$(wc -c <"$_folder/$1") && return; fi
    done <"$_folder/$1"
    ((_size += ${#_part}))
}

answer() {
    local _size _out_size
    size out "$3" "$4" && _out_size=$_size && size err "$5" "$6" || exit
    say "ended $1 $2 $_out_size $4 $_size $6"
    if ((_out_size <= _small && _size <= _small)); then
        tell out "$_out_size"
        say -
        tell err "$_size"
    fi
    say .
}

# tell NAME SIZE: what was written, in base64, or behind a "=" if it is plain text: that takes no further program.
tell() {
    local LC_ALL=C _text
    if (($2 <= _end_size)); then return; fi
    if (($2 < 4000)) && [[ -f $_folder/$1 ]] && ! IFS= read -r -d '' _text <"$_folder/$1" &&
        [[ ${#_text} == "$2" && $_text != *[^$'\t\n'\ -~]* ]]; then
        _text=${_text//\\/\\\\} _text=${_text//$'\t'/\\t}
        say "=${_text//$'\n'/\\n}"
    else
        base64 <"$_folder/$1" || exit
    fi
}

launch() {
    local _key_a _key_b _end _stdin= _line _tenths=$1
    shift
    read -r _key_a _key_b _end <&3
    exec 3<&-
    export -n "${!AGENTRL_@}"
    if [[ -n ${AGENTRL_STAGE-} ]]; then . "$AGENTRL_STAGE"; fi
    _stdin=${AGENTRL_STAGED_STDIN-}
    if [[ -z ${AGENTRL_COMMAND+set} || -n $_stdin && ! -r $_stdin ]]; then say nowhere . && return; fi
    place
    # mkdir succeeds for one caller only.
    if ! mkdir -m 700 "$_folder"; then
        if [[ -d $_folder ]]; then watch "$_tenths"; else say nowhere .; fi
        return
    fi
    if [[ -n ${AGENTRL_STDIN-} ]]; then
        _stdin=$_folder/stdin
        printf %b "$AGENTRL_STDIN" >"$_stdin"
    fi
    set -m
    coproc _supervisor { supervise "$@"; }
    set +m
    exec 8<&"${_supervisor[0]}"
    say go >&"${_supervisor[1]}"
    if read -r -t "$((_tenths / 10)).$((_tenths % 10))" -u 8 _line; then answer $_line; else watch 0; fi
}

# peek NAME: the first line of one of our files into $_peeked; what has become a FIFO meanwhile holds nobody up.
peek() { [[ -f $_folder/$1 ]] && read -r _peeked <"$_folder/$1"; }

lost() {
    local _peeked _state
    if [[ ! -d $_folder ]]; then return 0; fi
    if ! peek pid; then ((++_absent > 30)) && return; fi
    read -r _ _ _state _ <"/proc/$_peeked/stat" || return 0
    [[ $_state == [ZX] ]]
}

watch() {
    local _peeked _absent=0 _tick=0
    SECONDS=0
    until peek exit; do
        # Asked again: it may have ended in between, or had no process left for the renaming.
        if lost; then
            if peek exit || peek exit.new; then break; fi
            say lost . && return
        fi
        if ((_tick++ >= $1 || SECONDS > $1 / 10)); then say running . && return; fi
        sleep 0.1 || sleep 1
    done
    answer $_peeked
}
