// Elements without markup in strings: what comes from the server is only ever text.

/** Makes an element. `attributes` may hold `class`, `text`, `on` (listeners), `data`, and attributes. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") element.className = value;
    else if (name === "text") element.textContent = value;
    else if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (name === "data") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export const byId = (id) => document.getElementById(id);

/** Sets text only if it differs, so that a selection survives. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** The value of a CSS variable. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A box that follows the pointer. One for the whole page. */
class Tip {
  #box = null;

  show(x, y, lines) {
    this.#box ??= document.body.appendChild(h("div", { class: "tip", role: "tooltip" }));
    const [first, ...rest] = lines;
    this.#box.replaceChildren(h("strong", { text: first }), ...rest.map((line) => h("div", { text: line })));
    this.#box.hidden = false;
    const { width, height } = this.#box.getBoundingClientRect();
    const left = x + 16 + width > innerWidth ? Math.max(8, x - 16 - width) : x + 16;
    const top = y + 16 + height > innerHeight ? Math.max(8, y - 16 - height) : y + 16;
    this.#box.style.left = `${left}px`;
    this.#box.style.top = `${top}px`;
  }

  hide() {
    if (this.#box) this.#box.hidden = true;
  }
}

export const tip = new Tip();

/**
 * A table with columns that sort. A column is `{title, value(row), show(row), num, wide, class, head}`; `show` returns
 * text or an element. With `cards` a row is a box on a phone, with all its columns.
 */
export class DataTable {
  #columns;
  #sort;
  #rows = [];
  #body = h("tbody");
  #heads;
  #empty;

  constructor({ caption, columns, sort, empty, cards = false }) {
    this.#columns = columns;
    this.#sort = sort ?? null;
    this.#heads = columns.map((column, at) => this.#head(column, at));
    this.#empty = h("p", { class: "empty", text: empty });
    this.table = h("table", { class: cards ? "cards" : undefined }, h("caption", { class: "hidden", text: caption }), h("thead", {}, h("tr", {}, this.#heads)), this.#body);
    this.element = h("div", {}, h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, this.table), this.#empty);
  }

  set(rows) {
    this.#rows = rows;
    this.#draw();
  }

  #head(column, at) {
    const attributes = { scope: "col", class: `${column.num ? "num" : ""} ${column.wide ? "wide" : ""}`, title: column.help };
    if (!column.value) return h("th", { ...attributes, text: column.title });
    const sort = () => {
      const isSame = this.#sort?.at === at;
      this.#sort = { at, down: isSame ? !this.#sort.down : Boolean(column.num) };
      this.#draw();
    };
    return h("th", attributes, h("button", { type: "button", text: column.title, on: { click: sort } }));
  }

  #draw() {
    let rows = this.#rows;
    if (this.#sort) {
      const { at, down } = this.#sort;
      const value = this.#columns[at].value;
      const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
      rows = [...rows].sort((a, b) => order(value(a), value(b)) * (down ? -1 : 1));
      this.#heads.forEach((head, of) => {
        if (of === at) head.setAttribute("aria-sort", down ? "descending" : "ascending");
        else head.removeAttribute("aria-sort");
      });
    }
    this.#body.replaceChildren(...rows.map((row) => this.#row(row)));
    this.table.hidden = rows.length === 0;
    this.#empty.hidden = rows.length > 0;
  }

  #row(row) {
    const cells = this.#columns.map((column) => {
      const shown = column.show(row);
      const classes = [column.num && "num", column.wide && "wide", column.class].filter(Boolean).join(" ");
      const tag = column.head ? "th" : "td";
      const title = column.class?.includes("key") ? String(shown) : undefined;
      return h(tag, { class: classes || undefined, scope: column.head ? "row" : undefined, title, data: { label: column.title } }, shown);
    });
    return h("tr", {}, cells);
  }
}
