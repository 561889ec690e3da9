"""GGUF files give a tokenizer.json whose ids are those of the tokenizer they were made from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

gguf = pytest.importorskip("gguf")
tokenizers = pytest.importorskip("tokenizers")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from prefixlint.errors import ModelError  # noqa: E402
from prefixlint.modelfiles import embedded, resolve  # noqa: E402

CORPUS = [
    "Hello world, it's 1234 o'clock!",
    "  def f(x):\n\treturn x + 1\n\n",
    "größe 東京 🌤 WHERE's",
    "hello hello world don't",
] * 20
SPECIAL = ["<|start|>", "<|end|>"]


def trained(pre):
    """A small byte-level BPE tokenizer whose text is cut in the given way."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=420, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def write_gguf(path, tokenizer, *, pre, kind="gpt2", **more):
    parts = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(parts["vocab"], key=parts["vocab"].__getitem__)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_tokenizer_model(kind)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in parts["merges"]])
    writer.add_token_types([3 if token in SPECIAL else 1 for token in tokens])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_chat_template("{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}")
    for name, value in more.items():
        getattr(writer, name)(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return str(path)


def byte_level(*, own=False):
    return tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=own)


def split(pattern):
    return tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")


LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CUTS = {
    "default": byte_level(own=True),
    "smollm": tokenizers.pre_tokenizers.Sequence(
        [tokenizers.pre_tokenizers.Digits(individual_digits=True), byte_level(own=True)]
    ),
    "llama-bpe": tokenizers.pre_tokenizers.Sequence([split(LLAMA3), byte_level()]),
    "qwen2": tokenizers.pre_tokenizers.Sequence([split(LLAMA3.replace("{1,3}", "")), byte_level()]),
}


@pytest.fixture(scope="module", params=CUTS)
def pair(request, tmp_path_factory):
    original = trained(CUTS[request.param])
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    files = resolve(write_gguf(path, original, pre=request.param))
    return original, tokenizers.Tokenizer.from_str(files.tokenizer_json())


@given(text=st.text(max_size=40) | st.sampled_from(CORPUS))
@settings(max_examples=60, deadline=None)
def test_ids_are_those_of_the_original(pair, text):
    original, rebuilt = pair
    encoded = rebuilt.encode(text, add_special_tokens=False)
    assert encoded.ids == original.encode(text, add_special_tokens=False).ids
    assert rebuilt.decode(encoded.ids, skip_special_tokens=False) == text


def test_special_tokens_and_template_come_along(tmp_path):
    files = resolve(write_gguf(tmp_path / "m.gguf", trained(CUTS["default"]), pre="default", add_add_bos_token=True))
    assert (files.name, files.source, files.renderer) == ("tiny", "gguf", "jinja")
    assert files.special_tokens == {"bos_token": "<|start|>", "eos_token": "<|end|>"}
    assert files.raw_start() == ("<|start|>",)
    assert "eos_token" in (files.template() or "")
    rebuilt = tokenizers.Tokenizer.from_str(files.tokenizer_json())
    assert rebuilt.encode("a<|end|>", add_special_tokens=False).tokens == ["a", "<|end|>"]
    assert rebuilt.encode("a").tokens == ["<|start|>", "a"]


@pytest.mark.oracle
def test_metadata_is_what_the_gguf_package_reads(tmp_path):
    from prefixlint.ggufs import _fields

    path = write_gguf(
        tmp_path / "m.gguf", trained(CUTS["default"]), pre="default", add_context_length=7, add_rope_freq_base=0.5
    )
    mine = _fields(Path(path))
    theirs = gguf.GGUFReader(path).fields
    assert {name for name in theirs if name.startswith(("tokenizer.", "general.name"))} == set(mine)
    for name, value in mine.items():
        assert theirs[name].contents() == value


def test_the_patterns_of_deepseek_are_those_of_its_tokenizer():
    from prefixlint.ggufs import _SPLITS

    steps = json.loads(embedded().tokenizer_json())["pre_tokenizer"]["pretokenizers"]
    assert [
        step["pattern"]["Regex"].replace("\r", "\\r").replace("\n", "\\n") for step in steps if step["type"] == "Split"
    ] == list(_SPLITS["deepseek-v3"])


def test_what_cannot_be_rebuilt_says_what_to_do(tmp_path):
    tokenizer = trained(CUTS["default"])
    for name, options in {"spm": {"pre": "default", "kind": "llama"}, "pre": {"pre": "nobody-knows"}}.items():
        with pytest.raises(ModelError) as caught:
            resolve(write_gguf(tmp_path / f"{name}.gguf", tokenizer, **options))
        assert caught.value.slug == "unsupported-gguf"
        assert "--tokenizer" in (caught.value.hint or "")


def test_broken_files_end_in_a_message(tmp_path):
    whole = Path(write_gguf(tmp_path / "m.gguf", trained(CUTS["default"]), pre="default")).read_bytes()
    for size in (4, 8, 24, 100, len(whole) // 2):
        (tmp_path / "cut.gguf").write_bytes(whole[:size])
        with pytest.raises(ModelError):
            resolve(str(tmp_path / "cut.gguf"))
