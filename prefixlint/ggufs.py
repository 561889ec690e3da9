"""GGUF files: the tokenizer and the chat template out of their metadata. Tensors are never touched.

A byte-level BPE vocabulary (`tokenizer.ggml.model` = `gpt2`) becomes a tokenizer.json. How text is cut before BPE is
only named in the file (`tokenizer.ggml.pre`); the patterns behind the names are those that the models' own
tokenizer.json have. SentencePiece, WordPiece and other kinds are refused: their tokenizer.json says more than GGUF.
"""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from prefixlint.errors import ModelError

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_DEEPSEEK_WORDS = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"""
)
_TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LLAMA3 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_TAIL}"
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTIONS}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_TAIL}"
)
_TEKKEN = _O200K.replace(f"{_CONTRACTIONS}?", "").replace(r"\p{N}{1,3}", r"\p{N}")
_DEEPSEEK3 = (r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", _DEEPSEEK_WORDS + _TAIL)
# Patterns to split at, one after the other; GPT2 is the byte-level step's own pattern, DIGITS each digit by itself.
_GPT2, _DIGITS = "GPT2", "DIGITS"
_SPLITS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("default", "gpt-2", "phi-2", "olmo", "jina-es", "jina-de"), (_GPT2,)),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"), (_DIGITS, _GPT2)),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "dbrx", "smaug-bpe"), (_LLAMA3,)),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez"), (_QWEN2,)),
    **dict.fromkeys(("deepseek-v3",), _DEEPSEEK3),
    **dict.fromkeys(("gpt-4o", "llama4", "o200k"), (_O200K,)),
    **dict.fromkeys(("tekken",), (_TEKKEN,)),
}
_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4  # token types of GGUF
_SPECIAL = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token", "eot": "eot_token"}


@dataclass(frozen=True, slots=True)
class GgufTokenizer:
    """What a GGUF file says about text; the fields are those of `ModelFiles`."""

    name: str
    tokenizer: str
    templates: Mapping[str, str]
    special_tokens: Mapping[str, str]
    add_bos: bool | None
    add_eos: bool | None


def read_gguf(path: Path) -> GgufTokenizer:
    """Read a GGUF file's tokenizer and chat template. Raises ModelError for what it cannot rebuild exactly."""
    fields = _fields(path)
    kind = fields.get("tokenizer.ggml.model")
    if kind != "gpt2":
        raise ModelError(
            f"{path} holds a tokenizer of the kind {kind!r}; only byte-level BPE (gpt2) can be rebuilt from GGUF",
            slug="unsupported-gguf",
            hint="give the tokenizer.json of the original model with --tokenizer",
        )
    tokens = fields["tokenizer.ggml.tokens"]
    templates = {"default": fields["tokenizer.chat_template"]} if fields.get("tokenizer.chat_template") else {}
    for key, value in fields.items():
        if key.startswith("tokenizer.chat_template.") and isinstance(value, str):
            templates[key.removeprefix("tokenizer.chat_template.")] = value
    special = {}
    for name, template_name in _SPECIAL.items():
        index = fields.get(f"tokenizer.ggml.{name}_token_id")
        if isinstance(index, int) and 0 <= index < len(tokens):
            special[template_name] = tokens[index]
    return GgufTokenizer(
        name=str(fields.get("general.name") or path.stem),
        tokenizer=_tokenizer_json(fields, path),
        templates=MappingProxyType(templates),
        special_tokens=MappingProxyType(special),
        add_bos=_flag(fields, "add_bos_token"),
        add_eos=_flag(fields, "add_eos_token"),
    )


def _flag(fields: Mapping[str, Any], name: str) -> bool | None:
    value = fields.get(f"tokenizer.ggml.{name}")
    return bool(value) if value is not None else None


def _fields(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            fields = _Metadata(data).read()
    except (OSError, ValueError, IndexError, OverflowError, struct.error) as error:
        raise ModelError(
            f"{path} is not a readable GGUF file: {error}", slug="unreadable-model", hint="fetch it again"
        ) from error
    if not isinstance(fields.get("tokenizer.ggml.tokens"), list):
        raise ModelError(
            f"{path} holds no tokenizer", slug="no-tokenizer", hint="give the model's tokenizer.json with --tokenizer"
        )
    return fields


_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_WANTED = ("tokenizer.", "general.name")


class _Metadata:
    """Reads the key-value part of a little-endian GGUF file, versions 2 and 3 (github.com/ggml-org/ggml, docs/gguf.md).

    The package `gguf` reads the same; on 100,000 strings it takes seconds, since each becomes NumPy views.
    """

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 4

    def read(self) -> dict[str, Any]:
        """Give the wanted keys. Raises ValueError, struct.error for what is no GGUF or ends too early."""
        (version,) = self._numbers("I")
        if version not in {2, 3}:
            raise ValueError(f"version {version} of the format is not known")
        _tensors, count = self._numbers("QQ")
        fields: dict[str, Any] = {}
        for _ in range(count):
            key = self._string()
            (kind,) = self._numbers("I")
            value = self._value(kind)
            if key.startswith(_WANTED):
                fields[key] = value
        return fields

    def _numbers(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from("<" + form, self._data, self._at)
        self._at += struct.calcsize("<" + form)
        return values

    def _string(self) -> str:
        (size,) = self._numbers("Q")
        end = self._at + size
        if end > len(self._data):
            raise ValueError("a string ends behind the file")
        text = self._data[self._at : end].decode("utf-8", errors="replace")
        self._at = end
        return text

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind in _NUMBERS:
            return self._numbers(_NUMBERS[kind])[0]
        if kind != _ARRAY:
            raise ValueError(f"a value has the unknown type {kind}")
        inner, count = self._numbers("IQ")
        if count > len(self._data) - self._at:
            raise ValueError("an array ends behind the file")
        if inner in _NUMBERS:
            return list(self._numbers(f"{count}{_NUMBERS[inner]}"))
        if inner != _STRING:
            raise ValueError(f"an array has the unsupported type {inner}")
        return [self._string() for _ in range(count)]


def _tokenizer_json(fields: Mapping[str, Any], path: Path) -> str:
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    merges: list[str] = fields.get("tokenizer.ggml.merges") or []
    types: list[int] = fields.get("tokenizer.ggml.token_type") or [_NORMAL] * len(tokens)
    pre = str(fields.get("tokenizer.ggml.pre") or "default")
    if pre not in _SPLITS:
        raise ModelError(
            f"{path} names a way to split text that is not known here: {pre!r}",
            slug="unsupported-gguf",
            hint="give the tokenizer.json of the original model with --tokenizer",
        )
    added = [
        {
            "id": index,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind == _CONTROL,
        }
        for index, (token, kind) in enumerate(zip(tokens, types, strict=False))
        if kind in {_CONTROL, _USER_DEFINED}
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": _pre_tokenizers(_SPLITS[pre])},
            "post_processor": _post_processor(fields, tokens, byte_level),
            "decoder": byte_level,
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": "",
                "end_of_word_suffix": "",
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": pre in {"llama-bpe", "llama3", "llama-v3", "tekken", "gpt-4o", "llama4"},
                "vocab": {token: index for index, token in enumerate(tokens)},
                "merges": merges,
            },
        },
        ensure_ascii=False,
    )


def _pre_tokenizers(splits: tuple[str, ...]) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    for split in splits:
        if split == _DIGITS:
            steps.append({"type": "Digits", "individual_digits": True})
        elif split != _GPT2:
            steps.append({"type": "Split", "pattern": {"Regex": split}, "behavior": "Isolated", "invert": False})
    own = _GPT2 in splits
    return [*steps, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": own}]


def _post_processor(fields: Mapping[str, Any], tokens: list[str], byte_level: dict[str, Any]) -> dict[str, Any]:
    """Put the first and the last token around raw text where the file wants them."""
    around: dict[str, dict[str, Any]] = {}
    sequence: list[dict[str, Any]] = [{"Sequence": {"id": "A", "type_id": 0}}]
    for flag, name, place in (("add_bos_token", "bos", 0), ("add_eos_token", "eos", len(sequence) + 1)):
        index = fields.get(f"tokenizer.ggml.{name}_token_id")
        if _flag(fields, flag) and isinstance(index, int) and index < len(tokens):
            token = tokens[index]
            around[token] = {"id": token, "ids": [index], "tokens": [token]}
            sequence.insert(place, {"SpecialToken": {"id": token, "type_id": 0}})
    if not around:
        return byte_level
    template = {"type": "TemplateProcessing", "single": sequence, "pair": sequence, "special_tokens": around}
    return {"type": "Sequence", "processors": [byte_level, template]}
