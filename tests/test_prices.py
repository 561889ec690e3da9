"""Money for cached, written and computed tokens, and price files that are broken."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixlint.errors import ConfigError, UsageError
from prefixlint.prices import Book, Price, Rates, bill, break_even, read

CLAUDE = """
as_of = 2026-11-01

[[price]]
model = "claude-sonnet-4-5*"
input = 3.00
cached = 0.30
write = 3.75
write_1h = 6.00
tiers = [{above = 200000, input = 6.00, cached = 0.60, write = 7.50}]

[[price]]
model = "*"
input = 1
"""


@pytest.fixture
def book(tmp_path):
    (tmp_path / "prices.toml").write_text(CLAUDE)
    return read(tmp_path / "prices.toml")


def test_one_request_by_hand(book):
    price = book.find("Claude-Sonnet-4-5-20250929")
    # 10,000 tokens: 7,000 read, 2,000 written, 1,000 computed
    found = bill(price, 10_000, 7_000, 2_000)
    assert found.paid == pytest.approx((1_000 * 3 + 7_000 * 0.3 + 2_000 * 3.75) / 1e6)
    assert found.without == pytest.approx(0.03)
    assert found.premium == pytest.approx(2_000 * 0.75 / 1e6)
    assert found.saved == pytest.approx(found.without - found.paid)
    assert bill(price, 10_000, 7_000, 2_000, long=500).premium == pytest.approx((1_500 * 0.75 + 500 * 3) / 1e6)
    assert bill(price, 10_000, 7_000, 2_000, long=2_000).premium == pytest.approx(2_000 * 3 / 1e6)


def test_long_prompts_are_charged_as_a_whole(book):
    price = book.find("claude-sonnet-4-5")
    assert bill(price, 200_000, 0).paid == pytest.approx(0.6)
    assert bill(price, 200_001, 0).paid == pytest.approx(200_001 * 6 / 1e6)
    assert price.at(200_000).input == 3
    assert price.at(200_001).input == 6
    both = bill(price, [200_000, 300_000], [0, 300_000])
    assert both.paid == pytest.approx(0.6 + 0.18)


def test_a_write_that_nobody_reads_costs_more_than_no_cache(book):
    found = bill(book.find("claude-sonnet-4-5"), 5_000, 0, 5_000)
    assert found.saved == pytest.approx(-found.premium)
    assert found.saved < 0


def test_unknown_cached_price_gives_no_bill(book):
    price = book.find("anything")
    assert price.rates.cached is None
    assert bill(price, 100, 40) is None
    assert bill(price, 100, 0).paid == pytest.approx(1e-4)


def test_a_write_price_of_zero_means_no_surcharge(tmp_path):
    (tmp_path / "p.toml").write_text('[[price]]\nmodel = "d"\ninput = 0.27\ncached = 0.07\nwrite = 0\n')
    rates = read(tmp_path / "p.toml").find("d").rates
    assert (rates.write, rates.premium) == (0.27, 0)


@pytest.mark.parametrize(
    ("rates", "usual", "hour"),
    [
        (Rates(1, 0.1, 1.25, 2), 1, 2),
        (Rates(1, 0.05, 1.25, 2.5), 1, 2),
        (Rates(1, 0.5, 2, 2), 3, 3),
        (Rates(1, 0.1, 1, 1), 0, 0),
        (Rates(1, None, 1.25, 2), None, None),
        (Rates(1, 1, 1.25, 2), None, None),
    ],
)
def test_break_even(rates, usual, hour):
    assert break_even(rates) == usual
    assert break_even(rates, hour=True) == hour


rates = st.builds(Rates, st.floats(0.1, 50), st.floats(0, 0.09), st.floats(0.1, 99), st.floats(0.1, 99))


@given(rates, st.integers(1, 10**6))
def test_break_even_is_where_the_bill_turns(rates, tokens):
    price = Price("m", rates, (), "USD", "test", None)
    needed = break_even(rates)
    if needed > 200:
        return
    for reads in {max(0, needed - 1), needed, needed + 1}:
        # one write, then some reads
        prompts, cached = [tokens] * (1 + reads), [0] + [tokens] * reads
        saved = bill(price, prompts, cached, [tokens] + [0] * reads).saved
        if reads >= needed:
            assert saved >= -1e-6
        else:
            assert saved <= 1e-6


requests = st.lists(st.tuples(st.integers(0, 10**6), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=20)


@given(rates, requests)
def test_a_bill_is_the_sum_of_its_requests(rates, rows):
    dear = Rates(*(2 * r for r in (rates.input, rates.cached, rates.write, rates.write_1h)))
    price = Price("m", rates, [(1000, dear)], "USD", "test", None)
    n = np.array([n for n, _, _ in rows])
    c = np.array([int(n * x) for n, x, _ in rows])
    w = np.array([int((n - a) * y) for (n, _, y), a in zip(rows, c, strict=True)])
    whole = bill(price, n, c, w)
    each = [bill(price, *row) for row in zip(n, c, w, strict=True)]
    assert whole.paid == pytest.approx(sum(b.paid for b in each))
    assert whole.without == pytest.approx(sum(b.without for b in each))
    assert whole.premium == pytest.approx(sum(b.premium for b in each), abs=1e-9)


@pytest.mark.parametrize(("prompt", "cached", "written"), [(10, 11, 0), (10, 6, 5), (10, -1, 0), (10, 0, -1)])
def test_parts_that_are_more_than_the_prompt(book, prompt, cached, written):
    with pytest.raises(ValueError, match="more tokens"):
        bill(book.find("claude-sonnet-4-5"), prompt, cached, written)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "price = 3",
        "[price]\ninput = 3",
        "[[price]]\ninput = 3",
        '[[price]]\nmodel = ""\ninput = 3',
        '[[price]]\nmodel = "m"',
        '[[price]]\nmodel = "m"\ninput = -1',
        '[[price]]\nmodel = "m"\ninput = nan',
        '[[price]]\nmodel = "m"\ninput = true',
        '[[price]]\nmodel = "m"\ninput = "3"',
        '[[price]]\nmodel = "m"\ninput = 3\ncahced = 1',
        '[[price]]\nmodel = "m"\ninput = 3\ntiers = 4',
        '[[price]]\nmodel = "m"\ninput = 3\ntiers = [4]',
        '[[price]]\nmodel = "m"\ninput = 3\ntiers = [{input = 3}]',
        '[[price]]\nmodel = "m"\ninput = 3\ntiers = [{above = 0, input = 3}]',
        '[[price]]\nmodel = "m"\ninput = 3\ntiers = [{above = 5, inptu = 3}]',
        'as_of = "yesterday"\n[[price]]\nmodel = "m"\ninput = 3',
        'as_of = 2026-01-01T00:00:00\n[[price]]\nmodel = "m"\ninput = 3',
        'curency = "EUR"\n[[price]]\nmodel = "m"\ninput = 3',
        "[[price",
    ],
)
def test_broken_files(tmp_path, text):
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(ConfigError) as error:
        read(tmp_path / "p.toml")
    assert "p.toml" in error.value.message
    assert error.value.slug == "bad-price-file"


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "absent.toml", tmp_path, tmp_path / "binary.toml"):
        with pytest.raises(UsageError):
            read(path)


def test_the_file_says_its_date_and_currency(tmp_path):
    (tmp_path / "p.toml").write_text('as_of = 2026-02-03\ncurrency = "EUR"\n[[price]]\nmodel = "m"\ninput = 3')
    price = read(tmp_path / "p.toml").find("M")
    assert (price.as_of, price.currency, price.model) == (dt.date(2026, 2, 3), "EUR", "M")
    assert "p.toml" in price.source


def test_no_model_no_price(book):
    assert book.find(None) is None
    assert Book(installed=False).find("gpt-5") is None


def test_installed_prices():
    pytest.importorskip("genai_prices")
    book = Book()
    claude = book.find("claude-sonnet-4-5", 1_767_225_600.0)
    assert claude.rates == Rates(3.0, 0.3, 3.75, 6.0)
    assert claude.at(200_001) == Rates(6.0, 0.6, 7.5, 12.0)
    assert "genai-prices" in claude.source
    assert book.find("gpt-5.6").rates.write == 1.25 * book.find("gpt-5.6").rates.input
    deepseek = book.find("deepseek-chat").rates
    assert deepseek.write == deepseek.input
    assert book.find("no-such-model-anywhere") is None


def test_a_files_prices_come_before_installed_ones(book):
    assert book.find("gpt-5.6").rates.input == 1
