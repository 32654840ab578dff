#!/usr/bin/env bash
# Opens every page of the console in a headless Chromium: two widths, both colour schemes, without and with 1,000 regions.
# HALCYON_CHROMIUM     the browser; default: chromium or google-chrome of PATH, else Debian's package is installed
# HALCYON_SCREENSHOTS  a directory that gets a picture of every page; default: none
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

find_browser() {
  command -v chromium || command -v chromium-browser || command -v google-chrome || true
}

browser="${HALCYON_CHROMIUM:-$(find_browser)}"
if [ -z "$browser" ] && command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
  echo "installing Debian's chromium" >&2
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
  browser="$(find_browser)"
fi
[ -n "$browser" ] || { echo "no Chromium: install one, or name it with HALCYON_CHROMIUM" >&2; exit 66; }
HALCYON_CHROMIUM="$browser" exec cargo test --package halcyon --test browser -- --ignored --nocapture
