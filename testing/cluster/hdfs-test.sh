#!/usr/bin/env bash
# The crate halcyon-hdfs against a real HDFS: names, reads, fences, DataNodes that die and freeze. Takes some minutes.
# Arguments go to the test program, such as the name of one test.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cd "$HERE/../.."
cargo test --package halcyon-hdfs --test hdfs --no-run
"$HERE/cluster.sh" run --seconds 900 cargo test --quiet --package halcyon-hdfs --test hdfs -- \
  --ignored --test-threads 1 --nocapture "$@"
