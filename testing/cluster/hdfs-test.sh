#!/usr/bin/env bash
# The crate halcyon-hdfs against a real HDFS: names, reads, fences, DataNodes that die and freeze, a NameNode with a standby.
# Takes some minutes.
# Arguments go to the test program, such as the name of one test.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cd "$HERE/../.."
cargo test --package halcyon-hdfs --test hdfs --no-run
tests() { # tests CLUSTER_OPTION... -- TEST_ARGUMENT...
  local options=()
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  shift
  "$HERE/cluster.sh" run --parts hdfs --seconds 900 "${options[@]}" "$HERE/../compat/cargo-tests.sh" "$LEAST" --quiet --package halcyon-hdfs --test hdfs -- \
    --ignored --test-threads 1 --nocapture "$@"
}

[ $# -eq 0 ] && LEAST=30 || LEAST=1
tests --datanodes 4 -- --skip failover "$@"
LEAST=2 tests --standby -- failover
