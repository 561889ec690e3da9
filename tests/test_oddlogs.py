"""Logs that show no cause, however odd they are; and what a log that is cut short may say."""

import json
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import planting
from plantedtext import words

from prefixlint import logrules, logs, pipeline, rulebook
from prefixlint.findings import Confidence


def found(folder, bodies):
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies), "utf-8")
    return logrules.check(logs.read([str(path)]), rulebook.rules())


def asked(*texts, **more):
    return {"model": "m", "messages": [{"role": "user", "content": text} for text in texts], **more}


def clean(seed=3, size=150):
    return planting.Planted(seed, (), size).bodies()


def test_requests_that_share_nothing(tmp_path):
    rng = random.Random(1)
    assert found(tmp_path, [asked(words(rng, rng.randrange(1, 30))) for _ in range(60)]) == []


def test_one_request(tmp_path):
    assert found(tmp_path, clean(size=1)) == []


def test_identical_requests(tmp_path):
    assert found(tmp_path, clean(size=1) * 30) == []
    assert found(tmp_path, [asked("hello")] * 30) == []


@pytest.mark.parametrize("seed", range(3))
def test_a_clean_log_in_a_random_order(seed, tmp_path):
    bodies = clean(seed)
    random.Random(seed).shuffle(bodies)
    assert found(tmp_path, bodies) == []


@pytest.mark.parametrize("skew", [3, 400])
def test_clocks_that_disagree(skew, tmp_path):
    """Two servers write one log, and the clock of one is wrong."""
    rng = random.Random(2)
    bodies = [body | {"timestamp": 1.9e9 + n + skew * rng.randrange(2)} for n, body in enumerate(clean())]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies), "utf-8")
    assert pipeline.analyze([str(path)]).findings == []


def test_a_text_that_the_log_cut_short_is_no_sure_sign(tmp_path):
    bodies = clean(size=120)
    for n, body in enumerate(bodies):
        for message in body["messages"][1:-1]:
            if message["role"] == "tool" and len(message["content"]) > 400:
                message["content"] = message["content"][: 200 + 40 * (n % 3)] + "…[truncated]"
    findings = found(tmp_path, bodies)
    assert findings
    assert all(finding.confidence is Confidence.LOW for finding in findings)
    assert all(finding.severity.word == "info" for finding in findings)
