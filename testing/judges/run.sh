#!/usr/bin/env bash
# Judges of judges: each script plants a fault where a test looks, and the test has to say no, with the right reason. The same test
# without the fault has to say yes.
#   run.sh [JUDGE...]     default all; JUDGE is a script of this directory without its ending
# HALCYON    the server's binary, default target/release/halcyon below CARGO_TARGET_DIR
# HISTORIES  the Rust recorder, default target/debug/halcyon-histories there
# Faults are switches of the programs here (src/halcyon/judges/Fault.java, fake-halcyon.sh) or patches (*.patch); no release has them.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
[ $# -gt 0 ] || set -- mixed-load kill9 recorder nonces servers filters sync faults one-kill recovery differential oracle
blind=""
for judge in "$@"; do
  "$HERE/$judge.sh" || blind+=" $judge"
done
[ -z "$blind" ] || { echo "judges that do not see what they should:$blind" >&2; exit 1; }
echo "judges: $# judged"
