"""Costs against published figures, and configurations that are broken."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixlint.cost import fit, flops, pool, prefill_seconds, saved_flops, step_limits, timing
from prefixlint.errors import ModelError, UsageError
from prefixlint.hardware import gpu
from prefixlint.shapes import read_shape, shape
from tests.hybridconfigs import DENSE

LLAMA_8B = DENSE | {"torch_dtype": "bfloat16"}
LLAMA_70B = LLAMA_8B | {
    "num_hidden_layers": 80,
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_attention_heads": 64,
}
LLAMA_70B_FP8 = LLAMA_70B | {"quantization_config": {"quant_method": "fp8"}}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "vocab_size": 129280,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "quantization_config": {"quant_method": "fp8"},
}
QWEN3_235B = {
    "model_type": "qwen3_moe",
    "num_hidden_layers": 94,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "moe_intermediate_size": 1536,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": 151936,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "sliding_window": None,
    "use_sliding_window": False,
    "max_window_layers": 94,
}
QWEN3_30B = QWEN3_235B | {
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "moe_intermediate_size": 768,
    "num_attention_heads": 32,
}
GPT_OSS_120B = {
    "model_type": "gpt_oss",
    "num_hidden_layers": 36,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 201088,
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
    "quantization_config": {"quant_method": "mxfp4"},
}
QWEN3_NEXT = QWEN3_30B | {
    "model_type": "qwen3_next",
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_num_value_heads": 32,
    "linear_value_head_dim": 128,
    "shared_expert_intermediate_size": 512,
}


def of(config, name="model"):
    return shape(config, name=name)


# The table of published sizes: GFLOP a token, FLOP a pair, KV bytes a token in 16 bits. The counts of tokens for the
# mixtures are without their routers there, which is up to 0.5 %.
@pytest.mark.parametrize(
    ("config", "token", "pair", "kv"),
    [
        (LLAMA_8B, 13.96, 5.24e5, 131_072),
        (LLAMA_70B, 136.9, 2.62e6, 327_680),
        (DEEPSEEK_V3, 71.4, 4.997e6, 70_272),
        (QWEN3_235B, 41.8, 3.08e6, 192_512),
        (QWEN3_30B, 5.44, 7.86e5, 98_304),
        (GPT_OSS_120B, 9.08, 5.90e5, 73_728),
    ],
)
def test_published_table(config, token, pair, kv):
    model = of(config)
    assert model.token_flops / 1e9 == pytest.approx(token, rel=5e-3)
    assert sum(model.pair_flops.values()) == pytest.approx(pair, rel=2e-3)
    assert model.kv_bytes_per_token() == kv


@pytest.mark.parametrize(("dtype", "share"), [("bf16", 1), ("fp8", 1 / 2), ("int8", 1 / 2), ("nvfp4", 0.5625 / 2)])
def test_kv_by_type(dtype, share):
    assert of(LLAMA_8B).kv_bytes_per_token(dtype) == 131_072 * share


def test_kv_under_tensor_parallelism():
    assert of(LLAMA_70B).kv_bytes_per_token(tp=4) == 81_920
    assert of(LLAMA_70B).kv_bytes_per_token(tp=16) == 327_680 / 8
    assert of(DEEPSEEK_V3).kv_bytes_per_token(tp=8) == 70_272


def test_weights():
    assert of(LLAMA_8B).weight_bytes == pytest.approx(16.06e9, rel=0.005)
    assert of(LLAMA_70B).weight_bytes == pytest.approx(141e9, rel=0.01)
    assert of(DEEPSEEK_V3).weight_bytes == pytest.approx(671e9, rel=0.01)
    assert of(QWEN3_235B).weight_bytes == pytest.approx(470e9, rel=0.01)
    assert of(GPT_OSS_120B).weight_bytes == pytest.approx(63e9, rel=0.05)
    assert of(LLAMA_8B | {"tie_word_embeddings": True}).weight_bytes < of(LLAMA_8B).weight_bytes


def test_attention_share_grows_with_length():
    model = of(LLAMA_8B)
    for tokens, share in ((8_192, 0.13), (32_768, 0.38)):
        pairs = model.pair_flops[None] * tokens * (tokens + 1) / 2
        assert pairs / float(flops(model, tokens)) == pytest.approx(share, abs=0.01)


SHAPES = [of(c) for c in (LLAMA_8B, DEEPSEEK_V3, GPT_OSS_120B, QWEN3_NEXT)]


@given(st.sampled_from(SHAPES), st.integers(0, 400), st.data())
def test_flops_count_each_token_and_pair(model, n, data):
    p = data.draw(st.integers(0, n))
    wanted = model.head_flops if n > p else 0
    for i in range(p + 1, n + 1):
        wanted += model.token_flops
        wanted += sum(each * min(i, window or i) for window, each in model.pair_flops.items())
    assert float(flops(model, n, p)) == pytest.approx(wanted, rel=1e-12)


@given(st.sampled_from(SHAPES), st.integers(2, 10**6), st.data())
def test_saved_flops(model, n, data):
    p = data.draw(st.integers(0, n - 1))
    saved = float(saved_flops(model, n, p))
    formula = p * model.token_flops
    if set(model.pair_flops) == {None}:
        assert saved == pytest.approx(formula + model.pair_flops[None] * p * (p + 1) / 2, rel=1e-9)
    assert saved >= formula * (1 - 1e-9)
    # a prefix is cheaper than its share: what comes late in a prompt has more before it
    assert saved <= float(flops(model, n)) * p / n * (1 + 1e-9) + 1


def test_windows_keep_what_they_need():
    model = of(GPT_OSS_120B)
    assert model.kv_bytes(100) == 100 * 73_728
    assert model.kv_bytes(1_000) == (1_000 + 128) * 73_728 / 2


def test_hybrid_models_keep_a_state():
    model = of(QWEN3_NEXT)
    assert not model.exact
    assert model.pair_flops == {None: 12 * 4 * 32 * 128}
    assert model.kv_bytes_per_token() == 98_304 / 4
    assert model.state_bytes == 36 * 4 * 32 * 128 * 128
    assert of(LLAMA_8B).exact


@pytest.mark.parametrize(
    ("change", "windows"),
    [
        ({"sliding_window": 4096, "model_type": "mistral"}, {4096: 32}),
        ({"sliding_window": 4096, "use_sliding_window": False}, {None: 32}),
        ({"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 20}, {4096: 12, None: 20}),
        ({"sliding_window": 1024, "sliding_window_pattern": 6}, {1024: 27, None: 5}),
        ({"sliding_window": 4096, "model_type": "gemma2"}, {4096: 16, None: 16}),
        ({"layer_types": ["mamba"] * 24 + ["attention"] * 8, "mamba_d_state": 16}, {None: 8}),
        ({"attn_layer_period": 8, "attn_layer_offset": 4, "mamba_d_state": 16}, {None: 4}),
        ({"hybrid_override_pattern": "M-M-M*-", "mamba_num_heads": 8, "mamba_head_dim": 64}, {None: 1}),
    ],
)
def test_kinds_of_layers(change, windows):
    each = 4 * 32 * 128
    assert of(LLAMA_8B | change).pair_flops == {window: count * each for window, count in windows.items()}


@pytest.mark.parametrize(
    ("quantization", "each"),
    [
        ({"quant_method": "fp8"}, 1),
        ({"quant_method": "awq", "bits": 4}, 4.25 / 8),
        ({"quant_method": "gptq", "bits": 8}, 8.25 / 8),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4.5 / 8),
        ({"quant_method": "compressed-tensors", "format": "float-quantized"}, 1),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 4}}}}, 4.25 / 8),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4.5 / 8),
        ({"quant_method": "unheard-of"}, 2),
        ("nonsense", 2),
    ],
)
def test_quantized_weights(quantization, each):
    plain, embedding = of(LLAMA_8B), 2 * 2 * 128256 * 4096
    quantized = of(LLAMA_8B | {"quantization_config": quantization})
    assert quantized.weight_bytes - embedding == pytest.approx((plain.weight_bytes - embedding) / 2 * each)


def test_nested_configurations():
    nested = {"model_type": "llava", "text_config": LLAMA_8B, "vision_config": {"hidden_size": 7}}
    assert of(nested).token_flops == of(LLAMA_8B).token_flops


@pytest.mark.parametrize("missing", ["num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size"])
def test_a_missing_size_is_named(missing):
    config = {k: v for k, v in LLAMA_8B.items() if k != missing}
    with pytest.raises(ModelError, match=missing):
        of(config, "mine")


@pytest.mark.parametrize("value", [0, -3, "32", 1.5, True, [32], 10**9])
def test_a_size_without_sense_is_named(value):
    with pytest.raises(ModelError, match="num_hidden_layers"):
        of(LLAMA_8B | {"num_hidden_layers": value})


@pytest.mark.parametrize(
    "change",
    [
        {"num_key_value_heads": 5},
        {"num_attention_heads": 8192, "num_key_value_heads": 8192},
        {"layer_types": ["telepathy"] * 32},
        {"layer_types": ["sliding_attention"] * 32},
        {"num_experts": 8},
        {"num_experts": 4, "num_experts_per_tok": 9},
        {"kv_lora_rank": 512},
    ],
)
def test_what_does_not_fit_together_is_refused(change):
    with pytest.raises(ModelError) as error:
        of(LLAMA_8B | change, "mine")
    assert "mine" in error.value.message


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"', "[" * 100_000])
def test_files_that_are_no_configuration(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelError) as error:
        read_shape(tmp_path)
    assert error.value.slug == "bad-model-config"


def test_read_shape(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))
    assert read_shape(tmp_path) == read_shape(tmp_path / "config.json")
    with pytest.raises(ModelError):
        read_shape(tmp_path / "absent.json")


# ---- hardware and time


@pytest.mark.parametrize(
    "name", ["H100", "h100", "H100-80GB", "NVIDIA H100", "RTX 4090", "4090", "mi300x", "rtx_pro_6000"]
)
def test_gpus_by_name(name):
    assert gpu(name).memory > 0


def test_an_unknown_gpu_names_the_nearest():
    with pytest.raises(UsageError) as error:
        gpu("H10")
    assert "H100" in error.value.hint
    with pytest.raises(UsageError) as error:
        gpu("abacus")
    assert "MI300X" in error.value.hint


def milliseconds(config, chip, tokens, cached=0, *, tp=1, engine="vllm"):
    model = of(config)
    return 1000 * float(prefill_seconds(model, timing(model, chip, tp=tp, engine=engine), tokens, cached))


@pytest.mark.parametrize(
    ("config", "chip", "tp", "tokens", "measured", "off"),
    [
        # NVIDIA NIM 1.8.0, Llama-3.3-70B in fp8, one request at a time
        (LLAMA_70B_FP8, "H100", 2, 5_000, 406.8, 0.10),
        (LLAMA_70B_FP8, "H100", 2, 500, 47.8, 0.10),
        # aiconfigurator-core, measured kernels; its silicon_sample.csv has four streams
        (LLAMA_70B_FP8, "H100", 2, 8_192, 737, 0.17),
        (LLAMA_8B, "H100", 1, 8_192, 200, 0.057),
        (LLAMA_8B, "A100", 1, 8_192, 8_192 / 14.7, 0.106),
        (LLAMA_8B, "L40S", 1, 8_192, 8_192 / 11.7, 0.14),
        (LLAMA_8B, "B200", 1, 8_192, 8_192 / 84, 0.10),
        (LLAMA_70B, "H100", 4, 8_192, 8_192 / 14.2, 0.10),
        (QWEN3_30B, "H100", 1, 512, 28.7, 0.10),
        (QWEN3_30B, "H100", 1, 1_024, 33.9, 0.10),
        (QWEN3_30B, "H100", 1, 2_048, 46, 0.10),
        (QWEN3_30B, "H100", 1, 4_096, 77, 0.10),
        (QWEN3_30B, "H100", 1, 8_192, 153, 0.10),
        (GPT_OSS_120B, "H100", 1, 8_192, 194, 0.10),
        (QWEN3_235B, "H100", 8, 8_192, 331, 0.10),
        (DEEPSEEK_V3, "H200", 8, 8_192, 434, 0.10),
    ],
)
def test_published_prefill_times(config, chip, tp, tokens, measured, off):
    assert milliseconds(config, chip, tokens, tp=tp) == pytest.approx(measured, rel=off)


def test_a_short_rest_costs_what_the_weights_cost():
    """8,064 of 8,192 tokens cached: about 8 ms and not 128 / 8,192 of 200 ms."""
    assert milliseconds(LLAMA_8B, "H100", 8_192, 8_064) == pytest.approx(8, rel=0.15)


def test_calibrated_and_not():
    model = of(LLAMA_8B)
    known = timing(model, "H100")
    assert known.calibrated
    assert known.band == 0.10
    assert "Llama-3.1-8B" in known.basis
    for chip, tp in (("MI300X", 1), ("RTX-4090", 1), ("H100", 8)):
        unknown = timing(model, chip, tp=tp)
        assert not unknown.calibrated
        assert unknown.band > known.band
        assert "uncalibrated" in unknown.basis
    assert not timing(of(LLAMA_70B), "A100", tp=4).calibrated


def test_an_engines_own_calibration_comes_first():
    model = of(LLAMA_8B)
    assert timing(model, "H100", engine="sglang").compute == 0.655
    assert timing(model, "H100", engine="vllm").compute == 0.691
    assert timing(model, "H100", engine="llama.cpp").compute == 0.691


def test_no_gpu_cannot_hold_a_model():
    with pytest.raises(UsageError, match="0 GPUs"):
        timing(of(LLAMA_8B), "H100", tp=0)


@given(st.integers(1, 50_000), st.data())
def test_time_falls_with_what_is_cached(n, data):
    p = data.draw(st.integers(0, n - 1))
    q = data.draw(st.integers(p, n - 1))
    for config in (LLAMA_8B, QWEN3_30B):
        assert milliseconds(config, "H100", n, q) <= milliseconds(config, "H100", n, p)


# ---- pools


def test_published_pools():
    assert pool(of(LLAMA_8B), "H100", "vllm").tokens == pytest.approx(410_000, rel=0.03)
    assert pool(of(LLAMA_70B), "H100", "vllm", tp=4).tokens == pytest.approx(420_000, rel=0.03)
    half = pool(of(LLAMA_8B), "H100", "vllm", kv_dtype="fp8")
    assert half.tokens == pytest.approx(2 * pool(of(LLAMA_8B), "H100", "vllm").tokens, abs=2)


def test_three_denominators():
    model, same = of(LLAMA_8B), 0.9
    sizes = {e: pool(model, "H100", e, fraction=same).bytes for e in ("vllm", "sglang", "tensorrt-llm")}
    gb = 1e9
    assert sizes["sglang"] == pytest.approx(0.9 * 80 * gb - model.weight_bytes)
    assert sizes["vllm"] < sizes["sglang"]
    assert sizes["tensorrt-llm"] == pytest.approx((sizes["vllm"] + 0.1 * 80 * gb) * 0.9)
    assert len({pool(model, "H100", e).basis for e in ("vllm", "sglang", "tensorrt-llm")}) == 3


def test_sglangs_own_share():
    # 512 MB + 1.5 x 8,192 MB + 1/8 GB are more than the 10 GB that graphs take at least
    assert pool(of(LLAMA_8B), "H100", "sglang").bytes == pytest.approx(
        80e9 - (512 + 1.5 * 8192 + 128) * 2**20 - of(LLAMA_8B).weight_bytes
    )


@pytest.mark.parametrize(
    ("engine", "chip", "tokens", "requests"),
    [
        ("vllm", "H100", 8192, 1024),
        ("vllm", "A100", 2048, 256),
        ("vllm", "L40S", 2048, 256),
        ("vllm", "B200", 16384, 1024),
        ("sglang", "H100", 8192, 2048),
        ("sglang", "L40S", 4096, 2048),
        ("sglang", "MI300X", 16384, 2048),
    ],
)
def test_steps_by_default(engine, chip, tokens, requests):
    assert step_limits(engine, gpu(chip)) == (tokens, requests)


def test_a_model_that_does_not_fit():
    with pytest.raises(UsageError) as error:
        pool(of(LLAMA_70B), "H100", "vllm")
    assert error.value.slug == "no-pool"
    assert "141 GB" in error.value.message


@pytest.mark.parametrize(
    "options", [{"kv_dtype": "fp3"}, {"fraction": 0}, {"fraction": 1.5}, {"fraction": float("nan")}]
)
def test_options_without_sense(options):
    with pytest.raises(UsageError):
        pool(of(LLAMA_8B), "H100", "vllm", **options)


# ---- a log's own times


def test_fit_to_a_logs_own_times():
    model, rng = of(LLAMA_8B), np.random.default_rng(1)
    prompt = rng.integers(100, 9_000, 400)
    cached = (prompt * rng.random(400) * 0.9).astype(int)
    seconds = 0.03 + flops(model, prompt, cached) / 6e14
    seconds[::7] += rng.random(seconds[::7].size)  # some waited
    found = fit(model, prompt, cached, seconds)
    assert found.rate == pytest.approx(6e14, rel=0.02)
    assert found.base == pytest.approx(0.03, abs=0.003)
    assert found.requests == 400
    assert found.error < 0.02
    assert float(found.seconds(6e14)) == pytest.approx(1.03, abs=0.03)


def test_no_fit_where_a_log_does_not_tell():
    model = of(LLAMA_8B)
    assert fit(model, [1000] * 5, [0] * 5, [0.1] * 5) is None
    assert fit(model, [1000] * 50, [0] * 50, [0.1] * 50) is None
    lengths = np.arange(100, 5100, 100)
    assert fit(model, lengths, 0 * lengths, 1 / lengths) is None
    assert fit(model, lengths, 0 * lengths, np.full(50, np.nan)) is None
