// What the server says. Answers of this port only.

export const RANGES = { "15m": 900, "1h": 3600, "6h": 21600, "24h": 86400 };

/** An answer of `/api/v1`. The error is the server's sentence. */
export async function ask(path, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== undefined && value !== ""));
  const address = `/api/v1/${path}${query.size ? `?${query}` : ""}`;
  const send = () => fetch(address, { signal: AbortSignal.timeout(10_000) });
  const response = await send().catch(send); // the server closes connections after a minute
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error ?? `status ${response.status}`);
  return answer;
}

/** All series of one range. Asks only for what is new. */
export class SeriesStore {
  #range = null;
  #stepMs = 1000;

  clear(range) {
    this.#range = range;
    this.times = [];
    this.series = new Map();
  }

  async update(range) {
    if (range !== this.#range) this.clear(range);
    const last = this.times.at(-1);
    const answer = await ask("series", { range, after_ms: last === undefined ? undefined : Math.round(last * 1000) });
    if (range !== this.#range) return; // another range was chosen meanwhile
    if (last !== undefined && answer.first_ms > last * 1000 + answer.step_ms * 1.5) this.clear(range); // a gap: all anew next time
    this.nowMs = answer.now_ms;
    this.#stepMs = answer.step_ms;
    const kept = Math.ceil((RANGES[range] * 1000) / answer.step_ms);
    const before = this.times.length;
    for (let at = 0; at < answer.count; at += 1) this.times.push((answer.first_ms + at * answer.step_ms) / 1000);
    for (const { name, unit, help, values } of answer.series) {
      const known = this.series.get(name) ?? { name, unit, help, values: new Array(before).fill(null) };
      known.values.push(...values);
      this.series.set(name, known);
    }
    const surplus = Math.max(0, this.times.length - kept);
    this.times.splice(0, surplus);
    for (const one of this.series.values()) one.values.splice(0, surplus);
  }

  /** Values of a series; empty where it is not known. */
  values(name) {
    return this.series.get(name)?.values ?? new Array(this.times.length).fill(null);
  }

  /** What both ends of every chart show, in seconds. */
  span() {
    const end = (this.nowMs ?? Date.now()) / 1000;
    return [end - RANGES[this.#range], end];
  }
}
