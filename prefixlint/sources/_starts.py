"""Commands as starts of engines and routers: which words name a program, which flags and variables it gets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from prefixlint import servers
from prefixlint.servers import Program, Setting, Start
from prefixlint.shellwords import Command, Mapped, Word, commands, named
from prefixlint.wordset import word_set

SHELLS = word_set("sh bash dash zsh ash ksh")
"""Programs that read a script."""
_TALK = word_set(
    "echo printf grep pgrep pkill kill killall cat which pip pip3 apt apt-get conda git curl wget ps "
    "logger log info man help sed awk touch mkdir rm cp mv ls cd chmod tee"
)
"""Programs that only speak of others."""
_WRAPS = word_set("exec nohup sudo env command nice stdbuf dumb-init tini catchsegv")
_LAUNCHERS = word_set("srun torchrun mpirun mpiexec accelerate numactl taskset timeout uv nsys ncu ray xvfb-run")
"""Programs that run the command behind their own options."""
_HANDERS = word_set("eval ssh tmux screen su watch parallel systemd-run")
"""Programs that hand a string to a shell."""
_CONTAINERS = word_set("docker podman nerdctl")
_VALUED = word_set(
    "-e --env --env-file -p --publish -v --volume --mount --name --network --net --gpus --shm-size --ipc "
    "--restart --entrypoint -w --workdir -u --user -m --memory --cpus --device --ulimit -l --label -h "
    "--hostname --runtime --platform --pull --add-host --security-opt --cap-add --log-driver --log-opt "
    "--pid --group-add --expose --dns --tmpfs --stop-timeout --cpuset-cpus"
)
"""Options of `docker run` that take the next word."""
_IMAGE = re.compile(r"[A-Za-z][\w.$-]*(?::\d+)?(?:/[\w./${}-]+)?(?::[\w.${}-]+)?(?:@sha256:\w+)?")
_NUMBER = re.compile(r"-\d+(?:\.\d+)?\Z")
_REST = re.compile(
    r"\$(?:[@*]|\{[@*]|\{?\w*(?:ARGS?|OPTS?|OPTIONS|FLAGS|EXTRA|PARAMS?|CONFIG)\w*)|\{\{.*(?i:args|flags|extra|range)",
    re.IGNORECASE,
)
_MAX_DEPTH = 6


def in_script(source: Mapped, env: Mapping[str, Word], *, docker: bool = False, depth: int = 0) -> Iterator[Start]:
    """Give the starts in a script."""
    for command in commands(source, dict(env), docker=docker):
        yield from of_command(command, depth=depth)


def of_command(command: Command, *, image: str = "", depth: int = 0) -> Iterator[Start]:
    """Give the starts in a command: its own, in a container's, in a script that a shell is given."""
    words = list(command.words)
    while words and (words[0].text in _WRAPS or re.match(r"[A-Za-z_]\w*=", words[0].text)):
        words.pop(0)
    if not words or depth > _MAX_DEPTH:
        return
    name = words[0].text.rsplit("/", 1)[-1]
    if name in _CONTAINERS:
        yield from _container(command, words, depth)
        return
    if name in _TALK:
        return
    script = _script(words)
    if script is not None:
        yield from in_script(script.mapped(), command.env, depth=depth + 1)
        return
    if name in _HANDERS:
        for word in words[1:]:
            if " " in word.text:
                yield from in_script(word.mapped(), command.env, depth=depth + 1)
    found = None if name == "uv" and words[1:2] and words[1].text != "run" else _program(words, name in _LAUNCHERS)
    if found is not None:
        program, at, size = found
        yield start(program, words[at : at + size], words[at + size :], command.env)
        return
    program_ = servers.by_image(image)
    if program_ is not None and (not words or words[0].text.startswith("-")):
        yield start(program_, (), words, command.env)


def _script(words: Sequence[Word]) -> Word | None:
    """Give the text after `-c` of a shell."""
    for at, word in enumerate(words[:-1]):
        if re.fullmatch(r"-[a-z]*c", word.text) and any(w.text.rsplit("/", 1)[-1] in SHELLS for w in words[:at]):
            return words[at + 1]
    return None


def _program(words: Sequence[Word], launched: bool) -> tuple[Program, int, int] | None:
    """Give the program that words start, where it stands, and how many words name it.

    `launched`: options of a launcher may stand in front.
    """
    texts = [word.text for word in words]
    for at in range(len(texts)):
        if at and not launched and texts[at].startswith("--") and "=" not in texts[at]:
            break  # flags of something else: what follows are their values
        found = servers.by_command(texts[at:])
        if found is None or (
            "." in found[0].commands[0][0] and at == 0 and "." in texts[0] and texts[0].endswith(".py")
        ):
            continue
        if "." in texts[at] and "/" not in texts[at] and (at == 0 or texts[at - 1] != "-m"):
            continue
        return found[0], at, found[1]
    return None


def _container(command: Command, words: list[Word], depth: int) -> Iterator[Start]:
    """Read `docker run … IMAGE args`."""
    if not any(word.text in ("run", "create") for word in words[:3]):
        return
    env = dict(command.env)
    entry: list[Word] = []
    at = 2
    while at < len(words):
        word = words[at]
        at += 1
        if not word.text.startswith("-"):
            if servers.by_image(word.text) is None and not _IMAGE.fullmatch(word.text):
                continue
            yield from _contained(word, entry, words[at:], env, depth)
            return
        flag, equals, _ = word.text.partition("=")
        value = named(word, len(flag) + 1) if equals else words[at] if at < len(words) and flag in _VALUED else None
        if value is None:
            continue
        at += 0 if equals else 1
        name, given, _ = value.text.partition("=")
        if flag in ("-e", "--env") and given:
            env[name] = named(value, len(name) + 1)
        elif flag == "--entrypoint":
            entry = [value]


def _contained(
    image: Word, entry: Sequence[Word], words: Sequence[Word], env: Mapping[str, Word], depth: int
) -> Iterator[Start]:
    """Give what a container starts: its arguments' program, or its image's."""
    rest = (*entry, *words)
    inner = list(of_command(Command(rest, dict(env)), depth=depth + 1))
    yield from inner
    program = servers.by_image(image.text)
    if not inner and program is not None and not entry:
        yield start(program, (image,), rest, env)


def start(
    program: Program,
    named: Sequence[Word],
    rest: Sequence[Word],
    env: Mapping[str, Word],
    extra: Iterable[Setting] = (),
) -> Start:
    """Give a start from the words behind a program's name."""
    settings = [Setting(name, name, word.text, word.start, word.end) for name, word in sorted(env.items())]
    settings += extra
    complete = True
    at = 0
    while at < len(rest):
        word = rest[at]
        at += 1
        if not word.text.startswith("-") or _NUMBER.match(word.text):
            complete = complete and not (word.open and _REST.search(word.text))
            continue
        flag, equals, value = word.text.partition("=")
        values = [value] if equals else []
        while not equals and at < len(rest) and (not rest[at].text.startswith("-") or _NUMBER.match(rest[at].text)):
            if rest[at].open and _REST.search(rest[at].text):
                complete = False
            values.append(rest[at].text)
            at += 1
        if flag in ("--config", "-f"):
            complete = False
        text = " ".join(values)
        beside = len(values) == 1 and not equals and 0 <= rest[at - 1].start - word.end <= 1
        end = rest[at - 1].end if beside and not rest[at - 1].open else word.end
        settings.append(Setting(servers.flag_name(flag), flag, text, word.start, end))
    first, last_ = (named[0], named[-1]) if named else (rest[0], rest[0]) if rest else (None, None)
    begin, stop = (first.start, last_.end) if first is not None and last_ is not None else (0, 0)
    return Start(program.name, begin, stop if stop > begin else begin + 1, tuple(settings), complete)
