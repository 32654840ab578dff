#!/usr/bin/env bash
# Opens every page of the console in a headless Chromium: two widths, both colour schemes, without and with 1,000 regions.
# HALCYON_CHROMIUM     the browser; default: chromium or google-chrome of PATH, else Debian's package is installed
# HALCYON_SCREENSHOTS  a directory that gets a picture of every page; default: none
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

. testing/browser/chromium.sh
exec testing/compat/cargo-tests.sh 2 --package halcyon --test all browser:: -- --ignored --nocapture
