# Shared by the scripts that compare a region server of Halcyon with one of HBase 2.6.4 on the same HDFS. Source it.
# HALCYON        the binary, default target/release/halcyon below CARGO_TARGET_DIR
# MEMORY         HBase's heap, and Halcyon's --memory, default 1g
# HBASE_GC       of HBase's server, default G1, as the JDK chooses where nothing is set
# VALUE_BYTES    default 100
# CLUSTER_DIR    see cluster.sh; each script has a directory of its own
# bench_up SECONDS [OPTION...] starts a cluster with one server of each kind, and makes the tables "hbase" and "halcyon", each with
# all of its regions at that server; sets ZK. The options are those of cluster.sh up.
set -euo pipefail
BENCH="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
ROOT="$(cd "$BENCH/../.." && pwd)"
HERE="$ROOT/testing/cluster"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
export HALCYON_MEMORY="${MEMORY:-1g}" HREGIONSERVER_JAVA_OPTIONS="-Xmx${MEMORY:-1g} -XX:-UseSerialGC -XX:+Use${HBASE_GC:-G1}GC"
# Both compilers, as in production: all other scripts start servers that live for a short time.
export CLUSTER_JAVA_OPTIONS="-XX:TieredStopAtLevel=4"
VALUE_BYTES="${VALUE_BYTES:-100}"
REGIONS=4
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/mixed.sh"
. "$HERE/../compat/java.sh"
client26_classes

process_of() { # process_of TABLE: the name of its server's process
  if [ "$1" = halcyon ]; then echo halcyon1; else echo hregionserver1; fi
}
pid_of() { cluster server "$1"; }
at_server() { # at_server TABLE: how many of its regions are open where they belong
  "$HALCYON" shell --zookeeper "$ZK" --json -e "list_regions '$1'" 2> /dev/null | grep -F "$(name_of "$(process_of "$1")")" | grep -c '"OPEN"' || true
}
is_placed() { [ "$(at_server "$1")" = "$REGIONS" ]; }

bench_up() { # bench_up SECONDS [OPTION...]
  local table
  cluster up --parts "zookeeper hdfs hbaseservers" --seconds "$@" > /dev/null
  ZK="$(setting_of zookeeper)"
  sh_halcyon "balance_switch false" > /dev/null
  for table in hbase halcyon; do
    sh_halcyon "create '$table', 'f', SPLITS => ['4', '8', 'c']" > /dev/null
    move_all "$table" "$(name_of "$(process_of "$table")")"
    wait_for 30 is_placed "$table"
  done
}

bench_client() { # bench_client CLASS ARGUMENT...: as client26, with both compilers
  CLIENT26_MEMORY=300m CLIENT26_OPTIONS="-XX:TieredStopAtLevel=4" client26 "$@"
}

bench_head() { # bench_head COMMAND: where and with what
  echo "machine: $(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores, $(awk '/MemTotal/{printf "%.0f", $2/1048576}' /proc/meminfo) GiB, Linux $(uname -r), load before $(cut -d' ' -f1-3 /proc/loadavg), $(date -u +%FT%RZ)"
  echo "commit: $(git -C "$ROOT" rev-parse --short HEAD 2>/dev/null || echo unknown)$(git -C "$ROOT" diff --quiet HEAD 2>/dev/null || echo ' and changes')"
  echo "servers: HBase 2.6.4, JDK $("$JAVA" -version 2>&1 | sed -n 's/.*version "\(.*\)".*/\1/p' | head -n 1), ${HBASE_GC:-G1}, heap ${MEMORY:-1g}; Halcyon --memory ${MEMORY:-1g}; values of $VALUE_BYTES bytes"
  echo "command: $*"
}
