/* The panels of `verify`: what was measured beside what was predicted. */

const named = (run) => [run.label, run.cache, run.round > 1 ? `round ${run.round}` : null].filter(Boolean).join(", ");
const PARTS = [["queue_ms", "waiting", "c-1"], ["prefill_ms", "prefill", "c-0"], ["other_ms", "the rest", "c-reported"]];

function verifyStory(result) {
  const said = table(result.prediction), runs = list(result.runs), tile = (value, text, kind) => el("div", { class: `tile ${kind ?? ""}` }, el("b", {}, value), el("span", {}, text));
  const told = runs.filter((run) => known(run.hit_rate) && known(run.prompt_tokens)), cold = runs.find((run) => run.cache === "cold"), warm = runs.find((run) => run.cache === "warm");
  const ended = result.status && result.status !== "complete" ? el("p", { class: "alert" }, `The run is ${result.status}: ${result.ended ?? "it ended early"}`) : null;
  return el("div", {}, ended, list(result.notes).map((one) => el("p", { class: "alert" }, one.message)), el("div", { class: "tiles" },
    known(said.hit_rate) ? tile(percent(said.hit_rate), "predicted hit rate", "logged") : null,
    told.length ? tile(percent(sum(told.map((run) => run.hit_rate * run.prompt_tokens)) / sum(told.map((run) => run.prompt_tokens))), told.length > 1 ? `measured hit rate over ${told.length} runs` : `measured hit rate (${named(told[0])})`, "reported") : null,
    known(said.of) ? tile(`${count(said.cached_equal)} of ${count(said.of)}`, "requests with the cached tokens that were predicted", said.cached_equal === said.of ? "fix" : "warning") : null,
    known(said.max_error_tokens) ? tile(count(said.max_error_tokens), "tokens: the largest error") : null,
    cold && known(table(cold.ttft_ms).p50) ? tile(milliseconds(cold.ttft_ms.p50), "median time to the first token, cold") : null,
    warm && known(table(warm.ttft_ms).p50) ? tile(milliseconds(warm.ttft_ms.p50), "median time to the first token, warm", "fix") : null));
}

/* The quantiles that a run gives: a list of evenly spaced ones from the lowest to the highest, else the named ones. */
function quantiles(times) {
  const found = table(times), even = list(found.quantiles).filter(known);
  if (even.length > 1) return even.map((value, i) => ({ x: value, y: i / (even.length - 1) }));
  return [["p50", 0.5], ["p95", 0.95], ["p99", 0.99]].filter(([name]) => known(found[name])).map(([name, y]) => ({ x: found[name], y }));
}

function firstTokens(result) {
  const runs = list(result.runs).filter((run) => quantiles(run.ttft_ms).length);
  if (!runs.length) return null;
  // one set of runs: a colour for cold and one for warm; several: a colour for each, and dashes for cold
  const labels = [...new Set(runs.map((run) => run.label))];
  const hue = (run) => (labels.length > 1 ? labels.indexOf(run.label) % 8 : run.cache === "cold" ? 1 : 0);
  const series = runs.map((run) => ({ name: named(run), kind: `c-${hue(run)}`, dashed: run.cache === "cold", points: quantiles(run.ttft_ms) }));
  return el("div", {}, lines({ title: "Time to the first token: share of the requests that had it by then", series, x: { kind: "log", label: "time to the first token", format: milliseconds, at: (low, high, most) => { const found = []; for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) for (const step of [1, 2, 5]) { const at = step * 10 ** power; if (at >= low && at <= high) found.push(at); } return found.filter((_, i) => i % Math.max(1, Math.ceil(found.length / Math.max(2, most))) === 0); } }, y: { ...RATE, label: "share of requests", high: 1 } }), split(runs));
}

function split(runs) {
  const at = (run, part, which) => table(run[part])[which];
  const which = runs.some((run) => PARTS.some(([part]) => known(at(run, part, "mean")))) ? "mean" : "p50";
  const rows = runs.filter((run) => PARTS.some(([part]) => known(at(run, part, which))));
  if (!rows.length) return note("The server gave no split of the time to the first token.");
  const most = Math.max(...rows.map((run) => sum(PARTS.map(([part]) => at(run, part, which)))), 1e-9);
  return el("div", {}, el("h3", {}, `What the time is made of (${which === "mean" ? "mean" : "median of each part"})`),
    rows.map((run) => el("div", { class: "stackrow" }, el("b", {}, named(run)), el("div", { class: "stack", role: "img", "aria-label": PARTS.map(([part, name]) => `${name} ${milliseconds(at(run, part, which))}`).join(", ") },
      PARTS.map(([part, name, kind]) => (known(at(run, part, which)) ? el("span", { class: `fill ${kind}`, css: { width: `${(100 * at(run, part, which)) / most}%` }, title: `${name}: ${milliseconds(at(run, part, which))}` }) : null))))),
    el("p", { class: "legend" }, PARTS.map(([, name, kind]) => el("span", {}, el("i", { class: `key block fill ${kind}` }), name))),
    grid(["Run", ...PARTS.map(([, name]) => name)], rows.map((run) => [named(run), ...PARTS.map(([part]) => milliseconds(at(run, part, which)))]), "lrrr"));
}

function predicted(result) {
  const said = table(result.prediction), rows = list(result.residuals).filter((row) => known(row.predicted) && known(row.measured));
  const all = rows.map((row) => ({ x: row.predicted, y: row.measured, n: row.requests ?? 1, text: row.line ? `line ${row.line}: predicted ${count(row.predicted)}, measured ${count(row.measured)}${row.reason ? `; ${row.reason}` : ""}` : `${many(row.requests ?? 1, "request")}: predicted ${count(row.predicted)}, measured ${count(row.measured)}` }));
  if (!all.length && !known(said.of)) return null;
  const off = rows.filter((row) => row.predicted !== row.measured).sort((a, b) => Math.abs(b.predicted - b.measured) - Math.abs(a.predicted - a.measured));
  const whys = [...by(off, "reason")].map(([reason, found]) => [reason ?? "unexplained", found.length, sum(found.map((row) => row.measured - row.predicted))]);
  const equal = (said.of ?? 0) - rows.length;
  return el("div", { class: all.length ? "apart" : null }, all.length ? scatter({ title: "Cached tokens of each request: predicted across, measured up", points: all, x: "predicted cached tokens", y: "measured" }) : null, el("div", {},
    known(said.of) ? note(`${count(said.cached_equal)} of ${count(said.of)} requests had exactly the cached tokens that were predicted${equal > 0 && all.length ? `; ${count(equal)} of them are not drawn` : ""}; token counts were equal in ${count(said.token_counts_equal)}.`) : null,
    whys.length ? grid(["Why they differ", "requests", "tokens"], whys.map(([why, n, tokens]) => [why, count(n), count(tokens)]), "lrr") : null,
    off.length ? el("details", {}, el("summary", {}, "The largest differences"), grid(["Line", "predicted", "measured", "why"], off.slice(0, 50).map((row) => [row.line ?? "", count(row.predicted), count(row.measured), row.reason ?? "unexplained"]), "lrrl")) : null));
}

function runs(result) {
  const found = list(result.runs);
  if (!found.length) return null;
  return grid(["Run", "isolation", "prompt tokens", "cached", "hit rate", "TTFT p50", "p95", "p99", "server's own rate", "preemptions", "errors"], found.map((run) => {
    const times = table(run.ttft_ms), server = table(run.server);
    return [named(run), run.isolation ?? "", short(run.prompt_tokens), short(run.cached_tokens), percent(run.hit_rate), milliseconds(times.p50), milliseconds(times.p95), milliseconds(times.p99), percent(server.hit_rate), count(server.preemptions), count(sum(Object.values(table(run.errors))))];
  }), "llrrrrrrrrr");
}

/* Changes with the ranges that hold 95 % of what was drawn, as bars about zero. */
function changes(found, caption) {
  const rows = Object.entries(table(found)).filter(([, one]) => known(table(one).change));
  if (!rows.length) return null;
  const most = Math.max(0.1, ...rows.flatMap(([, one]) => [one.change, one.low, one.high].filter(known).map(Math.abs)));
  const place = (value) => `${50 + (50 * value) / most}%`;
  const share = (name) => name.includes("hit_rate") || name.includes("share");
  const figure = (name, value) => (!known(value) ? "" : share(name) ? percent(value) : name.includes("ttft") || name.endsWith("_ms") || /_(p\d+|mean)$/.test(name) ? milliseconds(value) : short(value));
  return el("table", { class: "fall ranges" }, el("caption", { class: "unseen" }, caption), columns("rate", "move", "move"),
    el("thead", { class: "unseen" }, el("tr", {}, ["figure", "range", "change", "before", "after"].map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, rows.map(([name, one]) => {
      const low = known(one.low) ? one.low : one.change, high = known(one.high) ? one.high : one.change, unit = one.points ?? share(name) ? "pt" : "%";
      return el("tr", {}, el("th", { scope: "row" }, name.replaceAll("_", " "), one.sure === false && known(one.low) ? el("small", {}, " not sure") : null),
        el("td", { class: "track middle", title: `${points(low)} to ${points(high)} ${unit}` }, el("span", { class: "piece range", css: { left: place(low), width: `${Math.max(0.4, (50 * (high - low)) / most)}%` } }), el("span", { class: "piece at", css: { left: place(one.change) } })),
        el("td", { class: "num" }, `${points(one.change)} ${unit}`), el("td", { class: "num moved" }, figure(name, one.before)), el("td", { class: "num moved" }, figure(name, one.after)));
    })));
}

function comparison(result) {
  const found = result.comparison;
  if (!found) return null;
  const variants = list(found.variants), shown = (one, cache) => (known(table(table(one[cache]).ttft_p50).change) ? `${points(one[cache].ttft_p50.change)} %` : "");
  const warm = changes(found.warm, "Changes of the warm runs");
  return el("div", {}, note("From ", code(found.baseline), " to ", code(found.candidate), "; a bar is the range that holds 95 % of the changes that were drawn."),
    warm ? el("h3", {}, "Cold") : null, changes(found, "Changes"), warm ? [el("h3", {}, "Warm"), warm] : null,
    variants.length ? grid(["Setting", "verdict", "TTFT p50, cold", "warm", "remark"], variants.map((one) => [one.name, one.verdict ? chip(one.verdict, one.verdict === "slower" ? "error" : "quiet") : "", shown(one, "cold"), shown(one, "warm"), one.error ?? one.expect ?? ""]), "llrrl", "The settings that were tried") : null);
}

function counted(result) {
  const found = list(result.token_differences);
  return found.length ? grid(["Request", "counted", "by the server", "first differing token", "text around it"], found.slice(0, 50).map((one) => [code(`${one.path}:${one.line}`), count(one.counted), count(one.measured), known(one.token) ? count(one.token) : "", [one.before, " [", one.our_text, "] against [", one.their_text, "]"].every((part) => part !== null && part !== undefined) ? el("bdi", {}, `${one.before} [${one.our_text}] against [${one.their_text}]`) : ""]), "lrrrl") : null;
}

function setUp(result) {
  const engine = table(result.engine), load = table(result.load);
  const rows = [["Engine", `${engine.name ?? "unknown"} ${engine.version ?? ""}`], ["Device", engine.device ?? "unknown"], ["Model", engine.model ?? "unknown"], ["Started by this run", engine.launched ? "yes" : "no"],
    ["Requests", count(load.requests)], ["Concurrency", count(load.concurrency)], ["Duration", seconds(load.duration_s)], ["Arrival", load.arrival ?? "unknown"], ["Output", load.output ?? "unknown"]];
  return el("div", {}, grid(["", ""], rows, "ll", "The engine and the load"), Object.keys(table(engine.flags)).length ? el("details", {}, el("summary", {}, "Flags of the engine"), grid(["Flag", "value"], Object.entries(engine.flags).map(([flag, value]) => [code(flag), code(typeof value === "string" ? value : JSON.stringify(value))]), "ll")) : null);
}

const VERIFY = {
  engines: () => [],
  title: (result) => `Measured on ${table(result.engine).name ?? "an engine"}`,
  subtitle: (result) => [table(result.engine).model, `${table(result.engine).version ?? ""} on ${table(result.engine).device ?? "an unknown device"}`, many(table(result.load).requests, "request")].filter(Boolean).join(" · "),
  panels: [
    { id: "summary", title: "In short", draw: verifyStory },
    { id: "scatter", title: "Predicted against measured", short: "Predicted", lede: "Cached tokens of each request; on the line the prediction was exact.", draw: predicted },
    { id: "ttft", title: "Time to the first token", short: "TTFT", lede: "Share of the requests that had their first token by then, cold and warm.", draw: firstTokens },
    { id: "comparison", title: "What changed", draw: comparison },
    { id: "runs", title: "Runs", draw: runs },
    { id: "counted", title: "Prompts that were counted otherwise", short: "Counts", draw: counted },
    { id: "setup", title: "Set-up", draw: setUp },
  ],
};
