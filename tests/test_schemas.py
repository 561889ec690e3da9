"""The published JSON Schemas: what the commands write fits them, and what they would never write does not."""

import copy
import functools
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import get_args

import jsonschema
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from prefixlint import schemas
from prefixlint.cli import main
from prefixlint.errors import UsageError
from prefixlint.findings import Confidence, Severity
from prefixlint.model import MissCause
from prefixlint.reports.json import dump
from prefixlint.trends import Reason
from tests.clocked import PROMPT, bodies

from .fakeengine import FakeEngine

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "fixtures" / "logs" / "samples"
DEMO = str(ROOT / "fixtures" / "logs" / "demo.jsonl")
NO_LOG = {"README.md", "expected.json"}
REFUSED = {"azure_llm_trace_2023.csv", "burstgpt.csv", "vllm_request_log_v0.33_info.log"}
LOGS = sorted(path.name for path in SAMPLES.iterdir() if path.name not in NO_LOG | REFUSED)
SMALL_MODEL = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "torch_dtype": "bfloat16",
}
SET = f'names = {{"a", "b"}} | extra\nSYSTEM_PROMPT = "Ü know: " + ", ".join(names) + ". {PROMPT}"\n'
CLOCK = f"{{{{ now() }}}}\n{PROMPT}\n"
BODIES = bodies(3)


@functools.cache
def validator(name):
    schema = schemas.load(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def run(*arguments, codes=(0, 1)):
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert done.exit_code in codes, done.output
    return done.stdout


def fits(name, value):
    problems = [f"{error.json_path}: {error.message[:300]}" for error in validator(name).iter_errors(value)]
    assert not problems, problems[:5]
    return value


def output(name, *arguments, codes=(0, 1)):
    return fits(name, json.loads(run(*arguments, "--format", "json", codes=codes)))


@pytest.mark.parametrize("log", LOGS)
def test_every_log_format_gives_what_the_schemas_say(log, tmp_path):
    if log.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    lines = tmp_path / "lines.jsonl"
    found = output("analyze", "analyze", SAMPLES / log, "--requests-out", lines, "--by", "model,user", "--redact")
    written = [fits("request", json.loads(line)) for line in lines.read_text(encoding="utf-8").splitlines()]
    assert len(written) == found["engines"][0]["requests"] if found["engines"] else not written


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Give a folder with prompts of each kind, a notebook, a log, something broken and something silenced."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text(
        '[tool.prefixlint]\nper-file-ignores = {"silent.j2" = ["PFX101"]}\nsinks = ["app.ask:1"]\nignore = ["PFX401"]\n'
    )
    (tmp_path / "bad.py").write_text(SET, encoding="utf-8")
    (tmp_path / "ignored.py").write_text(
        SET.rstrip("\n") + "  # prefixlint: ignore[PFX301] sets are small\n", encoding="utf-8"
    )
    (tmp_path / "clock.j2").write_text("{# a date #}\n" + CLOCK)
    (tmp_path / "silent.j2").write_text(CLOCK)
    (tmp_path / "broken.py").write_text('prompt = "\n')
    cell = {"cell_type": "code", "metadata": {}, "source": SET, "outputs": [], "execution_count": None}
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(body) + "\n" for body in BODIES))
    return tmp_path


def rich_analysis(folder):
    """Give an analysis in which as many parts as possible hold something."""
    config = folder / "config.json"
    config.write_text(json.dumps(SMALL_MODEL))
    source = folder / "shop.py"
    source.write_text(f"import time\nSYSTEM_PROMPT = f\"It is {{time.strftime('%H:%M:%S')}}. {PROMPT}\"\n")
    prices = folder / "prices.toml"
    prices.write_text('[[models]]\nname = "*"\ncurrency = "USD"\ninput = 3.0\ncached = 0.3\nwrite = 3.75\n')
    old = folder / "old.json"
    run("analyze", DEMO, "--sample", "60", "--format", "json", "-o", old)
    return old, config


def test_an_analysis_with_everything_in_it(project):
    old, config = rich_analysis(project)
    (project / "more.jsonl").write_bytes(Path(DEMO).read_bytes() + b"{broken\n")
    found = output(
        "analyze", "analyze", "more.jsonl", "--compare", old, "--model-config", config, "--gpu", "H100", "--by", "hour",
        "--source", ".", "--host-capacity", "9k", "--capacity", "4k", "--replicas", "2", "--ttl", "300:write",
    )  # fmt: skip
    assert found["compare"]["causes"]
    assert found["savings"]
    assert found["input"]["skipped_total"] == 1
    assert output("analyze", "analyze", "log.jsonl", "--source", ".")["source_findings"] is not None


@pytest.mark.parametrize(
    "body", ["\ud800", "\x00\x1b[31m", "\u202e", "x" * 300_000], ids=["surrogate", "escape", "bidi", "long"]
)
def test_hostile_text_stays_within_the_schema(tmp_path, body):
    log = tmp_path / "log.jsonl"
    lines = (
        {"model": body[:50], "user": body, "messages": [{"role": "system", "content": f"{n}{body}{PROMPT}"}]}
        for n in range(3)
    )
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    requests = tmp_path / "r.jsonl"
    output("analyze", "analyze", log, "--requests-out", requests, "--by", "user")
    for line in requests.read_text(encoding="utf-8").splitlines():
        fits("request", json.loads(line))
    output("explain", "explain", f"{log}#2")
    output("diff", "diff", f"{log}#1", f"{log}#2")


def test_what_a_check_writes(project):
    found = output("check", "check", codes=(1,))
    assert found["suppressed"]
    assert found["errors"]
    assert any(finding.get("cell") for finding in found["findings"])
    assert any(finding["at"] for finding in found["findings"])
    assert any(finding["fix"] for finding in found["findings"])
    subprocess.run(["git", "init", "-q"], check=True)
    subprocess.run(["git", "add", "."], check=True)
    subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "x"], check=True)
    later = output("check", "check", "--diff-base", "HEAD", "--statistics", "--unsafe-fixes", "--no-cache")
    assert not later["findings"]


def test_what_a_check_of_snippets_writes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "fixtures" / "prompts" / "cases", tmp_path / "cases")
    assert output("check", "check", "cases", "--min-tokens", "0")["files"]["scanned"] > 0


def test_what_is_said_of_single_requests(project):
    assert output("explain", "explain", "log.jsonl#2")["expected"] is not None
    assert output("explain", "explain", "log.jsonl#1", "--capacity", "100", "--replicas", "2")["expected"] is None
    assert output("diff", "diff", "log.jsonl#1", "log.jsonl#3")["first"] is not None
    assert output("diff", "diff", "log.jsonl#1", "log.jsonl#1")["first"] is None
    assert output("diff", "diff", "log.jsonl#1", "log.jsonl#3", "--text-only")["shared"]["tokens"] is None
    assert not output("assert", "assert", "log.jsonl#1", "log.jsonl#3", "--min-shared", "0.9")["ok"]
    assert output("assert", "assert", "log.jsonl#1", "log.jsonl#3", "--min-shared", "3", "--text-only")["ok"]


def test_what_is_said_of_rules_engines_and_configuration(project):
    assert len(output("engine", "engine")["engines"]) > 3
    assert output("engine", "engine", "sglang")["engines"][0]["name"] == "sglang"
    assert len(output("rule", "rule")["rules"]) > 20
    assert output("rule", "rule", "clock-in-prefix")["rules"][0]["code"] == "PFX101"
    shown = output("config", "config", ".")
    assert shown["sinks"] == ["app.ask:1"]
    assert {rule["code"] for rule in shown["rules"] if not rule["on"]} == {"PFX401"}


OPEN = (
    "facts",
    "per_file_ignores",
    "flags",
    "errors",
    "resources",
    "comparison",
)  # what their fields hold is not decided here


def shapes(value, path=()):
    """Give each place of a document once, whatever its number in a list."""
    yield path, value
    if isinstance(value, dict):
        for key, item in value.items():
            yield from shapes(item, (*path, key))
    elif isinstance(value, list) and value:
        yield from shapes(value[0], (*path, 0))


def trimmed(value):
    if isinstance(value, dict):
        return {key: trimmed(item) for key, item in value.items()}
    return [trimmed(value[0])] if isinstance(value, list) and value and isinstance(value[0], dict) else value


def at(value, path):
    for key in path:
        value = value[key]
    return value


def probed():
    """What a probe of a server finds."""
    from .fakeserver import FakeServer
    from .test_verify_probe import Cache, Rules

    with FakeServer(Cache(Rules(block_label=16))) as server:
        return output("probe", "probe", server.url, "--wait", "0", "-q")


@pytest.mark.parametrize("name", schemas.names())
def test_a_schema_is_tight(name, project, tmp_path):
    """Whatever is added to an output, left out of it or turned into something else is seen."""
    arguments = {
        "analyze": ("analyze", DEMO, "--by", "model"),
        "check": ("check",),
        "explain": ("explain", "log.jsonl#2"),
        "diff": ("diff", "log.jsonl#1", "log.jsonl#2"),
        "assert": ("assert", "log.jsonl#1", "log.jsonl#2", "--min-shared", "1"),
        "watch": ("watch", str(ROOT / "fixtures" / "metrics" / "vllm.txt"), "--fail-under", "1"),
    }
    if name == "probe":
        document = fits(name, trimmed(probed()))
    elif name == "request":
        run("analyze", "log.jsonl", "--requests-out", "r.jsonl")
        document = json.loads(Path("r.jsonl").read_text(encoding="utf-8").splitlines()[1])
    elif name == "verify":
        with FakeEngine(shift=1) as engine:
            document = output(name, "verify", "log.jsonl", "--url", engine.url, "--by-ids")
    else:
        document = output(name, *arguments.get(name, (name,)))
    document = fits(name, trimmed(document))
    places = 0
    for path, value in list(shapes(document)):
        if any(key in OPEN for key in path):
            continue
        places += 1
        if isinstance(value, dict):
            changed = copy.deepcopy(document)
            at(changed, path)["unexpected"] = [[{}]]
            assert not validator(name).is_valid(changed), ("added", path)
        if path:
            changed = copy.deepcopy(document)
            at(changed, path[:-1])[path[-1]] = {"wrong": [[]]}
            assert not validator(name).is_valid(changed), ("changed", path)
    for key in document:
        left = {other: item for other, item in document.items() if other != key}
        assert not validator(name).is_valid(left), ("left out", key)
    assert places > 5


def definitions():
    for name in schemas.names():
        for key, value in schemas.load(name)["$defs"].items() if "$defs" in schemas.load(name) else ():
            yield name, key, value


def test_what_has_one_name_is_one_thing():
    """Each file stands alone; what several hold under one name must not drift apart."""
    seen = {}
    for name, key, value in definitions():
        other, first = seen.setdefault(key, (name, value))
        assert first == value, f"{key} differs between {other} and {name}"
    unused = [
        f"{name}: {key}" for name, key, _ in definitions() if f'"#/$defs/{key}"' not in json.dumps(schemas.load(name))
    ]
    assert not unused


def objects(node):
    if isinstance(node, dict):
        if node.get("type") == "object" or "properties" in node:
            yield node
        for value in node.values():
            yield from objects(value)
    elif isinstance(node, list):
        for value in node:
            yield from objects(value)


@pytest.mark.parametrize("name", schemas.names())
def test_every_object_is_closed_or_a_map(name):
    for node in objects(schemas.load(name)):
        assert "additionalProperties" in node, node
        assert set(node.get("required", ())) <= set(node.get("properties", ())), node


def test_words_of_the_vocabulary_are_those_of_the_schemas():
    shared = {key: value for _, key, value in definitions()}
    assert set(shared["misses"]["properties"]) == {cause.value for cause in MissCause}
    assert set(shared["severity"]["enum"]) == {severity.word for severity in Severity}
    assert set(shared["confidence"]["enum"]) == {confidence.word for confidence in Confidence}
    assert set(shared["reason"]["properties"]["kind"]["enum"]) == set(get_args(Reason))


def test_the_command_shows_what_the_package_holds(tmp_path):
    listed = run("schema").splitlines()
    assert [line.split()[0] for line in listed] == schemas.names()
    target = tmp_path / "check.json"
    run("schema", "check", "-o", target)
    assert json.loads(target.read_text(encoding="utf-8")) == schemas.load("check") == json.loads(run("schema", "check"))


def test_a_schema_that_does_not_exist_is_named_with_the_nearest():
    with pytest.raises(UsageError, match="no schema 'checks'") as caught:
        schemas.text("checks")
    assert "check" in caught.value.hint
    assert CliRunner().invoke(main, ["schema", "../pyproject"]).exit_code == 2


@given(st.text(max_size=30))
def test_json_says_any_text_and_holds_nothing_that_a_terminal_obeys(text):
    shown = dump({text: [text]})
    assert json.loads(shown) == {text: [text]}
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]", shown)
