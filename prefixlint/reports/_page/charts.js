/* Line charts and scatters as SVG, drawn at the width that there is; arrow keys move along the points. */

const TIP = () => document.getElementById("tip");

let anchor = null; // of the tip that is shown, in the document, since a scroll that focus began can come after it

function tip(children, x, y) {
  const box = TIP();
  box.replaceChildren();
  add(box, children);
  box.hidden = false;
  anchor = [x + scrollX, y + scrollY];
  placed();
}

function placed() {
  const box = TIP(), x = anchor[0] - scrollX, y = anchor[1] - scrollY;
  const wide = box.offsetWidth, high = box.offsetHeight, room = document.documentElement.clientWidth;
  box.style.left = `${Math.max(4, Math.min(x + 14, room - wide - 4))}px`;
  box.style.top = `${y + high + 24 > innerHeight ? Math.max(4, y - high - 12) : y + 16}px`;
}

/* Keeps the tip beside its anchor while the page scrolls, until that leaves the window. */
function scrolled() {
  if (TIP().hidden) return;
  const y = anchor[1] - scrollY;
  if (y < 0 || y > innerHeight) untip(); else placed();
}
const untip = () => { TIP().hidden = true; };

const drawn = new ResizeObserver((entries) => {
  for (const entry of entries) entry.target.redraw?.(Math.floor(entry.contentRect.width));
});

/* Gives a box whose content `draw(width)` makes again whenever the width changes. */
function sized(attributes, draw) {
  const box = el("div", attributes);
  let last = 0;
  box.redraw = (width) => {
    if (!width || width === last) return;
    last = width;
    box.replaceChildren(draw(width));
  };
  drawn.observe(box);
  return box;
}

function scale(kind, low, high, from, to) {
  const turn = kind === "log" ? (value) => Math.log10(Math.max(value, 1e-9)) : (value) => value;
  const a = turn(low), b = turn(high), span = b - a || 1;
  return (value) => from + ((turn(value) - a) / span) * (to - from);
}

function ticks(kind, low, high, most) {
  if (kind === "log") {
    const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
    const step = Math.max(1, Math.ceil((last - first + 1) / most));
    const found = [];
    for (let power = first; power <= last; power += step) found.push(10 ** power);
    return found.length > 1 ? found : [low, high];
  }
  const raw = (high - low) / Math.max(1, most) || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((each) => each * power >= raw) * power;
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(at);
  return found;
}

const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000, 7776000, 31536000];

/* Whole minutes, hours and days between two times in seconds; of a clock that began with the log, from its begin. */
function times(low, high, most, dated) {
  const step = STEPS.find((each) => (high - low) / each <= Math.max(2, most)) ?? STEPS.at(-1);
  const found = [];
  for (let at = Math.ceil((dated ? low : 0) / step) * step; at <= high; at += step) if (at >= low) found.push(at);
  return found.length > 1 ? found : [low, high];
}

const stretch = (values, kind) => {
  const good = values.filter((value) => known(value) && (kind !== "log" || value > 0));
  if (!good.length) return [kind === "log" ? 1 : 0, kind === "log" ? 10 : 1];
  const low = Math.min(...good), high = Math.max(...good);
  return low === high ? (kind === "log" ? [low / 2, high * 2] : [low - 0.5, high + 0.5]) : [low, high];
};

/*
 * spec: title, series [{name, kind, dashed, dots, points [{x, y, more}]}], x and y {kind, label, format, low, high, at},
 * marks [{x, y, label, kind}] and rules [{x, label, kind}]. x.names are the words of whole numbers.
 */
function lines(spec) {
  const series = spec.series.map((one) => ({ ...one, points: one.points.filter((p) => known(p.x) && known(p.y) && (spec.x.kind !== "log" || p.x > 0)) }))
    .filter((one) => one.points.length);
  if (!series.length) return null;
  const stops = [...new Set(series.flatMap((one) => one.points.map((p) => p.x)))].sort((a, b) => a - b);
  let cursor = -1, move = () => {};
  const said = (index) => {
    const x = stops[index];
    const near = series.map((one) => [one, one.points.find((p) => p.x === x)]).filter(([, point]) => point);
    return [[spec.x.label && `${spec.x.label}: `, spec.x.format(x)].filter(Boolean).join(""),
      near.map(([one, point]) => [one, `${one.name}: ${spec.y.format(point.y)}${point.more ? `, ${point.more}` : ""}`])];
  };
  const handle = sized({
    class: "chart", role: "slider", tabindex: "0", "aria-label": `${spec.title}; arrow keys move along the points`,
    "aria-valuemin": 0, "aria-valuemax": stops.length - 1, "aria-valuenow": 0, "aria-valuetext": "not on a point yet",
    onkeydown: (event) => {
      const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, Home: -Infinity, End: Infinity, PageUp: 5, PageDown: -5 }[event.key];
      if (step === undefined) { if (event.key === "Escape") hide(); return; }
      event.preventDefault();
      show(Math.max(0, Math.min(stops.length - 1, (cursor < 0 && step > 0 ? -1 : cursor) + step)));
    },
    onblur: () => hide(), onpointerleave: () => hide(),
  }, (width) => draw(width));
  const hide = () => { cursor = -1; move(null); untip(); };
  const show = (index, pointer) => {
    cursor = index;
    const [head, rows] = said(index);
    handle.setAttribute("aria-valuenow", index);
    handle.setAttribute("aria-valuetext", [head, ...rows.map(([, text]) => text)].join("; "));
    const at = move(stops[index]), box = handle.getBoundingClientRect();
    tip([el("b", {}, head), rows.map(([one, text]) => el("div", {}, el("i", { class: `key ${one.kind}` }), text))],
      box.left + at, pointer ?? box.top + 24);
  };
  const draw = (width) => {
    const high = spec.height ?? 240, pad = { left: 46, right: 14, top: 26, bottom: spec.x.label ? 42 : 26 };
    const [lowX, highX] = stretch([...stops, ...(spec.rules ?? []).map((rule) => rule.x)], spec.x.kind);
    const every = series.flatMap((one) => one.points.map((p) => p.y));
    const [minY, maxY] = stretch(every, spec.y.kind);
    const lowY = spec.y.low ?? minY, highY = spec.y.high ?? maxY;
    const X = scale(spec.x.kind, lowX, highX, pad.left, width - pad.right), Y = scale(spec.y.kind, lowY, highY, high - pad.bottom, pad.top);
    const out = sv("svg", { width, height: high, viewBox: `0 0 ${width} ${high}`, "aria-hidden": "true", focusable: "false" });
    for (const at of ticks(spec.y.kind, lowY, highY, 4)) {
      out.append(sv("line", { class: "grid", x1: pad.left, x2: width - pad.right, y1: Y(at), y2: Y(at) }),
        sv("text", { class: "tick", x: pad.left - 6, y: Y(at) + 4, "text-anchor": "end" }, (spec.y.tick ?? spec.y.format)(at)));
    }
    let free = -Infinity;
    for (const at of spec.x.at ? spec.x.at(lowX, highX, Math.floor(width / 110)) : ticks(spec.x.kind, lowX, highX, Math.max(2, Math.floor(width / 90)))) {
      const text = (spec.x.tick ?? spec.x.format)(at), half = text.length * 3.3, place = X(at);
      if (place - half < free) continue;
      free = place + half + 8;
      out.append(sv("line", { class: "grid", x1: place, x2: place, y1: high - pad.bottom, y2: high - pad.bottom + 4 }),
        sv("text", { class: "tick", x: Math.min(place, width - half - 1), y: high - pad.bottom + 17, "text-anchor": "middle" }, text));
    }
    out.append(sv("line", { class: "axis", x1: pad.left, x2: width - pad.right, y1: high - pad.bottom, y2: high - pad.bottom }));
    if (spec.x.label) out.append(sv("text", { class: "name", x: width - pad.right, y: high - 6, "text-anchor": "end" }, spec.x.label));
    out.append(sv("text", { class: "name", x: 4, y: 12 }, spec.y.label ?? ""));
    (spec.rules ?? []).forEach((rule, i) => {
      // curves rise from the left, so that there is room before the line
      const x = X(rule.x), before = x - 7 * rule.label.length > pad.left;
      out.append(sv("line", { class: `rule ${rule.kind ?? ""}`, x1: x, x2: x, y1: pad.top - 4, y2: high - pad.bottom }),
        sv("text", { class: "name on", x: before ? x - 6 : x + 6, y: pad.top + 8 + 16 * (i % 4), "text-anchor": before ? "end" : "start" }, rule.label));
    });
    for (const one of series) {
      const way = one.points.map((p, i) => `${i ? "L" : "M"}${X(p.x).toFixed(1)} ${Y(p.y).toFixed(1)}`).join("");
      // the first is the widest, so that it shows under others that run along it
      const broad = one.dashed ? 2 : Math.max(1.8, 3.6 - 1.5 * series.indexOf(one));
      out.append(sv("path", { class: `line ${one.kind} ${one.dashed ? "dashed" : ""}`, "stroke-width": broad, d: way }));
      if (one.dots || one.points.length < 2) for (const p of one.points) out.append(sv("circle", { class: `dot ${one.kind}`, cx: X(p.x), cy: Y(p.y), r: 3.5 }));
    }
    for (const mark of spec.marks ?? []) {
      if (!known(mark.x) || !known(mark.y)) continue;
      const x = X(mark.x), y = Y(mark.y), right = x > width * 0.6;
      out.append(sv("circle", { class: `mark ${mark.kind ?? ""}`, cx: x, cy: y, r: 5.5 }),
        mark.label ? sv("text", { class: "name on", x: right ? x - 9 : x + 9, y: y - 9, "text-anchor": right ? "end" : "start" }, mark.label) : "");
    }
    const line = sv("line", { class: "cursor", y1: pad.top - 4, y2: high - pad.bottom, visibility: "hidden" });
    const dots = series.map((one) => sv("circle", { class: `dot ${one.kind}`, r: 4.5, visibility: "hidden" }));
    out.append(line, ...dots);
    move = (x) => {
      line.setAttribute("visibility", x === null ? "hidden" : "visible");
      if (x !== null) { line.setAttribute("x1", X(x)); line.setAttribute("x2", X(x)); }
      series.forEach((one, i) => {
        const point = x === null ? null : one.points.find((p) => p.x === x);
        dots[i].setAttribute("visibility", point ? "visible" : "hidden");
        if (point) { dots[i].setAttribute("cx", X(point.x)); dots[i].setAttribute("cy", Y(point.y)); }
      });
      return x === null ? 0 : X(x);
    };
    out.addEventListener("pointermove", (event) => {
      const at = event.clientX - out.getBoundingClientRect().left;
      let best = 0;
      stops.forEach((x, i) => { if (Math.abs(X(x) - at) < Math.abs(X(stops[best]) - at)) best = i; });
      show(best, event.clientY);
    });
    return out;
  };
  return el("figure", {}, legend(series), handle,
    numbers([spec.x.label || "at", ...series.map((one) => one.name)],
      stops.map((x) => [spec.x.format(x), ...series.map((one) => { const p = one.points.find((each) => each.x === x); return p ? spec.y.format(p.y) : ""; })]),
      `l${"r".repeat(series.length)}`, spec.title));
}

function legend(series) {
  if (series.length < 2) return null;
  return el("figcaption", { class: "legend" }, series.map((one) => el("span", {}, el("i", { class: `key ${one.kind} ${one.dashed ? "dashed" : ""}` }), one.name)));
}

/* Points of two equal axes and the line on which they would agree. points [{x, y, n, text}] */
function scatter(spec) {
  const top = Math.max(1, ...spec.points.flatMap((p) => [p.x, p.y]));
  const handle = sized({ class: "chart", role: "img", "aria-label": spec.title }, (width) => {
    const size = Math.min(width, 460), pad = { left: 52, right: 12, top: 24, bottom: 42 };
    const X = scale("linear", 0, top, pad.left, size - pad.right), Y = scale("linear", 0, top, size - pad.bottom, pad.top);
    const out = sv("svg", { width: size, height: size, viewBox: `0 0 ${size} ${size}`, "aria-hidden": "true", focusable: "false" });
    for (const at of ticks("linear", 0, top, 4)) {
      out.append(sv("line", { class: "grid", x1: pad.left, x2: size - pad.right, y1: Y(at), y2: Y(at) }),
        sv("line", { class: "grid", y1: pad.top, y2: size - pad.bottom, x1: X(at), x2: X(at) }),
        sv("text", { class: "tick", x: pad.left - 6, y: Y(at) + 4, "text-anchor": "end" }, short(at)),
        sv("text", { class: "tick", x: X(at), y: size - pad.bottom + 17, "text-anchor": "middle" }, short(at)));
    }
    out.append(sv("line", { class: "axis dashed", x1: X(0), y1: Y(0), x2: X(top), y2: Y(top) }),
      sv("text", { class: "name", x: size - pad.right, y: size - 6, "text-anchor": "end" }, spec.x),
      sv("text", { class: "name", x: 4, y: 12 }, spec.y));
    for (const p of spec.points) {
      const dot = sv("circle", { class: `point ${p.x === p.y ? "same" : "off"}`, cx: X(p.x), cy: Y(p.y), r: Math.min(14, 3 + Math.sqrt(p.n ?? 1) / 2) });
      dot.addEventListener("pointerenter", (event) => tip([el("b", {}, p.text)], event.clientX, event.clientY));
      dot.addEventListener("pointerleave", untip);
      out.append(dot);
    }
    return out;
  });
  return el("figure", {}, handle);
}
