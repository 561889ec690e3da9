"""`analyze --source`: the place in the source that wrote what breaks the prefix, and what it cost."""

import json

import pytest
from click.testing import CliRunner

from prefixlint.cli import main

BOT = '''\
from datetime import datetime
from openai import OpenAI
from texts import RULES

client = OpenAI()


def ask(question, user_name):
    system = f"""You are a careful helper of the Larch warehouse.
Current time: {datetime.now():%H:%M:%S}, customer: {user_name}.
{RULES}
Never guess a weight, and never promise a date."""
    return client.chat.completions.create(
        model="gpt-4o",
        messages=[{"role": "system", "content": system}, {"role": "user", "content": f"Question: {question}"}],
    )
'''
TEXTS = "RULES = " + json.dumps("Weigh each crate, note the road it takes.\n" * 30) + "\n"
JINJA = (
    "You sort the parcels of the harbour by road.\n{{ request_id }}\n"
    + "Put the heavy ones at the bottom, always.\n" * 30
)


@pytest.fixture
def project(tmp_path):
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "bot.py").write_text(BOT)
    (tmp_path / "texts.py").write_text(TEXTS)
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "sort.j2").write_text(JINJA)
    return tmp_path


def chat(system, question):
    return {"model": "m", "messages": [{"role": "system", "content": system}, {"role": "user", "content": question}]}


def helper(n):
    rules = "Weigh each crate, note the road it takes.\n" * 30
    user = ("anna", "bo", "carl")[n % 3]
    return chat(
        f"You are a careful helper of the Larch warehouse.\nCurrent time: 09:1{n}:44, customer: {user}.\n{rules}\n"
        "Never guess a weight, and never promise a date.",
        f"Question: how heavy is crate {n * 7}?",
    )


def sorter(n):
    return chat(JINJA.replace("{{ request_id }}", f"req-{n * 7919:08x}d"), f"parcel {n}")


def analyze(folder, rows, *options):
    log = folder / "log.jsonl"
    log.write_text("\n".join(map(json.dumps, rows)))
    done = CliRunner().invoke(main, ["analyze", str(log), "--source", str(folder), *options])
    assert done.exit_code == 0, done.stderr
    return done.stdout


def found(folder, rows, *options):
    result = json.loads(analyze(folder, rows, "--format", "json", *options))
    return {finding["rule"]: finding for finding in result["findings"]}, result["source_findings"]


def test_the_expression_behind_each_cause(project):
    findings, _ = found(project, [helper(n) for n in range(8)])
    first = findings["PFX101"]["related"][0]
    assert first["path"].endswith("bot.py")
    assert first["expression"] == "{datetime.now():%H:%M:%S}"
    assert BOT.splitlines()[first["line"] - 1][first["column"] - 1 :].startswith(first["expression"])
    assert first["message"] == "written by {datetime.now():%H:%M:%S}"
    assert findings["PFX105"]["related"][0]["expression"] == "{user_name}"


def test_the_source_shows_what_was_lost(project):
    findings, source = found(project, [helper(n) for n in range(8)])
    static = {finding["rule"]: finding for finding in source if finding["path"].endswith("bot.py")}
    assert static["PFX101"]["tokens_lost"] == findings["PFX101"]["tokens_lost"]
    assert static["PFX101"]["requests"] == findings["PFX101"]["requests"] == 7
    assert static["PFX101"]["fingerprint"] == findings["PFX101"]["related"][0]["fingerprint"]
    assert source[0] == static["PFX101"]


def test_what_the_log_does_not_show_is_unseen(project):
    _, source = found(project, [helper(n) for n in range(8)])
    unseen = [finding for finding in source if finding["path"].endswith("sort.j2")]
    assert unseen
    assert all(finding["tokens_lost"] is None and finding["requests"] is None for finding in unseen)
    assert "unseen" in analyze(project, [helper(n) for n in range(8)])


def test_two_prompts_in_one_log(project):
    rows = [make(n) for n in range(8) for make in (helper, sorter)]
    findings, source = found(project, rows)
    assert findings["PFX101"]["related"][0]["path"].endswith("bot.py")
    place = findings["PFX104"]["related"][0]
    assert place["path"].endswith("sort.j2")
    assert (place["line"], place["column"]) == (2, 1)
    assert "request_id" in place["expression"]
    lost = [f for f in source if f["path"].endswith("sort.j2") and f["tokens_lost"]]
    assert lost[0]["tokens_lost"]["sglang"] == findings["PFX104"]["tokens_lost"]["sglang"] > 1000


AGENT = """\
from openai import OpenAI

NAMES = {"look", "weigh", "pack", "send"}


def tools():
    return [
        {"type": "function", "function": {"name": name, "description": "Does what it says with a crate."}}
        for name in NAMES
    ]


def ask(question):
    return OpenAI().chat.completions.create(
        model="gpt-4o", tools=tools(), messages=[{"role": "user", "content": question}]
    )
"""


def test_what_decides_the_order_of_tools(tmp_path):
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "agent.py").write_text(AGENT)
    names = ["look", "weigh", "pack", "send"]
    rows = []
    for n in range(12):
        held = [names[(i * (1 + 2 * (n % 2)) + n) % 4] for i in range(4)]
        described = [{"name": name, "description": "Does what it says with a crate."} for name in held]
        rows.append(helper(0) | {"tools": [{"type": "function", "function": each} for each in described]})
    findings, source = found(tmp_path, rows)
    place = findings["PFX304"]["related"][0]
    assert (place["line"], place["expression"]) == (9, "NAMES")
    assert source[0]["tokens_lost"] == findings["PFX304"]["tokens_lost"]


def test_prompts_of_others_lead_nowhere(project):
    rows = [chat(f"It is 09:1{n}. " + "Paint the fence green, then blue. " * 40, "go") for n in range(6)]
    findings, source = found(project, rows)
    assert all("expression" not in related for related in findings["PFX101"]["related"])
    assert all(finding["tokens_lost"] is None for finding in source)


def test_the_text_report_names_the_place(project):
    out = analyze(project, [helper(n) for n in range(8)])
    assert "bot.py:10:15: {datetime.now():%H:%M:%S}" in " ".join(out.split())
    assert "In the source" in out


def test_without_source_nothing_is_said(project):
    log = project / "log.jsonl"
    log.write_text("\n".join(json.dumps(helper(n)) for n in range(4)))
    done = CliRunner().invoke(main, ["analyze", str(log), "--format", "json"])
    assert json.loads(done.stdout)["source_findings"] is None


def test_a_source_that_is_not_there(project):
    log = project / "log.jsonl"
    log.write_text(json.dumps(helper(1)))
    done = CliRunner().invoke(main, ["analyze", str(log), "--source", str(project / "missing")])
    assert done.exit_code == 3
    assert "missing" in done.stderr


def test_a_log_on_standard_input(project):
    data = "\n".join(json.dumps(helper(n)) for n in range(6))
    done = CliRunner().invoke(main, ["analyze", "-", "--source", str(project), "--format", "json"], input=data)
    (finding,) = [f for f in json.loads(done.stdout)["findings"] if f["rule"] == "PFX101"]
    assert finding["related"][0]["expression"] == "{datetime.now():%H:%M:%S}"
