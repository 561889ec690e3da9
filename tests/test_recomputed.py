"""How much of a request would have been served if it went on like the one that it should have matched."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from prefixlint.recomputed import Comparer, Difference

RULES = "never book without asking and always name the platform of the train before the hour is over today"
TURN, REWRITTEN, MOVED = Difference(), Difference(rewritten=True), Difference(moved=True)


class Words:
    """Segments whose tokens are words; a line ends with the word `|`."""

    def __init__(self):
        self.texts, self.ids, self.words = {}, [], {}

    def add(self, *texts):
        return np.array([self._number(text) for text in texts], np.uint32)

    def _number(self, text):
        if text not in self.texts:
            self.texts[text] = len(self.ids)
            self.ids.append(np.array([self.words.setdefault(w, len(self.words)) for w in text.split()], np.uint32))
        return self.texts[text]

    def sizes(self, segments):
        return np.array([self.ids[s].size for s in segments], np.int64)

    def piece(self, segment):
        return self.ids[segment]

    def decode(self, ids):
        words = list(self.words)
        return " ".join("\n" if words[i] == "|" else words[i] for i in ids)


def lost(earlier, later, difference=TURN, *, shared=None, output=None):
    words = Words()
    a, b = words.add(*earlier), words.add(*later)
    if shared is None:
        one, two = (np.concatenate([words.piece(s) for s in x]) for x in (a, b))
        n = min(one.size, two.size)
        shared = int((one[:n] == two[:n]).cumprod().sum())
    given_output = None if output is None else words.add(*output)
    return Comparer(words).recomputed(a, b, shared, difference, output=given_output)


def text(name, count):
    return " ".join(f"{name}{i}" for i in range(count))


def test_what_stands_behind_a_changed_value_is_lost_and_the_value_is_not():
    assert lost([f"now 09:12 {RULES}", "where is my train"], [f"now 09:14 {RULES}", "where is my train"]) == 22


def test_two_values_of_one_line():
    assert lost([f"now 09:12 {RULES} step 4 {text('x', 9)}"], [f"now 09:14 {RULES} step 5 {text('x', 9)}"]) >= 9 + 1


def test_what_the_cache_served_from_another_request_is_not_lost():
    a, b = [f"now 09:12 {RULES}", text("x", 30)], [f"now 09:14 {RULES}", text("x", 30)]
    assert lost(a, b, shared=len(RULES.split()) + 2 + 10) == 20
    assert lost(a, b, shared=len(RULES.split()) + 2 + 30) == 0


ASK = "where is my train to Riga today and does it stop before the border"
HEAD = Difference(opening=ASK[:24], turn=True)


def test_behind_another_head_a_history_is_lost_as_far_as_it_goes_on_alike():
    rest = [text(name, 9) for name in "abcdefghij"]
    a = [f"now 09:12 {RULES}", ASK, text("thought", 40), *rest]
    b = [f"now 09:14 {RULES}", ASK, *rest, "and the next one"]
    assert lost(a, b) > len(RULES.split()) + len(ASK.split()) + 16  # whoever knows no more takes all that comes again
    assert lost(a, b, HEAD) == len(RULES.split()) + len(ASK.split())


def test_two_turns_whose_heads_are_the_same_are_parted_by_their_template():
    a = [RULES, ASK, text("thought", 40), "it stops once"]
    assert lost(a, [RULES, ASK, "it stops once", "and the next one"], HEAD) is None


def test_an_opening_is_found_where_messages_begin_and_not_where_rules_quote_it():
    a, b = ([f"now {hour} | Rule one: {ASK} | {RULES} | {text('x', 40)}", ASK, text("y", 40)] for hour in (9, 14))
    assert lost(a, b, HEAD) >= len(RULES.split()) + len(ASK.split()) + 80


def test_an_opening_of_several_lines_is_found():
    asked = "read this | " + text("z", 40)
    a, b = ([f"now {hour} | {RULES} | {text('x', 40)}", asked] for hour in (9, 14))
    sibling = Difference(opening="read this \n z0 z1")
    assert lost(a, b, sibling) >= 60


def test_what_stands_behind_a_thought_that_the_template_forgets_is_not_lost():
    thought = ["<think>", text("thought", 20), "</think>"]
    a = ["call one with an old id", RULES, *thought, text("x", 30)]
    b = ["call one with a new id", RULES, text("x", 30), "next"]
    assert lost(a, b, REWRITTEN) > len(RULES.split()) + 30
    assert lost(a, b, Difference(rewritten=True, turn=True)) <= len(RULES.split()) + 6
    assert lost(a, b, Difference(rewritten=True, turn=True, thoughts=True)) > len(RULES.split()) + 30
    assert lost([RULES, *thought, text("x", 30)], [RULES, text("x", 30)], Difference(turn=True)) is None


def test_ids_that_no_prompt_shows_part_nothing():
    a, b = [RULES, text("old", 30), text("x", 30)], [RULES, text("x", 30), "next"]
    assert lost(a, b, Difference(rewritten=True, turn=True, replaced=True)) is None


def test_new_text_behind_an_equal_history_is_no_loss():
    assert lost(["a b", text("x", 9)], ["a b", text("x", 9), text("y", 40)]) == 0


def test_an_answer_behind_the_prompt_is_no_difference():
    earlier, later = ["a b", text("x", 9), "answer:"], ["a b", text("x", 9), f"answer: {text('y', 40)}", text("z", 9)]
    assert lost(earlier, later, REWRITTEN) == 0
    assert lost(earlier, later, shared=0, output=[text("y", 40)]) == 2 + 9 + 1 + 40


def test_the_last_token_of_a_text_without_its_end_is_not_new():
    a, b = [text("a", 20) + " now.|and"], [text("a", 20) + " now."]
    assert lost(a, b) == 1
    assert lost(a, [text("a", 20) + " then."]) == 0


def test_a_window_loses_what_both_hold_and_not_what_is_new():
    old = [text(name, 20) for name in "abcdef"]
    assert lost(["head", *old[:5]], ["head", *old[2:6]]) == 60


def test_a_name_that_new_text_repeats_is_no_part_of_the_window():
    old = [text("a", 20), "one two three four five", text("b", 20)]
    new = [text("b", 20), "one two three four five", text("c", 20)]
    assert lost(["head", *old], ["head", *new]) == 20


def test_the_same_list_in_another_order_is_lost_as_a_whole():
    lines = [text(name, 20) + " |" for name in "abcd"]
    again = [lines[2], lines[0], lines[3], lines[1]]
    assert lost([" ".join(lines)], [" ".join(again)], REWRITTEN) == 84


def test_rewritten_content_is_lost_itself():
    a, b = ["head", text("a", 30), text("b", 20)], ["head", text("c", 25), text("b", 20)]
    assert lost(a, b, REWRITTEN) == 45
    assert lost(a, b) == 20


def test_a_block_that_moves_to_the_newest_message_is_lost_there_too():
    doc = text("doc", 30)
    a, b = ["head", f"{doc} | {text('a', 20)}"], ["head", text("a", 20), text("answer", 9), f"{doc} | {text('b', 20)}"]
    assert lost(a, b, MOVED) == 20 + 31
    assert lost(a, b) == 20


def test_siblings_share_nothing_behind_their_first_messages():
    a = [f"now 09:12 {RULES}", f"tell me about {text('a', 9)}", text("same", 30)]
    b = [f"now 09:14 {RULES}", f"tell me where {text('b', 9)}", text("same", 30)]
    opening = Difference(opening="tell me where")
    assert lost(a, b, opening) == len(RULES.split()) + 2
    assert lost(a, b) > lost(a, b, opening)


def test_siblings_share_their_examples():
    examples = [text("question", 9), text("answer", 9)]
    a = [f"now 09:12 {RULES}", *examples, text("a", 9)]
    b = [f"now 09:14 {RULES}", *examples, text("b", 9)]
    assert lost(a, b, Difference(opening="question0 question1")) == len(RULES.split()) + 18


def test_a_text_without_messages_is_measured_by_its_characters():
    words = [text("x", 50)]
    assert lost([f"a {words[0]}"], [f"b {words[0]}"], Difference(tail=0)) == 0
    chars = len(f"b {words[0]}")
    assert lost([f"a {words[0]}"], [f"b {words[0]}"], Difference(tail=chars // 2)) in (25, 26)


PROMPTS = st.lists(st.lists(st.sampled_from(["a", "b", "|", "c d e f g", RULES]), min_size=1, max_size=9).map(" ".join))


@given(
    PROMPTS,
    PROMPTS,
    st.integers(0, 60),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, "", "a", "b c"]),
    st.none() | PROMPTS,
)
def test_a_loss_is_never_more_than_what_was_computed(a, b, shared, rewritten, moved, opening, output):
    total = sum(len(x.split()) for x in b)
    shared = min(shared, total)
    if not a or not b:
        return
    found = lost(a, b, Difference(rewritten, moved, opening), shared=shared, output=output or None)
    assert 0 <= found <= total - shared


@given(PROMPTS, PROMPTS)
def test_what_is_appended_is_never_lost(a, b):
    if a:
        assert lost(a, [*a, *b]) == 0 or set(b) & set(a)


def test_what_is_said_newly_ahead_of_words_that_come_again_was_not_rewritten():
    closing = "so answer in few words and close with the name of the pier"
    earlier = [f"piers b c a | {RULES}", "where is my train", closing]
    later = [f"piers c a b | {RULES}", "where is my train", text("said", 300), closing]
    known = len(" ".join([later[0], later[1], later[3]]).split())
    assert known - 4 <= lost(earlier, later, REWRITTEN) <= known + 40


def test_siblings_lose_what_stands_behind_a_line_that_only_one_of_them_has():
    """The next prompt of a template goes on behind an inserted line, and behind a line that is left out, alike."""
    sibling = Difference(opening="where is")
    long, asked = f"{RULES} {text('rule', 30)}", ["where is my train", "where is my bus"]
    clock = f"now it is 09:14 in the morning | {long}"
    assert lost([long, asked[0]], [clock, asked[1]], sibling) == len(long.split()) + 3
    assert lost([clock, asked[0]], [long, asked[1]], sibling) == len(long.split()) + 3
    assert lost([f"{long} and a", asked[0]], [f"{clock} and b", asked[1]], sibling) == len(long.split()) + 1


def test_behind_a_thought_of_the_answer_that_the_template_forgets_nothing_is_lost():
    ask, answer = (
        [RULES, "where is my train # stay calm"],
        ["<think> |", text("thought", 40), "</think> |", text("a", 30)],
    )
    later = [RULES, "where is my train", text("a", 30), "and the next one"]
    assert lost(ask, later, Difference(turn=True), output=answer) == 0
    assert lost(ask, later, Difference(turn=True, thoughts=True), output=answer) >= 30


def test_the_last_message_that_was_stamped_anew_is_lost_as_a_whole():
    one, two = text("first", 30), text("second", 30)
    earlier = [RULES, f"sent 09:12 {one}", "fine and good so far", f"sent 09:12 {two}"]
    later = [
        RULES,
        f"sent 09:14 {one}",
        "fine and good so far",
        f"sent 09:14 {two}",
        "fine again",
        f"sent 09:14 {RULES}",
    ]
    assert lost(earlier, later, REWRITTEN) == 31 + 5 + 32


def test_what_is_rewritten_ahead_of_the_messages_says_nothing_of_them():
    """The last message of the earlier prompt lost its end, and what follows is new."""
    head = [f"keys {RULES}", "<user>", "where is my train", "<model>", "it is late"]
    new = [*head, "<user>", "and now with a note", "<model>"]
    later = [
        f"again keys {RULES}",
        *head[1:],
        "<user>",
        "and now",
        "<model>",
        text("x", 5),
        "<user>",
        text("y", 9),
        "<model>",
    ]
    told = Difference(rewritten=True, begins="where is my train")
    assert lost(new, later, told, shared=0) == 20 + 1 + 4 + 1 + 3 + 1 + 2
    assert lost(new, later, REWRITTEN, shared=0) > lost(new, later, told, shared=0)


def test_texts_in_another_order_that_all_come_again_leave_nothing_in_another_form():
    earlier, later = (
        ["who", *(part for name in names for part in ("<out>", text(name, 20), "<end>")), "<model>"]
        for names in ("cba", "abc")
    )
    new = [text("x", 9), "<user>", text("y", 9), "<end>", "<model>"]
    assert lost(earlier, [*later, *new], REWRITTEN) == 20 + 2 + 20 + 2 + 20 + 2
