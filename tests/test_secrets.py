"""Secrets planted everywhere in a log: what is masked must not come out in any form of any output."""

import json

import pytest
from click.testing import CliRunner

from prefixlint.cli import main

RULES = "Weigh each crate, note the road it takes, and never guess. " * 12
CREDENTIALS = {
    "key": "sk-proj-Zq8Wm3Lr7Tn2Vb6Xc4Hd9Kf1",
    "github": "ghp_Mz7Qw2Er9Ty4Ui1Op6As3Df8Gh5Jk",
    "aws": "AKIAQZ7WXE3CRV5TBY2N",
    "jwt": "eyJhbGciOiJub25l.eyJzdWIiOiJxdWlsbGZlYXRoZXIi.c2lnbmF0dXJlb2ZxdWlsbA",
    "bearer": "Authorization: Bearer Vx3Nc8Zm1Lk6Jh4",
    "password": "password=Tr0ub4dor-and-3",
}
PERSONAL = {
    "mail": "quillfeather.anna@larch-mills.org",
    "phone": "+49 176 5550 1837",
    "ip": "203.0.113.77",
    "uuid": "7c9e6679-7425-40de-944b-e07fc1f90ae7",
    "time": "1999-07-04T05:06:07Z",
    "epoch": "1598765432",
    "card": "4539 5787 6362 1486",
}
VALUES = {"bearer": "Vx3Nc8Zm1Lk6Jh4", "password": "Tr0ub4dor-and-3"}
GLUED = {"key", "github", "aws", "jwt"}  # known by their form, even where a prompt was joined without a blank
PIECE = 7  # characters of a secret that must not be seen together


def altered(value, n):
    """Give another value of the same form: its last sign but one is another one, which is where excerpts are cut."""
    at = max(i for i, sign in enumerate(value[:-1]) if sign.isdigit() or (sign.isalpha() and "-40de-" not in value))
    sign = value[at]
    swapped = str((int(sign) + n) % 10) if sign.isdigit() else chr((ord(sign.lower()) - 97 + n) % 26 + 97)
    return value[:at] + (swapped.upper() if sign.isupper() else swapped) + value[at + 1 :]


def request(n, secret, where, name):
    value = altered(secret, n) if name not in ("card", "ip") else secret
    long = RULES[: 300 + 7 * n]
    body = {
        "model": "m",
        "user": f"{secret}",
        "id": f"chatcmpl-{secret}",
        "metadata": {"session_id": secret, "tenant": secret},
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "look",
                    "description": f"Looks up. {value if where == 'tool' else ''}",
                    "parameters": {
                        "type": "object",
                        "properties": {secret if where == "property" else "x": {"type": "string"}},
                    },
                },
            }
        ],
        "messages": [
            {"role": "system", "content": f"{value} heads this. {RULES}" if where == "head" else RULES},
            {
                "role": "system",
                "content": f"{long}{'' if name in GLUED else ' '}{value} {RULES}" if where == "middle" else RULES,
            },
            {"role": "user", "content": f"{RULES} {value}" if where == "tail" else f"question {n}"},
        ],
    }
    if n % 2:
        call = {
            "id": f"call_{secret}",
            "type": "function",
            "function": {"name": "look", "arguments": json.dumps({"x": value, secret: 1})},
        }
        body["messages"] += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{secret}", "content": f"found {value}"},
        ]
    return body


WHERE = ("head", "middle", "tail", "tool", "property")


def planted(folder, secrets):
    rows = [request(n, s, where, name) for name, s in secrets.items() for where in WHERE for n in range(4)]
    path = folder / "log.jsonl"
    path.write_text("\n".join([*map(json.dumps, rows), '{"broken": "' + next(iter(secrets.values()))]))
    return path, len(rows)


def invoke(*arguments):
    done = CliRunner().invoke(main, [str(a) for a in arguments])
    assert done.exit_code in (0, 1), done.output
    assert "Traceback" not in done.output
    return done.output


def outputs(log, folder, lines, *options):
    """Give all that the commands say about the log, by what was asked."""
    by = ("--by", "user,session,tenant,session_id")
    for form in ("text", "json"):
        asked = ("--format", form, *options)
        yield (
            f"analyze {form}",
            invoke("analyze", log, "--why", "all", "-v", *by, *asked, "--requests-out", folder / "out.jsonl"),
        )
        yield f"requests {form}", (folder / "out.jsonl").read_text()
        for line in lines:
            yield f"explain {line} {form}", invoke("explain", f"{log}#{line}", "-v", *asked)
            yield (
                f"diff {line} {form}",
                invoke("diff", f"{log}#{line}", f"{log}#{line + 1}", "--text-only", "-v", *asked),
            )
            one, two = f"{log}#{line}", f"{log}#{line + 1}"
            yield f"assert {line} {form}", invoke("assert", one, two, "--min-shared", "1.0", "--text-only", *asked)


def leaks(output, secrets):
    found = []
    for name, secret in secrets.items():
        value = VALUES.get(name, secret)
        size = len(value) if value.isdigit() else PIECE  # numbers of the report may share a few digits by chance
        pieces = {value[i : i + size] for i in range(len(value) - size + 1)}
        found += [(name, piece) for piece in pieces if piece in output]
    return found


def test_credentials_come_out_nowhere(tmp_path):
    log, rows = planted(tmp_path, CREDENTIALS)
    for asked, output in outputs(log, tmp_path, range(1, rows, 23)):
        assert not leaks(output, CREDENTIALS), asked


@pytest.mark.parametrize("secrets", [PERSONAL, CREDENTIALS], ids=["personal", "credentials"])
def test_redact_masks_personal_values_in_every_output(tmp_path, secrets):
    log, rows = planted(tmp_path, secrets)
    seen = ""
    for asked, output in outputs(log, tmp_path, range(1, rows, 23), "--redact"):
        assert not leaks(output, CREDENTIALS | PERSONAL), asked
        seen += output
    kinds = ("email", "timestamp", "id", "ip", "phone", "card") if secrets is PERSONAL else ("id",)
    assert all(f"<{kind}:" in seen for kind in kinds)


def test_the_secrets_are_there_to_be_seen(tmp_path):
    log, _ = planted(tmp_path, PERSONAL)
    seen = leaks("".join(output for _, output in outputs(log, tmp_path, [1, 9, 17])), PERSONAL)
    assert {"mail", "phone", "ip", "uuid", "time", "epoch"} <= {name for name, _ in seen}
