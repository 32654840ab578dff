# Shared by the scripts that compare a region server of Halcyon with one of HBase 2.6.4 on the same HDFS. Source it.
# HALCYON        the binary, default target/release/halcyon below CARGO_TARGET_DIR
# MEMORY         HBase's heap, and Halcyon's --memory, default 1g
# HBASE_GC       of HBase's server, default G1, as the JDK chooses where nothing is set
# VALUE_BYTES    default 100
# SERVERS        region servers of each kind, 1 to 6, default 1
# CLUSTER_DIR    see cluster.sh; each script has a directory of its own
# bench_up SECONDS [OPTION...] starts a cluster with SERVERS servers of each kind, and makes the tables "hbase" and "halcyon", each with
# all of its regions at the servers of its kind, as many at each; sets ZK. The options are those of cluster.sh up.
set -euo pipefail
BENCH="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
ROOT="$(cd "$BENCH/../.." && pwd)"
HERE="$ROOT/testing/cluster"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
export HALCYON_MEMORY="${MEMORY:-1g}" HREGIONSERVER_JAVA_OPTIONS="-Xmx${MEMORY:-1g} -XX:-UseSerialGC -XX:+Use${HBASE_GC:-G1}GC"
# Both compilers, as in production: all other scripts start servers that live for a short time.
export CLUSTER_JAVA_OPTIONS="-XX:TieredStopAtLevel=4"
VALUE_BYTES="${VALUE_BYTES:-100}"
SERVERS="${SERVERS:-1}"
# With several servers there is a region for each first digit of a key.
if [ "$SERVERS" = 1 ]; then REGIONS="${REGIONS:-4}"; else REGIONS="${REGIONS:-16}"; fi
[ $((16 % REGIONS)) = 0 ] || { echo "REGIONS is 1, 2, 4, 8 or 16, not $REGIONS" >&2; exit 64; }
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/mixed.sh"
. "$HERE/../compat/java.sh"
client26_classes

processes_of() { # processes_of TABLE: the names of its servers' processes
  local name=hregionserver
  [ "$1" != halcyon ] || name=halcyon
  seq -f "$name%.0f" "$SERVERS"
}
process_of() { processes_of "$1" | head -n 1; } # of the only server
pid_of() { cluster server "$1"; }
pids_of() { # pids_of TABLE: the process numbers of its servers, with + between them
  local process
  for process in $(processes_of "$1"); do pid_of "$process"; done | paste -sd+
}
is_placed() { # is_placed TABLE: each of its servers has its share of the regions
  local found process share
  found="$("$HALCYON" shell --zookeeper "$ZK" --json -e "list_regions '$1'" 2> /dev/null | grep '"OPEN"')" || return 1
  [ "$(wc -l <<< "$found")" = "$REGIONS" ] || return 1
  for process in $(processes_of "$1"); do
    share="$(grep -cF "$(name_of "$process")" <<< "$found")"
    [ "$share" -ge $((REGIONS / SERVERS)) ] && [ "$share" -le $(((REGIONS + SERVERS - 1) / SERVERS)) ] || return 1
  done
}
split_keys() { # where REGIONS regions begin, of keys that begin with a hexadecimal digit
  local n
  for n in $(seq 1 $((REGIONS - 1))); do printf "'%x', " $((16 * n / REGIONS)); done | sed 's/, $//'
}
place() { # place TABLE: its regions go to its servers in turn
  local region at=0 names=()
  for region in $(processes_of "$1"); do names+=("$(name_of "$region")"); done
  for region in $(regions "$1"); do
    sh_halcyon "move '$region', '${names[at % SERVERS]}'" > /dev/null
    at=$((at + 1))
  done
}

bench_up() { # bench_up SECONDS [OPTION...]
  local table
  cluster up --parts "zookeeper hdfs hbaseservers" --hregionservers "$SERVERS" --halcyons "$SERVERS" --seconds "$@" > /dev/null
  ZK="$(setting_of zookeeper)"
  sh_halcyon "balance_switch false" > /dev/null
  for table in hbase halcyon; do
    sh_halcyon "create '$table', 'f', SPLITS => [$(split_keys)]" > /dev/null
    place "$table"
    wait_for 30 is_placed "$table"
  done
}

bench_client() { # bench_client CLASS ARGUMENT...: as client26, with both compilers
  CLIENT26_MEMORY=300m CLIENT26_OPTIONS="-XX:TieredStopAtLevel=4" client26 "$@"
}

bench_head() { # bench_head COMMAND: where and with what
  echo "machine: $(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores, $(awk '/MemTotal/{printf "%.0f", $2/1048576}' /proc/meminfo) GiB, Linux $(uname -r), load before $(cut -d' ' -f1-3 /proc/loadavg), $(date -u +%FT%RZ)"
  echo "commit: $(git -C "$ROOT" rev-parse --short HEAD 2>/dev/null || echo unknown)$(git -C "$ROOT" diff --quiet HEAD 2>/dev/null || echo ' and changes')"
  echo "servers: $SERVERS of each kind; HBase 2.6.4, JDK $("$JAVA" -version 2>&1 | sed -n 's/.*version "\(.*\)".*/\1/p' | head -n 1), ${HBASE_GC:-G1}, heap ${MEMORY:-1g}; Halcyon --memory ${MEMORY:-1g}; values of $VALUE_BYTES bytes"
  echo "command: $*"
}
