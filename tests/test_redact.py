"""Masks of what is shown: values that a cut goes through, credentials behind their names, labels of one run."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixlint import redact
from prefixlint.excerpts import excerpt

KEY = "sk-abcdefghijklmnopqrstu"
TEXT = f"Call with {KEY} at 2026-03-01T09:12:44Z for anna@example.org, thanks."


@given(st.integers(0, len(TEXT)), st.integers(0, len(TEXT)))
def test_a_part_never_shows_a_piece_of_a_masked_value(a, b):
    start, end = sorted((a, b))
    shown = redact.shown(personal=True, salt=b"s").part(TEXT, start, end)
    for value in (KEY, "2026-03-01T09:12:44Z", "anna@example.org"):
        pieces = {value[i : i + 4] for i in range(len(value) - 3)}
        assert not any(piece in shown for piece in pieces)


@given(st.text(alphabet="ab:= \n", max_size=40), st.integers(0, 40), st.integers(0, 40))
def test_a_part_of_plain_text_is_that_part(text, a, b):
    start, end = sorted((min(a, len(text)), min(b, len(text))))
    assert redact.shown(personal=True).part(text, start, end) == text[start:end]


def test_the_whole_as_a_part_is_the_masked_text():
    maker = redact.shown(personal=True)
    assert maker.part(TEXT, 0, len(TEXT)) == maker.text(TEXT)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("api_key=hunter2hunter2 and on", "hunter2"),
        ("Password: s3cr3t!pass", "s3cr3t"),
        ('{"access_token": "abc.def.ghi"}', "abc.def"),
        ("Authorization: Bearer abcdefghijkl", "abcdefgh"),
        ("Authorization: Basic dXNlcjpwYXNz", "dXNl"),
        ('the log says {\\"client_secret\\": \\"q1w2e3r4\\"}', "q1w2"),
        ("`aws_secret_access_key` = `wJalrXUtnFEMI`", "wJal"),
        ("API key: 9f8e7d6c5b4a", "9f8e"),
        ("the admin password is rExliYrXYu, do not tell", "rExl"),
        ("AccountKey=abc123def456==", "abc123"),
        ("DB_PWD=tr0ub4dor", "tr0ub"),
        ("postgres://svc:Hn7dx4aB@db.internal:5432/app", "Hn7d"),
    ],
)
def test_credentials_behind_their_names_are_masked_without_being_asked(text, secret):
    shown = redact.shown().text(text)
    assert secret not in shown
    assert redact.SECRET in shown


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens: 300000",
        "the key: patience",
        "tokens=4096000",
        "a secret that nobody knows",
        "PWD=/usr/share/desk",
        "the API key is required, the token is valid",
        "http://localhost:8080/a@b",
    ],
)
def test_what_is_no_credential_stays(text):
    assert redact.shown().text(text) == text


@pytest.mark.parametrize(
    "secret",
    [
        "gsk_Aa1Bb2Cc3Dd4Ee5Ff6Gg7Hh8",
        "xai-Aa1Bb2Cc3Dd4Ee5Ff6Gg7Hh8",
        "nvapi-Aa1Bb2Cc3Dd4Ee5Ff6Gg7Hh8",
        "sk_live_Aa1Bb2Cc3Dd4Ee5Ff6",
        "SG.Aa1Bb2Cc3Dd4Ee5Ff6.Gg7Hh8Ii9Jj0Kk1Ll2",
        "ya29.Aa1Bb2Cc3Dd4Ee5Ff6Gg7",
        "npm_Aa1Bb2Cc3Dd4Ee5Ff6Gg7Hh8Ii9Jj0Kk1",
        "dop_v1_" + "0a1b2c3d" * 8,
        "shpat_" + "0a1b2c3d" * 4,
        "hooks.slack.com/services/T0Aa1Bb2/B0Cc3Dd4/Ee5Ff6Gg7Hh8Ii9",
        "1234567890:AA" + "b1C" * 11,
    ],
)
def test_credentials_are_known_by_their_forms(secret):
    assert redact.is_credential(f"see {secret}.")
    for text in (f"use {secret} here", f"bot{secret}/send"):
        shown = redact.shown().text(text)
        assert secret[len(secret) // 2 :] not in shown
        assert redact.SECRET in shown


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("11/03/2026, 9:00:12 AM", "timestamp"),
        ("Tue Nov  3 09:00:40 2026", "timestamp"),
        ("3. November 2026", "timestamp"),
        ("03.11.2026", "timestamp"),
        ("20261103T090000Z", "timestamp"),
        ("2026年11月3日 09:00", "timestamp"),
        ("2001:db8:85a3::bec:8e81", "ip"),
        ("00:1B:44:11:3A:B7", "mac"),
        ("(555) 123-4567", "phone"),
        ("DE89 3704 0044 0532 0130 00", "iban"),
        ("req-8f3a2b1c9d7e", "id"),
        ("1fb17c23", "id"),
        ("V1StGXR8_Z5jdHi6B-myT", "id"),
        ("call_7c9e6679-7425-40de-944b-e07fc1f90ae7", "id"),
    ],
)
def test_personal_values_become_labels_as_a_whole(text, kind):
    shown = redact.shown(personal=True).text(f"It says {text}, and on.")
    assert re.fullmatch(rf"It says (?:call_)?<{kind}:[0-9a-f]{{6}}>, and on\.", shown)
    assert redact.shown().text(text) == text  # unless they are masked, they stay


def test_whose_home_a_path_leads_to_is_masked():
    assert re.fullmatch(r"in /Users/<user:\w+>/desk", redact.shown(personal=True).text("in /Users/anna/desk"))


@pytest.mark.parametrize(
    "text", ["std::sort(a)", "page 12 of 2026", "version 1.22.333", "8,096 tokens, 3:1", "gpt-4o-mini"]
)
def test_what_names_nobody_stays(text):
    assert redact.shown(personal=True).text(text) == text


def test_labels_are_stable_in_one_run_and_differ_between_runs():
    text = "at 09:12:44 by 09:12:44"
    one = redact.shown(personal=True, salt=b"one")
    first, second = one.text(text).removeprefix("at ").split(" by ")
    assert first == second
    assert one.text(text) == redact.shown(personal=True, salt=b"one").text(text)
    assert one.text(text) != redact.shown(personal=True, salt=b"two").text(text)


def test_a_place_that_names_a_credential_hides_its_value():
    maker = redact.shown()
    assert maker.value("tools[0].headers.api_key", "plain words") == redact.SECRET
    assert maker.value("messages[0].content", "plain words") == "plain words"
    assert maker.value("a.password", "") == ""


def test_where_a_masked_value_begins():
    maker = redact.shown()
    at = TEXT.index(KEY)
    assert maker.start(TEXT, at + 7) == at
    assert maker.start(TEXT, 3) == 3
    assert maker.start(TEXT, at + len(KEY)) == at + len(KEY)


def test_where_a_masked_value_ends():
    maker = redact.shown()
    at = TEXT.index(KEY)
    assert maker.end(TEXT, at + 7) == at + len(KEY)
    assert maker.end(TEXT, at) == at  # a cut before it goes not through it
    assert maker.end(TEXT, at + len(KEY)) == at + len(KEY)


def test_a_value_that_ends_within_a_masked_one_is_shown_once():
    earlier, later = (f"Use db://svc:{word}@db.internal.example.org for all of this." for word in ("Ab12cd", "Xy34zw"))
    shown = excerpt(earlier, later, earlier.index("Ab12cd"), redactor=redact.shown(personal=True))
    assert (shown.earlier, shown.later, shown.after) == (redact.SECRET, redact.SECRET, " for all of this.")


def test_values_far_apart_are_found_in_long_texts():
    text = "x " * 50_000 + KEY + " y" * 50_000
    at = text.index(KEY)
    assert KEY[5:] not in redact.shown().part(text, at + 3, at + 200)
