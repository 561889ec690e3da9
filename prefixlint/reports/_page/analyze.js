/* The panels of `analyze`. */

const engineOf = (result, name) => list(result.engines).find((one) => one.engine === name) ?? {};
const whole = (result, name) => list(result.waterfall).find((one) => one.family === null && one.engine === name);
const lastOf = (steps, kind) => list(steps).filter((step) => step.kind === kind).at(-1);

function story(result, state) {
  const engine = engineOf(result, state.engine), steps = whole(result, state.engine)?.steps;
  const said = table(result.reported).hit_rate, fixed = lastOf(steps, "fix")?.hit_rate, top = lastOf(steps, "ceiling")?.hit_rate;
  const cause = causes(result, state).find((one) => !one.masked_by && lost(one, state));
  const parts = [];
  if (known(said)) parts.push(["The server took ", el("b", {}, percent(said)), " of the prompt tokens from its cache. "]);
  if (known(engine.hit_rate)) parts.push([`As logged, ${state.engine} could take `, el("b", {}, percent(engine.hit_rate)), known(fixed) ? [" and with the fixes below ", el("b", {}, percent(fixed)), ". "] : ". "]);
  if (cause) parts.push(["Most is lost to ", el("a", { href: "#causes" }, `${cause.rule} ${cause.name}`), `: ${short(lost(cause, state))} tokens. `]);
  const tile = (value, text, kind) => el("div", { class: `tile ${kind ?? ""}` }, el("b", {}, value), el("span", {}, text));
  return el("div", {}, parts.length ? el("p", { class: "story" }, parts) : null,
    el("div", { class: "tiles" },
      known(said) ? tile(percent(said), `served, as ${count(result.reported.requests)} requests report`, "reported") : null,
      known(engine.hit_rate) ? tile(percent(engine.hit_rate), `${state.engine} could serve of the log as it is`, "logged") : null,
      known(fixed) ? tile(percent(fixed), "with every fix that was tried", "fix") : null,
      known(top) ? tile(percent(top), "ceiling: only what is truly new is computed", "ceiling") : null,
      tile(short(table(result.tokens).prompt), `prompt tokens in ${many(table(result.input).requests, "request")}`),
      known(engine.zero_hit_requests) && engine.requests ? tile(percent(engine.zero_hit_requests / engine.requests), "of the requests find nothing in the cache") : null));
}

function waterfall(result, state, found) {
  const fall = found ?? whole(result, state.engine);
  if (!fall || !list(fall.steps).length) return null;
  const alone = new Map(list(result.what_if).filter((row) => row.engine === state.engine && row.family === fall.family && !row.cumulative).map((row) => [list(row.rules).join(), row]));
  const base = engineOf(result, state.engine).hit_rate;
  let before = 0;
  const rows = list(fall.steps).map((step) => {
    const rate = step.hit_rate ?? 0, from = step.kind === "reported" ? 0 : before, drop = rate < from;
    const level = step.kind === "reported" || step.kind === "logged" || step.kind === "ceiling";
    const row = { step, level, left: level ? 0 : Math.min(from, rate), wide: level ? rate : Math.abs(rate - from), moved: rate - from, drop };
    before = rate;
    return row;
  });
  
  const words = (step) => step.kind === "logged" ? "Possible as logged, unlimited cache" : step.kind === "ceiling" ? "Ceiling: only what is truly new is computed" : step.kind === "reported" ? `Served, ${step.name}` : step.name;
  return el("div", {},
    el("table", { class: "fall" }, el("caption", { class: "unseen" }, "Hit rate from what was served to the ceiling"), columns("rate", "move"),
      el("thead", { class: "unseen" }, el("tr", {}, ["step", "bar", "hit rate", "moved"].map((head) => el("th", { scope: "col" }, head)))),
      el("tbody", {}, rows.map(({ step, level, left, wide, moved, drop }) => el("tr", { class: `step ${step.kind}` },
        el("th", { scope: "row" }, step.kind === "fix" ? ["Fix ", list(step.rules).map((rule) => el("a", { href: `#cause-${rule}` }, `${rule} `)), step.name] : words(step)),
        el("td", { class: "track" }, el("span", { class: `piece ${step.kind} ${drop ? "drop" : ""}`, css: { left: `${100 * left}%`, width: `${Math.max(0.3, 100 * wide)}%` } })),
        el("td", { class: "num" }, percent(step.hit_rate)),
        el("td", { class: "num moved" }, level ? "" : `${points(moved)} pt`))))),
    alone.size ? note("By itself, each fix moves the rate by: ", [...alone.values()].map((row, i) => `${i ? ", " : ""}${list(row.rules).join(" ")} ${known(base) && known(row.hit_rate) ? points(row.hit_rate - base) : "unknown"}`), ". Fixes are made one after the other above, so that their steps add up.") : null,
    fall.lost_tokens ? note(lastOf(fall.steps, "fix") ? `${count(fall.lost_tokens)} tokens are still computed again after all fixes.` : `${count(fall.lost_tokens)} tokens were there before and are computed again; no fix was tried.`) : null,
    fall.family === null ? list(result.not_simulated).map((one) => note(`${list(one.rules).join(", ")} not simulated: ${one.reason}`)) : null);
}

const lost = (finding, state) => (finding.tokens_lost ? table(finding.tokens_lost)[state.engine] ?? 0 : finding.tokens_at_risk ?? 0);
const causes = (result, state) => list(result.findings).slice().sort((a, b) => Boolean(a.masked_by) - Boolean(b.masked_by) || lost(b, state) - lost(a, state));

function source(place) {
  return el("li", {}, code(`${place.path}:${place.line}${place.column > 1 ? `:${place.column}` : ""}`), ` ${place.message ?? ""}`);
}

function cause(finding, rank, id, result, state) {
  const tokens = lost(finding, state), total = engineOf(result, state.engine).prompt_tokens ?? 0;
  const related = list(finding.related), written = related.filter((one) => one.expression !== undefined), also = related.filter((one) => one.expression === undefined);
  const at = finding.at, values = list(finding.values), rule = table(RULES[finding.rule]);
  const text = values.length === 2 ? String(finding.message).split(" (")[0] : finding.message;
  return el("article", { class: `cause ${finding.severity}`, id },
    el("header", {}, el("h3", {}, el("span", { class: "rank" }, `${rank + 1}`), `${finding.rule} ${finding.name}`), chip(finding.severity, finding.severity),
      finding.masked_by ? chip("behind another cause", "quiet") : null,
      el("p", { class: "cost" }, finding.tokens_lost ? [el("b", {}, `${short(tokens)} tokens`), total ? ` (${percent(tokens / total)}) computed again` : " computed again"] : [el("b", {}, `${short(tokens)} tokens`), " at risk, estimated"], finding.requests ? ` in ${many(finding.requests, "request")}` : "")),
    total ? meter(tokens / total, "lost", `${percent(tokens / total)} of the prompt tokens`) : null,
    el("p", {}, text, at ? [" at ", code(at.path), `, character ${count(at.char)}`] : ""),
    values.length === 2 ? sides(values[0], values[1]) : null,
    el("ul", { class: "places" },
      written.map(source),
      el("li", {}, code(`${finding.path}:${finding.line}`), at && at.other_line !== finding.line ? [" against ", code(`${at.other_file ?? finding.path}:${at.other_line}`)] : "")),
    rule.help ? el("p", { class: "advice" }, el("b", {}, "Instead: "), rule.help) : null,
    also.length ? el("details", {}, el("summary", {}, `${many(also.length, "more example")}`), el("ul", { class: "places" }, also.map(source))) : null);
}

function ranked(result, state) {
  const found = causes(result, state);
  if (!found.length) return list(result.engines).length ? note("No cause was found in this log.") : null;
  const used = new Set(), engine = engineOf(result, state.engine);
  const explained = sum(found.filter((one) => one.tokens_lost).map((one) => lost(one, state)));
  const shown = found.map((finding, rank) => {
    const id = used.has(finding.rule) ? null : `cause-${finding.rule}`;
    used.add(finding.rule);
    return cause(finding, rank, id, result, state);
  });
  const diverged = table(engine.misses).diverged ?? 0;
  return el("div", {}, shown.slice(0, 8), shown.length > 8 ? el("details", {}, el("summary", {}, `${many(shown.length - 8, "more cause")}`), shown.slice(8)) : null,
    diverged ? note(`${state.engine}: ${count(explained)} tokens of these causes, ${count(diverged)} in all were seen before but behind a difference.`) : null);
}

function inSource(result) {
  const found = list(result.source_findings);
  return found.length ? found.map((finding) => CHECK.finding(finding)) : null;
}

/* A prompt of the family with the places at which its requests part. */
function template(one) {
  const spans = list(one.spans), total = one.prompt_tokens || 1;
  const place = (span, index) => el("li", { id: `span-${one.id}-${index}` },
    el("p", {}, el("span", { class: "rank" }, index + 1), el("b", {}, `${short(span.lost_tokens)} tokens`), ` lost behind it (${percent(span.lost_tokens / total)} of the family) in ${many(span.requests, "request")}; at `, span.path ? [code(span.path), `, character ${count(span.char)}`] : `token ${count(span.token)}`),
    sides(table(span.excerpt).earlier, table(span.excerpt).later),
    el("ul", { class: "places" }, el("li", {}, code(`${table(span.example).path}:${table(span.example).line}`), " against line ", code(table(span.example).other_line))));
  const marked = list(one.template).map((piece) => {
    if (known(piece.left_out)) return el("span", { class: "cut" }, ` … ${many(piece.left_out, "character")} … `);
    if (!known(piece.span)) return verbatim("span", {}, piece.text);
    const span = spans[piece.span] ?? {};
    return el("span", { class: "hole" }, verbatim("mark", {}, piece.text || "∅"), el("sup", {}, `${piece.span + 1}: −${short(span.lost_tokens)}`));
  });
  const inPlace = marked.length ? el("pre", { class: "template", tabindex: "0", "aria-label": "A prompt of the family, changing places marked" }, marked)
    : spans.length ? el("pre", { class: "template", tabindex: "0", "aria-label": "The family's text around its changing places" },
      spans.map((span, i) => ({ span, i })).sort((a, b) => a.span.token - b.span.token).map(({ span, i }) => [el("span", { class: "cut" }, `… token ${count(span.token)} `), verbatim("span", {}, table(span.excerpt).before),
        el("span", { class: "hole" }, verbatim("mark", {}, table(span.excerpt).later || "∅"), el("sup", {}, `${i + 1}: −${short(span.lost_tokens)}`)), verbatim("span", {}, table(span.excerpt).after), document.createTextNode("\n")])) : null;
  return [inPlace, spans.length ? el("ol", { class: "spans" }, spans.map(place)) : note("Its requests part nowhere: what follows their common beginning is new.")];
}

function families(result, state) {
  const found = list(result.families);
  if (!found.length) return null;
  const all = table(result.tokens).prompt || 1, most = Math.max(1, ...found.map((one) => one.lost_tokens || 0));
  const row = (one, open) => {
    const own = table(table(one.engines)[state.engine]);
    const fall = list(result.waterfall).find((each) => each.family === one.id && each.engine === state.engine);
    const holder = el("div", { class: "inside" });
    let filled = false;
    const open_ = () => { if (!filled) { filled = true; add(holder, [template(one), fall && list(fall.steps).some((step) => step.kind === "fix") ? el("div", {}, el("h3", {}, "What fixing gives this family"), waterfall(result, state, fall)) : null]); } };
    if (open) open_();
    return el("details", { class: "family", open, ontoggle: (event) => { if (event.target.open) open_(); } },
      el("summary", {}, el("span", { class: "who" }, el("b", {}, one.name), one.model ? el("small", {}, one.model) : null),
        el("span", { class: "loss" }, meter((one.lost_tokens || 0) / most, "lost", `${count(one.lost_tokens)} tokens lost`), el("small", {}, `${short(one.lost_tokens)} lost`)),
        el("span", { class: "facts" }, `${many(one.requests, "request")} · ${percent(one.prompt_tokens / all)} of tokens · hit rate ${percent(own.hit_rate)} · ceiling ${percent(own.ceiling)}`)),
      holder);
  };
  const first = found.slice(0, 12).map((one, i) => row(one, i === 0));
  return el("div", {}, first, found.length > 12 ? el("details", { ontoggle: (event) => { if (event.target.open && event.target.children.length === 1) event.target.append(...found.slice(12).map((one) => row(one, false))); } }, el("summary", {}, many(found.length - 12, "more family", "more families"))) : null);
}

function overTime(result) {
  const stretches = list(result.timeline);
  if (stretches.length < 2) return null;
  const timed = stretches.every((one) => typeof one.from === "string");
  const x = (one, i) => (timed ? Date.parse(one.from) / 1000 : i + 1);
  const names = [...Object.keys(table(stretches[0].engines)), ...(stretches.some((one) => one.reported) ? ["reported"] : [])];
  const series = names.map((name) => ({ name, kind: paint(name, names), dashed: name === "reported", points: stretches.map((one, i) => ({ x: x(one, i), y: (name === "reported" ? one.reported : table(one.engines)[name])?.hit_rate, more: many(one.requests, "request") })) }));
  const changes = list(result.changes);
  const rules = changes.filter((one) => timed && one.at?.time).map((one) => ({ x: Date.parse(one.at.time) / 1000, label: `${one.series} ${points(one.after - one.before)}`, kind: one.after < one.before ? "bad" : "good" }));
  const span = timed ? x(stretches.at(-1)) - x(stretches[0]) : 0, dated = timed && x(stretches[0]) > 1e8;
  const clock = (at) => { const text = new Date(1000 * at).toISOString(); return span > 2 * 86400 ? text.slice(5, 10) : text.slice(11, 16); };
  const axis = timed ? { kind: "linear", at: (low, high, most) => times(low, high, most, dated), label: dated ? `time, UTC, from ${moment(stretches[0].from)}` : "time since the log began", format: (at) => (dated ? moment(new Date(1000 * at).toISOString()) : seconds(at)), tick: (at) => (dated ? clock(at) : seconds(at)) }
    : { kind: "linear", label: "part of the log", format: (at) => `part ${at}` };
  return el("div", {}, lines({ title: "Hit rate over the log", series, x: axis, y: { kind: "linear", label: "hit rate", format: percent, tick: (rate) => `${Math.round(100 * rate)} %`, low: 0, high: 1 }, rules }),
    changes.map((one) => el("div", { class: `change ${one.after < one.before ? "bad" : "good"}` },
      el("p", {}, el("b", {}, `${one.series} ${one.after < one.before ? "fell" : "rose"} from ${percent(one.before)} to ${percent(one.after)}`), " at ", code(`${table(one.at).path}:${table(one.at).line}`), table(one.at).time ? `, ${moment(one.at.time)} UTC` : ""),
      el("ul", {}, list(one.reasons).map((reason) => el("li", {}, reason.points ? `${points(reason.points)} points: ` : "", reason.rule ? `${reason.rule} ` : "", reason.message))))));
}

const RATE = { kind: "linear", label: "hit rate", format: percent, tick: (rate) => `${Math.round(100 * rate)} %`, low: 0 };
const by = (rows, key) => { const found = new Map(); for (const row of rows) { if (!found.has(row[key])) found.set(row[key], []); found.get(row[key]).push(row); } return found; };

function capacity(result, state) {
  const curves = table(result.curves), all = list(curves.capacity);
  if (!all.length) return null;
  const names = [...by(all, "engine").keys()];
  const series = [...by(all, "engine")].map(([name, rows]) => ({ name, kind: paint(name, names), points: rows.map((row) => ({ x: row.tokens, y: row.hit_rate, more: known(row.gib) ? `${Number(row.gib.toPrecision(3))} GiB` : null })) }));
  const pool = list(curves.pools).find((one) => one.engine === state.engine) ?? list(curves.pools)[0];
  const marks = [], rules = [], words = [];
  if (pool) {
    marks.push({ x: pool.knee_tokens, y: pool.knee_hit_rate, kind: "knee" });
    if (known(pool.knee_tokens)) rules.push({ x: pool.knee_tokens, label: `knee: ${short(pool.knee_tokens)}, ${percent(pool.knee_hit_rate)}` });
    const mine = pool.simulated ?? (known(pool.pool_tokens) ? { tokens: pool.pool_tokens, hit_rate: pool.pool_hit_rate } : null);
    if (mine) { rules.push({ x: mine.tokens, label: `your pool: ${short(mine.tokens)}, ${percent(mine.hit_rate)}`, kind: "pool" }); marks.push({ x: mine.tokens, y: mine.hit_rate, kind: "pool" }); }
    if (known(pool.knee_tokens)) words.push(`${pool.engine}: beyond the knee of ${count(pool.knee_tokens)} tokens (${percent(pool.knee_hit_rate)}) memory gives less than its share; 95 % of the ceiling of ${percent(pool.ceiling)} needs ${count(table(pool.reach)["0.95"])} tokens.`);
    if (mine) words.push(`Your pool${pool.basis ? ` (${pool.basis})` : ""} holds ${count(mine.tokens)} tokens and gives ${percent(mine.hit_rate)}.`);
    else words.push("Name your pool with --capacity or --gpu and it is marked here.");
    words.push(`Method: ${pool.method}.`);
  }
  return el("div", {}, el("h3", {}, "Memory"), lines({ title: "Hit rate by pool size", series, marks, rules, x: { kind: "log", label: "pool, tokens a replica", format: short }, y: RATE }), note(words.join(" ")), host(curves, state));
}

function host(curves, state) {
  const rows = list(curves.host).filter((row) => row.engine === state.engine);
  return rows.length ? grid(["Tier on the host", "GiB", "hit rate", "the pool alone"], rows.map((row) => [`${short(row.host_tokens)} tokens`, known(row.gib) ? Number(row.gib.toPrecision(3)) : "", percent(row.hit_rate), percent(row.pool_hit_rate)]), "lrrr") : null;
}

function lifetime(result, state) {
  const rows = list(table(result.curves).ttl).filter((row) => row.engine === state.engine);
  if (!rows.length) return null;
  const series = [...by(rows, "since")].map(([since, found], i) => ({ name: `after the last ${since}`, kind: `c-${i}`, dots: true, dashed: since === "write", points: found.map((row) => ({ x: row.seconds, y: row.hit_rate })) }));
  return el("div", {}, el("h3", {}, "Lifetime"), lines({ title: "Hit rate by lifetime", series, height: 220, x: { kind: "log", label: "entries live for", format: seconds, tick: seconds, at: () => [10, 60, 600, 3600, 14400, 86400].filter((at) => rows.some((row) => row.seconds === at)) }, y: RATE }), note("As if nothing else limited the cache: from the last use, or from the write alone."));
}

function replicas(result, state) {
  const rows = list(table(result.curves).replicas).filter((row) => row.engine === state.engine);
  if (!rows.length) return null;
  const series = [...by(rows, "route")].map(([route, found], i) => ({ name: route, kind: `c-${i}`, dots: true, points: found.map((row) => ({ x: row.replicas, y: row.hit_rate })) }));
  const mine = engineOf(result, state.engine);
  const rules = mine.replicas > 1 ? [{ x: mine.replicas, label: `yours: ${mine.replicas}`, kind: "pool" }] : [];
  return el("div", {}, el("h3", {}, "Replicas"), lines({ title: "Hit rate by replicas", series, rules, height: 220, x: { kind: "log", label: "replicas", format: (at) => String(at), at: () => [1, 2, 4, 8, 16] }, y: RATE }), note("Each replica with an unlimited cache of its own; session routing keeps a conversation on one."));
}

function curves(result, state) {
  const found = [capacity(result, state), el("div", { class: "two" }, lifetime(result, state), replicas(result, state))];
  return found[0] || found[1].children.length ? el("div", {}, found) : null;
}

function misses(result) {
  const engines = list(result.engines).filter((one) => one.prompt_tokens);
  if (!engines.length) return null;
  const kinds = ["cached", "unaligned", "too_short", "in_flight", "not_written", "evicted", "expired", "replica", "namespace", "diverged", "cold"];
  const words = { cached: "cached", cold: "new text", diverged: "seen before, behind a difference", unaligned: "off a block border", too_short: "below the minimum", not_written: "not written by a mark", in_flight: "still being computed" };
  const used = kinds.filter((kind) => kind === "cached" || engines.some((one) => table(one.misses)[kind]));
  const tokens = (one, kind) => (kind === "cached" ? one.cached_tokens : table(one.misses)[kind] ?? 0);
  return el("div", {},
    engines.map((one) => el("div", { class: "stackrow" }, el("b", {}, one.engine), el("div", { class: "stack", role: "img", "aria-label": `${one.engine}: ${used.map((kind) => `${words[kind] ?? kind} ${percent(tokens(one, kind) / one.prompt_tokens)}`).join(", ")}` },
      used.map((kind) => el("span", { class: `m-${kind}`, css: { width: `${(100 * tokens(one, kind)) / one.prompt_tokens}%` }, title: `${words[kind] ?? kind}: ${percent(tokens(one, kind) / one.prompt_tokens)}` }))))),
    el("p", { class: "legend" }, used.map((kind) => el("span", {}, el("i", { class: `key block m-${kind}` }), words[kind] ?? kind))),
    grid(["Prompt tokens", ...engines.map((one) => one.engine)], [
      ...used.map((kind) => [words[kind] ?? kind, ...engines.map((one) => `${count(tokens(one, kind))} (${percent(tokens(one, kind) / one.prompt_tokens)})`)]),
      ["hit rate by blocks", ...engines.map((one) => percent(one.hit_rate_blocks))], ["mean of the requests' rates", ...engines.map((one) => percent(one.hit_rate_mean))],
      ["requests without a hit", ...engines.map((one) => count(one.zero_hit_requests))]], `l${"r".repeat(engines.length)}`, "Prompt tokens by engine"));
}

function versus(result) {
  const found = result.compare;
  if (!found) return null;
  const moved = (one) => [percent(table(one).before), percent(table(one).after), known(table(one).change) ? el("span", { class: one.change < 0 ? "bad" : "good" }, `${points(one.change)} pt`) : "unknown"];
  return el("div", {}, note("Against ", code(found.with), "."),
    grid(["Hit rate", "before", "now", "change"], Object.entries(table(found.engines)).map(([name, one]) => [name, ...moved(one)]), "lrrr"),
    Object.entries(table(found.reasons)).map(([name, reasons]) => list(reasons).length ? el("ul", {}, list(reasons).map((reason) => el("li", {}, `${name}: ${points(reason.points)} points: ${reason.rule ?? ""} ${reason.message}`))) : null),
    list(found.causes).length ? grid(["Cause, share of the prompt tokens", "", "before", "now"], list(found.causes).slice(0, 40).map((one) => { const share = table(Object.values(table(one.lost))[0]); return [`${one.rule} ${one.name}, ${one.path}`, chip(one.state, one.state === "new" || one.state === "worse" ? "error" : "quiet"), percent(share.before), percent(share.after)]; }), "llrr") : null,
    list(found.families).length ? grid(["Family", "before", "now", "change"], list(found.families).slice(0, 40).map((one) => [one.name, ...moved(Object.values(table(one.engines))[0])]), "lrrr") : null);
}

function groups(result) {
  const found = list(result.groups);
  if (!found.length) return null;
  const engines = list(result.engines).map((one) => one.engine);
  return grid([...list(result.by), "requests", "prompt tokens", "reported", ...engines], found.map((one) => [
    ...list(result.by).map((key) => table(one.key)[key] ?? "(none)"), count(one.requests), short(one.prompt_tokens), one.reported ? percent(one.reported.hit_rate) : "unknown",
    ...engines.map((name) => percent(list(one.engines).find((each) => each.engine === name)?.hit_rate))]), `${"l".repeat(list(result.by).length)}rrr${"r".repeat(engines.length)}`);
}

function worth(result) {
  const saved = list(result.savings), advice = list(result.advice);
  if (!saved.length && !advice.length) return null;
  const money = (amount, currency) => (known(amount) ? `${amount >= 1 ? amount.toFixed(2) : Number(amount.toPrecision(3))} ${currency}` : "");
  return el("div", {},
    advice.map((one) => el("div", { class: "tip-card" }, el("p", {}, el("b", {}, one.engine), `: ${one.advice}`),
      known(one.new_hit_rate) ? el("p", {}, known(one.hit_rate) ? `hit rate ${percent(one.hit_rate)} to ${percent(one.new_hit_rate)}` : `hit rate ${percent(one.new_hit_rate)}`, known(one.money_saved) ? `; ${money(one.money_saved, one.currency)} less` : "") : null,
      one.command ? el("pre", { class: "command", tabindex: "0" }, one.command) : null)),
    saved.length ? grid(["What hits are worth", "prefill FLOPs", "prefill time", "money"], saved.map((one) => [one.engine, known(one.prefill_flops) ? `${one.prefill_flops.toExponential(2)} (${percent(one.flops_share)})` : "", known(one.prefill_seconds) ? `${seconds(one.prefill_seconds)} ± ${Math.round(100 * (one.band ?? 0))} %` : "", money(one.money, one.currency)]), "lrrr") : null,
    saved.map((one) => one.basis ? note(`${one.engine}: ${one.basis}.`) : null));
}

function basis(result) {
  const input = table(result.input);
  return el("div", {},
    list(result.notes).map((one) => el("p", { class: "alert" }, one.message)),
    grid(["Model", "tokenizer", "chat template", "exact", "equal counts"], list(result.tokenizers).map((one) => [one.model ?? "(no model named)", one.name, one.chat_template, one.exact, one.compared ? `${count(one.equal)} of ${count(one.compared)}` : ""]), "llllr", "How tokens were counted"),
    grid(["File", ""], list(input.files).slice(0, 50).map((name) => [code(name), ""]), "ll", "Files read"),
    note(Object.entries(table(input.formats)).map(([name, n]) => `${name}: ${many(n, "request")}`).join(", "), `; in ${input.order} order.`),
    input.skipped_total ? el("div", {}, el("h3", {}, `Left out: ${count(input.skipped_total)}`), grid(["Where", "why", "lines"], list(input.skipped_by_reason).slice(0, 50).map((one) => [code(`${one.path}:${one.line}`), one.reason, count(one.count)]), "llr")) : null,
    list(result.shared_prefixes).length ? el("div", {}, el("h3", {}, "Largest shared prefixes"), grid(["tokens", "requests", "end with"], list(result.shared_prefixes).map((one) => [count(one.tokens), count(one.requests), el("bdi", {}, one.text)]), "rrl")) : null);
}

const ANALYZE = {
  engines: (result) => list(result.engines).map((one) => one.engine),
  title: (result) => { const files = list(table(result.input).files); return files.length === 1 ? files[0].split("/").at(-1) : many(files.length, "log"); },
  subtitle: (result) => { const input = table(result.input); return [many(input.requests, "request"), `${short(table(result.tokens).prompt)} prompt tokens`, input.from ? `${moment(input.from)} to ${moment(input.to)}${Date.parse(input.from) > 1e11 ? " UTC" : ""}` : "in file order"].join(" · "); },
  panels: [
    { id: "summary", title: "In short", draw: story, byEngine: true },
    { id: "waterfall", title: "From served to the ceiling", short: "Waterfall", lede: "What the server gave, what this log allows, and what each fix adds.", draw: waterfall, byEngine: true },
    { id: "causes", title: "What breaks the prefix", short: "Causes", lede: "By the tokens computed again for its sake; both values side by side.", draw: ranked, byEngine: true },
    { id: "source", title: "In the source", draw: inSource },
    { id: "tree", title: "Prefix tree", lede: "Where prompts part. Width: the prompt tokens that run through a stretch; colour: how much of it an unlimited cache finds again.", draw: (result) => (result.tree ? icicle(result.tree) : null) },
    { id: "families", title: "Families of prompts", short: "Families", lede: "Requests that share a template, with the places at which they part and what is lost behind each.", draw: families, byEngine: true },
    { id: "time", title: "Hit rate over time", draw: overTime },
    { id: "curves", title: "Memory, lifetime, replicas", short: "Curves", lede: "How the hit rate depends on what the cache is given.", draw: curves, byEngine: true },
    { id: "misses", title: "Where the prompt tokens went", short: "Misses", draw: misses },
    { id: "compare", title: "Against an earlier result", short: "Compare", draw: versus },
    { id: "groups", title: "By group", draw: groups },
    { id: "worth", title: "What it is worth, what to do", short: "Worth", draw: worth },
    { id: "basis", title: "What this rests on", short: "Basis", draw: basis },
  ],
};
