"""The HTML page: what stands in the file. What a browser makes of it is tested in tests/browser."""

import base64
import copy
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixlint.cli import main
from prefixlint.errors import UsageError
from prefixlint.reports import html
from prefixlint.reports._fit import fit

HOSTILE = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>\u202egnp\x1b[31m\x9b31m\0\u2028&amp;'\""


class Page(HTMLParser):
    """The elements of a page, the attributes that load something, and the texts of its scripts and styles."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.texts, self.policy, self.links, self.title = [], [], "", [], ""
        self._inside = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href", "action", "data", "poster", "srcset")]
        assert not any(name.startswith("on") or name == "style" for name in attributes)
        if attributes.get("http-equiv") == "Content-Security-Policy":
            self.policy = attributes["content"]
        if tag in ("script", "style", "title"):
            self._inside = (tag, attributes.get("type"))
            if tag != "title":
                self.texts.append([*self._inside, ""])

    def handle_endtag(self, tag):
        if tag in ("script", "style", "title"):
            self._inside = None

    def handle_data(self, data):
        if self._inside and self._inside[0] == "title":
            self.title += data
        elif self._inside:
            self.texts[-1][2] += data

    def data(self):
        (text,) = [text for tag, kind, text in self.texts if kind == "application/json"]
        return json.loads(text)


def invoke(*arguments):
    return CliRunner().invoke(main, list(map(str, arguments)))


def minimal(**more):
    return {"schema": "prefixlint.analyze/1", "input": {"files": ["a.jsonl"], "requests": 1}, "engines": [], **more}


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The bundled log, as a page and as JSON."""
    folder = tmp_path_factory.mktemp("demo")
    assert invoke("analyze", "fixtures/logs/demo.jsonl", "--format", "json", "-o", folder / "run.json").exit_code == 0
    return folder / "run.json"


def test_the_page_is_whole_and_asks_for_nothing(demo):
    text = html.document(json.loads(demo.read_text()))
    page = Page(text)
    assert all(link.startswith("#") for link in page.links)
    assert not {"img", "link", "iframe", "object", "embed", "form", "base", "svg"} & set(page.tags)
    assert page.policy.startswith("default-src 'none';")
    for tag, kind, inside in page.texts:
        if kind is None:
            digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
            assert f"{tag}-src 'sha256-{digest}'" in page.policy
    assert "unsafe" not in page.policy
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text.partition('id="data"')[0])
    assert page.title == "prefixlint analyze: demo.jsonl"
    assert len(text) < 1_000_000


def test_the_data_stand_in_it_once_and_whole(demo):
    saved = json.loads(demo.read_text())
    page = Page(html.document(saved)).data()
    assert page["result"] == saved
    assert (page["kind"], page["cut"]) == ("analyze", [])
    assert page["rules"]["PFX101"]["help"]
    assert html.document(saved).count(saved["findings"][0]["fingerprint"]) == 1


def test_analyze_writes_the_page_of_its_json(demo, tmp_path):
    done = invoke("analyze", "fixtures/logs/demo.jsonl", "--format", "html", "-o", tmp_path / "page.html")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "page.html").read_text() == html.document(json.loads(demo.read_text()))


def test_check_writes_a_page_and_keeps_its_exit_code(tmp_path):
    source = tmp_path / "prompt.py"
    source.write_text(
        "import datetime\nimport openai\n\n\ndef ask(q):\n"
        f'    s = f"It is {{datetime.datetime.now()}}. " + {"Weigh each crate. " * 30!r}\n'
        '    return openai.OpenAI().chat.completions.create(model="m", messages=[{"role": "system", "content": s}])\n'
    )
    done = invoke("check", source, "--format", "html", "-o", tmp_path / "page.html", "--no-cache")
    assert done.exit_code == 1, done.output
    page = Page((tmp_path / "page.html").read_text()).data()
    assert page["kind"] == "check"
    assert page["result"]["findings"][0]["rule"] == "PFX101"


def test_report_renders_a_saved_result(demo, tmp_path):
    done = invoke("report", demo, "--format", "html")
    assert done.exit_code == 0, done.output
    assert done.stdout == html.document(json.loads(demo.read_text()))
    assert json.loads(invoke("report", demo, "--format", "json").stdout) == json.loads(demo.read_text())
    piped = CliRunner().invoke(main, ["report", "-", "--format", "html"], input=demo.read_bytes())
    assert piped.stdout == done.stdout
    assert "\nWhat breaks the prefix" in invoke("report", demo).stdout  # text, as of every other command


@pytest.mark.parametrize(
    ("content", "slug"),
    [
        (b"{", "bad-result"),
        (b"\xff\xfe", "bad-result"),
        (b"[]", "bad-result"),
        (b'{"schema": "other"}', "bad-result"),
        (b"[" * 100_000, "bad-result"),
        (b'{"schema": "prefixlint.none/9"}', "bad-result"),
    ],
)
def test_what_is_no_result_is_refused(tmp_path, content, slug):
    path = tmp_path / "run.json"
    path.write_bytes(content)
    done = invoke("report", path)
    assert done.exit_code == 2
    assert slug in done.stderr
    assert "Traceback" not in done.output


def test_a_missing_result(tmp_path):
    done = invoke("report", tmp_path / "none.json")
    assert done.exit_code == 3
    assert "no such file" in done.stderr


def test_hostile_text_ends_up_as_data():
    saved = minimal(
        input={"files": [HOSTILE], "requests": 1},
        findings=[{"rule": HOSTILE, "name": HOSTILE, "path": HOSTILE, "values": [HOSTILE, HOSTILE]}],
        families=[{"id": HOSTILE, "name": HOSTILE, HOSTILE: [HOSTILE]}],
    )
    text = html.document(saved)
    page = Page(text)
    assert page.tags.count("script") == 2
    assert page.data()["result"] == saved
    assert not re.search("[\0\x1b\u202e\u2028]", page.title)
    for char in "<>&\u2028\u2029\x9b\x1b\u202e\0":
        assert char not in text.partition('id="data">')[2].partition("</script>")[0]


def test_lone_surrogates_and_odd_numbers_become_json():
    saved = minimal(findings=[{"message": "a\ud800b", "line": 10**400, "requests": float("nan"), "x": 1 << 70}])
    found = Page(html.document(saved)).data()["result"]["findings"][0]
    assert found == {"message": "a?b", "line": None, "requests": None, "x": float(1 << 70)}


def test_deep_values_do_not_break_it():
    deep = current = {}
    for _ in range(5_000):
        current["a"] = current = {}
    assert Page(html.document(minimal(odd=deep))).data()["result"]["odd"]


def test_another_schema_is_refused():
    with pytest.raises(UsageError, match="no result"):
        html.document({"schema": "prefixlint.other/1"})


def test_a_huge_result_stays_below_five_megabytes_and_says_what_is_missing():
    group = {"key": {"user": "u" * 40}, "requests": 3, "prompt_tokens": 12, "reported": None, "engines": []}
    row = {"rule": "PFX101", "message": "x" * 500, "values": ["y" * 100_000, "z"], "related": [{"message": "m"}] * 50}
    saved = minimal(groups=[group] * 100_000, findings=[row] * 5_000)
    text = html.document(saved)
    assert len(text.encode()) < 5_000_000
    page = Page(text).data()
    cut = {one["what"]: one for one in page["cut"]}
    assert cut["groups"]["of"] == 100_000
    assert cut["groups"]["left_out"] + len(page["result"]["groups"]) == 100_000
    assert page["cut_texts"] > 0


def test_the_worst_findings_of_a_check_are_kept():
    rows = [{"rule": "A", "severity": "info"}] * 5_000 + [{"rule": "B", "severity": "error"}]
    data, _ = fit({"schema": "prefixlint.check/1", "findings": rows}, 10_000_000)
    assert json.loads(data)["findings"][0]["severity"] == "error"


def test_many_residuals_are_drawn_together_and_none_is_lost():
    rows = [{"line": n, "predicted": n % 977, "measured": n % 977 + n % 2, "reason": None} for n in range(50_000)]
    data, cuts = fit({"schema": "prefixlint.verify/1", "residuals": rows}, 10_000_000)
    found = json.loads(data)["residuals"]
    assert sum(row["requests"] for row in found) == 50_000
    assert sum(row["requests"] for row in found if row["predicted"] == row["measured"]) == 25_000
    assert not cuts.rows()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=30,
)


@given(st.dictionaries(st.sampled_from(["input", "engine", "findings", "residuals", "engines"]), JSON, max_size=5))
@settings(deadline=None, max_examples=60)
def test_any_json_gives_a_page_or_is_refused(parts):
    saved = {**copy.deepcopy(parts), "schema": "prefixlint.verify/1"}
    page = Page(html.document(saved))
    assert page.tags.count("script") == 2
    assert page.data()["result"]["schema"] == "prefixlint.verify/1"
