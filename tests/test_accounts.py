"""The account of a replay: requests at hand are analysed like those of a file, and what became of each is handed out."""

import json

import numpy as np
import pytest

from prefixlint import logs, pipeline
from prefixlint.model import Request

SYSTEM = "You sort parcels by their weight and by the road they take. " * 30


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.jsonl"
    rows = [
        {"model": "m", "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"parcel {n}"}]}
        for n in range(5)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_requests_at_hand_are_analysed_like_a_file(log):
    held = [item for item in logs.read([str(log)]) if isinstance(item, Request)]
    assert pipeline.analyze_requests(held).engines == pipeline.analyze([str(log)]).engines


def test_the_account_adds_up_for_each_request(log):
    seen = []
    watch = pipeline.Watch(on_account=lambda material, account: seen.append((material, account)))
    pipeline.analyze([str(log)], watch=watch)
    ((material, account),) = seen
    assert material.rows.tolist() == list(range(5))
    for name, served in account.served.items():
        missed = sum(account.misses[name].values(), np.zeros(5, np.int64))
        assert (served.cached + missed).tolist() == account.prompt.tolist()
        assert served.cached[1:].min() > 0
