"""Several causes in one history: what was told stays, and what one cause hides of another is found all the same."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from logcases import assistant, call, system, tool, user
from test_joined_causes import RULE, analyzed, log

from prefixlint import logs, whatif
from prefixlint.whatif._rewriter import Rewriter


def agent(number, turns, *, fresh=False):
    """Give the histories of an agent that calls a tool each turn; `fresh` ids are other ones in each request."""
    found = []
    for turn in range(turns):
        history = [user(f"Question of {'ABCDEFGH'[number] * 30}?")]
        for n in range(turn):
            one = f"c{number}{n}{turn if fresh else ''}"
            history += [
                assistant("", tool_calls=[call(one, arguments=f'{{"berth": {n}}}')]),
                tool(one, f"Berth {n} of {'ABCDEFGH'[number] * 60} is free."),
            ]
        found.append(history)
    return found


class _Stays:
    """A part of a fix that undoes new ids, and nothing else."""

    HISTORY = frozenset({"PFX405"})

    def apply(self, turn):
        pass


def test_a_conversation_of_two_families_goes_on_from_what_the_other_was_sent(tmp_path):
    """A request is rewritten for the choices of its family, and the next one may be of another family."""
    fixes = [whatif.Fix("ids", "", _Stays.HISTORY, frozenset({n}), [_Stays()], ()) for n in (0, 1)]
    choices = [frozenset({0}), frozenset({0, 1})]
    rewriter = Rewriter(fixes, choices)
    bodies = [{"model": "m", "messages": [system(RULE), *history]} for history in agent(0, 5, fresh=True)]
    last = None
    for row, request in enumerate(logs.read([log(tmp_path, bodies)])):
        ((_, last),) = rewriter.rewrite(request, row, row % 2, [choices[row % 2]])
    assert [m["tool_call_id"] for m in last["messages"] if m["role"] == "tool"] == ["c001", "c012", "c023", "c034"]


def test_what_the_newest_message_was_told_stays_where_ids_are_new(tmp_path):
    bodies = []
    for number in range(3):
        for turn, history in enumerate(agent(number, 4, fresh=True)):
            head = system(f"It is 10:{number * 5 + turn:02}:07.\n{RULE}")
            bodies.append({"model": "m", "messages": [head, *history]})
    _, rewritten = analyzed(tmp_path, bodies, what_if=("PFX101",))
    last = rewritten[3]["messages"]
    told = [m["content"].rpartition("10:")[2] for m in last[1:] if "10:" in m["content"]]
    assert [text[:5] for text in told] == ["00:07", "01:07", "02:07", "03:07"]
