/* The page: head, contents, panels one below the other; what depends on the engine is drawn again when it changes. */

const PAGE = JSON.parse(document.getElementById("data").textContent);
const RULES = table(PAGE.rules);
const KINDS = { analyze: ANALYZE, check: CHECK, verify: VERIFY };

const memory = {
  get(key) { try { return localStorage.getItem(key); } catch { return null; } },
  set(key, value) { try { localStorage.setItem(key, value); } catch { /* a file may have no storage */ } },
};

function theme() {
  const names = [["auto", "Auto"], ["light", "Light"], ["dark", "Dark"]];
  const now = memory.get("prefixlint-theme") ?? "auto";
  const apply = (name) => { if (name === "auto") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = name; };
  apply(now);
  return choice("Colours", names, now, (name) => { memory.set("prefixlint-theme", name); apply(name); });
}

/* A group of which one is chosen. names [[value, text]] */
function choice(label, names, now, change) {
  const group = `choice-${label.toLowerCase()}`;
  return el("fieldset", { class: "choice" }, el("legend", {}, label), names.map(([value, text]) => el("label", {},
    el("input", { type: "radio", name: group, value, checked: value === now, onchange: () => change(value) }), el("span", {}, text))));
}

/* One panel; a fault in one costs it and no other. */
function body(panel, state) {
  try {
    return panel.draw(PAGE.result, state) ?? null;
  } catch (error) {
    console.error(`panel ${panel.id}: ${error}`);
    return note(`This part could not be drawn: ${error}`);
  }
}

/* What a function gives, or something else where it fails on a strange result. */
function either(make, other) {
  try { return make() ?? other; } catch { return other; }
}

function build() {
  const kind = KINDS[PAGE.kind];
  const engines = either(() => kind.engines(PAGE.result).filter((name) => typeof name === "string"), []);
  const state = { engine: engines[0] ?? null, engines };
  const main = document.getElementById("main"), contents = document.getElementById("contents");
  const places = [];
  const links = el("ul");
  for (const panel of kind.panels) {
    const inside = body(panel, state);
    if (inside === null) continue;
    const holder = el("div", { class: "body" }, inside);
    const section = el("section", { id: panel.id, class: "panel", "aria-labelledby": `${panel.id}-head`, "data-panel": panel.id },
      el("h2", { id: `${panel.id}-head` }, panel.title), panel.lede && el("p", { class: "lede" }, panel.lede), holder);
    main.append(section);
    links.append(el("li", {}, el("a", { href: `#${panel.id}` }, panel.short ?? panel.title)));
    if (panel.byEngine) places.push([panel, holder]);
  }
  contents.append(links);
  const redraw = (engine) => {
    state.engine = engine;
    for (const [panel, holder] of places) holder.replaceChildren(...[body(panel, state) ?? note(`Nothing to show for ${engine}.`)]);
  };
  document.getElementById("top").append(
    el("div", { class: "bar" }, el("div", { class: "brand" }, el("b", {}, "prefixlint"), ` ${PAGE.kind}`),
      el("div", { class: "tools" }, engines.length > 1 ? choice("Engine", engines.map((name) => [name, name]), state.engine, redraw) : null, theme())),
    el("div", { class: "title" }, el("h1", {}, either(() => kind.title(PAGE.result), PAGE.kind)), el("p", {}, either(() => kind.subtitle(PAGE.result), ""))));
  add(document.getElementById("foot"), [
    list(PAGE.cut).length ? el("p", {}, `Left out to keep the page small: ${list(PAGE.cut).map((one) => `${count(one.left_out)} of ${count(one.of)} ${one.what}`).join(", ")}. The JSON report has all of it.`) : null,
    el("p", {}, `prefixlint ${visible(PAGE.version)}. The page makes no request to anywhere. `,
      el("button", { type: "button", class: "plain", onclick: save }, "Save the data as JSON"))]);
  follow(links);
}

function save() {
  const link = el("a", { href: URL.createObjectURL(new Blob([`${JSON.stringify(PAGE.result, null, 2)}\n`], { type: "application/json" })), download: `${PAGE.kind}.json` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/* Marks the panel that is read in the contents. */
function follow(links) {
  const marks = new Map([...links.querySelectorAll("a")].map((link) => [link.getAttribute("href").slice(1), link]));
  const seen = new Set();
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) seen.add(entry.target.id); else seen.delete(entry.target.id);
    const first = [...marks.keys()].find((id) => seen.has(id));
    for (const [id, link] of marks) if (id === first) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
  }, { rootMargin: "-64px 0px -55% 0px" });
  for (const id of marks.keys()) watch.observe(document.getElementById(id));
}

/* What is folded away is printed too. */
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open])")].filter((one) => !one.classList.contains("numbers"));
  for (const one of folded) one.open = true;
});
addEventListener("afterprint", () => { for (const one of folded) one.open = false; });
addEventListener("scroll", scrolled, { passive: true });

build();
