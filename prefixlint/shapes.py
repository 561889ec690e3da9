"""What a model's `config.json` says about its cost: FLOPs of a token, of a pair of tokens, KV elements, weights.

Dense, mixture-of-experts, MHA, GQA and MLA, sliding-window, linear-attention and Mamba layers, in the words that
published configurations use for them. The sums are exact but for layers of linear attention and Mamba, whose kernels
differ.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from prefixlint import states
from prefixlint.errors import ModelError
from prefixlint.states import State

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KV_BYTES = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "nvfp4": 0.5625}
"""Bytes of a KV element; nvfp4 has a one-byte scale for each 16 elements besides its half byte."""

_NESTED = ("text_config", "llm_config", "language_config", "thinker_config")
# Two matrices in a feed-forward block; all others gate theirs with a third.
_UNGATED = frozenset({"gpt2", "gpt_neox", "gptj", "gpt_bigcode", "opt", "bloom", "falcon", "mpt", "phi", "starcoder2",
                      "nemotron", "nemotron_h", "codegen"})  # fmt: skip
_BITS = {"fp8": 8.0, "fbgemm_fp8": 8.0, "int8": 8.0, "mxfp4": 4.25, "awq": 4.25, "gptq": 4.25, "nvfp4": 4.5}
_STATE_BYTES = 4  # of an element of a state: what engines may shorten, they do not by default
_LAYERS = 10_000  # more is a broken file
_WINDOWED = ("sliding_attention", "chunked_attention", "local_attention", "sliding")
_LINEAR = ("linear_attention", "mamba", "mamba2", "recurrent", "gated_delta_net", "conv")
_FULL = ("full_attention", "attention", "global_attention", "full", "hybrid")
_OWN = {
    "gemma3_text": {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262_208,
                    "sliding_window_pattern": 6},
}  # fmt: skip
"""What a kind of model has where its file does not say it, by its `model_type`: Gemma 3's files leave this out."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A model as its cost sees it; FLOPs count a multiplication and an addition as two.

    `token_flops`: per prompt token, without attention over pairs. `pair_flops`: per pair of a query and a key, by the
    window that limits the pairs (None: none does). `kv_elements`: per token, keyed alike. `state_bytes`: of a sequence,
    whatever its length. `head_flops`: of the last position's logits. `kv_split`: among how many GPUs tensor parallelism
    can divide the KV of a token (1 for MLA: each holds all of it). `dense_bytes` are the weights that every step reads,
    `expert_bytes` those of all routed experts, of which a token uses `top_k` of `experts`. `dtype` is `fp8`, `fp4` or
    `bf16`, by the precision of the weights; `exact` is False where a formula is an approximation.

    `kind` is the configuration's `model_type`. `layer_kv` are the KV elements of a token in one attention layer, `mla`
    says that they are compressed. `state` is what one layer without attention over pairs keeps of a sequence, None
    where there is no such layer; `unread` are keys that speak of one although none was understood.
    """

    name: str
    layers: int
    hidden: int
    token_flops: float
    pair_flops: Mapping[int | None, float]
    kv_elements: Mapping[int | None, float]
    state_bytes: float
    head_flops: float
    kv_split: int
    dense_bytes: float
    expert_bytes: float
    experts: int
    top_k: int
    dtype: str
    exact: bool
    kind: str
    layer_kv: float
    mla: bool
    state: State | None
    unread: tuple[str, ...]

    @property
    def weight_bytes(self) -> float:
        """All weights."""
        return self.dense_bytes + self.expert_bytes

    @property
    def moe(self) -> bool:
        """Whether a token uses only some of the weights."""
        return self.experts > 0

    def kv_bytes_per_token(self, dtype: str = "bf16", *, tp: int = 1) -> float:
        """Give the KV of a token in bytes on each GPU; an upper bound where windows limit what is kept."""
        return sum(self.kv_elements.values()) * KV_BYTES[dtype] / min(tp, self.kv_split)

    def kv_bytes(self, tokens: int, dtype: str = "bf16", *, tp: int = 1) -> float:
        """Give the KV of a sequence in bytes on each GPU: windows and states keep what they need of it."""
        kept = sum(each * min(tokens, window or tokens) for window, each in self.kv_elements.items())
        return kept * KV_BYTES[dtype] / min(tp, self.kv_split) + self.state_bytes / tp

    def touched_bytes(self, tokens: float) -> float:
        """Give the weights that a step over some tokens reads: the experts that at least one of them is sent to."""
        if not self.experts:
            return self.dense_bytes
        share = 1.0 - float((1 - self.top_k / self.experts) ** max(tokens, 0))
        return self.dense_bytes + self.expert_bytes * share


def read_shape(path: Path) -> Shape:
    """Read a `config.json`, or that of a folder; ModelError where it cannot be read or lacks what is needed."""
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(
            f"the model configuration {file} cannot be read: {error}",
            slug="bad-model-config",
            hint="--model-config wants the config.json that lies beside a model's weights",
        ) from error
    return replace(shape(config, name=str(file)), name=file.parent.name or str(file))


def shape(config: Any, *, name: str) -> Shape:
    """Understand a configuration; ModelError names the key that is missing or has no sense."""
    if not isinstance(config, dict):
        raise _bad(name, "is not an object of JSON")
    return _Reader(config, name).shape()


@dataclass(slots=True)
class _Sums:
    """What the layers add up to so far: FLOPs a token, weights (elements) outside of and in routed experts."""

    flops: float = 0.0
    weights: float = 0.0
    expert_weights: float = 0.0
    state_bytes: float = 0.0


class _Reader:
    """One configuration with its synonyms."""

    def __init__(self, config: Mapping[str, Any], name: str) -> None:
        self._name = name
        self._outer = config
        while True:
            inner = next((config[k] for k in _NESTED if isinstance(config.get(k), dict)), None)
            if inner is None or "num_hidden_layers" in config:
                break
            config = inner
        self._kind = str(config.get("model_type") or self._outer.get("model_type") or "")
        config = _OWN.get(self._kind, {}) | dict(config)
        self._config = config
        self.layers = self._number("num_hidden_layers", "n_layer", "num_layers", "n_layers", most=_LAYERS)
        self.hidden = self._number("hidden_size", "n_embd", "d_model")
        self.heads = self._number("num_attention_heads", "n_head", "n_heads")
        self.kv_heads = self._number("num_key_value_heads", "num_kv_heads", default=self.heads)
        if self.heads % self.kv_heads:
            raise _bad(name, f"has {self.heads} attention heads, which {self.kv_heads} key-value heads do not divide")
        self.head_dim = self._number("head_dim", default=self.hidden // self.heads)
        self.vocab = self._number("vocab_size")
        self.gated = self._kind not in _UNGATED

    def shape(self) -> Shape:
        mixers, feeds = self._mixers(), self._feeds()
        sums = _Sums()
        attention = sum(kind is not False for kind in mixers)
        sums.flops += 2 * attention * self._projections()
        sums.weights += attention * self._projections()
        linear = self._states(mixers)
        state = self._state() if linear else None
        if state is not None:
            sums.flops += linear * state.flops
            sums.weights += linear * state.weights
            sums.state_bytes += linear * _STATE_BYTES * state.recurrent
        self._add_feeds(feeds, sums)
        embedding = self.vocab * self.hidden
        tied = self._config.get("tie_word_embeddings", self._outer.get("tie_word_embeddings", False))
        pair, kv = self._pair_flops(), self._kv_elements()
        windows = Counter(kind or None for kind in mixers if kind is not False)
        dense, expert, dtype = self._precision()
        top_k, experts = (self._top_k(), self._experts()) if sums.expert_weights else (0, 0)
        return Shape(
            name=self._name,
            layers=self.layers,
            hidden=self.hidden,
            token_flops=sums.flops,
            pair_flops={window: count * pair for window, count in windows.items()},
            kv_elements={window: count * kv for window, count in windows.items()},
            state_bytes=sums.state_bytes,
            head_flops=2.0 * embedding,
            kv_split=1 if self._mla() else self.kv_heads,
            dense_bytes=sums.weights * dense + embedding * (1 if tied else 2) * max(dense, 2.0),
            expert_bytes=sums.expert_weights * expert,
            experts=experts,
            top_k=top_k,
            dtype=dtype,
            exact=not linear,
            kind=self._kind,
            layer_kv=kv,
            mla=self._mla(),
            state=state,
            unread=() if linear else tuple(states.unread(self._config)),
        )

    # ---- attention

    def _mla(self) -> bool:
        return bool(self._config.get("kv_lora_rank"))

    def _projections(self) -> float:
        """Count the weights of a layer's attention, each of which multiplies a token once."""
        d, h, hd = self.hidden, self.heads, self.head_dim
        if not self._mla():
            return d * (h + 2 * self.kv_heads) * hd + h * hd * d
        nope, rope, v = (self._number(k) for k in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
        rank, q_rank = self._number("kv_lora_rank"), self._config.get("q_lora_rank")
        query = d * q_rank + q_rank * h * (nope + rope) if q_rank else d * h * (nope + rope)
        return float(query + d * (rank + rope) + rank * h * (nope + v) + h * v * d)

    def _pair_flops(self) -> float:
        """Count the FLOPs of a pair in a layer: its score, and its value's share of the sum."""
        if not self._mla():
            return 4.0 * self.heads * self.head_dim
        sizes = (self._number(k) for k in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
        return 2.0 * self.heads * sum(sizes)

    def _kv_elements(self) -> float:
        if self._mla():
            return float(self._number("kv_lora_rank") + self._number("qk_rope_head_dim"))
        return 2.0 * self.kv_heads * self.head_dim

    def _state(self) -> State:
        return states.read(self._config, self._number, hidden=self.hidden, heads=self.heads, head_dim=self.head_dim)

    def _states(self, mixers: list[int | bool]) -> int:
        """Count the layers that keep a state; in some models, layers have attention and Mamba side by side."""
        own = sum(kind is False for kind in mixers)
        if self._kind == "falcon_h1":
            return len(mixers)
        kinds = self._config.get("layers_block_type")
        return own + (kinds[: self.layers].count("hybrid") if isinstance(kinds, list) else 0)

    def _mixers(self) -> list[int | bool]:
        """Give for each layer its window (0: all of the past), or False where it has no attention over pairs."""
        config, count = self._config, self.layers
        pattern = config.get("hybrid_override_pattern")
        if isinstance(pattern, str):
            return [0 if kind == "*" else False for kind in pattern if kind in "M*"]
        types = config.get("layer_types") or config.get("layers_block_type")
        if isinstance(types, list) and types:
            return [self._mixer(kind) for kind in types[:count]]
        if config.get("full_attention_interval"):
            step = self._number("full_attention_interval")
            return [0 if (i + 1) % step == 0 else False for i in range(count)]
        if isinstance(config.get("attn_type_list"), list):
            return [0 if kind else False for kind in config["attn_type_list"][:count]]
        nested = config.get("linear_attn_config")
        for key, first in (("attn_layer_indices", 0), ("full_attn_idxs", 0), ("full_attn_layers", 1)):
            chosen = nested.get(key) if isinstance(nested, dict) and key in nested else config.get(key)
            if isinstance(chosen, list) and chosen:
                return [0 if i + first in chosen else False for i in range(count)]
        if config.get("attn_layer_period"):
            period, offset = self._number("attn_layer_period"), self._count("attn_layer_offset")
            return [0 if i % period == offset else False for i in range(count)]
        return self._windows()

    def _mixer(self, kind: Any) -> int | bool:
        if kind in _FULL:
            return 0
        if kind in _LINEAR:
            return False
        if kind in _WINDOWED:
            return self._number("sliding_window", "attention_chunk_size", "local_attention_window")
        raise _bad(self._name, f"has layers of the kind {kind!r:.60}, which is not known")

    def _windows(self) -> list[int | bool]:
        """Tell windows from the older keys, in which a window may stand without being used."""
        config, count = self._config, self.layers
        rope = config.get("no_rope_layers")
        if config.get("attention_chunk_size") and self._kind.startswith("llama4"):
            # Llama 4: layers with rotary positions attend to their own chunk only; each fourth has none and sees all.
            size, every = self._number("attention_chunk_size"), self._number("no_rope_layer_interval", default=4)
            turning = rope if isinstance(rope, list) and rope else [(i + 1) % every for i in range(count)]
            return [size if turns else 0 for turns in turning[:count]]
        window = config.get("sliding_window")
        if not window or config.get("use_sliding_window") is False:
            return [0] * count
        size = self._number("sliding_window")
        step = config.get("sliding_window_pattern") or (2 if config.get("model_type") == "gemma2" else None)
        if step:
            if isinstance(step, str):  # like LLLG: three layers see a window, the fourth sees all
                return [size if step[i % len(step)].upper() == "L" else 0 for i in range(count)]
            every = self._number("sliding_window_pattern", default=2)
            return [0 if (i + 1) % every == 0 else size for i in range(count)]
        if config.get("use_sliding_window") and isinstance(config.get("max_window_layers"), int):
            return [size if i >= config["max_window_layers"] else 0 for i in range(count)]
        return [size] * count

    # ---- feed-forward

    def _experts(self) -> int:
        return self._number("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", default=1)

    def _top_k(self) -> int:
        return self._number(
            "num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_top_k", "moe_topk"
        )

    def _feeds(self) -> list[bool]:
        """Say for each layer with a feed-forward block whether it has experts."""
        config, count = self._config, self.layers
        moe = self._experts() > 1
        pattern = config.get("hybrid_override_pattern")
        if isinstance(pattern, str):
            return [kind == "E" for kind in pattern if kind in "-E"]
        if not moe:
            return [False] * count
        frequency = config.get("moe_layer_freq")
        if isinstance(frequency, list):
            return [bool(one) for one in frequency[:count]]
        first = self._count("first_k_dense_replace")
        step = self._count("decoder_sparse_step") or self._count("interleave_moe_layer_step") or 1
        dense = config.get("mlp_only_layers")
        dense = dense if isinstance(dense, list) else ()
        return [i >= first and (i + 1) % step == 0 and i not in dense for i in range(count)]

    def _add_feeds(self, feeds: list[bool], sums: _Sums) -> None:
        d, matrices = self.hidden, 3 if self.gated else 2
        moe = sum(feeds)
        if len(feeds) > moe:
            size = self._number("intermediate_size_mlp", "intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size",
                                default=4 * d)  # fmt: skip
            sums.flops += 2 * (len(feeds) - moe) * matrices * d * size
            sums.weights += (len(feeds) - moe) * matrices * d * size
        if not moe:
            return
        experts, top_k = self._experts(), self._top_k()
        if top_k > experts:
            raise _bad(self._name, f"sends a token to {top_k} of {experts} experts")
        each = matrices * d * self._number("moe_intermediate_size", "expert_intermediate_size", "intermediate_size")
        shared = each * (self._count("n_shared_experts") or self._count("num_shared_experts"))
        shared += matrices * d * self._count("shared_expert_intermediate_size")
        sums.flops += 2 * moe * (each * top_k + shared + d * experts)
        sums.weights += moe * (shared + d * experts)
        sums.expert_weights += moe * each * experts

    # ---- precision

    def _precision(self) -> tuple[float, float, str]:
        """Give the bytes of a weight outside of experts and in them, and what the matrix units compute in."""
        config = self._config
        plain = 4.0 if str(config.get("torch_dtype", config.get("dtype"))).endswith("float32") else 2.0
        quantized = self._outer.get("quantization_config") or config.get("quantization_config")
        if not isinstance(quantized, dict):
            return plain, plain, "bf16"
        bits = _bits(quantized)
        if bits is None:
            return plain, plain, "bf16"
        method = str(quantized.get("quant_method", "")).lower()
        # gpt-oss keeps all but its experts in 16 bits; weight-only methods compute in 16 bits.
        dense = plain if method == "mxfp4" else bits / 8
        computes = "fp8" if bits == _BITS["fp8"] and method not in ("gptq", "awq", "bitsandbytes") else "bf16"
        return dense, bits / 8, "fp4" if bits == _BITS["nvfp4"] else computes

    def _count(self, key: str) -> int:
        """Read a number that may be 0 or missing."""
        return self._number(key) if self._config.get(key) else 0

    def _number(self, *keys: str, default: int | None = None, most: int = 2**40) -> int:
        for key in keys:
            value = self._config.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= most:
                raise _bad(self._name, f"has {key} = {value!r:.40}, which is no number of this kind")
            return value
        if default is None:
            raise _bad(self._name, f"has no {' or '.join(keys[:2])}")
        if default < 1:
            raise _bad(self._name, f"has no {keys[0]}, and the other sizes leave none")
        return default


def _bits(quantized: Mapping[str, Any]) -> float | None:
    """Give the bits of a quantized weight, scales included; None where the method is not known."""
    method = str(quantized.get("quant_method", "")).lower()
    algorithm = str(quantized.get("quant_algo", quantized.get("format", ""))).lower()
    if "nvfp4" in algorithm:
        return _BITS["nvfp4"]
    if method in ("awq", "gptq") and quantized.get("bits") == 8:
        return 8.25
    if method in _BITS:
        return _BITS[method]
    if "fp8" in algorithm or "float-quantized" in algorithm:
        return _BITS["fp8"]
    groups = quantized.get("config_groups")
    if isinstance(groups, dict):
        weights = [g.get("weights") for g in groups.values() if isinstance(g, dict)]
        sizes = [w["num_bits"] for w in weights if isinstance(w, dict) and isinstance(w.get("num_bits"), int)]
        return float(max(sizes)) + (0.25 if max(sizes) < 8 else 0) if sizes else None
    if method == "bitsandbytes":
        return 4.5 if quantized.get("load_in_4bit") else 8.0
    return None


def _bad(name: str, what: str) -> ModelError:
    return ModelError(
        f"the model configuration of {name} {what}",
        slug="bad-model-config",
        hint="--model-config wants the config.json that lies beside a model's weights",
    )
