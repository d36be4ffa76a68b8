# Commands that outlive the connection that started them. Run as: bash -p -c THIS bash VERB ROOM NAME ...
#
#   launch ROOM NAME TENTHS [OLD...]  run the command once, however often this is asked, and wait for its end at most so long;
#                                     what the commands OLD left is removed at its end. What to run comes in AGENTRL_*
#                                     variables, what it must not know on fd 3.
#   watch ROOM NAME TENTHS            wait for its end; says what "launch" says
#
# ROOM is the folder of all commands of one user, made once. In it NAME is what is known of a command, line by line: the process
# that looks after it, its own process, and once it has ended what "answer" takes. NAME.* are its files, if it needs any.
# Further verbs are in wired_after.sh: a shell reads this text for every command, so it holds what every command needs. For the
# same reason a command whose output is short and plain takes no program but its own: each costs a millisecond or two.
#
# What launch and watch say: "running", "lost", "nowhere", or "ended MARK CODE SIZE KIND SIZE KIND" (stdout's and stderr's)
# and, if they are small, both of them, see "tell". Every answer ends with a dot.
# Our own variables begin with _ : whatever the sandbox's environment holds must reach the command unchanged.
_verb=$1 _room=$2 _name=$3 _path=${PATH-} _path_set=${PATH+yes}
shift 3
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin${PATH:+:$PATH}
_cap=$((10 << 20)) _small=90000 _few=2000 _end_size=32
_bases=(/tmp /var/tmp /dev/shm /run)

say() { printf '%s\n' "$@"; }

# known: there is a room that knows the command. place: there is one of ours that can be written to. Both set $_folder.
known() {
    for _folder in "${_bases[@]/%//.agentrl-$_room}"; do
        if [[ -e $_folder/$_name ]]; then return 0; fi
    done
    return 1
}

place() {
    for _folder in "${_bases[@]/%//.agentrl-$_room}"; do
        [[ -d $_folder ]] || mkdir -m 700 "$_folder"
        if [[ -O $_folder && -w $_folder && -x $_folder && ! -L $_folder ]]; then return 0; fi
    done
    return 1
}

# The end of stdin. What is short and plain is said on one line, as "SIZE told =TEXT", see "tell". The rest goes into a file of
# bounded size: once there is more than the cap it becomes $1.old and the next one begins. Said at the end: "SIZE KIND".
keep() {
    local LC_ALL=C _file=$_folder/$_name.$1 _size _kind=whole _text _report
    # The end mark has a NUL behind it.
    IFS= read -r -d '' -n $_few _text
    _size=${#_text}
    if [[ $_text == *"$_end" ]]; then
        if [[ $_text != *[^$'\t\n'\ -~]* ]]; then
            _text=${_text//\\/\\\\} _text=${_text//$'\t'/\\t}
            say "$_size told =${_text//$'\n'/\\n}"
        elif printf %s "$_text" >"$_file"; then
            say "$_size whole"
        fi
        # A child may go on writing.
        read -r -d '' -n 1 -t 1 _text
        if (($? == 1)); then return; fi
    else
        # What ended before so many bytes ended with a NUL.
        if ((_size < _few)); then ((++_size)) && printf '%s\0' "$_text"; else printf %s "$_text"; fi >"$_file" && pour
    fi
    # Nobody wants the rest, or the disk is full. Whoever writes goes on.
    exec cat >/dev/null
}

# dd, because it writes what it has read at once.
pour() {
    while _report=$(exec dd bs=65536 count=256 2>&1 >>"$_file"); do
        if [[ $_report =~ $'\n'([0-9]+)' bytes ' ]]; then ((_size += BASH_REMATCH[1])); else _size=$(wc -c <"$_file"); fi
        [[ $_report =~ ([0-9]+)\+([0-9]+) ]]
        if ((BASH_REMATCH[1] + BASH_REMATCH[2] < 256)); then say "$_size $_kind" && exit; fi
        if ((_size > _cap)); then mv -f "$_file" "$_file.old" && _size=0 _kind=tail; fi
    done
}

# settle NAME FD PIPE: wait until what the command wrote is kept; sets $_kept. FD is the keeper's stdout. Who keeps much ends
# with the command, unless a child holds the pipe: then it has run empty, and what was kept has the end mark in it.
settle() {
    local _file=$_folder/$_name.$1 _round _quiet=0 _state _part
    _kept=
    for ((_round = 0; _round < 100; _round++)); do
        IFS= read -r -t 0.02 -u "$2" _part
        _state=$?
        # The time may run out in the middle of the line, or take its end along.
        _kept+=$_part
        if ((_state == 0)); then return; fi
        if ((_state <= 128)); then
            [[ $_kept == *' told ='*"$_end" || $_kept =~ ^[0-9]+\ (whole|tail)$ ]] || _kept='0 lost'
            return
        fi
        if read -t 0 -u "$3"; then
            _quiet=0
        elif ((++_quiet >= 3)) && grep -qF "$_end" "$_file" "$_file.old"; then
            break
        fi
    done
    _kept='0 held'
}

# The command itself. It has a process group of its own and nothing of ours open.
become() {
    local _fd _variable _value _command _base
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
    for _base in "${_bases[@]}"; do [[ ! -e $_base/.agentrl-$_name ]] || exit 137; done
    # The kernel takes no argument of more than 128 KiB.
    if ((${#AGENTRL_COMMAND} < 100000)); then exec -a bash "$BASH" -c "$_command"; fi
    printf %s "$_command" >"$_folder/$_name.command"
    exec -a bash "$BASH" "$_folder/$_name.command"
}

# supervise OLD...
supervise() {
    local _olds="$*" _old _go _keepers _child _code _kept _out _line
    say "$BASHPID" >&3
    # Not before the other side holds its end of our pipe.
    read -r _go
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
    _child=$!
    say $_child >&3
    trap '' PIPE
    wait $_child
    _code=$?
    exec 8</proc/self/fd/4 9</proc/self/fd/5
    printf '%s\0' "$_end" >&4
    printf '%s\0' "$_end" >&5
    exec 4>&- 5>&-
    settle out 6 8 && _out=$_kept
    settle err 7 9
    exec 8<&- 9<&-
    # A one-time code over the exit code: whoever sees it cannot make another.
    _line="$((_key_a * _code + _key_b)) $_code ${_out%% =*} ${_kept%% =*}"
    set -- "$_line" "${_out#* told }" "${_kept#* told }"
    # First to whoever waits; the file makes good for an answer that is lost. When the disk is full it waits.
    say "$@"
    say "$@" >&3 ||
        while [[ -f $_folder/$_name ]] && ! say "$BASHPID" $_child "$@" >"$_folder/$_name"; do sleep 1; done
    for _old in $_olds; do set -- "$@" "$_folder/$_old" "$_folder/$_old".*; done
    shift 3
    if (($#)); then exec rm -f -- "$@" >/dev/null; fi
}

# size NAME SIZE KIND: sets $_size; what a child may still add to is measured. Small files without another program: a command
# that has used up its processes must get its answer all the same.
size() {
    local LC_ALL=C _part _file=$_folder/$_name.$1
    _size=$2
    if [[ $3 != held ]]; then return; fi
    if [[ -e $_file.old ]]; then _size=$_cap && return; fi
    _size=0
    while IFS= read -r -d '' -n $_small _part; do
        ((_size += ${#_part} + (${#_part} < _small)))
        if ((_size > _small)); then _size=$(wc -c <"$_file") && return; fi
    done <"$_file"
    ((_size += ${#_part}))
}

# answer: what is in $_line, $_out and $_err.
answer() {
    local _size _out_size
    set -- $_line
    size out "$3" "$4" && _out_size=$_size && size err "$5" "$6" || exit
    say "ended $1 $2 $_out_size $4 $_size $6"
    if ((_out_size <= _small && _size <= _small)); then
        tell out "$_out"
        say -
        tell err "$_err"
    fi
    say .
}

# tell NAME TEXT: what was written, in base64, or behind a "=" if it is plain text.
tell() {
    if [[ $2 == =* ]]; then say "$2"; else base64 <"$_folder/$_name.$1" || exit; fi
}

launch() {
    local _key_a _key_b _end _stdin= _line _out _err _tenths=$1
    shift
    read -r _key_a _key_b _end <&3
    exec 3<&-
    export -n "${!AGENTRL_@}"
    if [[ -n ${AGENTRL_STAGE-} ]]; then . "$AGENTRL_STAGE"; fi
    _stdin=${AGENTRL_STAGED_STDIN-}
    if [[ -z ${AGENTRL_COMMAND+set} || -n $_stdin && ! -r $_stdin ]]; then say nowhere . && return; fi
    if known; then
        watch "$_tenths"
        return
    fi
    place || { say nowhere . && return; }
    # It succeeds for one caller only. It is written to as long as that takes, whatever becomes of its name.
    set -C
    if ! exec 3>"$_folder/$_name"; then
        if known; then watch "$_tenths"; else say nowhere .; fi
        return
    fi
    set +C
    if [[ -n ${AGENTRL_STDIN-} ]]; then
        _stdin=$_folder/$_name.stdin
        printf %b "$AGENTRL_STDIN" >"$_stdin"
    fi
    set -m
    coproc _supervisor { supervise "$@"; }
    set +m
    exec 3>&-
    exec 8<&"${_supervisor[0]}"
    say go >&"${_supervisor[1]}"
    if read -r -t "$((_tenths / 10)).$((_tenths % 10))" -u 8 _line; then
        IFS= read -r -u 8 _out && IFS= read -r -u 8 _err && answer
    else
        watch 0
    fi
}

# ended: what the answer is made of, once there is one; what has become a FIFO meanwhile holds nobody up.
ended() {
    [[ -f $_folder/$_name ]] &&
        { read -r _ && read -r _ && read -r _line && IFS= read -r _out && IFS= read -r _err; } <"$_folder/$_name"
}

lost() {
    local _pid _state
    if [[ ! -f $_folder/$_name ]]; then return 0; fi
    if ! read -r _pid <"$_folder/$_name"; then ((++_absent > 30)) && return; fi
    read -r _ _ _state _ <"/proc/$_pid/stat" || return 0
    [[ $_state == [ZX] ]]
}

watch() {
    local _line _out _err _absent=0 _tick=0
    SECONDS=0
    until ended; do
        # Asked again: it may have ended in between.
        if lost; then
            if ended; then break; fi
            say lost . && return
        fi
        if ((_tick++ >= $1 || SECONDS > $1 / 10)); then say running . && return; fi
        sleep 0.1 || sleep 1
    done
    answer
}
