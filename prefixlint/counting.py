"""Are the token counts right? They are compared with what the log or a server reports, and scaled where they must be.

A count is *proven* only where all of a model's requests that report their prompt tokens were counted to the token.
A stand-in tokenizer is never exact; its counts are scaled, request by request, to the reported ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefixlint.chat import why_not_exact
from prefixlint.errors import ModelError, UsageError
from prefixlint.model import Messages, Request, Text
from prefixlint.modelfiles import ModelFiles
from prefixlint.results import LOGGED_IDS, TokenizerUse
from prefixlint.simulate import Replay
from prefixlint.table import UNKNOWN, Table, by_value

Counts = NDArray[np.int64]
Factors = NDArray[np.float64]

_MOST = 1 << 24  # bytes of an answer: a server's metrics are some 100 kB
_BLOCKS = (
    ("vllm", "/metrics", re.compile(r'^vllm:cache_config_info\{[^}\n]*\bblock_size="(\d{1,9})"', re.MULTILINE)),
    ("sglang", "/get_server_info", re.compile(r'"page_size":\s*(\d{1,9})\b')),
)
_TIMEOUT = 60  # seconds; a server that tokenizes one prompt answers in milliseconds


@dataclass(frozen=True, slots=True)
class Counted:
    """How each model was counted, and the factor by which each request's counts are to be multiplied (1.0: none)."""

    uses: Sequence[TokenizerUse]
    factors: Factors

    @property
    def scaled(self) -> bool:
        """Whether any count changes."""
        return bool((self.factors != 1).any())


def check(
    table: Table, rows: NDArray[np.intp], replay: Replay, files: ModelFiles, *, blocks: bool, server: bool
) -> Counted:
    """Compare counts with the reported ones, model by model. `rows` are those of the replay, in its order.

    Prompts of which the log leaves a part out are not compared, and so not scaled.
    """
    factors = np.ones(rows.size)
    if blocks or not rows.size:
        return Counted((), factors)
    whole = np.frombuffer(table.partial, np.int8)[rows] == 0
    reported = np.where(whole, np.frombuffer(table.prompt, np.int64)[rows], UNKNOWN)
    models = np.frombuffer(table.model, np.int32)[rows]
    as_ids = np.frombuffer(table.as_ids, np.int8)[rows]
    uses = []
    for key, mine in sorted(by_value(2 * models + as_ids).items(), key=lambda item: int(item[1][0])):
        model, given = table.models.values[key // 2], key % 2
        if given:
            use = _check_ids(model, replay.prompt[mine], reported[mine])
        else:
            use, factors[mine] = _check_model(model, replay.prompt[mine], reported[mine], files, server=server)
        uses.append(use)
    return Counted(uses, factors)


def _check_ids(model: str | None, counted: Counts, reported: Counts) -> TokenizerUse:
    """Judge prompts that the log gives as token ids: nothing was tokenized, so no tokenizer can be wrong."""
    known = reported > 0
    compared, equal = int(known.sum()), int((counted[known] == reported[known]).sum())
    exact = "assumed" if not compared else "proven" if equal == compared else "no"
    against = "usage" if compared else None
    return TokenizerUse(model, LOGGED_IDS, "no chat template", exact, against, counted.size, compared, equal, 1.0)


def _check_model(
    model: str | None, counted: Counts, reported: Counts, files: ModelFiles, *, server: bool
) -> tuple[TokenizerUse, Factors]:
    known = reported > 0
    compared, equal = int(known.sum()), int((counted[known] == reported[known]).sum())
    scale = np.ones(counted.size)
    factor = 1.0
    against: str | None
    if server:
        exact, against = "proven", "server"
    elif compared and equal == compared:
        exact, against = "proven", "usage"
    elif compared or why_not_exact(files) is not None:
        exact, against = "no", "usage" if compared else None
    else:
        exact, against = "assumed", None
    if exact == "no" and files.stand_in and compared:
        total = int(counted[known].sum())
        factor = int(reported[known].sum()) / total if total else 1.0
        scale = np.where(known & (counted > 0), reported / np.maximum(counted, 1), factor)
    template = "the server's own" if server else _template_name(files)
    name = "the server's /tokenize" if server else files.name
    return TokenizerUse(model, name, template, exact, against, counted.size, compared, equal, factor), scale


def _template_name(files: ModelFiles) -> str:
    if files.renderer == "none":
        return "no chat template"
    if files.stand_in:
        return "neutral chat template"
    return "its own chat template" if files.renderer == "jinja" else f"rendered by {files.renderer}"


def server_tokens(url: str, *, token: str | None = None) -> Callable[[Request], Sequence[int]]:
    """Give a function that asks a running vLLM or SGLang server for a request's token ids (`POST /tokenize`).

    Raises UsageError for an address that is not HTTP; the function raises ModelError where the server does not answer.
    """
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"not an HTTP address: {url}", slug="bad-url", hint="--tokens-from http://HOST:PORT")
    base = url.rstrip("/").removesuffix("/v1")

    def ask(request: Request) -> Sequence[int]:
        answer = _post(f"{base}/tokenize", _question(request), token)
        ids = answer.get("tokens")
        if not isinstance(ids, list):
            raise ModelError(f"{base}/tokenize gave no tokens", slug="no-tokens", hint="is it a vLLM or SGLang server?")
        return ids

    return ask


def served_block(url: str) -> tuple[str, int] | None:
    """Ask a running vLLM or SGLang server for the tokens of its blocks or pages: its engine and those, None: not told.

    vLLM tells it as a label of its metrics, SGLang in its settings.
    """
    base = url.rstrip("/").removesuffix("/v1")
    for engine, path, pattern in _BLOCKS:
        found = pattern.search(_text(f"{base}{path}"))
        if found is not None and int(found[1]):
            return engine, int(found[1])
    return None


def _question(request: Request) -> dict[str, Any]:
    content = request.content
    if isinstance(content, Text):
        return {"model": request.model, "prompt": content.text, "add_special_tokens": not content.rendered}
    assert isinstance(content, Messages)
    question: dict[str, Any] = {
        "model": request.model,
        "messages": list(content.messages),
        "add_generation_prompt": True,
    }
    if content.tools:
        question["tools"] = list(content.tools)
    if request.params.get("chat_template_kwargs"):
        question["chat_template_kwargs"] = request.params["chat_template_kwargs"]
    return question


def _text(url: str) -> str:
    """Give what a server answers; nothing where it does not."""
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:  # noqa: S310 - the scheme was checked
            return str(response.read(_MOST).decode("utf-8", "replace"))
    except urllib.error.HTTPError as error:
        error.close()
    except (OSError, ValueError):
        pass
    return ""


def _post(url: str, body: dict[str, Any], token: str | None) -> dict[str, Any]:
    # late, since an HTTP client takes 20 ms to import and few runs ask a server
    import urllib.error
    import urllib.request

    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)  # noqa: S310 - the scheme was checked
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:  # noqa: S310
            answer = json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            detail = error.read(300).decode("utf-8", "replace")
        raise ModelError(f"{url} answered {error.code}: {detail}", slug="tokenize-refused") from error
    except (OSError, ValueError) as error:
        raise ModelError(f"{url} does not answer: {error}", slug="no-server", hint="is the server running?") from error
    return answer if isinstance(answer, dict) else {"tokens": answer}
