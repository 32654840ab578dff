#!/usr/bin/env bash
# Builds the container image and uses it: start, write, stop, start again, read; read-only root, no privileges.
#   container.sh STATIC HALCYON    the program without shared libraries for the image, and one to write and read with
# Needs podman and runc. Images and containers are kept in a directory of their own, which goes away afterwards.
set -euo pipefail

STATIC="${1:?program without shared libraries}"
HALCYON="${2:?program to write and read with}"
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
WORK="$(mktemp -d "${TMPDIR:-/tmp}/halcyon-container.XXXXXX")"
# `vfs` and `cgroupfs` work inside of virtual machines and of containers, too.
PODMAN=(podman --root "$WORK/storage" --runroot "$WORK/run" --storage-driver vfs --cgroup-manager cgroupfs --runtime runc)
SERVER=halcyon-test

finish() {
  local code=$?
  if [ $code -ne 0 ]; then
    echo "container: failed" >&2
    "${PODMAN[@]}" logs "$SERVER" 2>&1 | tail -n 30 >&2 || true
  fi
  "${PODMAN[@]}" rm --force --time 5 "$SERVER" >/dev/null 2>&1 || true
  "${PODMAN[@]}" volume rm --force "$SERVER" >/dev/null 2>&1 || true
  rm -rf "$WORK"
}
trap finish EXIT

step() { echo "container: $*"; }
fail() { echo "container: $*" >&2; exit 1; }

for tool in podman runc; do command -v "$tool" >/dev/null || fail "$tool is missing (Debian: apt-get install $tool)"; done
! { ldd "$STATIC" 2>&1 || true; } | grep -q '=>' || fail "$STATIC has shared libraries, and the image has none"

step "build"
mkdir -p "$WORK/context/data"
cp "$HERE/../../packaging/container/Containerfile" "$WORK/context/"
cp "$STATIC" "$WORK/context/halcyon"
"${PODMAN[@]}" build --isolation chroot -q -t halcyon "$WORK/context" >/dev/null
step "image of $("${PODMAN[@]}" image inspect --format '{{.Size}}' halcyon) bytes"

port=$((20000 + RANDOM % 5000))
LIMITS="$(ulimit -Hn):$(ulimit -Hn)"
step "start"
"${PODMAN[@]}" run -d --name "$SERVER" --network host --read-only --cap-drop all --security-opt no-new-privileges \
  --ulimit "nofile=$LIMITS" --ulimit nproc=4096:4096 -v "$SERVER:/var/lib/halcyon" halcyon \
  standalone --data /var/lib/halcyon --bind 127.0.0.1 --memory 256m --zookeeper-port $port --master-port $((port + 1)) \
  --regionserver-port $((port + 2)) --master-info-port $((port + 3)) --regionserver-info-port $((port + 4)) >/dev/null

await_ready() { # await_ready TIMES: the log of all runs has so many `ready` lines
  local at
  for ((at = 0; at < 300; at++)); do
    [ "$("${PODMAN[@]}" logs "$SERVER" 2>&1 | grep -c '^ready')" -lt "$1" ] || return 0
    sleep 0.2
  done
  fail "not ready within 60 s"
}
pe() { timeout 60 "$HALCYON" bench pe --table P --rows 1000 --valueSize 100 --zookeeper "127.0.0.1:$port" "$@"; }

await_ready 1
uid="$(awk '/^Uid:/ {print $2}' "/proc/$("${PODMAN[@]}" inspect --format '{{.State.Pid}}' "$SERVER")/status")"
[ "$uid" = 65532 ] || fail "the server runs as user $uid"
step "write and read"
pe sequentialWrite 1 >/dev/null
pe scan 1 | grep -q '1000 operations' || fail "the rows are not there"
step "stop and start"
"${PODMAN[@]}" stop --time 60 "$SERVER" >/dev/null
code="$("${PODMAN[@]}" inspect --format '{{.State.ExitCode}}' "$SERVER")"
[ "$code" = 0 ] || fail "the server ended with $code"
"${PODMAN[@]}" start "$SERVER" >/dev/null
await_ready 2
pe scan 1 | grep -q '1000 operations' || fail "the rows are not there after a restart"
step "ok"
