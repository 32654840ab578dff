#!/usr/bin/env bash
# The crate halcyon-zookeeper against a real ZooKeeper: sessions, leases, servers that die, freeze and are cut off. Takes some minutes.
# Arguments go to the test program, such as the name of one test.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cd "$HERE/../.."
cargo test --package halcyon-zookeeper --test zookeeper --no-run
"$HERE/cluster.sh" run --parts zookeeper --seconds 900 cargo test --quiet --package halcyon-zookeeper --test zookeeper -- \
  --ignored --test-threads 1 --nocapture "$@"
