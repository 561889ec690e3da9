"""Requests that are read once more, beside all of them held in memory."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixlint import logs, rereading
from prefixlint.model import NoPrompt, Request

PLACES = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9), st.integers(0, 1)), unique=True)


def request(place):
    path, line, part = place
    return Request(path=path, line=line, part=part, format="plain", content=NoPrompt("x"))


class Log:
    """Gives what is asked for in the order of its files, as a log does, and counts what it reads for that."""

    def __init__(self, lost=(), lines=9):
        self.lost, self.lines, self.read = set(lost), lines, 0

    def again(self, wanted):
        wanted = set(wanted)
        for path in sorted({place[0] for place in wanted}, reverse=True):
            left = {place for place in wanted if place[0] == path}
            for line in range(1, self.lines + 1):
                self.read += 1
                for part in (0, 1):
                    if (path, line, part) in left:
                        left.remove((path, line, part))
                        if (path, line, part) not in self.lost:
                            yield request((path, line, part))
                if not left:
                    break


@given(PLACES, st.sets(st.integers(0, 60)), st.integers(1, 4), st.integers(0, 2))
def test_every_place_gets_its_request_whatever_the_order(places, lost, at_once, most):
    gone = [place for n, place in enumerate(places) if n in lost]
    before = rereading._AT_ONCE, rereading._OPEN
    rereading._AT_ONCE, rereading._OPEN = at_once, most
    try:
        found = list(rereading.in_order(Log(gone).again, places))
    finally:
        rereading._AT_ONCE, rereading._OPEN = before
    assert found == [None if place in gone else request(place) for place in places]


def test_files_that_take_turns_are_each_gone_through_once():
    log = Log(lines=3_000)
    places = [(path, line, 0) for line in range(1, 3_001) for path in "ab"]
    assert all(rereading.in_order(log.again, places))
    assert log.read == 6_000


def test_no_more_than_was_asked_for_is_read_of_a_file_in_order():
    log = Log(lines=3_000)
    found = rereading.in_order(log.again, [("a", line, 0) for line in range(1, 3_001)])
    assert [next(found).line for _ in range(10)] == list(range(1, 11))
    assert log.read < 15


@pytest.mark.parametrize("backwards", [False, True])
def test_requests_of_a_format_that_needs_earlier_lines_come_back_whole(tmp_path, backwards):
    path = tmp_path / "log.jsonl"
    rows = [
        {
            "request": {"model": "m", "input": f"q{n}", **({"previous_response_id": f"r{n - 1}"} if n else {})},
            "response": {"object": "response", "id": f"r{n}", "output": []},
        }
        for n in range(40)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    whole = list(logs.read([str(path)]))
    order = whole[::-1] if backwards else whole
    places = [(one.path, one.line, one.part) for one in order]
    assert list(rereading.in_order(lambda wanted: logs.fetch([str(path)], wanted), places)) == order
    assert len(whole[-1].content.messages) == 40
