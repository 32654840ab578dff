#!/usr/bin/env bash
# Whether third_party/hdfs-native is what PATCHES.md says: the published crate with its patches, and nothing else.
#   check.sh [--fetch]    --fetch lets Cargo download the published crate. Without it a crate that is not in Cargo's cache is
#                         not compared.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
CRATE=hdfs-native-0.14.8
SHA256=1a06d0bb6673b2c19dc4ec0e58ec8403a18c96f44bfba9ae22d7636345c6b4cb
FORK="$HERE/hdfs-native"
WORK="$(mktemp -d)"
trap 'rm -rf "$WORK"' EXIT

published() { # the path of the crate in Cargo's cache
  find "${CARGO_HOME:-$HOME/.cargo}/registry/cache" -name "$CRATE.crate" 2> /dev/null | head -n 1
}

if [ "${1:-}" = --fetch ] && [ -z "$(published)" ]; then
  mkdir -p "$WORK/fetch/src"
  touch "$WORK/fetch/src/lib.rs"
  printf '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2024"\n[dependencies]\nhdfs-native = "=0.14.8"\n' > "$WORK/fetch/Cargo.toml"
  cargo fetch --quiet --manifest-path "$WORK/fetch/Cargo.toml"
fi
crate="$(published)"
if [ -z "$crate" ]; then
  echo "not compared: $CRATE is not in Cargo's cache; third_party/check.sh --fetch downloads it"
  exit 0
fi
echo "$SHA256  $crate" | sha256sum --check --quiet
tar -xzf "$crate" -C "$WORK"
for patch in "$FORK"/patches/*.patch; do
  patch --silent --strip 1 --directory "$WORK/$CRATE" --input "$patch" || { echo "does not apply: $patch"; exit 1; }
done
diff --recursive --brief --exclude patches --exclude PATCHES.md --exclude LICENSE "$WORK/$CRATE" "$FORK" ||
  { echo "third_party/hdfs-native differs from $CRATE with its patches"; exit 1; }
echo "third_party/hdfs-native is $CRATE with $(find "$FORK/patches" -name '*.patch' | wc -l) patches"
