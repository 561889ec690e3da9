"""A tokenizer whose tokens are words, with a chat template that a person can count along."""

from __future__ import annotations

import json

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

SPECIALS = ("<system>", "<user>", "<assistant>", "<tool>", "<end>")
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def tokenizer_json(words: str) -> str:
    """Make a word-level tokenizer.json for these words; white space separates and is no token."""
    vocabulary = {word: i for i, word in enumerate(["<unk>", *SPECIALS, *dict.fromkeys(words.split())])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIALS])
    return tokenizer.to_str()


def model_folder(path, words: str, template: str = TEMPLATE):
    """Write a model folder that `--model` takes."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "tokenizer.json").write_text(tokenizer_json(words))
    (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    return path


def write_log(path, rows):
    """Write one JSON object a line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
