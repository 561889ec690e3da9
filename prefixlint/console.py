"""What commands share: data to stdout or a file, talk and progress to stderr, errors for people, exit codes."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from prefixlint.errors import PrefixlintError, UsageError

if TYPE_CHECKING:
    from prefixlint.redact import Redactor
    from prefixlint.reports import Look

Command = TypeVar("Command", bound=Callable[..., Any])

INTERRUPTED = 130  # 128 + SIGINT, as shells have it
_CANNOT_WRITE = "cannot-write"
_MIN_WIDTH = 20
_MAX_WIDTH = 120


def output_options(formats: tuple[str, ...], default: str = "text") -> Callable[[Command], Command]:
    """Add the options that every command with a result has: --format, -o, --color, -q."""

    def add(command: Command) -> Command:
        options = (
            click.option(
                "--format",
                "report",
                type=click.Choice(formats),
                default=default,
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
                help="Colour in text; auto: on a terminal without NO_COLOR or TERM=dumb.",
            ),
            click.option("-v", "--verbose", is_flag=True, help="Show every row of long tables."),
            click.option("-q", "--quiet", is_flag=True, help="No progress and no remarks on stderr."),
        )
        for option in reversed(options):
            command = option(command)
        return command

    return add


def mask_salt() -> bytes:
    """Draw the salt of one run's labels, so that who reads them cannot test which value each stands for."""
    return os.urandom(16)


def look(settings: Mapping[str, Any]) -> Look:
    """Give how a result is shown as text, by the options of `output_options`."""
    from prefixlint.reports import Look

    return Look(width(), wants_color(settings["color"], settings["output"]), settings["verbose"])


def cache_folder() -> Path:
    """Give the folder for what is fetched once and kept."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "prefixlint"


def redactor(*, personal: bool) -> Redactor:
    """Give what masks the shown text of one run."""
    from prefixlint import redact

    return redact.shown(personal=personal, salt=mask_salt())


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
            _leave_pipe()
            raise SystemExit(0) from None
        except Exception as error:
            if isinstance(error, click.ClickException | click.exceptions.Exit | click.Abort):
                raise
            complain(_internal(error))
            raise SystemExit(PrefixlintError.exit_code) from None
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            raise SystemExit(INTERRUPTED) from None

    return run


def _internal(error: BaseException) -> PrefixlintError:
    """Say that prefixlint itself is wrong, and where: file and line, but nothing of the log."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(place.filename).name}, line {place.lineno}"
    return PrefixlintError(
        f"prefixlint has a fault: {type(error).__name__} in {where}",
        slug="internal",
        hint="please report this line, and what the log holds there; --sample N finds the request by halving",
    )


def complain(error: PrefixlintError) -> None:
    """Say on stderr what happened and what to do."""
    head = click.style("error", fg="red", bold=True)
    click.echo(f"{head}[{error.slug}]: {harmless(error.message)}", err=True)
    if error.hint:
        click.echo(f"  {click.style('help', fg='cyan')}: {harmless(error.hint)}", err=True)


def harmless(message: str) -> str:
    """Show what a message quotes of names and logs so that no terminal obeys it; its lines stay lines."""
    from prefixlint.reports._terminal import visible

    return "\n".join(visible(line) for line in message.split("\n"))


def wants_color(choice: str, output: str | None) -> bool:
    """Decide on colour: the option, then NO_COLOR, then whether stdout is a terminal."""
    if choice != "auto":
        return choice == "always"
    unable = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return output is None and not unable and bool(sys.stdout) and sys.stdout.isatty()


def width() -> int:
    """Give the columns of the terminal; 80 where there is none."""
    return max(_MIN_WIDTH, min(_MAX_WIDTH, shutil.get_terminal_size((80, 24)).columns))


def emit(text: str, output: str | None) -> None:
    """Write the result: to stdout, or to a file that appears only when it is complete.

    A reader who has seen enough stops the text and not the command: its exit code says the same as without a pipe.
    """
    try:
        with writing("-" if output is None else output) as file:
            file.write(text.encode("utf-8", "replace"))
    except BrokenPipeError:
        _leave_pipe()


def summarize(document: Callable[[], str]) -> None:
    """Add markdown to the summary of the job, where GitHub Actions runs this; one that cannot be is no failure."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    try:
        with Path(path).open("ab") as file:
            file.write(document().encode("utf-8", "replace"))
    except OSError as error:
        complain(_cannot_write(path, error))


def _leave_pipe() -> None:
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def aside(path: str, failed: list[PrefixlintError]) -> Iterator[Callable[[bytes], None]]:
    """Open a file, as `writing` does, for a result beside the one that is shown, and give what writes to it.

    A disk that fills up is told in `failed`, and what else was asked for goes on; a file that cannot be opened is an
    error at once, before anything was computed.
    """
    lost: list[OSError] = []
    other: list[Exception] = []  # what went wrong in the command meanwhile, which is not this file's doing
    opened = False

    def write(data: bytes) -> None:
        if lost:
            return
        try:
            file.write(data)
        except OSError as error:
            lost.append(error)

    try:
        with writing(path) as file:
            opened = True
            try:
                yield write
            except Exception as error:
                other.append(error)
                raise
            if lost:
                raise lost[0]
    except (BrokenPipeError, UsageError) as error:
        if other:
            raise other[0] from None
        if not opened:
            raise
        if isinstance(error, UsageError):
            failed.append(error)
        else:
            _leave_pipe()


@contextlib.contextmanager
def _stdout() -> Iterator[Any]:
    if not sys.stdout:
        raise UsageError("standard output is closed", slug="cannot-write", hint="write to a file with -o FILE")
    try:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unwritten(error) from error


def unwritten(error: OSError) -> UsageError:
    """Give the error of a standard output that takes no more, and leave it.

    What is still in its buffer cannot be written either, and must not be tried again at exit.
    """
    _leave_pipe()
    return _cannot_write("standard output", error)


@contextlib.contextmanager
def _in_place(path: str) -> Iterator[Any]:
    """Write into a device or pipe, which must never be replaced by a file."""
    try:
        with Path(path).open("wb") as file:
            yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _cannot_write(path, error) from error


@contextlib.contextmanager
def writing(path: str) -> Iterator[Any]:
    """Open a file for bytes that replaces `path` at the end, and leaves it as it was when anything fails.

    `-` is standard output. What a link points to is replaced, not the link; devices and pipes are written into.
    """
    target = Path(path)
    if path == "-" or path.startswith("/dev/") or (target.exists() and not target.is_file() and not target.is_dir()):
        with _stdout() if path == "-" else _in_place(path) as stream:
            yield stream
        return
    target = target.resolve()
    draft = target.with_name(f".{target.name}.{os.urandom(4).hex()}")
    try:  # begins before the file is made: a signal may come at any moment
        with draft.open("xb") as file:
            yield file
        draft.replace(target)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def _cannot_write(path: str, error: OSError) -> UsageError:
    return UsageError(f"cannot write {path}: {error.strerror or error}", slug=_CANNOT_WRITE, hint="choose another file")


class Progress:
    """A bar on stderr with rate and remaining time, shown only on a terminal."""

    def __init__(self, *, quiet: bool) -> None:
        self._bar: Any = None
        self._shown = not quiet and bool(sys.stderr) and sys.stderr.isatty()

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
