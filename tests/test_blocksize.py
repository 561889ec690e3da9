"""Blocks by a model's configuration, against what vLLM logs of published models, and what is said of each."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixlint import pipeline, savings
from prefixlint.blocksize import Known, of_model, settled
from prefixlint.engines import load
from prefixlint.errors import ModelError, UsageError
from prefixlint.shapes import shape
from prefixlint.states import State
from tests.toy import model_folder

from .hybridconfigs import (
    DENSE,
    FALCON_H1,
    GEMMA3,
    GPT_OSS,
    GRANITE,
    JAMBA,
    KIMI,
    LFM2,
    LLAMA4,
    MINIMAX,
    NEMOTRON_9B,
    QWEN3_NEXT,
    QWEN_27B,
)  # fmt: skip

SGLANG, VLLM, LLAMA_CPP, TENSORRT = (load(name) for name in ("sglang", "vllm", "llama.cpp", "tensorrt-llm"))


def of(config):
    return shape(config, name=str(config["model_type"]))


def known(config, **more):
    return Known(shape=of(config), **more)


def told(config, engine, **more):
    engines, notes = settled([engine], known(config, **more))
    return engines[0], " ".join(note.message for note in notes)


@pytest.mark.parametrize(
    ("config", "tp", "kv", "block"),
    [
        # vLLM's own log of these models: "Setting attention block size to … tokens"
        (QWEN3_NEXT, 1, "bf16", 544),
        (QWEN_27B, 1, "bf16", 784),
        (QWEN_27B, 1, "fp8", 1568),
        (NEMOTRON_9B | {"mamba_ssm_cache_dtype": "bfloat16"}, 1, "bf16", 672),
        # by hand, from the state's shape: 128 x 80 x 128 in 32 bits and 3 x 12,288 in 16, over 16 x 4,096 bytes
        (NEMOTRON_9B, 1, "bf16", 1312),
        # 8,192 x 16 and 3 x 8,192 elements of 2 bytes, over 16 x 4,096
        (JAMBA, 1, "bf16", 80),
        (GRANITE, 1, "bf16", 528),
        (FALCON_H1, 1, "bf16", 272),
        # compressed KV of 576 elements, in steps of 128: 32 x 128 x 128 in 32 bits, 3 x 12,288 in 16
        (KIMI, 1, "bf16", 1920),
        # 32 x 128 x 128 of 2 bytes over 16 x 4,096
        (MINIMAX, 1, "bf16", 256),
        # eight GPUs share both, but two heads of KV are not divided by more than two
        (QWEN_27B, 2, "bf16", 784),
        (QWEN3_NEXT, 4, "bf16", 272),
    ],
)
def test_vllm_grows_a_block_to_the_size_of_a_state(config, tp, kv, block):
    assert of_model(VLLM, of(config), tp=tp, kv_dtype=kv) == block


@pytest.mark.parametrize("config", [DENSE, GEMMA3, GPT_OSS, LLAMA4, LFM2])
def test_windows_and_small_states_leave_the_block_alone(config):
    engine, _ = told(config, VLLM)
    assert (engine.granularity, engine.sized_by) == (16, "profile")


@pytest.mark.parametrize(
    ("config", "block"),
    [(QWEN3_NEXT, 64), (KIMI, 64), (NEMOTRON_9B, 128), (GRANITE, 256), (JAMBA, 256), (LFM2, 1), (DENSE, 1)],
)
def test_sglang_caches_states_at_multiples_of_a_chunk(config, block):
    assert told(config, SGLANG)[0].granularity == block


def test_a_larger_page_is_the_chunk():
    paged = SGLANG.with_granularity(128)
    assert of_model(paged, of(QWEN3_NEXT)) is None
    assert of_model(paged, of(GRANITE)) == 256


def test_what_is_said_names_the_block_its_reason_and_what_is_left_out():
    engine, text = told(QWEN3_NEXT, VLLM)
    assert (engine.granularity, engine.sized_by) == (544, "model")
    assert "blocks of 544 tokens by the configuration of qwen3_next" in text
    assert "1,097,728 bytes; a token takes 2,048" in text
    assert "upper bound" in text
    assert "on each of 2 GPUs" in told(QWEN3_NEXT, VLLM, tp=2)[1]
    assert "multiples" in told(QWEN3_NEXT, SGLANG)[1]


def test_windows_are_said():
    assert "window of 1,024 tokens" in told(GEMMA3, VLLM)[1]
    assert "window of 128 tokens" in told(GPT_OSS, SGLANG)[1]
    assert "window of 8,192 tokens" in told(LLAMA4, VLLM)[1]
    assert "--swa-full" in told(GEMMA3, LLAMA_CPP)[1]


def test_of_plain_models_nothing_is_said():
    assert [told(DENSE, engine)[1] for engine in (SGLANG, VLLM, LLAMA_CPP, TENSORRT)] == [""] * 4


def test_checkpoints_and_engines_whose_rule_is_not_known():
    engine, text = told(QWEN3_NEXT, LLAMA_CPP)
    assert engine.granularity == 1
    assert "checkpoint" in text
    assert "is not known" in told(QWEN3_NEXT, TENSORRT)[1]


def test_the_users_word_comes_first_and_is_compared_with_the_models():
    engine, text = told(QWEN3_NEXT, VLLM, given=16)
    assert (engine.granularity, engine.sized_by) == (16, "option")
    assert "as given; by the model's configuration they are 544" in text
    assert "as given" not in told(QWEN3_NEXT, VLLM, given=544)[1]
    with pytest.raises(UsageError):
        settled([VLLM], Known(given=0))


def test_then_the_servers():
    engine, text = told(QWEN3_NEXT, VLLM, server="vllm", served=1056)
    assert (engine.granularity, engine.sized_by) == (1056, "server")
    assert "1,056 tokens, as its server says" in text
    other, _ = told(QWEN3_NEXT, SGLANG, server="vllm", served=1056)
    assert other.granularity == 64


def test_providers_and_published_traces_keep_their_rules():
    kept = [load("openai"), load("anthropic"), load("ideal")]
    assert settled(kept, known(QWEN3_NEXT, given=64)) == (kept, [])


def test_a_kind_of_state_that_is_not_understood_is_said():
    engine, text = told(DENSE | {"model_type": "new", "ssm_cfg": {"layer": "Mamba3"}, "rwkv_heads": 8}, VLLM)
    assert engine.granularity == 16
    assert "rwkv_heads, ssm_cfg" in text
    assert "may be too fine" in text


def test_a_configuration_that_is_not_understood_is_said_once():
    engines, notes = settled([SGLANG, VLLM], Known(unread="the model configuration of x has no vocab_size"))
    assert [engine.granularity for engine in engines] == [1, 16]
    assert [note.slug for note in notes] == ["block-size-unknown"]
    assert "has no vocab_size" in notes[0].message
    assert settled([VLLM], Known(given=64, unread="anything"))[1] == []


LOG = [{"messages": [{"role": "user", "content": "word " * 3000 + end}]} for end in ("one", "two", "three")]


def analyzed(tmp_path, config, **more):
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(body) + "\n" for body in LOG))
    (tmp_path / "config.json").write_text(json.dumps(config))
    server = savings.Settings(model_config=str(tmp_path), **more.pop("server", {}))
    return pipeline.analyze([str(tmp_path / "log.jsonl")], pipeline.Options(server=server, what_if=(), **more))


def test_an_analysis_counts_by_the_models_blocks(tmp_path):
    result = analyzed(tmp_path, QWEN3_NEXT)
    found = {engine.engine: engine for engine in result.engines}
    assert (found["vllm"].granularity, found["vllm"].sized_by) == (544, "model")
    assert found["vllm"].cached_tokens % 544 == 0
    assert found["sglang"].cached_tokens % 64 == 0
    assert 0 < found["vllm"].cached_tokens <= found["sglang"].cached_tokens
    assert [note.slug for note in result.notes].count("model-states") == 2
    curve = [point.hit_rate for point in result.curves.capacity if point.engine == "vllm"]
    assert max(curve) == pytest.approx(found["vllm"].hit_rate)


def test_kv_and_gpus_change_the_block(tmp_path):
    result = analyzed(tmp_path, QWEN_27B, server={"gpu": "2xH100", "kv_dtype": "fp8"})
    assert {e.engine: e.granularity for e in result.engines}["vllm"] == 1568


def test_no_advice_to_set_what_the_model_decides(tmp_path):
    assert "block_size" not in {one.kind for one in analyzed(tmp_path, QWEN3_NEXT).advice}
    assert "block_size" in {one.kind for one in analyzed(tmp_path, DENSE, block_size=1024).advice}


SMALL = st.integers(1, 64)


@given(SMALL, SMALL, SMALL, st.sampled_from([1, 2, 4, 8]), st.sampled_from(["bf16", "fp8", "int8", "nvfp4"]))
def test_a_block_holds_a_state_and_no_step_less_does(heads, depth, kv_heads, tp, kv):
    config = DENSE | {
        "num_attention_heads": kv_heads,
        "num_key_value_heads": kv_heads,
        "head_dim": 64,
        "full_attention_interval": 4,
        "linear_num_value_heads": heads,
        "linear_num_key_heads": heads,
        "linear_key_head_dim": depth,
        "linear_value_head_dim": 128,
    }
    model = of(config)
    block = of_model(VLLM, model, tp=tp, kv_dtype=kv) or 16
    token = model.kv_bytes_per_token(kv, tp=tp) / 8  # eight layers have attention
    state = model.state.page_bytes(tp)
    assert block % 16 == 0
    assert block * token >= state
    assert block == 16 or (block - 16) * token < state


HOSTILE = [None, True, -1, 0, 1, 300, 1.5, float("nan"), "", "x", "M*E", "8", [], [0], ["full_attention"], {}, {"a": 1}]
KEYS = [
    "model_type", "layer_types", "layers_block_type", "hybrid_override_pattern", "full_attention_interval",
    "attn_type_list", "attn_layer_period", "attn_layer_offset", "attn_layer_indices", "full_attn_idxs",
    "linear_attn_config", "no_rope_layers", "no_rope_layer_interval", "attention_chunk_size", "sliding_window",
    "sliding_window_pattern", "use_sliding_window", "max_window_layers", "num_experts", "num_experts_per_tok",
    "moe_layer_freq", "first_k_dense_replace", "decoder_sparse_step", "mlp_only_layers", "n_shared_experts",
    "shared_expert_intermediate_size", "kv_lora_rank", "q_lora_rank", "head_dim", "linear_num_value_heads",
    "linear_conv_kernel_dim", "mamba_ssm_dtype", "mamba_d_state", "mamba_n_heads", "mamba_d_head", "mamba_expand",
    "mamba_d_ssm", "mamba_chunk_size", "mamba_n_groups", "conv_L_cache", "conv_dim", "quantization_config",
    "torch_dtype",
]  # fmt: skip


@given(st.dictionaries(st.sampled_from(KEYS), st.sampled_from(HOSTILE), max_size=4), st.booleans())
def test_hostile_configurations_are_understood_or_refused(more, experts):
    base = DENSE | ({"num_experts": 4, "num_experts_per_tok": 2} if experts else {})
    try:
        model = shape(base | more, name="x")
    except ModelError:
        return
    for engine in (SGLANG, VLLM, LLAMA_CPP, TENSORRT):
        size = of_model(engine, model)
        assert size is None or size > engine.granularity


def test_windows_in_letters():
    model = of(DENSE | {"model_type": "exaone4", "sliding_window": 4096, "sliding_window_pattern": "LLLG"})
    assert model.kv_elements == {4096: 24 * 2048, None: 8 * 2048}


def test_groups_that_gpus_do_not_divide_are_held_by_each():
    state = State("Mamba-2", 1024, 0, 2.0, 256, 3, groups=1, group_inputs=256)
    assert state.page_bytes(1) == 3 * (1024 + 256) * 2
    assert state.page_bytes(4) == 3 * (1024 + 4 * 256) * 2 / 4


def test_what_is_wrong_with_a_configuration_names_its_file(tmp_path):
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({key: value for key, value in DENSE.items() if "heads" not in key}))
    with pytest.raises(ModelError, match=r"mine\.json has no num_attention_heads"):
        pipeline.analyze(["x"], pipeline.Options(server=savings.Settings(model_config=str(file))))


def test_a_capacity_that_holds_no_token_is_refused_as_it_was_written(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(DENSE))
    wanted = savings.Settings(model_config=str(tmp_path), capacity="0GiB")
    with pytest.raises(UsageError, match="0GiB holds no token"):
        pipeline.analyze(["x"], pipeline.Options(server=wanted))


def test_a_model_whose_configuration_is_not_understood_is_analysed_and_that_is_said(tmp_path):
    folder = model_folder(tmp_path / "model", "word one two three user")
    (folder / "config.json").write_text(json.dumps({"architectures": ["NewForCausalLM"], "model_type": "new"}))
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(body) + "\n" for body in LOG))
    result = pipeline.analyze([str(log)], pipeline.Options(model=str(folder), what_if=()))
    (note,) = [note for note in result.notes if note.slug == "block-size-unknown"]
    assert "has no num_hidden_layers" in note.message
