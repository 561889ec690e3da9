/* Elements, numbers and strangers' text. Text reaches the page through text nodes only. */

const SVG = "http://www.w3.org/2000/svg";
const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}]/gu;
const LINES = { "\n": "\\n", "\t": "\\t", "\r": "\\r" };

/* Shows controls, escapes, bidi overrides and lone surrogates as codes; `whole` keeps line ends and tabs. */
function visible(text, whole = false) {
  return String(text ?? "").replace(UNSEEN, (char) => {
    if (char in LINES) return whole && char !== "\r" ? char : LINES[char];
    const code = char.codePointAt(0);
    const hex = code.toString(16);
    return code < 0x100 ? `\\x${hex.padStart(2, "0")}` : code < 0x10000 ? `\\u${hex.padStart(4, "0")}` : `\\U${hex.padStart(8, "0")}`;
  });
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "css") for (const [key, one] of Object.entries(value)) node.style.setProperty(key, one);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  add(node, children);
  return node;
}

function add(node, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    node.append(child instanceof Node ? child : document.createTextNode(visible(child)));
  }
}

const el = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
const sv = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

/* Text of several lines as it is, what would not be seen made visible. */
function verbatim(name, attributes, text) {
  const node = el(name, attributes);
  node.append(document.createTextNode(visible(text, true)));
  return node;
}

/* What is no list counts as an empty one, and nothing in it as no item: a saved result may be of a strange hand. */
const list = (value) => (Array.isArray(value) ? value.filter((one) => one !== null && one !== undefined) : []);
const table = (value) => (value && typeof value === "object" && !Array.isArray(value) ? value : {});
const known = (value) => typeof value === "number" && Number.isFinite(value);
const sum = (values) => values.reduce((all, one) => all + (known(one) ? one : 0), 0);

const GROUPED = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const count = (value) => (known(value) ? GROUPED.format(value) : "unknown");
const percent = (rate) => (known(rate) ? `${(100 * rate).toFixed(1)} %` : "unknown");
const points = (change) => (known(change) ? `${change < 0 ? "−" : "+"}${Math.abs(100 * change).toFixed(1)}` : "unknown");
const many = (number, noun, plural) => `${count(number)} ${number === 1 ? noun : plural ?? `${noun}s`}`;

function short(value) {
  if (!known(value)) return "unknown";
  for (const [size, unit] of [[1e12, " T"], [1e9, " G"], [1e6, " M"], [1e3, " k"]]) {
    if (Math.abs(value) >= size) return Number((value / size).toPrecision(3)) + unit;
  }
  return String(Number(value.toPrecision(3)));
}

function seconds(value) {
  if (!known(value)) return "unknown";
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (value >= size) return `${Number((value / size).toPrecision(3))} ${unit}`;
  }
  return `${Number(value.toPrecision(3))} s`;
}

const milliseconds = (value) => (!known(value) ? "unknown" : value >= 1000 ? seconds(value / 1000) : `${Number(value.toPrecision(3))} ms`);

/* A time of the result (ISO, UTC) for people; times before 1973 are a clock that began with the log. */
function moment(iso) {
  const time = typeof iso === "string" ? Date.parse(iso) : NaN;
  if (Number.isNaN(time)) return "unknown";
  if (time < 1e11) return `${seconds(time / 1000)} in`;
  return new Date(time).toISOString().slice(0, 19).replace("T", " ");
}

const ENGINES = ["sglang", "vllm", "openai", "anthropic", "gemini"];
/* The class that colours an engine's series: the same in every chart. */
function paint(name, names) {
  if (name === "reported") return "c-reported";
  const place = ENGINES.indexOf(name);
  return `c-${place >= 0 ? place : 5 + (Math.max(0, names.indexOf(name)) % 3)}`;
}

const code = (text, attributes) => el("code", attributes, text);
const chip = (text, kind) => el("span", { class: `chip ${kind ?? ""}` }, text);
const note = (...children) => el("p", { class: "note" }, ...children);

/* A table; cells are text or nodes, `align` has r for the columns of numbers. */
function grid(heads, rows, align = "", caption = null) {
  const side = (index) => (align[index] === "r" ? "num" : null);
  return el(
    "div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption ?? heads.filter(Boolean).join(", ") },
    el("table", {},
      caption && el("caption", { class: "unseen" }, caption),
      el("thead", {}, el("tr", {}, heads.map((head, i) => el("th", { class: side(i), scope: "col" }, head || el("span", { class: "unseen" }, "bar"))))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, i) => el(i ? "td" : "th", { class: side(i), scope: i ? null : "row" }, cell)))))));
}

/* The widths of a table with a bar in its second column. */
const columns = (...kinds) => el("colgroup", {}, el("col", { class: "what" }), el("col"), kinds.map((kind) => el("col", { class: kind })));

/* The numbers behind a chart, folded away. */
const numbers = (heads, rows, align, caption) =>
  el("details", { class: "numbers" }, el("summary", {}, "Show the numbers"), grid(heads, rows, align, caption));

/* A bar of a share (0 .. 1). */
function meter(share, kind, label) {
  const wide = Math.max(0, Math.min(1, known(share) ? share : 0));
  return el("span", { class: `meter ${kind ?? ""}`, role: "img", "aria-label": label ?? percent(share) },
    el("span", { css: { width: `${100 * wide}%` } }));
}

/* The characters that two texts share at their ends, so that only what differs is marked. */
function differing(one, other) {
  const a = Array.from(one), b = Array.from(other), most = Math.min(a.length, b.length);
  let start = 0, end = 0;
  while (start < most && a[start] === b[start]) start++;
  while (end < most - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const cut = (text) => [text.slice(0, start).join(""), text.slice(start, text.length - end).join(""), text.slice(text.length - end).join("")];
  return [cut(a), cut(b)];
}

/* Two values side by side with what differs marked. */
function sides(earlier, later, heads = ["one request", "a later one"]) {
  const [one, other] = differing(String(earlier ?? ""), String(later ?? ""));
  const side = (head, parts, kind) => el("div", { class: `side ${kind}` },
    el("span", { class: "label" }, head),
    el("pre", { tabindex: "0" }, el("bdi", {}, parts[0], parts[1] ? el("mark", {}, parts[1]) : parts.join("") ? "" : el("i", {}, "(nothing)"), parts[2])));
  return el("div", { class: "sides" }, side(heads[0], one, "before"), side(heads[1], other, "after"));
}
