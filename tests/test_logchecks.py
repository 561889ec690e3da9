import gzip
import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixlint import checkrun, lint, logchecks
from prefixlint.findings import At, Finding, Rule, Severity
from prefixlint.lintconfig import LintConfig
from prefixlint.logs import read
from prefixlint.model import Messages, NoPrompt, Request, Skip, Text, TokenIds
from prefixlint.project import Project
from prefixlint.prompts import Span
from prefixlint.requestpairs import KEEP, Pairs, Step, steps

ROOT = Path(__file__).parent.parent
RULE = Rule("PFX999", "changed-text", "changed_text", Severity.WARNING, "0.1.0")


def chat(line, *texts, session=None, model="m", namespace=(), system="Weigh crates."):
    messages = [{"role": "system", "content": system}]
    messages += [{"role": "user" if i % 2 == 0 else "assistant", "content": text} for i, text in enumerate(texts)]
    return Request("log", line, Messages(messages), "test", session=session, model=model, namespace=namespace)


def compared(*requests, keep=KEEP):
    return [(step.earlier.line if step.earlier else None, place(step)) for step in steps(requests, keep)]


def place(step):
    found = step.difference
    return found and (found.path, found.char, found.grows)


def test_a_conversation_is_compared_with_its_own_last_request_among_others():
    assert compared(
        chat(1, "kelp?"), chat(2, "juniper?"), chat(3, "kelp?", "yes", "more"), chat(4, "juniper?", "no", "again")
    ) == [
        (None, None),
        (1, ("messages[1].content", 0, False)),
        (1, ("messages[2].role", 0, True)),
        (2, ("messages[2].role", 0, True)),
    ]


def test_a_session_decides_even_where_another_request_shares_more():
    assert compared(
        chat(1, "kelp?", "yes", session="a"), chat(2, "kelp?", "yes", "b", session="b"), chat(3, "kelp!", session="a")
    )[2] == (1, ("messages[1].content", 4, False))


def test_without_a_shared_beginning_the_most_similar_head_is_taken():
    requests = [
        chat(1, "a", system="Now 09:12:44. Weigh."),
        chat(2, "a", system="You sort letters."),
        chat(3, "a", system="Now 09:12:51. Weigh."),
    ]
    assert compared(*requests)[2] == (1, ("messages[0].content", 10, False))


def test_models_and_namespaces_are_never_compared():
    assert compared(chat(1, "a"), chat(2, "a", model="n"), chat(3, "a", namespace=("lora=x",))) == [(None, None)] * 3


def test_equal_requests_have_no_difference():
    assert compared(chat(1, "a"), chat(2, "a"))[1] == (1, None)


def test_prompts_without_text_are_not_compared():
    requests = [
        Request("log", n, content, "test") for n, content in enumerate((TokenIds([1]), NoPrompt("x"), Text("t")), 1)
    ]
    assert [step.body for step in steps(requests)] == [None, None, {"prompt": "t"}]
    assert compared(*requests) == [(None, None)] * 3


def test_bodies_are_forgotten_after_a_while():
    requests = [chat(n, f"question {n}", session=str(n)) for n in range(1, 20)]
    pairs = Pairs(keep=4)
    for request in requests:
        pairs.add(request)
    assert len(pairs._kept) == 4
    assert len(pairs._sessions) == 4
    assert len(pairs._heads) <= 4 * 5
    assert pairs.add(chat(99, "question 1", session="1")).earlier.line == 19


def test_the_logged_body_gives_the_paths(tmp_path):
    log = tmp_path / "log.jsonl"
    system = [{"type": "text", "text": "Line 0a4f1;"}, {"type": "text", "text": "Be brief."}]
    bodies = [{"model": "m", "max_tokens": 8, "system": system, "messages": [{"role": "user", "content": "a"}]}]
    changed = [{"type": "text", "text": "Line 9be02;"}, *system[1:]]
    bodies.append({**bodies[0], "system": changed})
    log.write_text("".join(json.dumps(body) + "\n" for body in bodies))
    assert compared(*read([str(log)]))[1] == (1, ("system[0].text", 5, False))


class Changed:
    """A check that reports each first difference that is not growth, and counts the requests."""

    NAME = "changed_text"

    @staticmethod
    def watch(rule):
        return Watcher(rule)


@dataclass
class Watcher:
    rule: Rule
    seen: int = 0
    hits: list = field(default_factory=list)

    def see(self, step):
        self.seen += 1
        found = step.difference
        if found is not None and not found.grows:
            at = At(step.request.line, step.earlier.line, found.path, found.char)
            values = (str(found.before), str(found.after))
            yield Finding(
                self.rule, "text changed", Span("log", 0, 0), Severity.WARNING, at=at, values=values, requests=2
            )

    def finish(self):
        yield Finding(self.rule, f"{self.seen} requests", Span("log", 0, 0), Severity.INFO)


KNOWN = {Changed.NAME: Changed}
BODIES = [
    {"model": "m", "messages": [{"role": "system", "content": f"At {time}. Weigh."}, {"role": "user", "content": "a"}]}
    for time in ("09:12", "09:13")
]


def write(path, bodies=BODIES, opener=open):
    with opener(path, "wt") as file:
        file.writelines(json.dumps(body) + "\n" for body in bodies)
    return path


def test_a_check_sees_each_step_and_the_end(tmp_path):
    first, last = logchecks.examine(write(tmp_path / "a.jsonl"), [RULE], KNOWN)
    assert first.at == At(2, 1, "messages[0].content", 7)
    assert first.values == ("At 09:12. Weigh.", "At 09:13. Weigh.")
    assert last.message == "2 requests"


def test_lines_that_cannot_be_read_are_said_and_the_rest_is_seen(tmp_path):
    path = write(tmp_path / "a.jsonl")
    path.write_text(path.read_text().replace("\n", "\n{broken\n", 1))
    items = list(logchecks.examine(path, [RULE], KNOWN))
    assert [item.line for item in items if isinstance(item, Skip)] == [2]
    assert [item.at.line for item in items if isinstance(item, Finding) and item.at] == [3]


def test_a_log_that_is_refused_is_said(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("{broken\n")
    assert [type(item) for item in logchecks.examine(path, [RULE], KNOWN) if isinstance(item, Skip)]


def test_rules_without_a_check_of_logs_do_not_read_the_file(tmp_path):
    assert (
        list(logchecks.examine(tmp_path / "missing.jsonl", [Rule("PFX1", "x", "volatile", Severity.INFO, "1")], KNOWN))
        == []
    )


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.jsonl", json.dumps(BODIES[0]), True),
        ("a.ndjson", json.dumps({"request": BODIES[0], "response": {}}), True),
        ("a.jsonl", '{"city": "Oslo"}\n', False),
        ("a.jsonl", "", False),
        ("a.jsonl", "\0\0\0", False),
        ("a.json", json.dumps(BODIES[0]), False),
    ],
)
def test_logs_are_known_by_their_content(tmp_path, name, text, expected):
    path = tmp_path / name
    path.write_text(text)
    assert logchecks.is_log(path) is expected


def test_compressed_logs_and_missing_files(tmp_path):
    assert logchecks.is_log(write(tmp_path / "a.jsonl.gz", opener=gzip.open))
    assert not logchecks.is_log(tmp_path / "missing.jsonl")


def test_check_hands_logs_to_the_rules_and_reports_their_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(logchecks, "checks", lambda: KNOWN)
    write(tmp_path / "requests.jsonl")
    (tmp_path / "data.jsonl").write_text('{"city": "Oslo"}\n')
    result = checkrun.check([str(tmp_path)], LintConfig(), root=tmp_path, known={"PFX999": RULE}, cache=False)
    shown = checkrun.as_json(result)["findings"]
    hit = next(item for item in shown if item["at"])
    assert (hit["path"], hit["line"], hit["requests"]) == ("requests.jsonl", 2, 2)
    assert hit["at"] == {"line": 2, "other_line": 1, "path": "messages[0].content", "char": 7}
    assert hit["values"] == ["At 09:12. Weigh.", "At 09:13. Weigh."]
    assert result.errors == ()


def test_a_log_larger_than_a_prompt_may_be_is_streamed(tmp_path, monkeypatch):
    monkeypatch.setattr(logchecks, "checks", lambda: KNOWN)
    long = {"model": "m", "messages": [{"role": "user", "content": "x" * 3_000_000}]}
    write(tmp_path / "requests.jsonl", [long, long, *BODIES])
    result = checkrun.check([str(tmp_path)], LintConfig(), root=tmp_path, known={"PFX999": RULE}, cache=False)
    assert result.errors == ()
    assert [f.message for f in result.findings if f.at is None] == ["4 requests"]


def test_a_name_that_only_logs_know_is_no_unknown_check(monkeypatch):
    monkeypatch.setattr(logchecks, "checks", lambda: KNOWN)
    project = Project([], lambda _: None)
    assert lint.run(project, [], {"PFX999": RULE}, 0).errors == ()
    odd = Rule("PFX998", "odd", "changed_text nobody", Severity.INFO, "0.1.0")
    assert [error.slug for error in lint.run(project, [], {"PFX998": odd}, 0).errors] == ["unknown-check"]


TEXTS = st.lists(st.sampled_from(["a", "ab", "b", "long text", ""]), min_size=1, max_size=4)


@settings(max_examples=100, deadline=None)
@given(st.lists(TEXTS, max_size=12), st.integers(1, 5))
def test_the_request_compared_with_shares_as_much_as_any_kept_one(conversations, keep):
    requests = [chat(n, *texts) for n, texts in enumerate(conversations, 1)]
    kept: list[Step] = []
    for step in steps(requests, keep):
        if step.earlier is not None:
            assert shared(step.earlier, step.request) == max(shared(old.request, step.request) for old in kept[-keep:])
        kept.append(step)


def shared(one, two):
    """Count the equal leading messages."""
    count = 0
    for a, b in zip(one.content.messages, two.content.messages, strict=False):
        if a != b:
            break
        count += 1
    return count


def test_nothing_heavy_is_imported():
    program = (
        "import sys; from pathlib import Path; from prefixlint import logchecks;"
        f"assert logchecks.is_log(Path({str(ROOT / 'fixtures/logs/demo.jsonl')!r}));"
        "print([m for m in ('numpy', 'torch', 'transformers', 'tokenizers', 'jinja2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
