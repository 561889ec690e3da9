"""Requests of one template are one family, whatever its values are."""

from __future__ import annotations

import random
import time

import pytest

from prefixlint.families import Grouper, plain_text
from prefixlint.model import BlockHashes, Messages, NoPrompt, Request, Text, TokenIds

RULES = "\n".join(
    f"Rule {word}: always check the {word} before you answer the customer."
    for word in [
        "shelf",
        "price",
        "label",
        "weight",
        "colour",
        "origin",
        "batch",
        "dock",
        "crate",
        "route",
        "tariff",
        "seal",
    ]
)


def chat(system, question="hello", model="m", **message):
    messages = [{"role": "system", "content": system}] if system is not None else []
    messages.append({"role": "user", "content": question, **message})
    return Request("log", 1, Messages(messages), "test", model=model)


def families(requests):
    grouper = Grouper()
    return [grouper.add(r) for r in requests], grouper


def test_a_clock_at_the_top_does_not_split_a_family():
    numbers, _ = families(chat(f"It is 2031-03-04T09:{m:02}:11Z.\nYou sort parcels.\n{RULES}") for m in range(50))
    assert set(numbers) == {0}


def test_a_name_early_in_a_short_prompt_does_not_split_a_family():
    names = ["Ada", "Grace", "Edsger", "Barbara Liskov", "Tony"]
    numbers, grouper = families(
        chat(f"You help {n} with travel plans. Be brief and offer two choices. Never book without a yes.")
        for n in names
    )
    assert set(numbers) == {0}
    assert grouper.name(0)


class Forgetful(dict):
    """What remembers nothing."""

    def __setitem__(self, key, value):
        pass


def test_heads_that_differ_in_digits_are_placed_as_if_each_were_new():
    rng = random.Random(7)
    words = ["".join(rng.choices("abcdefghijklm", k=6)) for _ in range(300)]
    lines = [" ".join(rng.sample(words, 8)) + "." for _ in range(60)]
    requests = []
    for _ in range(400):
        chosen = rng.sample(lines[: rng.choice((8, 20, len(lines)))], rng.randint(2, 8))
        requests += [chat("\n".join([f"It is {rng.randint(0, 99)}:00.", *chosen])) for _ in range(rng.randint(1, 3))]
    rng.shuffle(requests)
    numbers, grouper = families(requests)
    forgetful = Grouper(_placed=Forgetful())
    assert numbers == [forgetful.add(r) for r in requests]
    assert [f.name for f in grouper.families] == [f.name for f in forgetful.families]
    assert len(grouper.families) > 3


def test_two_templates_are_two_families_though_both_begin_alike():
    a = "You are a helpful assistant.\n" + RULES
    b = "You are a helpful assistant.\n" + "\n".join(
        f"Step {i} of {w}: write the {w} down."
        for i, w in enumerate(["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"])
    )
    numbers, _ = families([chat(a), chat(b), chat(a), chat(b)])
    assert numbers == [0, 1, 0, 1]


def test_another_model_is_another_family():
    numbers, _ = families([chat(RULES, model="a"), chat(RULES, model="b")])
    assert numbers == [0, 1]


@pytest.mark.parametrize(
    ("prompt", "name"),
    [
        ("<|im_start|>system\nYou sell ferries and nothing else.<|im_end|>\n", "You sell ferries and nothing else."),
        ("<s>[INST] <<SYS>>\nYou sell ferries.\n<</SYS>>\n\nhi [/INST]", "You sell ferries."),
        ("<｜begin▁of▁sentence｜>You sell ferries.\n<｜User｜>hi", "You sell ferries."),
        ("<|im_start|>system", "<|im_start|>system"),
    ],
)
def test_a_family_is_named_by_its_text_and_not_by_the_marks_of_its_template(prompt, name):
    _, grouper = families([Request("log", 1, Text(prompt), "test", model="m")])
    assert grouper.name(0) == name


def test_a_family_is_named_by_what_its_members_share():
    _, grouper = families(chat(f"Ticket {n}\nYou answer tickets of the harbour office.\n{RULES}") for n in ("AB", "CD"))
    assert grouper.name(0) == "You answer tickets of the harbour office."


def test_without_a_system_message_the_first_text_counts():
    few_shot = "Translate to Danish.\nsea -> hav\nship -> skib\nharbour -> havn\n"
    numbers, _ = families(chat(None, few_shot + w + " ->") for w in ("net", "tide", "anchor"))
    assert set(numbers) == {0}


@pytest.mark.parametrize(
    ("same", "other"),
    [
        (Text(RULES + "\nOne"), Text("quite another prompt about birds and nothing else at all, in one line")),
        (TokenIds(list(range(600))), TokenIds(list(range(5000, 5600)))),
        (BlockHashes(("a", "b"), (512, 512), 512), BlockHashes(("c",), (512,), 512)),
        (NoPrompt("level-0"), NoPrompt("other")),
    ],
)
def test_every_kind_of_content_has_families(same, other):
    numbers, _ = families([Request("f", 1, same, "t"), Request("f", 2, other, "t"), Request("f", 3, same, "t")])
    assert numbers == [0, 1, 0]


@pytest.mark.parametrize(
    "content",
    [
        Text(""),
        TokenIds([]),
        BlockHashes((), (), 512),
        Messages([]),
        Messages([{"role": "user"}]),
        Messages([{"role": "user", "content": 7}]),
    ],
)
def test_empty_prompts_are_no_error(content):
    numbers, grouper = families([Request("f", 1, content, "t")] * 2)
    assert numbers == [0, 0]
    assert isinstance(grouper.name(0), str)


def test_the_numbers_do_not_depend_on_hashing():
    rng = random.Random(7)
    requests = [
        chat(f"{rng.random()}\n{RULES}" if rng.random() < 0.5 else f"You are bot {rng.randint(0, 3)}")
        for _ in range(50)
    ]
    assert families(requests)[0] == families(requests)[0]


def test_text_of_content():
    assert plain_text("a") == "a"
    assert plain_text([{"type": "text", "text": "a"}, {"type": "image_url"}, "x", {"text": "b"}]) == "a\nb"
    assert plain_text(None) == ""


def test_boilerplate_in_thousands_of_templates_costs_no_time_and_joins_none_of_them():
    """Each head shares two fifths with all others; comparing it with all of them would take minutes."""
    rng = random.Random(4)
    words = [a + b for a in ("al", "be", "ga", "de", "om", "ze", "ki", "lo") for b in ("ra", "ti", "mun", "sko", "vel")]
    shared = "\n".join(" ".join(rng.choices(words, k=8)) for _ in range(10))
    heads = ["\n".join(" ".join(rng.choices(words, k=8)) for _ in range(16)) + "\n" + shared for _ in range(3000)]
    start = time.process_time()
    numbers, grouper = families(
        [*map(chat, heads), *(chat(f"{shared}\nCustomer: {n}.") for n in words), chat(heads[7])]
    )
    assert time.process_time() - start < 10
    assert numbers[:3000] == list(range(3000))
    assert len(set(numbers[3000:-1])) == 1
    assert numbers[-1] == 7
    assert len(grouper.families) in (3000, 3001)


def test_families_with_the_same_first_line_have_names_of_their_own():
    tasks = [
        "sail the red boat to the far island",
        "paint the shed behind the old harbour",
        "count all the crates twice",
    ]
    texts = [f"<task>\nPlease do the following task.\n{task}.\n</task>\n" + f"{task} again. " * 40 for task in tasks]
    numbers, grouper = families(Request("log", 1, Text(text), "test", model=m) for m in "ab" for text in texts)
    assert len(set(numbers)) == 6
    names = [grouper.name(number) for number in numbers]
    assert names[:3] == ["Please do the following task.", f"{tasks[1]}.", f"{tasks[2]}."]
    assert names[3:] == names[:3]
