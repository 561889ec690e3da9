"""Which servers a sweep starts: command lines, files with mistakes, and the starter files themselves."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixlint.errors import ConfigError, UsageError
from prefixlint.verify import settings
from prefixlint.verify.settings import Plan, Setting, variants, with_flags, without_flags

COMMAND = shlex.split("python -m sglang.launch_server --model-path m --page-size 1 --enable-metrics --seed -1 --port 3")


def commands(plan, command=COMMAND):
    return {variant.name: " ".join(variant.command) for variant in variants(plan, command)}


def test_each_setting_is_tried_alone_then_all_together_then_the_baseline_again():
    plan = Plan([Setting("a", ["--a"]), Setting("b", ["--b", "1"]), Setting("c", ["--b", "2"], together=False)])
    found = commands(plan, ["serve", "--b", "0"])
    assert list(found) == ["baseline", "a", "b", "c", "all together", "baseline again"]
    assert list(found.values()) == [
        "serve --b 0",
        "serve --b 0 --a",
        "serve --b 1",
        "serve --b 2",
        "serve --a --b 1",
        "serve --b 0",
    ]


def test_a_single_setting_has_no_row_with_all_of_them():
    assert list(commands(Plan([Setting("a", ["--a"])]))) == ["baseline", "a", "baseline again"]


def test_flags_of_the_plan_replace_those_of_the_command():
    plan = Plan([Setting("x", ["--page-size=16"], without=["--enable-metrics"])], baseline=["--port", "9", "--new"])
    found = commands(plan)
    assert found["baseline"].endswith("--model-path m --page-size 1 --enable-metrics --seed -1 --port 9 --new")
    assert found["x"].endswith("--model-path m --seed -1 --port 9 --new --page-size=16")


def test_a_negative_number_is_a_value_and_no_flag():
    assert without_flags(COMMAND, ["--seed"])[-3:] == ["--enable-metrics", "--port", "3"]
    assert with_flags(["s", "--chunk", "-1"], ["--chunk", "2"]) == ["s", "--chunk", "2"]
    assert without_flags(["s", "--chunk", "-1", "-v", "rest"], ["--chunk"]) == ["s", "-v", "rest"]


def test_several_values_of_a_flag_go_with_it():
    assert without_flags(["s", "--cuda-graph-bs", "1", "2", "4", "--x"], ["--cuda-graph-bs"]) == ["s", "--x"]


words = st.from_regex(r"--[a-d](=[0-9])?|[0-9a-z]|-[0-9]", fullmatch=True)


@given(st.lists(words), st.lists(st.sampled_from(["--a", "--b", "--c"]), unique=True))
def test_taking_flags_away_leaves_the_others_and_is_done_once(command, names):
    kept = without_flags(["serve", *command], names)
    assert kept[0] == "serve"
    assert not [word for word in kept if word.partition("=")[0] in names]
    assert without_flags(kept, names) == kept
    others = [word for word in command if word.startswith("--") and word.partition("=")[0] not in names]
    assert [word for word in kept if word.startswith("--")] == others


def test_a_sweep_is_a_setting_for_each_value():
    plan = settings.sweep(["--page-size=1,16", "enable-mixed-chunk=on,off", "kv-cache-dtype=fp8_e4m3"])
    assert [(one.name, list(one.flags), list(one.without), one.numerics, one.together) for one in plan.settings] == [
        ("page-size 1", ["--page-size", "1"], [], False, True),
        ("page-size 16", ["--page-size", "16"], [], False, False),
        ("enable-mixed-chunk on", ["--enable-mixed-chunk"], [], False, True),
        ("enable-mixed-chunk off", [], ["--enable-mixed-chunk"], False, False),
        ("kv-cache-dtype fp8_e4m3", ["--kv-cache-dtype", "fp8_e4m3"], [], True, True),
    ]
    assert commands(plan)["all together"].endswith("--page-size 1 --enable-mixed-chunk --kv-cache-dtype fp8_e4m3")


def test_variables_travel_with_their_setting():
    plan = Plan([Setting("a", env={"X": "1"}), Setting("b", ["--b"], env={"Y": "2"}, numerics=True)])
    found = {variant.name: variant for variant in variants(plan, COMMAND)}
    assert found["a"].env == {"X": "1"}
    assert found["all together"].env == {"X": "1", "Y": "2"}
    assert found["all together"].numerics
    assert not found["baseline"].numerics
    assert found["baseline"].env == {}


@pytest.mark.parametrize("text", ["page-size", "=1,2", "--=1", "page-size=", "page-size=1,,2", "a=1,", "a= ,1"])
def test_a_sweep_without_values_is_refused(text):
    with pytest.raises(UsageError) as error:
        settings.sweep([text])
    assert error.value.slug == "bad-sweep"
    assert error.value.hint


def test_a_flag_is_swept_once():
    with pytest.raises(UsageError, match="page-size twice"):
        settings.sweep(["page-size=1", "--page-size=2"])


@pytest.mark.parametrize("name", settings.starters())
def test_the_starter_files_can_be_read_and_say_what_each_setting_moves(name):
    plan = settings.read(name)
    assert plan.engine == name
    assert len(plan.settings) >= 10
    assert all(one.expect and len(one.expect) > 20 for one in plan.settings)
    assert any(one.numerics for one in plan.settings)
    assert len({variant.name for variant in variants(plan, COMMAND)}) == len(plan.settings) + 3
    assert settings.described(plan).startswith(f"{len(plan.settings)} settings: {len(plan.settings) + 3} starts")


def test_the_starters_have_what_moves_most():
    flags = {one.flags[0] for one in settings.read("sglang").settings}
    wanted = (
        "disable-radix-cache chunked-prefill-size schedule-policy kv-cache-dtype mem-fraction-static context-length"
    )
    wanted += " page-size max-running-requests disable-cuda-graph attention-backend speculative-algorithm"
    assert {f"--{name}" for name in wanted.split()} <= flags
    policies = {one.flags[1] for one in settings.read("sglang").settings if one.flags[0] == "--schedule-policy"}
    assert policies == {"lpm", "shortest-prefill-first"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[setting]\n", "line 1"),
        ("", "names no setting"),
        ("setting = 3", "setting is no list"),
        ("setting = [3]", "is no table"),
        ("[[setting]]\nflags = ['--a']", r"\[\[setting\]\] 1 has no name"),
        ("[[setting]]\nname = 'a'", "changes nothing"),
        ("[[setting]]\nname = 'a'\nflag = ['--a']", "unknown key flag"),
        ("[[setting]]\nname = 'a'\nflags = '--a'", "flags is no list"),
        ("[[setting]]\nname = 'a'\nflags = [true]", "strings and numbers"),
        ("[[setting]]\nname = 'a'\nenv = { A = 1 }", "variables are strings"),
        ("[[setting]]\nname = 'a'\nflags = ['--a']\ntogether = 1", "together is no bool"),
        ("[[setting]]\nname = 'baseline'\nflags = ['--a']", "two rows called baseline"),
        ("[[setting]]\nname = 'a'\nflags = ['--a']\n[[setting]]\nname = 'a'\nflags = ['--b']", "two rows called a"),
        ("[[setting]]\nname = 'a'\nflags = ['--x=1']\n[[setting]]\nname = 'b'\nflags = ['--x', 2]", "both set --x"),
        ("[baseline]\nflag = []\n[[setting]]\nname = 'a'\nflags = ['--a']", r"\[baseline\] has an unknown key"),
    ],
)
def test_mistakes_in_a_file_are_named(tmp_path, text, said):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said) as error:
        settings.read(str(path))
    assert "mine.toml" in error.value.message


def test_numbers_are_taken_as_words(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        "[baseline]\nflags = ['--page-size', 16]\n[[setting]]\nname = 'm'\nflags = ['--mem', 0.9, '--n', -1]"
    )
    found = commands(settings.read(str(path)), ["serve"])
    assert found["m"] == "serve --page-size 16 --mem 0.9 --n -1"


def test_a_file_that_is_not_there_names_the_starters(tmp_path):
    with pytest.raises(UsageError, match="cannot be read") as error:
        settings.read(str(tmp_path / "none.toml"))
    assert "sglang, vllm" in error.value.hint
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="UTF-8"):
        settings.read(str(tmp_path / "bytes.toml"))
    with pytest.raises(UsageError, match="cannot be read"):
        settings.read(str(tmp_path))
