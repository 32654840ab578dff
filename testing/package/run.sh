#!/usr/bin/env bash
# Installs, starts, queries, upgrades, removes and purges the Debian package in a fresh Debian with systemd.
#   run.sh DIR    directory with the halcyon_*.deb of `make package`
# Needs root, debootstrap and 1 GiB below ~/.cache/halcyon, where the fresh Debian stays for the next run. The Debian runs in
# namespaces of its own: the machine's services, users and network are not touched.
set -euo pipefail

DEBS="${1:?directory with the package}"
SUITE=bookworm
BASE="$HOME/.cache/halcyon/debian-$SUITE"
DEB="$(ls "$DEBS"/halcyon_*.deb | tail -n 1)"
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
WORK="$(mktemp -d "${TMPDIR:-/tmp}/halcyon-package.XXXXXX")"
ROOT="$WORK/root"
SYSTEMD=""

finish() {
  local code=$?
  if [ $code -ne 0 ]; then
    echo "package: failed" >&2
    tail -n 30 "$ROOT"/var/log/halcyon/halcyon.log "$WORK/boot.log" >&2 2>/dev/null || true
  fi
  [ -z "$SYSTEMD" ] || kill -KILL "$SYSTEMD" 2>/dev/null || true
  [ -z "${BOOT:-}" ] || { kill -KILL "$BOOT" 2>/dev/null; wait "$BOOT" 2>/dev/null; } || true
  rm -rf "$WORK"
}
trap finish EXIT

step() { echo "package: $*"; }
fail() { echo "package: $*" >&2; exit 1; }
# A command in the Debian.
in_debian() { nsenter -t "$SYSTEMD" -m -p -u -i -n chroot "$ROOT" "$@"; }
property() { in_debian systemctl show halcyon --value -p "$1"; }
# wait_until SECONDS WHAT COMMAND...
wait_until() {
  local seconds=$1 what=$2 at
  shift 2
  for ((at = 0; at < seconds * 5; at++)); do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 0.2
  done
  fail "$what: not within $seconds s"
}
is_active() { in_debian systemctl is-active --quiet halcyon; }
restarted() { is_active && [ "$(property MainPID)" != "$1" ]; }
pe() { in_debian halcyon bench pe --table P --rows 1000 --valueSize 100 "$@"; }
rows_are_there() { pe scan 1 | grep -q '1000 operations' || fail "the rows are not there $*"; }

if [ ! -e "$BASE/etc/debian_version" ]; then
  step "a fresh Debian $SUITE"
  rm -rf "$BASE" && mkdir -p "$BASE"
  debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,adduser,logrotate,man-db "$SUITE" "$BASE" \
    >"$WORK/debootstrap.log" 2>&1 || { tail "$WORK/debootstrap.log" >&2; rm -rf "$BASE"; exit 1; }
  rm -f "$BASE"/var/cache/apt/archives/*.deb
fi
cp -a "$BASE" "$ROOT"

step "systemd starts"
unshare --mount --pid --fork --uts --ipc --net --cgroup --kill-child bash "$HERE/boot.sh" "$ROOT" >"$WORK/boot.log" 2>&1 &
BOOT=$!
wait_until 20 "systemd" test -s "$ROOT.pid"
# The child of unshare is systemd, as soon as boot.sh has replaced itself.
SYSTEMD="$(pgrep -P "$BOOT" | head -n 1)"
wait_until 60 "systemd" in_debian systemctl is-system-running

step "install"
cp "$DEB" "$ROOT/root/halcyon.deb"
in_debian dpkg -i /root/halcyon.deb >"$WORK/install.log" 2>&1 || { cat "$WORK/install.log" >&2; exit 1; }
in_debian systemd-analyze verify halcyon.service
wait_until 60 "the service is active" is_active
[ "$(in_debian stat -c %U "/proc/$(property MainPID)")" = halcyon ] || fail "not run as halcyon"
in_debian systemd-analyze security halcyon.service --no-pager | tail -n 1
in_debian man -w halcyon-standalone >/dev/null
in_debian test -s /usr/share/bash-completion/completions/halcyon

step "query"
pe --autoFlush=true sequentialWrite 1 >/dev/null
rows_are_there

step "kill -9: systemd starts it again"
PID="$(property MainPID)"
in_debian systemctl kill -s KILL halcyon
wait_until 60 "a restart" restarted "$PID"
rows_are_there "after kill -9"

step "a server that hangs: the watchdog ends it"
in_debian mkdir -p /run/systemd/system/halcyon.service.d
printf '[Service]\nWatchdogSec=3s\n' | in_debian tee /run/systemd/system/halcyon.service.d/test.conf >/dev/null
in_debian systemctl daemon-reload
in_debian systemctl restart halcyon
RESTARTS="$(property NRestarts)"
sleep 7 # more than two timeouts: a server that is well is not ended
PID="$(property MainPID)"
[ "$(property NRestarts)" = "$RESTARTS" ] && is_active || fail "a server that was well was ended"
in_debian systemctl kill -s STOP halcyon
wait_until 60 "a restart by the watchdog" restarted "$PID"
rows_are_there "after the watchdog"

step "log rotation"
in_debian logrotate -f /etc/logrotate.d/halcyon
[ -s "$ROOT/var/log/halcyon/halcyon.log.1" ] || fail "the log was not rotated"

step "upgrade"
sed -i 's/^HALCYON_OPTIONS=.*/HALCYON_OPTIONS="--memory 600m"/' "$ROOT/etc/default/halcyon"
dpkg-deb -R "$DEB" "$WORK/next"
sed -i 's/^Version: \(.*\)$/Version: \1+next1/' "$WORK/next/DEBIAN/control"
dpkg-deb -b "$WORK/next" "$ROOT/root/next.deb" >/dev/null
PID="$(property MainPID)"
in_debian dpkg -i /root/next.deb >"$WORK/upgrade.log" 2>&1 || { cat "$WORK/upgrade.log" >&2; exit 1; }
wait_until 60 "the new version runs" restarted "$PID"
grep -q 'memory 600m' "$ROOT/etc/default/halcyon" || fail "the upgrade lost a changed setting"
in_debian cat "/proc/$(property MainPID)/cmdline" | tr '\0' ' ' | grep -q -- '--memory 600m' || fail "the setting is not used"
rows_are_there "after the upgrade"

step "remove"
in_debian dpkg -r halcyon >"$WORK/remove.log" 2>&1 || { cat "$WORK/remove.log" >&2; exit 1; }
is_active && fail "the service runs after the removal"
[ -e "$ROOT/etc/halcyon/hbase-site.xml" ] || fail "a removal took the settings"
in_debian dpkg -P halcyon >"$WORK/purge.log" 2>&1 || { cat "$WORK/purge.log" >&2; exit 1; }
[ ! -e "$ROOT/etc/halcyon/hbase-site.xml" ] || fail "a purge left the settings"
[ -e "$ROOT/var/lib/halcyon/hbase.id" ] || fail "a purge took the tables"
step "ok: $(basename "$DEB"), $(du -k "$DEB" | cut -f 1) KiB"
