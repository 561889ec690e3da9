/* The panels of `check`. */

const SEVERITIES = ["error", "warning", "info"];

function findingCard(finding) {
  const values = list(finding.values), fix = finding.fix, rule = table(RULES[finding.rule]);
  const end = finding.cell ? ` (cell ${finding.cell.number}, line ${finding.cell.line})` : "";
  return el("article", { class: `cause ${finding.severity}`, "data-severity": finding.severity },
    el("header", {}, el("h3", {}, `${finding.rule} ${finding.name}`), chip(finding.severity, finding.severity), finding.masked_by ? chip("behind another", "quiet") : null,
      el("p", { class: "cost" }, code(`${finding.path}:${finding.line}:${finding.column}`), end)),
    el("p", {}, finding.message),
    values.length === 2 ? sides(values[0], values[1]) : finding.excerpt ? verbatim("pre", { class: "excerpt", tabindex: "0" }, finding.excerpt) : null,
    finding.tokens_lost ? el("p", {}, "In the log: ", Object.entries(table(finding.tokens_lost)).map(([name, tokens], i) => `${i ? ", " : ""}${count(tokens)} tokens on ${name}`)) : null,
    list(finding.related).length ? el("ul", { class: "places" }, list(finding.related).map((one) => el("li", {}, code(`${one.path}:${one.line}`), ` ${one.message}`))) : null,
    finding.reason ? el("p", { class: "quiet" }, `Silenced: ${finding.reason}`) : null,
    rule.help ? el("p", { class: "advice" }, el("b", {}, "Instead: "), rule.help) : null,
    fix ? el("details", {}, el("summary", {}, `Fix: ${fix.title} (${fix.applicability})`), list(fix.edits).map((edit) => el("div", {}, el("p", {}, code(edit.path), ` bytes ${count(edit.start)} to ${count(edit.end)} become`), verbatim("pre", { class: "excerpt", tabindex: "0" }, edit.text || "(nothing)")))) : null);
}

function checkStory(result) {
  const found = list(result.findings), files = table(result.files);
  const tile = (value, text, kind) => el("div", { class: `tile ${kind ?? ""}` }, el("b", {}, value), el("span", {}, text));
  const of = (severity) => found.filter((one) => one.severity === severity).length;
  return el("div", { class: "tiles" },
    SEVERITIES.map((severity) => tile(count(of(severity)), severity === "info" ? "for information" : many(of(severity), severity).replace(/^\S+ /, ""), severity)),
    tile(count(list(result.suppressed).length), "silenced"), tile(count(files.scanned), `files read, ${count(files.with_prompts)} with prompts`),
    list(result.errors).length ? tile(count(list(result.errors).length), "could not be read", "error") : null);
}

function findings(result) {
  const found = list(result.findings);
  if (!found.length) return note("Nothing to report.");
  const shown = new Set(SEVERITIES), holder = el("div");
  const search = el("input", { type: "search", id: "search", placeholder: "rule, file or text", oninput: () => paint() });
  const told = el("p", { class: "quiet", role: "status" });
  const paint = () => {
    const wanted = search.value.toLowerCase();
    const kept = found.filter((one) => shown.has(one.severity) && (!wanted || `${one.rule} ${one.name} ${one.path} ${one.message}`.toLowerCase().includes(wanted)));
    let places = 0;
    holder.replaceChildren(...[...by(kept, "path")].map(([path, rows]) => {
      const open = places < 60, content = el("div");
      places += rows.length;
      const put = () => { if (!content.childElementCount) content.append(...rows.map(findingCard)); };
      if (open) put();
      return el("details", { class: "file", open, ontoggle: put }, el("summary", {}, code(path), el("span", { class: "quiet" }, ` ${many(rows.length, "finding")}`)), content);
    }));
    told.textContent = kept.length === found.length ? many(found.length, "finding") : `${count(kept.length)} of ${many(found.length, "finding")}`;
  };
  paint();
  return el("div", {}, el("div", { class: "filters" },
    SEVERITIES.map((severity) => el("label", { class: "toggle" }, el("input", { type: "checkbox", checked: true, onchange: (event) => { if (event.target.checked) shown.add(severity); else shown.delete(severity); paint(); } }), severity)),
    el("label", { for: "search" }, "Search"), search), told, holder);
}

function byRule(result) {
  const rows = [...by(list(result.findings), "rule")].map(([rule, found]) => [rule, found[0].name, found.length, sum(found.map((one) => one.tokens_at_risk))]).sort((a, b) => b[3] - a[3] || b[2] - a[2]);
  if (!rows.length) return null;
  const most = Math.max(1, ...rows.map((row) => row[3]));
  return grid(["Rule", "what", "findings", "tokens behind", ""], rows.map(([rule, name, n, tokens]) => [rule, [name, table(RULES[rule]).summary ? el("small", {}, ` ${RULES[rule].summary}`) : null], count(n), count(tokens), meter(tokens / most, "lost", `${count(tokens)} tokens`)]), "llrrl");
}

const CHECK = {
  finding: findingCard,
  engines: () => [],
  title: () => "What will break the prefix",
  subtitle: (result) => [many(list(result.findings).length, "finding"), `${count(table(result.files).scanned)} files read`].join(" · "),
  panels: [
    { id: "summary", title: "In short", draw: checkStory },
    { id: "rules", title: "By rule", draw: byRule },
    { id: "findings", title: "Findings", draw: findings },
    { id: "silenced", title: "Silenced", draw: (result) => (list(result.suppressed).length ? el("details", {}, el("summary", {}, many(list(result.suppressed).length, "finding")), list(result.suppressed).slice(0, 500).map(findingCard)) : null) },
    { id: "errors", title: "Not read", draw: (result) => (list(result.errors).length ? grid(["Where", "why"], list(result.errors).map((one) => [code(one.line ? `${one.path}:${one.line}` : one.path), one.message])) : null) },
  ],
};
