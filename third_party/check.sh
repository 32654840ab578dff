#!/usr/bin/env bash
# Whether the directories below third_party are what their PATCHES.md say: the published crate with its patches, and nothing else.
#   check.sh [--fetch]    --fetch lets Cargo download the published crates. Without it a crate that is not in Cargo's cache is
#                         not compared.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
WORK="$(mktemp -d)"
trap 'rm -rf "$WORK"' EXIT

published() { # published CRATE: the path of the crate in Cargo's cache
  find "${CARGO_HOME:-$HOME/.cargo}/registry/cache" -name "$1.crate" 2> /dev/null | head -n 1
}

check() { # check NAME VERSION SHA256 [FILE]: FILE is in our directory and not in the published crate
  local crate fork="$HERE/$1" patch name="$1-$2"
  if [ "${FETCH:-}" = --fetch ] && [ -z "$(published "$name")" ]; then
    mkdir -p "$WORK/fetch/src"
    touch "$WORK/fetch/src/lib.rs"
    printf '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2024"\n[dependencies]\n%s = "=%s"\n' "$1" "$2" > "$WORK/fetch/Cargo.toml"
    rm -f "$WORK/fetch/Cargo.lock"
    cargo fetch --quiet --manifest-path "$WORK/fetch/Cargo.toml"
  fi
  crate="$(published "$name")"
  if [ -z "$crate" ]; then
    echo "not compared: $name is not in Cargo's cache; third_party/check.sh --fetch downloads it"
    return 0
  fi
  echo "$3  $crate" | sha256sum --check --quiet
  tar -xzf "$crate" -C "$WORK"
  for patch in "$fork"/patches/*.patch; do
    patch --silent --strip 1 --directory "$WORK/$name" --input "$patch" || { echo "does not apply: $patch"; exit 1; }
  done
  diff --recursive --brief --exclude patches --exclude PATCHES.md ${4:+--exclude "$4"} "$WORK/$name" "$fork" ||
    { echo "third_party/$1 differs from $name with its patches"; exit 1; }
  echo "third_party/$1 is $name with $(find "$fork/patches" -name '*.patch' | wc -l) patches"
}

FETCH="${1:-}"
check hdfs-native 0.14.8 1a06d0bb6673b2c19dc4ec0e58ec8403a18c96f44bfba9ae22d7636345c6b4cb LICENSE
check zookeeper-client 0.11.2 4890dbfd0372eb984abe742ae24eddec7688c2114e0c3abf378e669f02052a34
