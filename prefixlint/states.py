"""What layers without attention over pairs keep of a sequence: Mamba, gated delta nets, linear attention, convolutions.

Sizes as engines lay them out: vllm 0.33.0, model_executor/layers/mamba/mamba_utils.py (a convolution's last inputs,
and the state that tokens update) and the models' get_mamba_state_shape_from_config.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_SINGLE = 4.0  # bytes of an element where a state is kept in 32 bits
_HALF = 2.0
_HINTS = re.compile(r"mamba|ssm|linear_(attn|num|conv|key|value)|rwkv|recurrent|retention|delta_net|conv_l_cache")
_UPDATE = 6  # FLOPs an element: a state is scaled, updated and read

Number = Callable[..., int]
"""Reads the first of some keys of a configuration as a positive whole number; `default` where there is none."""


@dataclass(frozen=True, slots=True)
class State:
    """What one layer keeps of a sequence, in elements: a convolution's last inputs, and a state that tokens update.

    The convolution has `inputs` and, for each of its `groups`, `group_inputs` more, over `window` past tokens.
    `recurrent` is the state (0: none), `recurrent_bytes` the bytes of an element of it; those of the convolution have
    two. `chunk` is the step at which the layer's kernel yields states, None where it gives one after any token.
    `weights` and `flops` are those of the layer for a token.
    """

    kind: str
    inputs: int
    recurrent: int
    recurrent_bytes: float
    chunk: int | None
    window: int
    groups: int = 0
    group_inputs: int = 0
    weights: int = 0

    @property
    def flops(self) -> float:
        """Give the FLOPs of a token in this layer."""
        return 2.0 * self.weights + _UPDATE * self.recurrent

    def page_bytes(self, tp: int = 1) -> float:
        """Give the bytes on each of `tp` GPUs; groups that they do not divide are held several times."""
        groups = self.groups if self.groups % tp == 0 else tp
        conv = self.window * (self.inputs + groups * self.group_inputs) * _HALF
        return (conv + self.recurrent * self.recurrent_bytes) / tp


def read(config: Mapping[str, Any], number: Number, *, hidden: int, heads: int, head_dim: int) -> State:
    """Read the state of a layer that a configuration says to have one, by the keys that its kind has."""
    if "linear_num_value_heads" in config:
        return _delta_net(config, number, hidden)
    if isinstance(config.get("linear_attn_config"), dict):
        return _kimi(config["linear_attn_config"], hidden, heads, head_dim)
    if "conv_L_cache" in config:
        return State("short convolution", number("conv_dim", default=hidden), 0, _HALF, None,
                     number("conv_L_cache") - 1, weights=hidden * 4 * hidden)  # fmt: skip
    if any(key in config for key in ("mamba_d_state", "ssm_state_size", "mamba_num_heads", "mamba_n_heads")):
        return _mamba(config, number, hidden)
    size = heads * head_dim
    return State("linear attention", 0, heads * head_dim**2, _HALF, 64, 0, weights=4 * hidden * size)


def unread(config: Mapping[str, Any]) -> list[str]:
    """List the keys that speak of a state, for a configuration in which no layer was found to have one."""
    return sorted(key for key, value in config.items() if value not in (None, False, 0) and _HINTS.search(key.lower()))


def _delta_net(config: Mapping[str, Any], number: Number, hidden: int) -> State:
    """Read a gated delta net: Qwen3-Next keeps its state in the model's precision, Qwen3.5 says which it wants."""
    depth, heads = number("linear_key_head_dim"), number("linear_num_value_heads")
    keys, values = number("linear_num_key_heads") * depth, heads * number("linear_value_head_dim")
    return State(
        "gated delta net",
        inputs=2 * keys + values,
        recurrent=values * depth,
        recurrent_bytes=_precision(config.get("mamba_ssm_dtype"), _HALF),
        chunk=64,
        window=number("linear_conv_kernel_dim", default=4) - 1,
        weights=hidden * (2 * keys + 2 * values + 2 * heads) + values * hidden,
    )


def _kimi(own: Mapping[str, Any], hidden: int, heads: int, head_dim: int) -> State:
    """Read Kimi's delta attention, whose state is kept in 32 bits."""
    heads, size = _whole(own.get("num_heads"), heads), _whole(own.get("head_dim"), head_dim)
    every = heads * size
    return State("delta attention", 3 * every, every * size, _SINGLE, 64,
                 _whole(own.get("short_conv_kernel_size"), 4) - 1, weights=hidden * 5 * every)  # fmt: skip


def _mamba(config: Mapping[str, Any], number: Number, hidden: int) -> State:
    """Read Mamba-1, which has no heads, or Mamba-2."""
    depth = number("ssm_state_size", "mamba_d_state", "state_size", default=128)
    kernel = number("conv_kernel", "mamba_d_conv", "conv_kernel_size", default=4) - 1
    factor = config.get("mamba_expand", config.get("expand"))
    expanded = int(hidden * factor) if isinstance(factor, float) and 0 < factor < hidden else 0
    expanded = expanded or hidden * number("mamba_expand", "expand", default=2)
    names = ("mamba_num_heads", "mamba_n_heads", "n_mamba_heads")
    if not any(isinstance(config.get(name), int) for name in names):
        return State("Mamba", expanded, expanded * depth, _HALF, 256, kernel,
                     weights=hidden * (2 * expanded + 2 * depth) + expanded * hidden)  # fmt: skip
    heads = number(*names)
    size = next((config[k] for k in ("mamba_head_dim", "mamba_d_head", "mamba_headdim") if k in config), None)
    inner = number("mamba_d_ssm", default=heads * size if isinstance(size, int) else expanded)
    groups = number("n_groups", "mamba_n_groups", "mamba_ngroups", default=1)
    nemotron = config.get("model_type") == "nemotron_h"
    return State(
        "Mamba-2",
        inputs=inner,
        recurrent=inner * depth,
        recurrent_bytes=_precision(config.get("mamba_ssm_cache_dtype"), _SINGLE) if nemotron else _HALF,
        chunk=number("mamba_chunk_size", "chunk_size", default=256),
        window=kernel,
        groups=groups,
        group_inputs=2 * depth,
        weights=hidden * (2 * inner + 2 * groups * depth) + inner * hidden,
    )


def _precision(name: Any, default: float) -> float:
    return {"float32": _SINGLE, "float16": _HALF, "bfloat16": _HALF}.get(str(name), default)


def _whole(value: Any, default: int) -> int:
    return value if type(value) is int and value > 0 else default
