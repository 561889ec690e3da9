"""Where requests part, and what is lost behind it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from prefixlint import excerpts, redact
from prefixlint.attribute import Parting, part, partners, place, places


def excerpt(*texts, personal=False):
    return excerpts.excerpt(*texts, redactor=redact.shown(personal=personal))


class Words:
    """Segments whose tokens are their words."""

    def __init__(self):
        self.texts, self.ids, self.numbers, self.words = [], [], {}, {}

    def add(self, *texts):
        return np.array([self._number(t) for t in texts], np.uint32)

    def _number(self, text):
        if text not in self.numbers:
            self.numbers[text] = len(self.texts)
            self.texts.append(text)
            self.ids.append(np.array([self.words.setdefault(w, len(self.words)) for w in text.split()], np.uint32))
        return self.numbers[text]

    def sizes(self, segments):
        return np.array([self.ids[s].size for s in segments], np.int64)

    def decode(self, ids):
        words = list(self.words)
        return " ".join(words[i] for i in ids)

    def piece(self, segment):
        return self.ids[segment]


RULES = "never book without asking and always name the platform of the train"


def test_a_clock_loses_what_stands_behind_it():
    words = Words()
    a = words.add(f"now 09:12:44 {RULES}", "where is my train please tell me")
    b = words.add(f"now 09:12:51 {RULES}", "where is my train please tell me")
    segment, context, token, lost = part(words, a, b)
    assert (segment, context, token) == (0, "now ", 1)
    assert lost == len(RULES.split()) + 7


def test_digits_that_agree_by_chance_do_not_move_the_place():
    words = Words()
    a, b, c = (words.add(f"now 09:1{m} {RULES}") for m in ("2:44", "2:51", "9:00"))
    assert part(words, a, b)[1] == part(words, a, c)[1] == "now "


def test_what_only_goes_on_is_no_parting():
    words = Words()
    a = words.add(RULES, "one")
    assert part(words, a, words.add(RULES, "one", "two")) is None
    assert part(words, words.add("tell me"), words.add("tell me more")) is None
    assert part(words, a, a) is None


def test_a_shorter_prompt_parts_without_loss():
    words = Words()
    assert part(words, words.add(RULES, "one"), words.add(RULES))[2:] == (len(RULES.split()), 0)


def test_new_text_is_not_lost():
    words = Words()
    a = words.add(RULES, "where is the museum of modern art in this town")
    b = words.add(RULES, "which bus goes home tonight after the late show ends")
    assert part(words, a, b)[3] == 0


def test_punctuation_of_the_template_is_not_lost_text():
    words = Words()
    a = words.add("<s>", "one question here", "<e>", "<a>")
    b = words.add("<s>", "other words there", "<e>", "<a>")
    assert part(words, a, b)[3] == 0


def test_the_previous_turn_is_the_partner_not_the_longest_accident():
    order = [0, 1, 2, 3]
    found = partners(order, conversation=[0, 1, 0, 2], owner=np.array([-1, 0, 1, 2]), family=[0, 0, 0, 0])
    assert found == [-1, 0, 0, 2]


def test_a_request_of_another_family_is_no_partner():
    assert partners([0, 1, 2], [0, 1, 2], np.array([-1, 0, 1]), [0, 1, 0]) == [-1, -1, 0]


def test_places_are_ranked_by_what_they_lose():
    partings = [Parting(r, 0, 0, "now ", 1, 10) for r in range(3)] + [Parting(3, 0, 2, "", 9, 100)]
    found = places(partings, [7] * 4)[7]
    assert [(p.requests, p.lost) for p in found] == [(1, 100), (3, 30)]


def test_an_excerpt_shows_both_values_whole():
    a, b = f"now 09:12:44 {RULES}", f"now 09:12:51 {RULES}"
    found = excerpt(a, b, 4)
    assert (found.before, found.earlier, found.later) == ("now ", "09:12:44", "09:12:51")
    assert found.after.startswith(" never book")


def test_an_excerpt_of_inserted_text():
    found = excerpt("Hello. Be brief and kind.", "Hello. VIP guest! Be brief and kind.", 7)
    assert found.earlier + found.after[:3] != found.later


def test_an_excerpt_never_cuts_what_is_masked():
    a, b = (f"key sk-abcdefghijklmnopqrst{n} is mine, {RULES}" for n in (12, 34))
    found = excerpt(a, b, 27)
    assert (found.before, found.earlier, found.later) == ("key ", redact.SECRET, redact.SECRET)
    a, b = f"now 09:12:44 {RULES}", f"now 09:12:51 {RULES}"
    found = excerpt(a, b, 11, personal=True)
    assert found.before == "now "
    assert found.earlier != found.later
    assert found.earlier.startswith("<timestamp:")


@given(st.text(max_size=300), st.text(max_size=300), st.integers(0, 300))
def test_an_excerpt_of_anything_is_short(a, b, char):
    found = excerpt(a, b, min(char, len(a), len(b)), "lead")
    assert len(found.before) <= 60
    assert len(found.after) <= 60
    assert max(len(found.earlier), len(found.later)) <= 80


@given(st.lists(st.sampled_from(["a b", "a c", "c", "a b c d", ""]), max_size=5), st.data())
def test_a_place_is_where_the_parting_is(texts, data):
    words = Words()
    others = data.draw(st.lists(st.sampled_from([*texts, "a b", "c d", "e"]), max_size=5))
    earlier, later = words.add(*texts), words.add(*others)
    parted = part(words, earlier, later)
    assert place(words, earlier, later) == (parted and parted[:3])
