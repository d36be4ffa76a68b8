# Files of a sandbox, with nothing but a POSIX shell and coreutils. Comes after lines that set $path and the like. Every answer
# ends with a dot.
umask 022
folder=${path%/*}
bounded() { "$@"; }
! command -v timeout >/dev/null || bounded() { timeout 60 "$@"; }

# Why nothing is there: it is missing, or the way to it is barred.
absent() {
    up=$folder
    while [ -n "$up" ] && [ ! -e "$up" ]; do up=${up%/*}; done
    if [ -d "${up:-/}" ] && [ -x "${up:-/}" ]; then echo missing; else echo denied; fi
}

# $max, $small, $copy: "data SIZE" and the file in base64, or "copy SIZE FOLDER" of a private copy in a new folder.
read_file() {
    if [ -d "$path" ]; then echo directory
    elif [ ! -e "$path" ]; then absent
    elif [ ! -f "$path" ]; then echo special
    elif [ ! -r "$path" ]; then echo denied
    else
        size=$(stat -L -c %s "$path")
        if [ "$size" -gt "$max" ]; then
            echo "large $size"
        elif [ "$size" -le "$small" ]; then
            echo "data $size"
            bounded head -c $((small + 1)) "$path" | base64
        else
            for base in /tmp /var/tmp /dev/shm /run; do [ ! -d "$base" ] || [ ! -w "$base" ] || break; done
            copy=$base/.agentrl-$copy
            mkdir -m 700 "$copy" && bounded head -c $((max + 1)) "$path" >"$copy/file" &&
                echo "copy $(stat -c %s "$copy/file") $copy"
        fi
    fi
    echo .
}

remove_copy() { rm -rf "$copy" && echo .; }

# Whether $path can be written; its parents are made.
prepare() {
    if [ -d "$path" ] && [ ! -L "$path" ]; then echo directory
    elif mkdir -p "${folder:-/}" && [ -w "${folder:-/}" ] && [ -x "${folder:-/}" ]; then echo ready
    else echo denied
    fi
}

# $new, in the same folder, takes the place of $path, if it has $size bytes.
replace() {
    # mv would move into the folder that a link shows.
    [ ! -L "$path" ] || [ ! -d "$path" ] || rm -f "$path"
    if [ ! -e "$new" ] && [ "$(stat -c %s "$path")" = "$size" ]; then echo written # and the answer was lost
    elif [ "$(stat -c %s "$new")" = "$size" ] && chmod "$mode" "$new" && mv -f "$new" "$path"; then echo written
    else rm -f "$new"; echo failed
    fi
}

write_small() {
    said=$(prepare)
    if [ "$said" = ready ]; then
        # An exclusive creation: what lies there already is not written to.
        (umask 077; set -C; printf %s "$AGENTRL_DATA" | base64 -d >"$new") && said=$(replace) || said=failed
    fi
    printf '%s\n.\n' "$said"
}

prepare_large() { prepare; echo .; }

write_large() { replace; echo .; }

