"""Tab completion: what the program offers, and that bash itself offers it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("prefixlint")


def asked(words, **environment):
    """Give what the program offers for the last of these words."""
    env = {
        **os.environ,
        "_PREFIXLINT_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    done = subprocess.run([str(PROGRAM)], env={**env, **environment}, capture_output=True, text=True, check=False)
    assert not done.stderr
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["prefixlint", "ch"], {"check"}),
        (["prefixlint", "check", "--diff-"], {"--diff-base"}),
        (["prefixlint", "check", "--format", "sa"], {"sarif"}),
        (["prefixlint", "rule", "PFX30"], {"PFX301", "PFX304"}),
        (["prefixlint", "rule", "clock-in-p"], {"clock-in-prefix"}),
        (["prefixlint", "engine", "sg"], {"sglang"}),
        (["prefixlint", "schema", "an"], {"analyze"}),
    ],
)
def test_what_is_offered(words, offered):
    found = asked(words)
    assert offered <= set(found)
    assert all(name.startswith(words[-1]) for name in found)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell):
    env = {**os.environ, "_PREFIXLINT_COMPLETE": f"{shell}_source"}
    done = subprocess.run([str(PROGRAM)], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert f"_PREFIXLINT_COMPLETE={shell}_complete" in done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_with_the_script_of_the_page(tmp_path):
    page = Path(__file__).parents[1] / "docs" / "completion.md"
    if not page.is_file():
        pytest.skip("no checkout")
    lines = [line for line in page.read_text().splitlines() if "bash" in line and not line.startswith(("#", "bash"))]
    assert len(lines) == 2
    script = (
        f'export HOME="{tmp_path}" PATH="{PROGRAM.parent}:$PATH"\n'
        + "\n".join(lines)
        + """
    . ~/.bashrc
    COMP_WORDS=(prefixlint analyze --max-) COMP_CWORD=2
    $(complete -p prefixlint | sed -E 's/.*-F ([^ ]+).*/\\1/') prefixlint
    printf '%s\\n' "${COMPREPLY[@]}"
    """
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["--max-drop", "--max-worse"], done.stderr
