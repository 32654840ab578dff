#!/usr/bin/env bash
# Compares what tests have left out with what may be.
#   left-out.sh FILE LIST     FILE has a line for each, as HALCYON_LEFT_OUT gets them; LIST the lines that may be there
set -euo pipefail
unknown="$(sort -u "$1" | grep -vxFf "$2" || true)"
[ ! -s "$1" ] || sort -u "$1" | sed 's/^/LEFT OUT: /'
[ -z "$unknown" ] || { echo "left out, and not in $2:"; echo "$unknown"; exit 1; } >&2
