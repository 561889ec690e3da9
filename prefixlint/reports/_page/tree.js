/* The prefix tree as an icicle: width by prompt tokens, colour by reuse; a click or Enter goes down, Escape goes up. */

const ROW = 30, LEVELS = 16, NARROW = 3;

function family(flat) {
  const nodes = (Array.isArray(flat.nodes) ? flat.nodes : []).map((node, index) => ({ ...table(node), index, children: [] }));
  for (const node of nodes) {
    node.above = known(node.parent) && node.parent < node.index ? nodes[node.parent] : null;
    node.above?.children.push(node);
  }
  for (const node of nodes) {
    node.level = node.above ? node.above.level + 1 : 0;
    node.again = node.reused_tokens;
  }
  for (const node of nodes.toReversed()) if (node.above) node.above.again += node.again;
  return nodes;
}

/* 0: computed each time; 4: nearly always found. Unknown is its own class. */
const heat = (share) => (known(share) ? `h-${Math.min(4, Math.floor(share * 4.999))}` : "h-none");
const reuse = (node) => (known(node.own_tokens) && node.own_tokens > 0 ? node.reused_tokens / node.own_tokens : null);
const wording = (node) => node.branches ? `${many(node.branches, "more branch", "more branches")}` : visible(node.text || "").trim() || (node.index ? "(no text)" : "all prompts");

function told(node, total) {
  const rows = [
    ["Requests that run through it", count(node.requests)],
    ["Prompt tokens here and below", `${count(node.prompt_tokens)} (${percent(node.prompt_tokens / total)})`],
    ["of them found again", `${count(node.again)} (${percent(node.again / Math.max(1, node.prompt_tokens))})`],
  ];
  if (node.index && !node.branches && node.children.length) rows.push(["Prompt tokens of the stretch alone", count(node.own_tokens)], ["of them found again", `${count(node.reused_tokens)} (${percent(reuse(node))})`]);
  if (!node.branches && node.index) rows.unshift(["Place in the prompt", `tokens ${count(node.start + 1)} to ${count(node.start + node.tokens)}`]);
  return rows;
}

function icicle(flat) {
  const nodes = family(flat), root = nodes[0];
  if (!root || !root.prompt_tokens) return null;
  const total = root.prompt_tokens;
  let top = root, chosen = root, wide = 0;
  const crumbs = el("ol", { class: "crumbs", "aria-label": "Where the view stands in the tree" });
  const detail = el("div", { class: "detail", "aria-live": "polite" });
  const canvas = sized({ class: "icicle" }, (width) => { wide = width; return paintTree(); });

  const go = (node, focus = true) => {
    top = chosen = node;
    canvas.replaceChildren(paintTree());
    tell();
    if (focus) canvas.querySelector('[tabindex="0"]')?.focus({ preventScroll: true });
  };
  const choose = (node) => {
    chosen = node;
    let inside = node;
    while (inside && inside !== top) inside = inside.above;
    if (!inside) return go(node.above ?? root);
    const shape = canvas.querySelector(`[data-node="${node.index}"]`);
    if (!shape) return go(node.above ?? root, false), choose(node);
    canvas.querySelector('[tabindex="0"]')?.setAttribute("tabindex", "-1");
    shape.setAttribute("tabindex", "0");
    shape.focus({ preventScroll: true });
    return tell();
  };
  const tell = () => {
    const way = [];
    for (let at = top; at; at = at.above) way.unshift(at);
    const middle = way.length > 6 ? way.length - 6 : 0;
    crumbs.replaceChildren(...way.filter((_, i) => i === 0 || i > middle).map((node, i) => el("li", {},
      el("button", { type: "button", "aria-current": node === top ? "location" : null, onclick: () => go(node) }, wording(node).slice(0, 28)), i === 0 && middle > 0 ? " … " : null)));
    const text = chosen.text ? verbatim("pre", { tabindex: "0", "aria-label": "Text of the stretch" }, chosen.text) : null;
    detail.replaceChildren(
      el("h3", {}, chosen.index ? (chosen.branches ? wording(chosen) : "The chosen stretch") : "The whole tree"),
      el("dl", {}, told(chosen, total).map(([term, value]) => el("div", {}, el("dt", {}, term), el("dd", {}, value)))),
      ...(text ? [text] : []));
  };
  const keys = (event, node) => {
    const among = node.above?.children ?? [node], at = among.indexOf(node);
    const to = { ArrowDown: node.children[0], ArrowUp: node.above, ArrowRight: among[at + 1], ArrowLeft: among[at - 1], Home: root }[event.key];
    if (to) { event.preventDefault(); choose(to); }
    else if (event.key === "Enter" || event.key === " ") { event.preventDefault(); if (node.children.length) go(node === top && node.above ? node.above : node); }
    else if (event.key === "Escape" || event.key === "Backspace") { event.preventDefault(); if (top.above) go(top.above); }
  };

  const box = (node, x, width, depth, faint) => {
    const share = reuse(node), name = wording(node), room = Math.floor((width - 10) / 6.6);
    const written = room > 3 ? name.slice(0, Math.min(room, 80)).trim() : "";
    const group = sv("g", {
      role: "treeitem", class: `node ${heat(share)} ${faint ? "faint" : ""} ${node.branches && width > 24 ? "rest" : ""}`, "data-node": node.index, tabindex: node === chosen ? "0" : "-1",
      "aria-level": node.level + 1, "aria-expanded": node.children.length ? (faint || node === top ? "true" : "false") : null,
      "aria-label": `${written || name.slice(0, 80)}; ${count(node.requests)} requests, ${count(node.prompt_tokens)} prompt tokens, ${percent(share)} of the stretch found again`,
      onclick: () => { if (node.children.length) go(node); else choose(node); },
      onkeydown: (event) => keys(event, node), onfocus: () => { if (chosen !== node) { chosen = node; tell(); } },
      onpointermove: (event) => { if (event.pointerType !== "touch") tip([el("b", {}, name.slice(0, 160)), told(node, total).map(([term, value]) => el("div", {}, `${term}: ${value}`))], event.clientX, event.clientY); },
      onpointerleave: untip,
    }, sv("rect", { x: x + 0.5, y: depth * ROW + 0.5, width: Math.max(1, width - 1), height: ROW - 2, rx: width > 8 ? 3 : 0 }));
    if (written) group.append(sv("text", { x: x + 6, y: depth * ROW + 19 }, written));
    return group;
  };
  const paintTree = () => {
    const above = [], shapes = [];
    for (let at = top.above; at; at = at.above) above.unshift(at);
    const shown = above.slice(-3);
    shown.forEach((node, depth) => shapes.push(box(node, 0, wide, depth, true)));
    let deepest = shown.length, hidden = 0;
    const lay = (node, x, width, depth) => {
      if (width < NARROW && node !== top) { hidden++; return; }
      if (depth - shown.length >= LEVELS) { hidden++; return; }
      deepest = Math.max(deepest, depth);
      shapes.push(box(node, x, width, depth, false));
      let at = x;
      for (const child of node.children) {
        const part = (width * child.prompt_tokens) / Math.max(1, node.prompt_tokens);
        lay(child, at, part, depth + 1);
        at += part;
      }
    };
    lay(top, 0, wide, shown.length);
    const high = (deepest + 1) * ROW;
    if (!shapes.some((shape) => shape.getAttribute("tabindex") === "0")) shapes[shown.length].setAttribute("tabindex", "0");
    canvas.dataset.hidden = hidden;
    return sv("svg", { width: wide, height: high, viewBox: `0 0 ${wide} ${high}`, role: "tree", "aria-label": "Prefix tree; arrow keys move, Enter goes into a branch, Escape goes back" }, shapes);
  };
  tell();
  const steps = [["computed each time", 0], ["", 1], ["", 2], ["", 3], ["nearly always found again", 4]];
  return el("div", {},
    el("p", { class: "legend", role: "img", "aria-label": "Colour: from computed each time to nearly always found again" },
      steps.map(([text, step]) => el("span", {}, step === 4 ? null : text && `${text} `, el("i", { class: `key block h-${step}` }), step === 4 ? text : null))),
    crumbs, canvas, detail,
    known(flat.stretches) && flat.stretches >= nodes.length ? note(`The tree has ${many(flat.stretches, "stretch", "stretches")}; the heaviest are shown, and light branches share a box. Tokens as counted, before block borders and the limits of a pool.`) : null);
}
