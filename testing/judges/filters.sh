#!/usr/bin/env bash
# Scripts that choose tests, when the choice matches none; what is left out and is not listed.
set -euo pipefail
. "$(dirname "$0")/kit.sh"
mkdir -p "$DIR/bin" "$DIR/lib"
cat > "$DIR/bin/cargo" << 'FAKE'
#!/usr/bin/env bash
echo "test result: ok. ${PASSED:?} passed; 0 failed; 0 ignored; 0 measured; 9 filtered out; finished in 0.00s"
FAKE
chmod +x "$DIR/bin/cargo"
files() { PASSED="$1" PATH="$DIR/bin:$PATH" HALCYON_HBASE_LIB="$DIR/lib" "$TESTING/compat/files.sh"; }
expect 0 '3 passed' files 3
expect not '^0 tests have run, and 2 are the least: cargo test -p halcyon-hfile' files 0
expect not '^2 tests have run, and 3 are the least: cargo test -p halcyon-wal' files 2

leaves_out() { HALCYON_LEFT_OUT="$DIR/left-out" left_out "$1" > /dev/null && "$TESTING/compat/left-out.sh" "$DIR/left-out" "$DIR/list"; }
printf '# a comment\nthe cuts\n' > "$DIR/list"
expect 0 '^LEFT OUT: the cuts' leaves_out "the cuts"
expect not 'left out, and not in .*' leaves_out "all the rest"
