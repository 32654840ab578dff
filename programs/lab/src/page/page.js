"use strict";
// What the pointer points at, one case at a time, linear instead of logarithmic. The page is whole without it.
(() => {
  const AREA = 1000, NEAR_PX = 28;

  // ---- numbers as the page writes them
  const digits = (value) => {
    const size = Math.abs(value);
    if (size === 0) return "0";
    if (size >= 99.95) return Math.round(value).toLocaleString("en-US");
    if (size >= 9.995) return value.toFixed(1);
    return size >= 0.9995 ? value.toFixed(2) : String(Number(value.toPrecision(3)));
  };
  const stepped = (value, base, names) => {
    let at = 0;
    while (at + 1 < names.length && Math.abs(value) >= base * 0.9995) { value /= base; at += 1; }
    return digits(value) + " " + names[at];
  };
  const written = {
    count: digits,
    length: (us) => stepped(us, 1000, ["µs", "ms", "s"]),
    seconds: (s) => s < 600 ? digits(s) + " s" : digits(s / 60) + " min",
    bytes: (bytes) => stepped(bytes, 1024, ["bytes", "KiB", "MiB", "GiB", "TiB"]),
    nines: (part) => "percentile " + Number((100 * part).toPrecision(7)),
  };

  // ---- axes: 0 to 1 and back
  const axis = (text) => {
    const [kind, low, high, quantity] = text.split(" ");
    return { kind, low: Number(low), high: Number(high), quantity };
  };
  const valueAt = ({ kind, low, high }, part) => {
    if (kind === "log") return low * Math.pow(high / low, part);
    if (kind === "nines") return 1 - Math.pow(10, -part * high);
    return low + (high - low) * part;
  };
  const partOf = ({ kind, low, high }, value) =>
    kind === "log" ? Math.log(Math.max(value, low) / low) / Math.log(high / low) : (value - low) / (high - low);
  const text = (of, part) => written[of.kind === "nines" ? "nines" : of.quantity](valueAt(of, part));

  // ---- what the pointer points at
  const vertices = (path) => {
    const numbers = path.getAttribute("d").replace(/h0/g, "").match(/\d+/g) || [];
    const found = [];
    for (let at = 0; at + 1 < numbers.length; at += 2) found.push([numbers[at] / AREA, numbers[at + 1] / AREA]);
    return found;
  };
  const nearest = (points, distance) => {
    let best = null, least = Infinity;
    for (const point of points) {
      const found = distance(point);
      if (found < least) { least = found; best = point; }
    }
    return [best, least];
  };
  const pointedAt = (picture, marks, box, x, y) => {
    const across = axis(picture.dataset.x), up = axis(picture.dataset.y);
    let lines = [], at = null, least = NEAR_PX;
    for (const mark of marks) {
      if (mark.line) {
        const [point] = nearest(mark.points, (point) => Math.abs(point[0] - x));
        const xs = mark.points.map((point) => point[0]);
        if (point && x > Math.min(...xs) - 0.05 && x < Math.max(...xs) + 0.05) {
          lines.push([mark.name + ": " + text(up, 1 - point[1]), point[1]]);
          at = at || [point[0], y];
        }
      } else {
        const far = (point) => Math.hypot((point[0] - x) * box.width, (point[1] - y) * box.height);
        const [point, distance] = nearest(mark.points, far);
        if (point && distance < least) {
          least = distance;
          at = point;
          lines = [[mark.name + ": " + text(up, 1 - point[1]), 0]];
        }
      }
    }
    if (!at) return null;
    lines.sort((a, b) => a[1] - b[1]);
    return { at, text: [text(across, at[0]), ...lines.map((line) => line[0])].join("\n") };
  };
  for (const picture of document.querySelectorAll("svg.picture")) {
    const frame = picture.parentElement;
    let marks = null, out = null, ring = null;
    const leave = () => { if (out) { out.hidden = true; ring.setAttribute("visibility", "hidden"); } };
    const point = (event) => {
      const box = picture.getBoundingClientRect();
      const x = (event.clientX - box.left) / box.width, y = (event.clientY - box.top) / box.height;
      marks = marks || [...picture.querySelectorAll("path[data-name]")].map((path) => (
        { name: path.dataset.name, line: path.classList.contains("line"), points: vertices(path) }));
      const found = x > -0.05 && x < 1.05 && y > -0.1 && y < 1.1 ? pointedAt(picture, marks, box, x, y) : null;
      if (!found) return leave();
      if (!out) {
        out = frame.appendChild(document.createElement("div"));
        out.className = "read-out";
        ring = picture.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "circle"));
        ring.setAttribute("class", "pointed");
        ring.setAttribute("r", "6");
      }
      out.hidden = false;
      out.textContent = found.text;
      ring.setAttribute("visibility", marks.some((mark) => mark.line) ? "hidden" : "visible");
      ring.setAttribute("cx", 100 * found.at[0] + "%");
      ring.setAttribute("cy", 100 * found.at[1] + "%");
      const left = picture.offsetLeft || box.left - frame.getBoundingClientRect().left;
      const wish = left + found.at[0] * box.width + 14;
      const over = wish + out.offsetWidth > frame.clientWidth;
      out.style.left = Math.max(0, over ? wish - out.offsetWidth - 28 : wish) + "px";
      out.style.top = Math.max(0, (event.clientY - frame.getBoundingClientRect().top) - out.offsetHeight - 10) + "px";
    };
    frame.addEventListener("pointermove", point);
    frame.addEventListener("pointerdown", point);
    frame.addEventListener("pointerleave", leave);
    picture.addEventListener("rescaled", () => {
      marks = null;
      if (out) { out.remove(); ring.remove(); out = null; }
    });
  }

  // ---- linear instead of logarithmic
  const ticksOf = ({ low, high, quantity }) => {
    const rough = (high - low) / 5, power = Math.pow(10, Math.floor(Math.log10(rough)));
    const step = power * ([1, 2, 5].find((factor) => power * factor >= rough * 0.8) || 10);
    const ticks = [];
    for (let n = 0; n * step <= high * 1.000001; n += 1) ticks.push([n * step / high, written[quantity](n * step)]);
    return ticks;
  };
  const linear = (picture) => {
    const from = axis(picture.dataset.y), to = { ...from, kind: "linear", low: 0 };
    const moved = (down) => 1 - Math.min(1, Math.max(0, partOf(to, valueAt(from, 1 - down))));
    for (const path of picture.querySelectorAll(".area path")) {
      const shifted = path.getAttribute("d").replace(/(\d+) (\d+)/g, (_, x, y) => x + " " + Math.round(moved(y / AREA) * AREA));
      path.setAttribute("d", shifted);
    }
    for (const sign of picture.querySelectorAll("use")) {
      sign.setAttribute("y", 100 * moved(parseFloat(sign.getAttribute("y")) / 100) + "%");
    }
    const grid = picture.querySelector(".grid");
    for (const old of grid.querySelectorAll("text.y, line[x2='100%']:not(.base)")) old.remove();
    for (const [part, label] of ticksOf(to)) {
      const line = document.createElementNS("http://www.w3.org/2000/svg", "line"), y = 100 * (1 - part) + "%";
      for (const [name, value] of [["class", "major"], ["x1", "0"], ["x2", "100%"], ["y1", y], ["y2", y]]) line.setAttribute(name, value);
      const words = document.createElementNS("http://www.w3.org/2000/svg", "text");
      for (const [name, value] of [["class", "y"], ["x", "-8"], ["y", y], ["dy", "0.35em"]]) words.setAttribute(name, value);
      words.textContent = label;
      grid.prepend(line);
      grid.append(words);
    }
    const name = grid.querySelector(".name:not(.end)");
    name.textContent = name.textContent.replace(" (logarithmic)", "");
    picture.dataset.y = ["linear", 0, to.high, to.quantity].join(" ");
  };
  for (const panels of document.querySelectorAll("section.case .panels")) {
    const pictures = [...panels.querySelectorAll("svg.picture")].filter((picture) => picture.dataset.y.startsWith("log"));
    if (pictures.length === 0) continue;
    const kept = pictures.map((picture) => [picture.innerHTML, picture.dataset.y]);
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Linear axis";
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") === "false";
      button.setAttribute("aria-pressed", String(on));
      pictures.forEach((picture, at) => {
        picture.dispatchEvent(new Event("rescaled"));
        if (on) linear(picture);
        else [picture.innerHTML, picture.dataset.y] = kept[at];
      });
    });
    const bar = document.createElement("div");
    bar.className = "switch";
    bar.append(button);
    panels.before(bar);
  }

  // ---- one case at a time
  const cases = [...document.querySelectorAll("section.case")];
  if (cases.length > 1) {
    const bar = document.createElement("div");
    bar.className = "switch cases";
    bar.setAttribute("role", "group");
    bar.setAttribute("aria-label", "Cases shown");
    const buttons = [null, ...cases].map((section) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = section ? section.querySelector("h2").textContent : "All cases";
      button.addEventListener("click", () => choose(section));
      bar.append(button);
      return [button, section];
    });
    const choose = (wanted) => {
      for (const [button, section] of buttons) button.setAttribute("aria-pressed", String(section === wanted));
      for (const section of cases) section.hidden = wanted !== null && section !== wanted;
    };
    cases[0].before(bar);
    choose(null);
    for (const link of document.querySelectorAll("nav a.case")) {
      link.addEventListener("click", () => {
        if (document.querySelector(link.getAttribute("href")).hidden) choose(null);
      });
    }
  }
})();
