# Finds Chromium, or installs Debian's, and exports HALCYON_CHROMIUM. Source it.

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
export HALCYON_CHROMIUM="$browser"
