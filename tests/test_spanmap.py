"""From a character of a logged prompt to what wrote it in the source."""

from hypothesis import given
from hypothesis import strategies as st

from prefixlint.prompts import Hole, Origin, Period, Scope, Segment, Span, Text, Volatility
from prefixlint.spanmap import of_order, written

LINES = [
    "Weigh each crate before it leaves.",
    "Note the road that it takes.",
    "Never guess a weight, ask for it.",
    "Answer in short sentences only.",
    "A pallet holds eight crates at most.",
]


def text(content):
    return Segment(Text(content, Span("p.py", 0, 0)), "system", 0)


def hole(name, *kinds, branch=()):
    origins = tuple(Origin(k, Volatility(Scope.REQUEST, Period.CALL), name, None) for k in kinds)
    return Segment(Hole((name,), origins, Span("p.py", 0, len(name))), "system", 0, branch=branch)


def name(found):
    return None if found is None else found.node.names[0] if isinstance(found.node, Hole) else "text"


@given(st.data())
def test_each_character_of_a_value_leads_to_its_hole(data):
    count = data.draw(st.integers(1, len(LINES) - 1))
    values = data.draw(st.lists(st.text("0123456789:", min_size=1, max_size=12), min_size=count, max_size=count))
    segments, logged, places = [text(LINES[0] + " ")], LINES[0] + " ", []
    for number, value in enumerate(values):
        segments += [hole(f"h{number}"), text("\n" + LINES[number + 1] + " ")]
        places += [(len(logged) + i, f"h{number}") for i in range(len(value))]
        logged += value + "\n" + LINES[number + 1] + " "
    for char, wanted in places:
        assert name(written(segments, logged, char, "clock")) == wanted


def test_neighbours_are_told_apart_by_the_text_between_them():
    segments = [
        text(LINES[0] + "\nAt "),
        hole("clock", "clock"),
        text(", for "),
        hole("who", "identity"),
        text(".\n" + LINES[1]),
    ]
    logged = f"{LINES[0]}\nAt 09:12, for anna.\n{LINES[1]}"
    assert name(written(segments, logged, logged.index("12"), "clock")) == "clock"
    assert name(written(segments, logged, logged.index("anna") + 2, "identity")) == "who"


def test_where_the_text_was_changed_on_its_way_the_kind_decides():
    segments = [text(LINES[0]), hole("clock", "clock"), text(" and "), hole("who", "identity"), text(LINES[1])]
    logged = f"{LINES[0]} 09:12 -- anna {LINES[1]}"
    assert name(written(segments, logged, logged.index("anna"), "identity")) == "who"
    assert name(written(segments, logged, logged.index("09"), "age")) == "clock"


def test_dedented_text_is_recognised():
    segments = [text(f"    {LINES[0]}\n    {LINES[1]}\n    Now: "), hole("now", "clock"), text(f"\n    {LINES[2]}\n")]
    logged = f"{LINES[0]}\n{LINES[1]}\nNow: 7\n{LINES[2]}"
    assert name(written(segments, logged, logged.index("7"), "clock")) == "now"


def test_branches_that_were_not_taken_do_not_mislead():
    branch = ((0, 0),)
    other = Segment(Text(LINES[2] + "\n", Span("p.py", 0, 0)), "system", 0, branch=branch)
    segments = [text(LINES[0] + "\n"), other, hole("id", "random"), text("\n" + LINES[1]), text("\n" + LINES[3])]
    logged = f"{LINES[0]}\nab12\n{LINES[1]}\n{LINES[3]}\n{LINES[2]}"
    assert name(written(segments, logged, logged.index("ab12"), "random")) == "id"


def test_text_that_was_edited_is_named_as_such():
    segments = [text(LINES[0] + "\n" + LINES[1]), hole("q", "input")]
    logged = f"{LINES[0]}\n{LINES[1]} and more"
    assert name(written(segments, logged, 12, "text")) == "text"


def test_other_prompts_are_not_recognised():
    segments = [text(LINES[0]), hole("q", "input")]
    assert written(segments, "Something else that nobody here has written.", 5, "text") is None
    assert written([], "", 0, "text") is None
    assert written([hole("q")], "all of it is a value", 3, "text") is None


@given(st.text(max_size=80), st.integers(0, 80), st.lists(st.sampled_from(LINES), min_size=1, max_size=4))
def test_any_text_is_survived(logged, char, lines):
    segments = [segment for line in lines for segment in (text(line), hole("h"))]
    found = written(segments, logged + "".join(lines), char, "clock")
    assert found is None or found.score > 0


def test_many_holes_between_two_lines_take_no_time():
    between = [segment for i in range(40) for segment in (hole(f"h{i}"), text(" "))]
    logged = LINES[0] + "a " * 3000 + LINES[1]
    assert name(written([text(LINES[0]), *between, text(LINES[1])], logged, len(LINES[0]) + 5, "clock")) == "h0"


def test_what_decides_the_order():
    assert of_order([text("x"), hole("tools", "order")]).names == ("tools",)
    assert of_order([text("x"), hole("clock", "clock")]) is None
