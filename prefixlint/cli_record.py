"""`prefixlint record`: get a log, by a recording proxy or by the settings that make a server or gateway write one."""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prefixlint import console
from prefixlint.errors import UsageError

if TYPE_CHECKING:
    from prefixlint.capture.config import Event, ServeConfig
    from prefixlint.capture.fingerprint import Fingerprinter

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}
_SALT_BYTES = 32


@click.command(short_help="Get a log: a recording proxy, or settings for engines and gateways.")
@click.option("--upstream", metavar="URL", help="The server that answers the requests, like http://127.0.0.1:30000.")
@click.option("-o", "--output", metavar="FILE", help="The log; lines are added at its end.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0 takes a free one.")
@click.option("--with-output", is_flag=True, help="Write what the model answered as well.")
@click.option("--rotate", metavar="SIZE", help="Start a new file when this one would grow beyond SIZE, like 100MB.")
@click.option("--keep", type=click.IntRange(min=1), metavar="N", help="Keep the last N rotated files  [default: all].")
@click.option("--sample", metavar="SHARE", default="100%", show_default=True, help="Write this share of conversations.")
@click.option("--seed", type=int, default=0, show_default=True, help="Chooses which conversations are sampled.")
@click.option("--redact", is_flag=True, help="Mask times, addresses, numbers of persons and ids by kind.")
@click.option("--fields", metavar="PATH[,PATH]", help="Keep only these fields of the request, like model,messages.")
@click.option("--log-header", "log_headers", multiple=True, metavar="NAME", help="Write this request header as well.")
@click.option("--fingerprint", is_flag=True, help="Write salted hashes and lengths instead of text.")
@click.option("--grain", type=click.IntRange(1, 4096), default=1, show_default=True, help="Characters of one hash.")
@click.option("--salt-file", metavar="FILE", help="Keep the salt here, so that later logs compare with this one.")
@click.option("--model", metavar="NAME|DIR|FILE.gguf", help="Fingerprints: the model that cuts tokens.")
@click.option("--tokenizer", metavar="FILE|none", help="Fingerprints: the tokenizer; none leaves tokens to estimates.")
@click.option("--chat-template", metavar="FILE", help="Fingerprints: the chat template, instead of the model's own.")
@click.option("--connect-timeout", type=click.FloatRange(min=0.1), default=30.0, show_default=True, metavar="SECONDS")
@click.option("--insecure", is_flag=True, help="Do not check the upstream's TLS certificate.")
@click.option(
    "--how", metavar="NAME", help="Print how NAME (vllm, sglang, openai, …) is made to write a log, and the cost."
)
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors and loss.")
@console.guarded
def record(**settings: Any) -> None:
    """Record requests that pass through a proxy, or say how a server or gateway is made to log them.

    Point the client's base URL at the proxy. Bodies pass untouched; credentials are never written. A stop (Ctrl-C, or
    SIGTERM) lets running requests end first, and says what was written and what was lost.
    """
    if settings["how"] is not None:
        from prefixlint.capture.how import text

        console.emit(text(settings["how"]), None)
        return
    config = _config(settings)
    from prefixlint.capture.proxy import run

    quiet = settings["quiet"]
    totals = run(config, lambda event: _say(event, quiet=quiet))
    if not quiet:
        sampled = f", {totals.sampled_out:,} not sampled" if totals.sampled_out else ""
        click.echo(f"{totals.written:,} requests written, {totals.lost:,} lost{sampled}", err=True)


def _say(event: Event, *, quiet: bool) -> None:
    if not quiet or event.kind != "listening":
        click.echo(event.message, err=True)


def _config(settings: dict[str, Any]) -> ServeConfig:
    for name, option in (("upstream", "--upstream URL"), ("output", "-o FILE")):
        if not settings[name]:
            raise UsageError(
                f"{option} is missing",
                slug="record-options",
                hint="prefixlint record --upstream URL -o log.jsonl, or prefixlint record --how NAME",
            )
    from prefixlint.capture.config import RecordConfig, ServeConfig
    from prefixlint.capture.proxy import check_upstream

    check_upstream(settings["upstream"])
    salt = _salt(settings["salt_file"])
    return ServeConfig(
        upstream=settings["upstream"],
        host=settings["host"],
        port=settings["port"],
        connect_timeout=settings["connect_timeout"],
        verify_tls=not settings["insecure"],
        record=RecordConfig(
            output=settings["output"],
            salt=salt,
            run=secrets.token_hex(4),
            with_output=settings["with_output"],
            rotate_bytes=_size(settings["rotate"]),
            keep=settings["keep"],
            sample=_share(settings["sample"]),
            seed=settings["seed"],
            redact=settings["redact"],
            fields=tuple(path.strip() for path in (settings["fields"] or "").split(",") if path.strip()),
            log_headers=_headers(settings["log_headers"]),
            fingerprinter=_fingerprinter(settings, salt),
        ),
    )


def _fingerprinter(settings: dict[str, Any], salt: bytes) -> Fingerprinter | None:
    if not settings["fingerprint"]:
        return None
    if settings["redact"]:
        raise UsageError(
            "--redact and --fingerprint exclude each other",
            slug="record-options",
            hint="a fingerprint holds no text that could be masked: leave --redact out",
        )
    from prefixlint.capture.fingerprint import Fingerprinter

    if settings["tokenizer"] == "none":
        return Fingerprinter(salt, grain=settings["grain"])
    from prefixlint.capture.tokenizing import PromptTokenizer

    tokenizer = PromptTokenizer(
        settings["model"], tokenizer=settings["tokenizer"], chat_template=settings["chat_template"]
    )
    return Fingerprinter(salt, grain=settings["grain"], tokenize=tokenizer, tokenizer=tokenizer.name)


def _salt(path: str | None) -> bytes:
    """Give a salt: a new one, or that of a file, which is made where it is missing."""
    if path is None:
        return secrets.token_bytes(_SALT_BYTES)
    file = Path(path)
    try:
        if not file.exists():
            file.touch(mode=0o600)
            file.write_text(secrets.token_hex(_SALT_BYTES) + "\n")
        salt = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"the salt file {path} cannot be used: {error}", slug="record-salt", hint="name another file"
        ) from error
    if len(salt) < _SALT_BYTES:
        raise UsageError(
            f"the salt in {path} is too short to protect anything",
            slug="record-salt",
            hint=f"{_SALT_BYTES} characters at least; remove the file to have a new one made",
        )
    return salt.encode()


def _headers(names: tuple[str, ...]) -> tuple[str, ...]:
    from prefixlint.redact import is_secret_name

    for name in names:
        if is_secret_name(name):
            raise UsageError(
                f"the header {name} carries a credential and is never written",
                slug="record-secret-header",
                hint="name a header that says who asks, not with what right, like x-session-id",
            )
    return tuple(name.lower() for name in names)


def _size(text: str | None) -> int | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]?i?)b?", text.strip().lower())
    size = round(float(found[1]) * _UNITS.get(found[2], 0)) if found else 0
    if size < 1:
        raise UsageError(f"--rotate {text} is no size", slug="record-options", hint="like 500KB, 100MB or 2GiB")
    return size


def _share(text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        raise UsageError(f"--sample {text} is no share", slug="record-options", hint="like 10%, or 0.1")
    return share
