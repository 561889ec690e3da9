"""The page in a browser: it draws all it has, answers mouse and keys, asks for nothing, and runs nothing of a log."""

import copy
import importlib.util
import json
import os
import shutil
from pathlib import Path

import pytest

from prefixlint.reports import html

from . import samples

if importlib.util.find_spec("playwright") is None:
    pytest.skip("playwright is not installed; tests/browser/run.sh installs it", allow_module_level=True)
CHROMIUM = os.environ.get("PREFIXLINT_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
if CHROMIUM is None:
    pytest.skip("there is no Chromium; tests/browser/run.sh installs it", allow_module_level=True)

from playwright.sync_api import sync_playwright  # noqa: E402

AXE = os.environ.get("PREFIXLINT_AXE")
SHOTS = os.environ.get("PREFIXLINT_SCREENSHOTS")
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 375, "height": 800}
PANELS = {
    "demo": ["summary", "waterfall", "causes", "tree", "families", "time", "curves", "misses", "worth", "basis"],
    "verify": ["summary", "scatter", "ttft", "comparison", "runs", "counted", "setup"],
    "check": ["summary", "rules", "findings"],
}


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The pages that are looked at, made once."""
    folder = tmp_path_factory.mktemp("pages")
    samples.run(
        "analyze", "fixtures/logs/demo.jsonl", "--capacity", "9000", "--format", "json", "-o", folder / "demo.json"
    )
    samples.run("report", folder / "demo.json", "--format", "html", "-o", folder / "demo.html")
    (folder / "verify.html").write_text(html.document(samples.measured()))
    return {
        "demo": folder / "demo.html",
        "verify": folder / "verify.html",
        "check": samples.checked(folder),
        "folder": folder,
    }


@pytest.fixture
def visit(browser):
    """Open a file; what the page says on its console, asks for and asks to be confirmed must be nothing at the end."""
    contexts, said, asked = [], [], []

    def opened(path, *, size=WIDE, scheme="light"):
        context = browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce")
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: (said.append("dialog"), dialog.dismiss()))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(Path(path).as_uri())
        return page

    opened.said, opened.asked = said, asked
    yield opened
    for context in contexts:
        context.close()
    assert said == []
    assert [url for url in asked if not url.startswith("file:") or not url.endswith(".html")] == []


def panels(page):
    return page.eval_on_selector_all("section.panel", "all => all.map(one => one.id)")


@pytest.mark.parametrize("name", PANELS)
def test_every_panel_is_there_and_full(visit, files, name):
    page = visit(files[name])
    assert panels(page) == PANELS[name]
    for panel in PANELS[name]:
        assert len(page.inner_text(f"#{panel} .body")) > 20
        assert page.locator(f"#{panel}").bounding_box()["height"] > 60
    assert page.locator("text=could not be drawn").count() == 0
    assert page.title().startswith("prefixlint")


@pytest.mark.parametrize("name", PANELS)
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_has_no_barrier(visit, files, name, size, scheme):
    page = visit(files[name], size=size, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(14, 17, 22)"
    assert dark == (scheme == "dark")
    if SHOTS:
        page.screenshot(path=f"{SHOTS}/{name}-{size['width']}-{scheme}.png", full_page=True)
    if not AXE:
        return
    page.evaluate(Path(AXE).read_text())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    faults = [
        (one["id"], [node["html"][:200] for node in one["nodes"][:3]])
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]
    assert faults == []


def test_the_tree_is_gone_down_by_mouse(visit, files):
    page = visit(files["demo"])
    before = page.locator("#tree .crumbs li").count()
    target = page.locator("#tree .node[aria-level='3']").first
    name = target.get_attribute("aria-label")
    wide = target.bounding_box()["width"]
    target.click()
    assert page.locator("#tree .crumbs li").count() == before + 2
    chosen = page.locator("#tree .node:not(.faint)").first
    assert chosen.get_attribute("aria-label") == name
    assert chosen.bounding_box()["width"] > wide
    assert page.inner_text("#tree .detail dl").count("\n") > 5
    assert page.inner_text("#tree .detail pre")
    page.locator("#tree .crumbs button").first.click()
    assert page.locator("#tree .crumbs li").count() == before


def test_the_tree_is_gone_down_by_keys(visit, files):
    page = visit(files["demo"])
    page.locator("#tree [tabindex='0'].node").focus()
    level = lambda: page.evaluate("Number(document.activeElement.getAttribute('aria-level'))")  # noqa: E731
    assert level() == 1
    for wanted in (2, 3):
        page.keyboard.press("ArrowDown")
        assert level() == wanted
    first = page.evaluate("document.activeElement.dataset.node")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.node") != first
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.dataset.node") == first
    page.keyboard.press("Enter")
    assert page.locator("#tree .crumbs li").count() == 3
    assert page.evaluate("document.activeElement.dataset.node") == first
    page.keyboard.press("Escape")
    assert page.locator("#tree .crumbs li").count() == 2
    page.keyboard.press("Home")
    assert level() == 1
    assert page.locator("#tree [tabindex='0'].node").count() == 1


def test_a_stretch_says_what_it_is_when_pointed_at(visit, files):
    page = visit(files["demo"])
    page.locator("#tree .node[aria-level='2']").first.hover()
    assert "Requests that run through it: 125" in page.inner_text("#tip")
    page.mouse.move(5, 5)
    assert not page.locator("#tip").is_visible()


def test_another_engine_gives_other_numbers(visit, files):
    page = visit(files["demo"])
    before = page.inner_text("#waterfall")
    page.get_by_role("radio", name="vllm").check(force=True)
    assert page.inner_text("#waterfall") != before
    assert "vllm could serve" in page.inner_text("#summary")


def test_charts_are_read_by_keys(visit, files):
    page = visit(files["demo"])
    chart = page.locator("#curves [role=slider]").first
    chart.focus()
    page.keyboard.press("End")
    assert chart.get_attribute("aria-valuenow") == chart.get_attribute("aria-valuemax")
    assert "sglang: " in chart.get_attribute("aria-valuetext")
    tip = page.locator("#tip")
    assert tip.is_visible()
    scrolled = page.evaluate(
        "new Promise((done) => { addEventListener('scroll', () => done(scrollY)); scrollBy(0, 10); })"
    )
    assert scrolled > 0
    assert tip.is_visible()  # it goes along, as with the scroll that a focus begins
    page.keyboard.press("Escape")
    assert not page.locator("#tip").is_visible()


def test_curves_mark_the_knee_and_the_pool(visit, files):
    text = visit(files["demo"]).text_content("#curves svg")
    assert "knee: " in text
    assert "your pool: 9 k" in text


def test_colours_can_be_chosen(visit, files):
    page = visit(files["demo"])
    for name, ground in (("Dark", "rgb(14, 17, 22)"), ("Light", "rgb(246, 247, 249)")):
        page.get_by_label(name, exact=True).check(force=True)
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == ground


def test_families_open_and_mark_their_places(visit, files):
    page = visit(files["demo"])
    assert page.locator("#families .family[open] .template mark").count() >= 1
    second = page.locator("#families .family").nth(1)
    second.locator("summary").first.click()
    second.locator(".template mark").first.wait_for()  # it is drawn when the browser says that it was opened
    assert second.locator(".template mark").count() == 1
    assert second.locator(".side").count() >= 2


def test_findings_are_filtered(visit, files):
    page = visit(files["check"])
    all_ = page.locator("#findings article").count()
    assert all_ >= 2
    page.fill("#search", "clock.py")
    assert 0 < page.locator("#findings article").count() < all_
    page.fill("#search", "no such text")
    assert page.locator("#findings article").count() == 0


def test_the_data_can_be_saved(visit, files):
    page = visit(files["demo"])
    with page.expect_download() as download:
        page.get_by_role("button", name="Save the data as JSON").click()
    assert json.loads(Path(download.value.path()).read_text()) == json.loads(
        (files["folder"] / "demo.json").read_text()
    )


def test_it_is_printed_whole(visit, files):
    page = visit(files["demo"])
    page.emulate_media(media="print")
    assert not page.locator("#contents").is_visible()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("#families .family[open]").count() == page.locator("#families .family").count()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("#families .family[open]").count() == 1
    assert len(page.pdf()) > 20_000


def test_hits_are_scattered_about_the_line(visit, files):
    page = visit(files["verify"])
    assert page.locator("#scatter circle.point").count() == 240
    page.locator("#scatter circle.off").first.hover(force=True)
    assert "predicted" in page.inner_text("#tip")
    assert page.locator("#ttft .stack span").count() == 6


def assert_inert(page):
    """Nothing of the data became an element, ran, or hides what one reads."""
    assert page.evaluate("window.ran") is None
    assert (
        page.locator("main img, main iframe, main style, main script, main svg[onload], a[href^=javascript]").count()
        == 0
    )
    assert page.locator("script").count() == 2
    shown = page.evaluate(
        "document.body.innerText + document.title + [...document.querySelectorAll('[aria-label]')].map(one => one.ariaLabel).join()"
    )
    assert [char for char in "\x1b\0\u202e\u2066\u2067\u200b\u200f\u2028\u2029\ufeff\U000e0041" if char in shown] == []
    assert "\\u202e" in shown
    assert "<script>" in shown
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_a_hostile_log_is_text(visit, tmp_path, size):
    page = visit(samples.hostile_log(tmp_path), size=size)
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert {"causes", "tree", "families", "groups"} <= set(panels(page))
    assert_inert(page)


def hostile(value, name=""):
    """Put hostile text into every text of a result, its keys, and every number that may be one."""
    if isinstance(value, dict):
        return {key: hostile(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [hostile(item, name) for item in value]
    keep = name in ("schema", "engine", "severity", "kind", "cache", "from", "to", "time", "id", "family")
    return value if keep or not isinstance(value, str) else samples.HOSTILE + value


@pytest.mark.parametrize("name", ["demo", "verify"])
def test_hostile_text_in_every_field_is_text(visit, files, tmp_path, name):
    saved = json.loads((files["folder"] / "demo.json").read_text()) if name == "demo" else samples.measured()
    (tmp_path / "page.html").write_text(html.document(hostile(copy.deepcopy(saved))))
    page = visit(tmp_path / "page.html")
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert panels(page) == PANELS[name]
    assert page.locator("text=could not be drawn").count() == 0
    assert_inert(page)


def test_a_hostile_source_is_text(visit, files):
    page = visit(files["check"])
    assert page.evaluate("window.ran") is None
    assert page.locator("main img").count() == 0
    assert "onerror=alert" in page.inner_text("#findings")


def test_what_would_be_put_in_as_markup_is_stopped_by_the_policy(visit, files):
    page = visit(files["demo"])
    page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', `<img src='x:y' onerror='window.ran = 1'><p style='color:red' id=p>`)"
    )
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 2'}))"
    )
    page.wait_for_timeout(200)
    assert page.evaluate("window.ran") is None
    assert page.evaluate("getComputedStyle(document.getElementById('p')).color") != "rgb(255, 0, 0)"
    assert any("Content Security Policy" in text for text in visit.said)
    visit.said.clear()
    visit.asked.clear()


def mangled(value):
    """Give results with each of their parts replaced by one of another type."""
    odd = (None, 7, "text", [], {}, [None, 7, "x"], [{}], {"x": []})
    for number in range(len(odd)):
        yield {
            key: item if key == "schema" else odd[(number + place) % len(odd)]
            for place, (key, item) in enumerate(value.items())
        }
    for place, key in enumerate(key for key in value if key != "schema"):
        yield {**value, key: odd[place % len(odd)]}


@pytest.mark.parametrize("name", ["demo", "verify"])
def test_a_result_with_odd_parts_still_draws_the_others(visit, files, tmp_path, name):
    saved = json.loads((files["folder"] / "demo.json").read_text()) if name == "demo" else samples.measured(20)
    page = visit(files[name])
    for number, odd in enumerate(mangled(saved)):
        path = tmp_path / f"{number}.html"
        path.write_text(html.document(odd))
        page.goto(path.as_uri())
        assert page.locator("section.panel").count() >= 1, path
        assert page.locator("h1").count() == 1
    visit.said[:] = [text for text in visit.said if not text.startswith("panel ")]


def test_ten_thousand_requests_are_drawn_and_used(visit, tmp_path):
    path = samples.analyzed(tmp_path, samples.large_log(10_000), "large", "--what-if", "none", "--why", "2000")
    assert path.stat().st_size < 5_000_000
    page = visit(path)
    assert page.locator("#tree .node").count() > 8
    page.locator("#tree .node[aria-level='3']").first.click()
    page.locator("#tree .crumbs li").nth(2).wait_for()
    page.get_by_role("radio", name="vllm").check(force=True)
    page.get_by_text("vllm could serve").wait_for()
