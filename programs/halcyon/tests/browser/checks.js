// What the browser test looks at, in the page. Each check returns a list of what is wrong.
(() => {
  const isVisible = (element) => element.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && element.getClientRects().length > 0;
  const name = (element) => `${element.tagName.toLowerCase()}${element.id ? `#${element.id}` : ""}.${element.className} "${(element.textContent ?? "").trim().slice(0, 40)}"`;
  const ask = async (path) => (await fetch(`/api/v1/${path}`)).json();
  const digits = (text) => Number(text.replaceAll(",", ""));

  /** Red, green, blue and alpha of a computed colour. */
  function channels(colour) {
    const srgb = colour.startsWith("color(srgb");
    const numbers = colour.match(/[\d.]+/g).map(Number);
    const [r, g, b, a = 1] = srgb ? [...numbers.slice(0, 3).map((part) => part * 255), ...numbers.slice(3)] : numbers;
    return [r, g, b, a];
  }

  function background(element) {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const [r, g, b, a] = channels(getComputedStyle(at).backgroundColor);
      layers.push([r, g, b, a]);
      if (a >= 1) break;
    }
    return layers.reverse().reduce((below, [r, g, b, a]) => [r, g, b].map((part, at) => part * a + below[at] * (1 - a)), [255, 255, 255]);
  }

  function luminance(rgb) {
    const [r, g, b] = rgb.map((part) => (part / 255 <= 0.03928 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }

  function contrast(element) {
    const [light, dark] = [luminance(channels(getComputedStyle(element).color).slice(0, 3)), luminance(background(element))].sort((a, b) => b - a);
    return (light + 0.05) / (dark + 0.05);
  }

  globalThis.checks = {
    hasPoints: () => [...document.querySelectorAll("#calls [data-series]")].some((value) => value.dataset.value !== ""),

    isDark: () => luminance(background(document.body)) < 0.2,

    /** Charts without ink where they have no sentence that says why. */
    chartsNotDrawn() {
      const isDrawn = (canvas) => {
        if (!canvas.width || !canvas.height) return false;
        // A copy: reading a canvas of the page again and again makes Chromium warn in the page's name.
        const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
        copy.drawImage(canvas, 0, 0);
        const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
        const colours = new Set();
        for (let at = 0; at < data.length; at += 4) {
          if (data[at + 3] > 0) colours.add((data[at] << 16) | (data[at + 1] << 8) | data[at + 2]);
        }
        return colours.size > 3;
      };
      const boxes = [...document.querySelectorAll(".chart, .keymap")].filter(isVisible);
      const says = (box) => [...box.querySelectorAll(".over, .empty")].some((text) => isVisible(text) && text.textContent.trim());
      const wrong = boxes.filter((box) => !says(box) && ![...box.querySelectorAll("canvas")].some(isDrawn));
      return [...wrong.map(name), ...(boxes.length >= 10 ? [] : [`only ${boxes.length} charts`])];
    },

    /** The page does not scroll sideways, and nothing sticks out but what scrolls in a box of its own. */
    tooWide() {
      const width = document.documentElement.clientWidth;
      const page = document.documentElement.scrollWidth > width ? [`the page: ${document.documentElement.scrollWidth} of ${width}`] : [];
      const inBox = (element) => element.closest(".scroll, nav, .skip, .hidden, .u-over, .u-under") !== null;
      const out = [...document.body.querySelectorAll("*")].filter((element) => {
        const { right, left, width: own } = element.getBoundingClientRect();
        return own > 0 && (right > width + 1 || left < -1) && isVisible(element) && !inBox(element);
      });
      const boxes = [...document.querySelectorAll(".scroll")].filter((box) => box.getBoundingClientRect().right > width + 1);
      return [...page, ...out.map(name), ...boxes.map(name)];
    },

    /** Text with less contrast than WCAG AA asks for. */
    tooFaint() {
      const hasText = (element) => [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
      const texts = [...document.body.querySelectorAll("*")].filter((element) => hasText(element) && isVisible(element) && !element.closest(".hidden, .skip, noscript, :disabled"));
      const wrong = texts.filter((element) => contrast(element) < 4.5).map((element) => `${contrast(element).toFixed(2)} ${name(element)}`);
      return [...wrong.slice(0, 5), ...(texts.length > 20 ? [] : ["hardly any text"])];
    },

    /** Controls without a name, tables without a caption, sections without a heading. */
    unnamed() {
      const isNamed = (control) => (control.labels?.length ?? 0) > 0 || control.getAttribute("aria-label") || control.textContent.trim();
      const controls = [...document.querySelectorAll("button, input, select, a, canvas[tabindex]")].filter((control) => !isNamed(control));
      const tables = [...document.querySelectorAll("table")].filter((table) => !table.caption?.textContent);
      const sections = [...document.querySelectorAll("section")].filter((section) => !document.getElementById(section.getAttribute("aria-labelledby"))?.textContent);
      return [...controls, ...tables, ...sections].map(name);
    },

    crosshairs: () => [...document.querySelectorAll(".chart .u-cursor-x")].filter((line) => isVisible(line) && !line.classList.contains("u-off")).length,

    /** A place on the newest points of a chart that is scrolled into view. */
    middleOf(selector) {
      const chart = document.querySelector(selector);
      chart.scrollIntoView({ block: "center" });
      const { left, top, width, height } = chart.getBoundingClientRect();
      return [left + width * 0.97, top + height / 2];
    },

    /** Texts of a column of a list, from the top. */
    cells: (list, column) => [...document.querySelectorAll(`${list} tbody [data-label="${column}"]`)].map((cell) => cell.textContent),

    /** Texts of the row whose first column begins with a name, by column. */
    row(list, begin) {
      const name = (row) => row.querySelector("th").firstChild.firstChild.textContent;
      const row = [...document.querySelectorAll(`${list} tbody tr`)].find((one) => name(one) === begin);
      return row ? Object.fromEntries([...row.cells].map((cell) => [cell.dataset.label, cell.textContent])) : null;
    },

    /** Figures on the page against those of the API. */
    async wrongNumbers(view) {
      const wrong = [];
      const same = (what, shown, wanted) => { if (shown !== wanted) wrong.push(`${what}: the page says ${shown}, the API ${wanted}`); };
      const summary = await ask("summary");
      same("regions", digits(document.getElementById("regions-count").textContent), summary.regions_count);
      same("tables", digits(document.getElementById("tables-count").textContent), summary.tables_count);
      same("version", document.getElementById("version").textContent, summary.version);
      same("server", document.getElementById("server").textContent, summary.server);
      if (view === "overview") {
        const { series } = await ask("series?range=15m");
        const known = new Map(series.map((one) => [one.name, one.values.slice(-12)]));
        const shown = [...document.querySelectorAll("[data-series]")];
        if (shown.length < 20) wrong.push(`only ${shown.length} figures`);
        for (const { dataset } of shown) {
          const points = known.get(dataset.series);
          if (!points) wrong.push(`${dataset.series} is not in the API`);
          else if (dataset.value !== "" && !points.includes(Number(dataset.value))) wrong.push(`${dataset.series}: ${dataset.value} is none of ${points}`);
        }
      }
      if (view === "cluster") {
        const answer = await ask("cluster");
        const figure = (name) => [...document.querySelectorAll("#cluster-figures dt")].find((one) => one.textContent === name)?.nextSibling.textContent;
        same("servers online", figure("Servers online"), `${answer.online_count}${answer.draining_count > 0 ? `, ${answer.draining_count} draining` : ""}`);
        same("being recovered", figure("Being recovered"), String(answer.recovering_count));
        same("in transition", figure("In transition"), String(answer.transitions_count));
        same("fences", document.querySelectorAll("#fence-list tbody tr").length, answer.fences.length);
        same("takeovers", document.querySelectorAll("#master-list tbody tr").length, answer.takeovers.length);
        const { servers } = await ask("servers");
        const rows = [...document.querySelectorAll("#server-list tbody tr")];
        same("servers", rows.length, servers.length);
        rows.forEach((row, at) => {
          const [of, state, regions] = ["Server", "State", "Regions"].map((column) => row.querySelector(`[data-label="${column}"]`).textContent);
          const { host, port, start_code: code, regions_count: wanted, state: is } = servers[at];
          if (!of.includes(`${host}:${port}`) || !of.includes(`start code ${code}`)) wrong.push(`${of} is not ${host}:${port}`);
          same(`regions of ${of}`, digits(regions), wanted);
          same(`state of ${of}`, state, is === "recovering" ? "being recovered" : is);
          if (servers[at].link && row.querySelector("a").href !== servers[at].link) wrong.push(`${of} leads to ${row.querySelector("a").href}`);
        });
        same("transitions", document.querySelectorAll("#transition-list tbody tr").length, Math.min(100, (await ask("transitions")).count));
      }
      if (view === "balance") {
        const answer = await ask("balance");
        same("bars", document.querySelectorAll("#balance-bars rect").length, answer.bars.length);
        same("tables", document.querySelectorAll("#balance-tables tbody tr").length, answer.tables.length);
        const areas = [...document.querySelectorAll("#balance-bars rect")].map((bar) => bar.getAttribute("width") * bar.getAttribute("height"));
        const largest = areas.indexOf(Math.max(...areas));
        if (answer.max > 0 && answer.bars[largest]?.regions_count !== answer.max) wrong.push(`the largest bar is ${largest}`);
      }
      if (view === "recoveries") {
        const { recoveries } = await ask("recoveries");
        const strips = [...document.querySelectorAll("#timelines li[data-number]")];
        same("timelines", strips.map((strip) => strip.dataset.number).join(), recoveries.map((one) => one.number).join());
        strips.forEach((strip, at) => {
          const phases = [...strip.querySelectorAll("rect.phase")].map((rect) => rect.classList[1]).join();
          same(`phases of ${recoveries[at].server}`, phases, recoveries[at].phases.map((phase) => phase.phase).join());
          if (!strip.querySelector("svg").getAttribute("aria-label").includes(recoveries[at].server || "no master")) wrong.push(`the picture of ${recoveries[at].server} has another name`);
        });
        same("rows of times", document.querySelectorAll("#recovery-list tbody tr").length, recoveries.length);
      }
      if (view === "tables") {
        const { tables } = await ask("tables");
        const rows = [...document.querySelectorAll("#table-list tbody tr")];
        same("rows", rows.length, tables.length);
        for (const row of rows) {
          const table = tables.find((one) => one.name === row.cells[0].textContent);
          same(`regions of ${row.cells[0].textContent}`, digits(row.cells[3].textContent), table?.regions_count);
        }
        same("listed regions", document.querySelectorAll("#region-list tbody tr").length, Math.min(100, summary.regions_count));
      }
      if (view === "settings") {
        const { settings } = await ask("settings");
        const rows = [...document.querySelectorAll("#setting-list tbody tr")];
        same("settings", rows.length, settings.length);
        rows.forEach((row, at) => {
          const { name: of, value, default: standard, source } = settings[at];
          const [shown, ofDefault, from] = ["Value", "Default", "Source"].map((column) => row.querySelector(`[data-label="${column}"]`).textContent);
          const isSame = value === "" ? shown === "empty" : shown.startsWith(value);
          if (!isSame) wrong.push(`${of}: the page says ${shown}, the API ${value}`);
          same(`default of ${of}`, ofDefault, standard === "" ? "empty" : standard ?? "not set");
          same(`source of ${of}`, from, source);
        });
        if (settings.length < 50) wrong.push(`only ${settings.length} settings`);
      }
      if (view === "slow") {
        const { calls } = await ask("slow-calls");
        calls.sort((a, b) => b.received_ms - a.received_ms);
        const { bytes, clock, milliseconds } = await import("/console/format.js");
        const column = (name, show) => same(`column ${name}`, this.cells("#slow-list", name).join("|"), calls.map(show).join("|"));
        same("slow calls", document.querySelectorAll("#slow-list tbody tr").length, calls.length);
        column("Arrived", (call) => clock(call.received_ms));
        column("Took", (call) => milliseconds(call.took_ms));
        column("Answer", (call) => bytes(call.response_bytes));
        column("Call", (call) => call.method);
        column("Client", (call) => call.client);
        column("Asked for", (call) => call.param || call.region || "–");
      }
      if (view === "procedures") {
        const { procedures } = await ask("procedures");
        same("procedures", document.querySelectorAll("#procedure-list tbody tr").length, procedures.length);
      }
      return wrong;
    },
  };
  return true;
})();
