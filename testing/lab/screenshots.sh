#!/usr/bin/env bash
# Pictures of an experiment's page in a real browser, and a look at what can be measured there: at the width of a desk (1440) and
# of a phone (390), light and dark. Fails when the page is wider than its window, when letters stand out of it, when a text
# has too little contrast (below 4.5), when the colours are not those that were asked for, or when the script of the page has an error.
#   screenshots.sh RESULTS.json|PAGE.html [DIRECTORY]
# DIRECTORY  where the four pictures go, default beside the results
# HALCYON    the program that draws the page, default the release build below CARGO_TARGET_DIR
# CHROMIUM   the browser, default chromium, chromium-browser or google-chrome of the PATH (Debian: package chromium)
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
RESULTS="$(realpath "$1")"
OUT="$(realpath -m "${2:-$(dirname "$RESULTS")}")"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"

browser="${CHROMIUM:-}"
for name in chromium chromium-browser google-chrome; do
  [ -n "$browser" ] || browser="$(command -v "$name" || true)"
done
[ -n "$browser" ] || { echo "no Chromium on the PATH: nothing was looked at (Debian: apt-get install chromium)" >&2; exit 3; }

DIR="$(mktemp -d)"
trap 'rm -rf "$DIR"' EXIT
mkdir -p "$OUT"
case "$RESULTS" in
  *.html) cp "$RESULTS" "$DIR/page.html" ;;
  *)
    [ -x "$HALCYON" ] || { echo "$HALCYON is not there: build it (make build) or set HALCYON" >&2; exit 3; }
    "$HALCYON" lab page "$RESULTS" -o "$DIR/page.html" > /dev/null ;;
esac

# looks at the page from inside and leaves one line about it in an attribute of its body
cat > "$DIR/look.html" <<'LOOK'
<script>
addEventListener("error", (event) => { document.body.dataset.error = event.message; });
addEventListener("load", () => {
  const wide = document.documentElement.clientWidth, found = [];
  if (document.documentElement.scrollWidth > wide) found.push("the page is " + document.documentElement.scrollWidth + " wide");
  const channel = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = (rgb) => { const [r, g, b] = rgb.match(/[\d.]+/g).map(Number); return 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b); };
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const colour = getComputedStyle(node).backgroundColor;
      if (!/, 0\)$/.test(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  let least = 99;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const parent = walker.currentNode.parentElement, text = walker.currentNode.textContent.trim();
    if (!text || ["SCRIPT", "STYLE"].includes(parent.tagName)) continue;
    const range = document.createRange();
    range.selectNodeContents(walker.currentNode);
    const box = range.getBoundingClientRect();
    if (box.width === 0) continue;
    if (!parent.closest(".scroll") && (box.right > wide + 0.5 || box.left < -0.5)) found.push("outside: " + text.slice(0, 40));
    const style = getComputedStyle(parent), svg = parent.namespaceURI.endsWith("svg");
    const a = light(svg ? style.fill : style.color), b = light(ground(parent));
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < least) least = contrast;
    if (contrast < 4.5) found.push("contrast " + contrast.toFixed(2) + ": " + text.slice(0, 40));
  }
  // labels of one axis must not lie on each other
  for (const picture of document.querySelectorAll("svg.picture")) {
    for (const axis of ["x", "y"]) {
      const boxes = [...picture.querySelectorAll("text." + axis)].map((label) => label.getBoundingClientRect());
      boxes.forEach((a, at) => boxes.slice(at + 1).forEach((b) => {
        if (a.left < b.right && b.left < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom) found.push("labels on each other: " + picture.getAttribute("aria-label").slice(0, 60));
      }));
    }
  }
  // the page's own script: every button there and back, and the pointer over every plot
  for (let round = 0; round < 2; round += 1) for (const button of document.querySelectorAll(".switch:not(.cases) button")) {
    button.click();
    for (const node of button.parentElement.nextElementSibling.querySelectorAll("path, use, text")) {
      for (const place of ["d", "x", "y"]) if (/NaN|undefined|Infinity/.test(node.getAttribute(place))) found.push("no number in " + place);
    }
    if (document.documentElement.scrollWidth > wide) found.push("wider after " + button.textContent);
  }
  let answered = 0, pointed = 0;
  for (const picture of document.querySelectorAll("svg.picture")) {
    if (!picture.querySelector("path[data-name].line")) continue;
    pointed += 1;
    const box = picture.getBoundingClientRect();
    const at = { clientX: box.left + box.width / 2, clientY: box.top + box.height / 2, bubbles: true };
    picture.dispatchEvent(new PointerEvent("pointermove", at));
    const out = picture.parentElement.querySelector(".read-out");
    if (out && out.textContent && !/NaN|undefined/.test(out.textContent)) answered += 1;
    if (document.documentElement.scrollWidth > wide) found.push("wider under the pointer");
  }
  if (answered < pointed) found.push("pointed at " + pointed + " plots of lines, " + answered + " answered");
  const dark = matchMedia("(prefers-color-scheme: dark)").matches && light(getComputedStyle(document.body).backgroundColor) < 0.05;
  const body = document.body.dataset;
  body.look = [wide, Math.ceil(document.documentElement.getBoundingClientRect().height), dark ? "dark" : "light", least.toFixed(2)].join(" ");
  body.found = [...new Set(found)].slice(0, 12).join(" | ");
});
</script>
LOOK
sed "/<\/body>/{
  s/<\/body>.*//
  r $DIR/look.html
}" "$DIR/page.html" > "$DIR/looked.html"
echo "</body></html>" >> "$DIR/looked.html"
# a browser's window is never narrower than 500: a phone is a frame in it
framed() { # framed WIDTH HEIGHT PAGE prints the name of a file with a frame of that size, and what was found in it
  cat > "$DIR/framed-$3" <<FRAME
<!DOCTYPE html><html><head><meta name="color-scheme" content="light dark"/></head><body style="margin:0"><iframe id="phone" src="$3" style="border:0;display:block;width:$1px;height:$2px"></iframe>
<script>
addEventListener("load", () => Object.assign(document.body.dataset, document.getElementById("phone").contentDocument.body.dataset));
</script></body></html>
FRAME
  echo "framed-$3"
}

run() { # run WIDTH HEIGHT light|dark OPTIONS... FILE
  local width=$1 height=$2 scheme=1; [ "$3" = light ] || scheme=0; shift 3
  timeout 120 "$browser" --headless=new --no-sandbox --disable-gpu --hide-scrollbars --no-first-run --user-data-dir="$DIR/profile" \
    --force-device-scale-factor=1 --allow-file-access-from-files --blink-settings=preferredColorScheme=$scheme --window-size="$width,$height" "$@" 2>> "$DIR/browser.log"
}

failed=0
for width in 1440 390; do
  for scheme in light dark; do
    looked=looked.html
    [ $width -ge 500 ] || looked="$(framed $width 1000 looked.html)"
    dom="$(run $width 1000 $scheme --dump-dom "file://$DIR/$looked")" || { tail -n 5 "$DIR/browser.log" >&2; exit 1; }
    attribute() { sed -n "s/.*<body[^>]* data-$1=\"\([^\"]*\)\".*/\1/p" <<< "$dom" | head -n 1; }
    read -r seen height colours contrast <<< "$(attribute look)"
    found="$(attribute found)"; error="$(attribute error)"
    [ "${seen:-}" = "$width" ] || found="$found | the window is ${seen:-of no} wide"
    [ "${colours:-}" = "$scheme" ] || found="$found | the colours are ${colours:-unknown}"
    [ -z "$error" ] || found="$found | script: $error"
    high=$((${height:-1000} > 16000 ? 16000 : ${height:-1000}))
    shown=page.html
    [ $width -ge 500 ] || shown="$(framed $width $high page.html)"
    run $width $high $scheme --screenshot="$OUT/page-$width-$scheme.png" "file://$DIR/$shown"
    echo "$width $scheme: ${height:-?} pixels high, least contrast ${contrast:-?}${found:+, WRONG: $found}"
    [ -z "$found" ] || failed=1
  done
done
echo "pictures: $OUT/page-{1440,390}-{light,dark}.png"
exit $failed
