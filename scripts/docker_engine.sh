#!/usr/bin/env bash
# A Docker engine of its own for tests, beside any other on this machine: it needs root, and touches neither the firewall nor
# IP forwarding, so that its containers reach this machine and each other, and nothing else.
#
#   scripts/docker_engine.sh start RUN DATA [PID]    prints its DOCKER_HOST; it ends when process PID does, if one is given
#   scripts/docker_engine.sh stop RUN DATA           ends it and removes its network and both folders
#
# RUN (socket, pid files, log) and DATA (images, containers) are folders that nothing else uses; RUN has a short path.
set -euo pipefail
[ $# -ge 3 ] || { sed -n '5,8s/^# *//p' "$0" >&2; exit 2; }
verb=$1 run=$2 data=$3 owner=${4:-}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
number=$(printf %s "$run" | cksum | cut -d' ' -f1)
bridge=agrl$((number % 1000000))
socket=unix://$run/docker.sock

answers() { DOCKER_HOST=$socket docker version >/dev/null 2>&1; }
alive() { [ -d "/proc/$1" ] && ! grep -qs '^State:.[ZX]' "/proc/$1/status"; }

install_engine() {
    local packages="docker.io iproute2"
    command -v dockerd >/dev/null && command -v docker >/dev/null && command -v ip >/dev/null && return
    [ "$(id -u)" = 0 ] || { echo "no Docker engine here: sudo apt-get install $packages" >&2; exit 1; }
    apt-get update -qq >&2
    ! apt-cache show docker-cli >/dev/null 2>&1 || packages="$packages docker-cli" # a package of its own since Debian 13
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >&2
}

# A network that no interface of this machine has yet.
make_bridge() {
    ip link show "$bridge" >/dev/null 2>&1 && return
    ip link add "$bridge" type bridge
    for offset in $(seq 0 255); do
        third=$(((number / 7 + offset) % 256))
        ip -o -4 address | grep -q "inet 10\.213\.$third\." && continue
        ip address add "10.213.$third.1/24" dev "$bridge" && break
    done
    ip link set "$bridge" up
}

start() {
    install_engine
    mkdir -p "$run" "$data"
    make_bridge
    # A killed engine leaves these, and the next one would wait for a process that only has the same number.
    rm -f "$run/dockerd.pid" "$run/exec/containerd/containerd.pid"
    setsid nohup dockerd --data-root "$data" --exec-root "$run/exec" --pidfile "$run/dockerd.pid" --host "$socket" \
        --bridge "$bridge" --iptables=false --ip-forward=false --ip-masq=false --log-level warn \
        </dev/null >"$run/dockerd.log" 2>&1 &
    engine=$!
    for _ in $(seq 1200); do
        ! answers && alive $engine || break
        sleep 0.1
    done
    answers || { tail -20 "$run/dockerd.log" >&2; exit 1; }
    if [ -n "$owner" ]; then
        watch='while kill -0 "$1" 2>/dev/null; do sleep 1; done; exec "$2" stop "$3" "$4"'
        setsid nohup bash -c "$watch" watch "$owner" "$here/docker_engine.sh" "$run" "$data" </dev/null >/dev/null 2>&1 &
    fi
}

# The containers first: an engine that ends leaves them running for the next one.
stop() {
    if answers; then
        DOCKER_HOST=$socket docker ps --all --quiet |
            DOCKER_HOST=$socket xargs -r docker rm --force --volumes >/dev/null || true # some may be on their way out
    fi
    # The second one is left only by an engine that was killed.
    for file in "$run/dockerd.pid" "$run/exec/containerd/containerd.pid"; do
        pid=$(cat "$file" 2>/dev/null) || continue
        kill "$pid" 2>/dev/null || true
        for _ in $(seq 600); do
            alive "$pid" || break
            sleep 0.1
        done
    done
    grep -oE " ($data|$run)(/[^ ]*)? " /proc/mounts | sort -r | xargs -r umount --lazy || true
    ip link delete "$bridge" 2>/dev/null || true
    rm -rf "$run" "$data"
}

case $verb in
    start) answers || start; echo "$socket" ;;
    stop) stop ;;
    *) echo "$0: unknown verb $verb" >&2; exit 2 ;;
esac
