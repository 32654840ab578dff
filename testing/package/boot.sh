#!/usr/bin/env bash
# Becomes the systemd of the Debian in directory $1. Runs in new namespaces; see run.sh.
set -euo pipefail
ROOT="$1"
mount --make-rprivate /
mount --bind "$ROOT" "$ROOT"
mount -t proc proc "$ROOT/proc"
mount --rbind /sys "$ROOT/sys"
mount -t tmpfs tmpfs "$ROOT/sys/fs/cgroup"
mount -t cgroup2 cgroup2 "$ROOT/sys/fs/cgroup"
mount -t tmpfs tmpfs "$ROOT/run"
mount -t tmpfs tmpfs "$ROOT/tmp"
mount --rbind /dev "$ROOT/dev"
chroot "$ROOT" /sbin/ip link set lo up 2>/dev/null || ip link set lo up
echo started >"$ROOT.pid"
cd "$ROOT"
exec env -i container=halcyon-test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
  chroot . /lib/systemd/systemd --log-target=console --show-status=no multi-user.target
