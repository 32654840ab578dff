// Answers of a cluster of 1,000 servers with 100,000 regions, in the place of the real ones. Names are as hostile as they can be.
(() => {
  const real = globalThis.fetch;
  const servers = 1000;
  const each = 100;
  const now = Date.now();
  const name = (at) => `server-${String(at).padStart(4, "0")}.a-rather-long-domain.example,16020,1700000000000`;
  const part = (query, all) => {
    const [limit, offset] = [Number(query.get("limit") ?? 100), Number(query.get("offset") ?? 0)];
    return Array.from({ length: Math.max(0, Math.min(limit, all - offset)) }, (_, at) => offset + at);
  };
  const made = {
    servers: (query) => ({
      count: servers, regions_max: each + 7,
      servers: part(query, servers).map((at) => ({
        name: name(at), host: name(at).split(",")[0], port: 16020, start_code: 1700000000000, state: at % 50 === 3 ? "draining" : "online", link: `http://${name(at).split(",")[0]}:16030/`, version: "2.6",
        regions_count: each + (at % 8), has_meta: at === 0, reads_per_s: at * 1000, writes_per_s: null, memstore_bytes: 2 ** 33, file_bytes: 2 ** 45, locality: 0.97, report_age_ms: 900,
      })),
    }),
    transitions: (query) => ({
      now_ms: now, count: servers * each, stuck_count: 12345, threshold_ms: 60000,
      transitions: part(query, servers * each).map((at) => ({
        table: "ns:<img src=x onerror=alert(1)>", start: `\\x00${"k".repeat(60)}`, name: "0123456789abcdef0123456789abcdef", state: "FAILED_OPEN", server: name(at), since_ms: now - 100000, age_ms: 100000,
        procedure: 18446744073709, procedure_name: "TransitRegionStateProcedure", reason: `could not be opened at ${name(at)}; step 'open' failed 17 times since 1795547145770 ms (Unix time): the file is damaged`,
      })),
    }),
    balance: (query) => ({
      table: null, mean: 103.5, max: 107, count: 5000,
      bars: Array.from({ length: 500 }, (_, at) => ({ server: name(at * 2), servers_count: 2, is_draining: at % 25 === 1, regions_count: each + (at % 8) })),
      tables: part(query, 5000).map((at) => ({ name: `namespace:table-${at}`, state: "enabled", regions_count: 20, open_count: 20, servers_count: 20, min: 0, mean: 0.02, max: 1 })),
    }),
    recoveries: (query) => ({
      now_ms: now, kept_max: 200, count: 200,
      recoveries: part(query, 25).map((at) => {
        const begin = now - 1000000 * (at + 1);
        const took = 500 * (at + 1);
        const phase = (of, from, to) => ({ phase: of, begin_ms: begin + from * took, end_ms: at === 0 && of === "open" ? null : begin + to * took, text: "as it is" });
        return {
          number: 200 - at, kind: "region server", server: name(at), master: name(999), epoch: 7, noticed: "no process listens at its address", heard_ms: begin - 900, noticed_ms: begin, joined_ms: null, fenced_ms: begin + 0.05 * took, meta_opened_ms: null,
          split_ms: begin + 0.6 * took, first_opened_ms: begin + 0.7 * took, last_opened_ms: begin + took, ended_ms: at === 0 ? null : begin + took, took_ms: took, wals_count: 40, wal_bytes: 2 ** 34, regions_count: 100, opened_count: at === 0 ? 3 : 100,
          phases: [{ ...phase("detect", 0, 0), begin_ms: begin - 900 }, phase("fence", 0, 0.05), phase("split", 0.05, 0.6), phase("open", 0.6, 1)],
        };
      }),
    }),
  };
  globalThis.fetch = async (address, options) => {
    const { pathname, searchParams } = new URL(String(address), location.href);
    const make = made[pathname.replace("/api/v1/", "")];
    return make ? new Response(JSON.stringify(make(searchParams))) : real(address, options);
  };
})();
