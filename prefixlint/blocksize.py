"""The block that counts: an engine's own, the user's, the server's, or what the layers of a model make of it.

It is decided here, once for each engine, and said with where it comes from. A block of hundreds of tokens is what
models with states need (Mamba, linear attention, delta nets); windows leave the block alone, and narrow what is found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from prefixlint.engines import Engine
from prefixlint.results import Note
from prefixlint.shapes import KV_BYTES, Shape
from prefixlint.wording import many

_STEP, _STEP_COMPRESSED = 16, 128
"""Tokens by which vLLM grows a block (0.33.0, platforms/interface.py): of FlashAttention, and of compressed KV."""


@dataclass(frozen=True, slots=True)
class Known:
    """What there is besides profiles: `given` by the user, `served` by a running server of the engine `server`.

    `shape` is the model's, on `tp` GPUs with KV of `kv_dtype`; `unread` says why there is none although the model has a
    configuration.
    """

    given: int | None = None
    server: str | None = None
    served: int | None = None
    shape: Shape | None = None
    tp: int = 1
    kv_dtype: str = "bf16"
    unread: str | None = None


def settled(engines: Sequence[Engine], known: Known) -> tuple[list[Engine], list[Note]]:
    """Give the engines with the block that each has, and what is to be said of it.

    Rules of hash traces and of providers stay as they are. UsageError for a given block below one token.
    """
    found = [_sized(engine, known) if _own(engine) else engine for engine in engines]
    notes = [note for engine in found if _own(engine) for note in _told(engine, known)]
    if known.unread is not None and any(_own(e) and e.sized_by == "profile" and e.states is not None for e in found):
        text = f"{known.unread}; blocks are those of engines for plain attention, --block-size sets another"
        notes.append(Note("block-size-unknown", text))
    return found, notes


def of_model(engine: Engine, shape: Shape, *, tp: int = 1, kv_dtype: str = "bf16") -> int | None:
    """Give the block that a model's states make of an engine's own; None where they change nothing or nobody says."""
    if shape.state is None:
        return None
    size = None
    if engine.states == "page":
        size = _page(engine.granularity, shape, tp, kv_dtype)
    elif engine.states == "chunk" and shape.state.chunk is not None:
        size = shape.state.chunk
    return size if size is not None and size > engine.granularity else None


def _own(engine: Engine) -> bool:
    """Whether the block is the user's to set: providers have theirs, and hash traces."""
    return engine.kind != "provider" and engine.cap != "none"


def _page(block: int, shape: Shape, tp: int, kv_dtype: str) -> int:
    """Give the smallest block whose KV in one attention layer takes as much of a GPU as one layer's state does."""
    assert shape.state is not None
    step = max(_STEP_COMPRESSED if shape.mla else _STEP, block)
    token = _token_bytes(shape, tp, kv_dtype)
    return step * ceil(shape.state.page_bytes(tp) / (step * token))


def _token_bytes(shape: Shape, tp: int, kv_dtype: str) -> float:
    return shape.layer_kv * KV_BYTES[kv_dtype] / min(tp, shape.kv_split)


def _sized(engine: Engine, known: Known) -> Engine:
    if known.given is not None:
        return engine.with_granularity(known.given)
    if known.served is not None and known.server == engine.name:
        return engine.with_granularity(known.served, "server")
    block = None if known.shape is None else of_model(engine, known.shape, tp=known.tp, kv_dtype=known.kv_dtype)
    return engine.with_granularity(block, "model")


def _told(engine: Engine, known: Known) -> Iterator[Note]:
    shape = known.shape
    if engine.sized_by == "server":
        yield Note("block-size", f"{engine.name}: {_blocks(engine)}, as its server says")
    if shape is None:
        return
    if shape.state is not None:
        yield Note("model-states", f"{engine.name}: {_of_states(engine, shape, known)}")
    elif any(window is not None for window in shape.kv_elements):
        yield Note("model-windows", f"{engine.name}: {_of_windows(engine, shape)}")
    elif shape.unread:
        keys = ", ".join(shape.unread[:3])
        text = (
            f"{engine.name}: {shape.name} speaks of layers with a state ({keys}) that are not understood, so that "
            f"{_blocks(engine)} may be too fine; --block-size sets another"
        )
        yield Note("block-size-unknown", text)


def _of_states(engine: Engine, shape: Shape, known: Known) -> str:
    assert shape.state is not None
    plain = engine.with_granularity(int(engine.facts["granularity"].of(None)), "profile")  # type: ignore[arg-type]
    least = of_model(plain, shape, tp=known.tp, kv_dtype=known.kv_dtype)
    if engine.sized_by in ("option", "server"):
        if least is None or engine.granularity >= least:
            return f"{_blocks(engine)}; {_fewer(engine)}"
        return f"{_blocks(engine)} as given; by the model's configuration they are {least:,}; {_fewer(engine)}"
    if engine.sized_by == "model":
        return f"{_blocks(engine)} by the configuration of {shape.name}: {_why(engine, shape, known)}; {_fewer(engine)}"
    if engine.states is None:
        return (
            f"which prefixes it reuses of models with states ({shape.state.kind}) is not known; {_blocks(engine)} are "
            "counted, --block-size sets another"
        )
    return _fewer(engine) if engine.granularity == 1 else f"{_blocks(engine)}; {_fewer(engine)}"


def _blocks(engine: Engine) -> str:
    return f"blocks of {many(engine.granularity, 'token')}"


def _why(engine: Engine, shape: Shape, known: Known) -> str:
    assert shape.state is not None
    if engine.states == "chunk":
        return f"states of its {shape.state.kind} layers are cached at multiples of that"
    state, token = shape.state.page_bytes(known.tp), _token_bytes(shape, known.tp, known.kv_dtype)
    gpus = f" on each of {known.tp} GPUs" if known.tp > 1 else ""
    return (
        f"a block holds at least what one {shape.state.kind} layer keeps ({state:,.0f} bytes{gpus}; a token takes "
        f"{token:,.0f})"
    )


def _fewer(engine: Engine) -> str:
    """Say why this is a bound: which states are there is not simulated."""
    if engine.states == "checkpoint":
        return "only prefixes that end at a checkpoint are reused, so that this is an upper bound"
    return "a state is kept where a prompt ended or prompts parted, so that this is an upper bound"


def _of_windows(engine: Engine, shape: Shape) -> str:
    widths = sorted({window for window in shape.kv_elements if window is not None})
    some = " and ".join(f"{width:,}" for width in widths)
    text = f"{shape.name} has layers with a window of {some} tokens, which leave the block as it is"
    if engine.states == "checkpoint":
        return f"{text}; without --swa-full only prefixes that end at a checkpoint are reused: this is an upper bound"
    return f"{text}; a prefix is reused only while all of the window before its end is there: this is an upper bound"
