"""What commands share: data to stdout or a file, talk and progress to stderr, errors for people, exit codes."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from prefixlint.errors import PrefixlintError, UsageError

Command = TypeVar("Command", bound=Callable[..., Any])

INTERRUPTED = 130  # 128 + SIGINT, as shells have it
_MIN_WIDTH = 20
_MAX_WIDTH = 120


def output_options(formats: tuple[str, ...]) -> Callable[[Command], Command]:
    """Add the options that every command with a result has: --format, -o, --color, -q."""

    def add(command: Command) -> Command:
        options = (
            click.option(
                "--format",
                "report",
                type=click.Choice(formats),
                default="text",
                show_default=True,
                help="How to show the result.",
            ),
            click.option(
                "-o", "--output", metavar="FILE", help="Write the result to FILE (atomically), not to stdout."
            ),
            click.option(
                "--color",
                type=click.Choice(("auto", "always", "never")),
                default="auto",
                show_default=True,
                help="Colour in text; auto: on a terminal, unless NO_COLOR is set.",
            ),
            click.option("-q", "--quiet", is_flag=True, help="No progress and no remarks on stderr."),
        )
        for option in reversed(options):
            command = option(command)
        return command

    return add


def guarded(command: Callable[..., Any]) -> Callable[..., Any]:
    """Turn errors into messages and exit codes; a broken pipe is the reader's choice and no error."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except PrefixlintError as error:
            complain(error)
            raise SystemExit(error.exit_code) from None
        except BrokenPipeError:
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(0) from None
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            raise SystemExit(INTERRUPTED) from None

    return run


def complain(error: PrefixlintError) -> None:
    """Say on stderr what happened and what to do."""
    head = click.style("error", fg="red", bold=True)
    click.echo(f"{head}[{error.slug}]: {error.message}", err=True)
    if error.hint:
        click.echo(f"  {click.style('help', fg='cyan')}: {error.hint}", err=True)


def wants_color(choice: str, output: str | None) -> bool:
    """Decide on colour: the option, then NO_COLOR, then whether stdout is a terminal."""
    if choice != "auto":
        return choice == "always"
    return output is None and not os.environ.get("NO_COLOR") and sys.stdout.isatty()


def width() -> int:
    """Give the columns of the terminal; 80 where there is none."""
    return max(_MIN_WIDTH, min(_MAX_WIDTH, shutil.get_terminal_size((80, 24)).columns))


def emit(text: str, output: str | None) -> None:
    """Write the result: to stdout, or to a file that appears only when it is complete."""
    data = text.encode("utf-8", "replace")
    if output is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    with writing(output) as file:
        file.write(data)


@contextlib.contextmanager
def writing(path: str) -> Iterator[Any]:
    """Open a file for bytes that replaces `path` at the end, and leaves it as it was when anything fails."""
    target = Path(path)
    try:
        handle, name = tempfile.mkstemp(dir=target.parent or None, prefix=f".{target.name}.")
    except OSError as error:
        raise _cannot_write(path, error) from error
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(target)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise _cannot_write(path, error) from error
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _cannot_write(path: str, error: OSError) -> UsageError:
    return UsageError(
        f"cannot write {path}: {error.strerror or error}", slug="cannot-write", hint="choose another file"
    )


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


class Progress:
    """A bar on stderr with rate and remaining time, shown only on a terminal."""

    def __init__(self, *, quiet: bool) -> None:
        self._bar: Any = None
        self._shown = not quiet and sys.stderr.isatty()

    def __call__(self, done: int, total: int | None) -> None:
        """Show that `done` bytes of `total` (None: unknown) were read."""
        if not self._shown:
            return
        if self._bar is None:
            from tqdm import tqdm

            self._bar = tqdm(total=total, unit="B", unit_scale=True, desc="reading", file=sys.stderr, leave=False)
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()
