"""Templates of texts in which a passage and a line touch, each of which only some texts have."""

import itertools

import pytest

from prefixlint.whatif._slots import Templates, Wanted

RULES = "".join(f"- Rule {n} of the harbour holds for every crate that is weighed.\n" for n in range(20))
CASES = tuple(
    f"Case file:\nThe {ship} came in at noon with {n} crates, and nobody has signed for them.\nAsk the {who} first.\n\n"
    for n, (ship, who) in enumerate((("Anna", "pilot"), ("Vesta", "clerk"), ("Orion", "crew of the tug")), 4)
)


def line(n):
    return f"trace_id: {n:08x}-b6b2-4cbb-a750-46b646c0772d\n"


def texts(first):
    """Give texts with neither, with one of the two, and with both; `first` is what stands ahead."""
    lines = itertools.cycle(("", line(0x315791F8), line(0xD8C1D137), ""))
    for case, own in zip((*CASES, *CASES, "", "", "", CASES[0], ""), lines, strict=False):
        yield (case + own if first == "passage" else own + case) + RULES


@pytest.mark.parametrize("first", ["passage", "line"])
@pytest.mark.parametrize("turned", [False, True])
def test_a_line_beside_a_passage_is_taken_out_of_the_texts_that_have_it(first, turned):
    found = [*texts(first)][:: -1 if turned else 1]
    templates = Templates(Wanted(frozenset({"random"}), others=frozenset({"text"})))
    templates.learn(list(itertools.pairwise(found)))
    for text in found:
        template, filled = templates.fill(text)
        values = [value for _, value in filled.values]
        assert "".join(values) in ("", *(line(n) for n in (0x315791F8, 0xD8C1D137)))
        assert ("trace_id" in text) == any(values)
        assert "".join(filled.pieces) == text.replace("".join(values), "")
        assert template.may_be_empty() == [True]
