"""`from prefixlint import check, analyze`: what programs call, and what the command line rests on."""

import io
import json
import re
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from click.testing import CliRunner

import prefixlint
from prefixlint import PrefixlintError, analyze, api, as_json, check
from prefixlint.cli import main
from prefixlint.errors import ConfigError, NoInputError, UsageError
from prefixlint.fleet import Limits
from prefixlint.pipeline import Options, Watch
from prefixlint.savings import Settings
from tests.clocked import PROMPT, bodies

ROOT = Path(__file__).parents[1]
DEMO = ROOT / "fixtures" / "logs" / "demo.jsonl"
CLOCK = f"{{{{ now() }}}}\n{PROMPT}\n"
BODIES = bodies(4)


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    prompts = tmp_path / "prompts"
    prompts.mkdir()
    (prompts / "clock.j2").write_text(CLOCK)
    shutil.copy(DEMO, tmp_path / "requests.jsonl")
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_the_examples_of_the_page_run(project):
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        done = subprocess.run([sys.executable, "-W", "error", "-c", block], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        if "check(" in block:
            assert "could come from the cache" in done.stdout
            assert "prompts/clock.j2 PFX101" in done.stdout
        elif "error.slug" in block:
            assert done.stdout.startswith("not-found ")


def test_importing_is_cheap():
    code = "import sys; import prefixlint; before = set(sys.modules); from prefixlint import analyze, as_json, check, PrefixlintError; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "click", "jinja2", "tokenizers", "yaml", "prefixlint.pipeline", "prefixlint.checkrun"} & set(
        loaded
    )
    assert "prefixlint.api" in loaded


def test_the_package_names_what_it_has():
    assert set(prefixlint.__all__) <= set(dir(prefixlint))
    assert all(getattr(prefixlint, name) is not None for name in prefixlint.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        prefixlint.nothing  # noqa: B018


def test_the_command_line_gives_the_same(project):
    options = ("--engine", "sglang", "--capacity", "4000", "--by", "model", "--what-if", "none")
    written = json.loads(run("analyze", "requests.jsonl", *options, "--format", "json").stdout)
    ours = as_json(analyze("requests.jsonl", engines=["sglang"], capacity=4_000, by=["model"], what_if=()))
    assert {**written, "advice": None, "notes": None} == {**ours, "advice": None, "notes": None}
    assert json.loads(run("check", "prompts", "--format", "json").stdout) == as_json(check("prompts"))


def test_bodies_are_a_log(project):
    result = analyze(BODIES, engines=("sglang",))
    assert result.input.requests == len(BODIES)
    assert [finding.rule.code for finding in result.findings] == ["PFX101"]
    assert result.findings[0].where.line == 2
    (project / "bodies.jsonl").write_text("".join(json.dumps(body) + "\n" for body in BODIES))
    from_file = analyze(project / "bodies.jsonl", engines=("sglang",))
    assert from_file.engines == result.engines


def test_files_and_bodies_are_not_mixed(project):
    with pytest.raises(UsageError, match="beside bodies"):
        analyze("requests.jsonl", BODIES)


def test_what_is_chosen_changes_the_options(project):
    base = Options(engines=("vllm",), limits=Limits(replicas=2))
    result = analyze(BODIES, options=base, block_size=8, capacity=900)
    (engine,) = result.engines
    assert (engine.engine, engine.granularity, engine.replicas, engine.capacity_tokens) == ("vllm", 8, 2, 896)
    assert base == Options(engines=("vllm",), limits=Limits(replicas=2))


def test_a_name_that_is_not_known_is_refused_as_python_does():
    with pytest.raises(TypeError, match="unexpected keyword argument 'capacty'"):
        analyze(BODIES, capacty=3)


def test_every_option_can_be_chosen_by_name():
    """No field of the options is forgotten, and none is there that nothing takes."""
    taken = {item.name for kind in (Options, Limits, Settings) for item in fields(kind)}
    internal = {"limits", "server", "salt", "today", "flags", "seed", "spill", "outline"}
    assert set(api.Choices.__annotations__) == taken - internal


def test_a_pool_may_be_named_in_words(project):
    config = project / "config.json"
    config.write_text(
        '{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000}'
    )
    result = analyze("requests.jsonl", engines=["sglang"], capacity="1GiB", model_config=str(config))
    assert result.engines[0].capacity_tokens > 100_000


def test_standard_input_and_callbacks(project):
    seen = []
    data = "".join(json.dumps(body) + "\n" for body in BODIES).encode()
    result = analyze("-", stdin=io.BytesIO(data), watch=Watch(on_request=seen.append))
    assert [line.line for line in seen] == [1, 2, 3, 4]
    assert result.input.files == ["-"]


def test_a_saved_result_is_compared(project):
    run("analyze", "requests.jsonl", "--format", "json", "-o", "old.json")
    versus = analyze("requests.jsonl", compare="old.json").versus
    assert versus is not None
    assert versus.rates["sglang"].change == 0
    with pytest.raises(NoInputError):
        analyze("requests.jsonl", compare="gone.json")


def test_a_check_follows_the_configuration_and_what_is_named(project):
    (project / "prefixlint.toml").write_text('ignore = ["PFX101"]\nmin-tokens = 5\n')
    assert not check("prompts").findings
    assert [finding.rule.code for finding in check("prompts", ignore=[]).findings] == ["PFX101"]
    assert not check("prompts", ignore=[], select=["PFX3"]).findings
    assert not check(project / "prompts", ignore=[], min_tokens=10_000).findings
    (project / "other.toml").write_text("")
    assert check("prompts", config="other.toml").findings
    assert check("prompts", config=api.configured("prompts", ignore=())).findings
    with pytest.raises(UsageError, match="no rule"):
        check("prompts", select=["XYZ"])
    with pytest.raises(ConfigError, match="no such baseline"):
        check("prompts", baseline="gone.json")
    with pytest.raises(UsageError, match="no folder"):
        check("prompts", rules="gone")
    with pytest.raises(NoInputError):
        check("gone")


def test_a_check_reads_what_it_is_given_instead_of_the_disk(project):
    clean = {"prompts/clock.j2": PROMPT.encode()}
    assert not check("prompts", overrides=clean).findings
    assert check("prompts").findings


def test_only_what_a_change_brought(project):
    git = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "x"], check=True)
    (project / "prompts" / "new.j2").write_text(CLOCK)
    found = check("prompts", diff_base="HEAD")
    assert [finding.span.path for finding in found.findings] == ["prompts/new.j2"]
    assert [finding.reason for finding in found.suppressed] == ["not new since HEAD"]


def test_errors_are_of_one_kind():
    for call in (lambda: analyze("gone.jsonl"), lambda: check("gone"), lambda: analyze(BODIES, engines=["nothing"])):
        with pytest.raises(PrefixlintError) as caught:
            call()
        assert caught.value.slug
        assert caught.value.exit_code in (2, 3)


def test_one_name_is_as_good_as_a_list_of_one():
    bodies = [{"model": "m", "messages": [{"role": "user", "content": "It is noon."}]}] * 2
    assert [one.engine for one in analyze(bodies, engines="vllm").engines] == ["vllm"]
