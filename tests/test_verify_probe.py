"""The probe against caches whose rules are known: it finds them, says what differs, and never guesses."""

from __future__ import annotations

import json
import random
import threading
import time
from dataclasses import dataclass, field

import jsonschema
import pytest
from click.testing import CliRunner

from prefixlint import engines, schemas
from prefixlint.cli import main
from prefixlint.reports import Look
from prefixlint.verify import experiments, probe, probetext, targets
from prefixlint.verify.asker import Asker
from prefixlint.verify.probed import TITLES
from prefixlint.verify.wire import Server

from .fakeserver import CLOSE, STREAM, FakeServer, chunk, events, reply

HEAD = [1, 2, 3]  # what a chat template puts before each prompt


@dataclass
class Rules:
    """A prefix cache, and how its server tells of it."""

    step: int = 16
    cap: str = "length_minus_one"
    minimum: int = 0
    output: bool = True
    visible: str = "scheduling"
    namespaces: bool = True
    tells: bool = True
    counters: bool = True
    whole: bool = False  # only whole prompts are found again
    ttl: float = 1e9
    ids: bool = True
    together: float = 0.0  # seconds that a prefill takes
    block_label: int | None = None
    refuses: frozenset[int] = frozenset()  # lengths of prompts that are refused


@dataclass
class Entry:
    tokens: list
    at: float


@dataclass
class Cache:
    """Serves vLLM's or OpenAI's API from a list of all that was ever sent."""

    rules: Rules
    kind: str = "vllm"
    entries: dict[str, list[Entry]] = field(default_factory=dict)
    queries: int = 0
    hits: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    completions: int = 0
    dies_after: int | None = None

    def __call__(self, _method: str, path: str, body: bytes):
        if path == "/v1/models":
            return reply(200, {"data": [{"id": "m", "owned_by": self.kind, "max_model_len": 8192}]})
        if path == "/version" and self.kind == "vllm":
            return reply(200, {"version": "0.33.0"})
        if path == "/metrics" and self.kind == "vllm":
            return reply(200, self._metrics().encode(), kind="text/plain") if self.rules.counters else reply(404)
        if path == "/tokenize":
            words = json.loads(body)["messages"][0]["content"].split()
            return reply(200, {"tokens": [*HEAD, *map(code, words)]}) if self.rules.ids else reply(404)
        if path in ("/v1/completions", "/v1/chat/completions"):
            self.completions += 1
            if self.dies_after is not None and self.completions > self.dies_after:
                return CLOSE
            return self._complete(json.loads(body))
        return reply(404)

    def _metrics(self) -> str:
        label = (
            ""
            if self.rules.block_label is None
            else f'vllm:cache_config_info{{block_size="{self.rules.block_label}"}} 1\n'
        )
        return f"{label}vllm:prefix_cache_queries_total {self.queries}\nvllm:prefix_cache_hits_total {self.hits}\n"

    def _complete(self, body: dict):
        chat = "messages" in body
        prompt = [*HEAD, *map(code, body["messages"][0]["content"].split())] if chat else body["prompt"]
        if len(prompt) in self.rules.refuses:
            return reply(400, {"error": {"message": "the prompt is too long"}})
        space = body.get("cache_salt", "") if self.rules.namespaces else ""
        output = [900 + i for i in range(body["max_tokens"])]
        with self.lock:
            cached = self._found(prompt, space)
            self.queries += len(prompt)
            self.hits += cached
            if self.rules.visible == "scheduling":
                self._keep(prompt, space)
        usage: dict = {"prompt_tokens": len(prompt), "completion_tokens": len(output)}
        if self.rules.tells:
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        first = {
            "choices": [
                {"index": 0, "delta": {"content": "x"}, "text": "x", "token_ids": output, "finish_reason": None}
            ]
        }

        def prefilled():
            time.sleep(self.rules.together)
            if self.rules.visible == "prefill_end":
                with self.lock:
                    self._keep(prompt, space)

        def ended():
            time.sleep(0.4 if len(output) > 50 else 0)
            with self.lock:
                self._keep([*prompt, *output[:-1]] if self.rules.output else prompt, space)

        last = {"choices": [], "usage": usage}
        return [STREAM, prefilled, chunk(events(first, done=False)), ended, chunk(events(last)), b"0\r\n\r\n"]

    def _keep(self, tokens: list, space: str) -> None:
        self.entries.setdefault(space, []).append(Entry(tokens, time.monotonic()))

    def _found(self, prompt: list, space: str) -> int:
        rules, best = self.rules, 0
        for entry in self.entries.get(space, ()):
            if time.monotonic() - entry.at < rules.ttl:
                same = next((i for i, (a, b) in enumerate(zip(prompt, entry.tokens, strict=False)) if a != b), None)
                shared = min(len(prompt), len(entry.tokens)) if same is None else same
                if not rules.whole or shared == len(prompt):
                    best = max(best, shared)
        whole = best // rules.step * rules.step
        capped = {"none": whole, "length_minus_one": min(best, len(prompt) - 1) // rules.step * rules.step}
        capped["after_rounding"] = min(whole, len(prompt) - 1)
        found = capped[rules.cap]
        return found if found >= rules.minimum else 0


CODES: dict[str, int] = {}


def code(word: str) -> int:
    return CODES.setdefault(word, 100 + len(CODES))


def probed(rules: Rules, *, kind: str = "vllm", engine: str | None = "vllm", wait: float = 0.0, **more):
    cache = Cache(rules, kind, **more)
    with FakeServer(cache) as server, Server(server.url, timeout=10) as client:
        target = targets.detect(client)
        about = target.about(client)
        asker = Asker(client, target, about, rng=random.Random(5), salt="salt")
        profile = engines.load(engine) if engine else None
        found = probe.probe(asker, target, about, profile, client.url, wait=wait, progress=lambda _: None)
    return found, {rule.name: rule for rule in found.rules}


@pytest.mark.parametrize("step", [1, 2, 16, 32, 48, 100, 128, 256])
def test_every_granularity_is_found(step):
    found, rules = probed(Rules(step=step, block_label=step))
    assert rules["granularity"].measured == f"{step} token{'s' if step > 1 else ''}"
    assert rules["granularity"].source == "server"
    assert rules["cap"].measured == "all but one token, then rounded down"
    assert not found.deviates, rules
    assert found.failed is None


@pytest.mark.parametrize(("label", "agrees"), [(None, False), (32, True), (16, False)])
def test_a_granularity_is_held_against_the_servers_setting_or_the_profile(label, agrees):
    found, rules = probed(Rules(step=32, block_label=label))
    assert rules["granularity"].agrees is agrees
    assert rules["granularity"].expected == f"{label or 16} tokens"
    assert found.deviates is not agrees


@pytest.mark.parametrize(
    ("cap", "words"),
    [
        ("none", "all of a prompt may be cached"), ("length_minus_one", "all but one token, then rounded down"),
        ("after_rounding", "whole blocks, but for one token"),
    ],
)  # fmt: skip
def test_every_rule_of_the_last_token_is_found(cap, words):
    _, rules = probed(Rules(cap=cap, block_label=16))
    assert rules["cap"].measured == words
    assert rules["cap"].agrees is (cap == "length_minus_one")


@pytest.mark.parametrize("least", [64, 200, 1024, 2048])
def test_a_minimum_is_bounded_and_differs_from_none(least):
    _, rules = probed(Rules(minimum=least, block_label=16))
    words = rules["minimum"].measured
    low, high = (int(part.split()[-1].replace(",", "")) for part in words.replace(" tokens", "").split(", at most"))
    assert low < least + 16
    assert high >= least
    assert rules["minimum"].agrees is False


def test_no_minimum_is_found_with_two_requests():
    _, rules = probed(Rules(block_label=16))
    assert rules["minimum"].measured == "none"
    assert len(rules["minimum"].seen) == 2


def test_prompts_grow_until_one_is_found_again():
    found, rules = probed(Rules(step=128, minimum=2048, block_label=128))
    assert [seen.prompt_tokens for seen in rules["reported"].seen] == [512, 512, 1280, 1280, 2304, 2304]
    assert found.requests <= experiments.MOST_REQUESTS


@pytest.mark.parametrize("output", [True, False])
def test_whether_what_was_generated_is_kept(output):
    _, rules = probed(Rules(output=output, block_label=16))
    assert rules["stored"].measured == ("the prompt and what was generated" if output else "the prompt")
    assert rules["stored"].agrees is output


@pytest.mark.parametrize(
    ("visible", "slow", "words", "agrees"),
    [
        ("response_end", 0.0, "the end of the answer", False),
        ("scheduling", 0.05, "between arrival and the first token", True),
        ("prefill_end", 0.1, "between the end of prefill and the first token", False),
    ],
)
def test_from_when_a_prompt_can_be_found(visible, slow, words, agrees):
    _, rules = probed(Rules(visible=visible, together=slow, block_label=16))
    assert rules["visible"].measured == words, rules["visible"]
    assert rules["visible"].agrees is agrees  # vLLM's profile says scheduling


@pytest.mark.parametrize("namespaces", [True, False])
def test_whether_namespaces_separate(namespaces):
    _, rules = probed(Rules(namespaces=namespaces, block_label=16))
    assert rules["isolation"].measured == ("separate" if namespaces else "shared")
    assert rules["isolation"].agrees is namespaces


def test_an_entry_that_expires_is_noticed_and_one_that_stays_says_no_more_than_that():
    _, rules = probed(Rules(ttl=0.3, block_label=16), wait=0.4)
    assert rules["lifetime"].measured == "less than 0.4 s"
    assert rules["lifetime"].agrees is False
    _, rules = probed(Rules(block_label=16), wait=0.05)
    assert rules["lifetime"].measured == "0.05 s or longer"
    assert rules["lifetime"].agrees is True


def test_a_cache_that_knows_whole_prompts_only():
    _, rules = probed(Rules(whole=True, step=1))
    assert rules["match"].measured == "whole prompts or marks"
    assert rules["match"].agrees is False
    assert rules["granularity"].measured is None
    assert "nothing to measure" in rules["granularity"].note


def test_a_cache_that_is_off_is_said_and_nothing_else_is_guessed():
    found, rules = probed(Rules(minimum=10**9))
    assert rules["reported"].measured == "yes"
    assert "not found again" in rules["reported"].note
    assert {name for name, rule in rules.items() if rule.measured is not None and name != "reported"} <= {
        "lifetime",
        "visible",
    }
    assert not any(rule.agrees for name, rule in rules.items() if name not in ("lifetime", "reported"))
    assert found.failed is None


def test_a_server_that_does_not_tell_is_measured_by_its_counters():
    found, rules = probed(Rules(tells=False, block_label=16))
    assert rules["reported"].measured == "by its counters only"
    assert rules["granularity"].measured == "16 tokens"
    assert rules["cap"].agrees is True
    assert not found.deviates


def test_counters_that_others_move_too_are_not_trusted():
    cache = Cache(Rules(tells=False))
    answer = cache._complete

    def busy(body: dict):
        cache.queries += 77  # another client's request at the same time
        cache.hits += 50
        return answer(body)

    cache._complete = busy
    with FakeServer(cache) as server, Server(server.url, timeout=10) as client:
        target = targets.detect(client)
        about = target.about(client)
        asker = Asker(client, target, about, rng=random.Random(5), salt="salt")
        found = probe.probe(asker, target, about, None, client.url, wait=0, progress=lambda _: None)
    assert [(rule.name, rule.measured) for rule in found.rules] == [("reported", "no")]


def test_a_server_that_tells_nothing_at_all_is_unknown_and_not_zero():
    found, rules = probed(Rules(tells=False, counters=False))
    assert list(rules) == ["reported"]
    assert rules["reported"].measured == "no"
    assert "--enable-prompt-tokens-details" in rules["reported"].note
    assert found.requests == 2
    assert not found.deviates


def test_a_server_without_token_ids_is_asked_in_words():
    found, rules = probed(Rules(step=128, namespaces=False), kind="acme", engine=None)
    assert not found.exact
    assert found.isolation.startswith("marker")
    assert rules["granularity"].measured == "128 tokens"
    assert rules["match"].measured == "longest prefix"
    assert rules["stored"].note == "needs prompts of token ids"
    assert rules["isolation"].note == "the server has none"
    assert all(rule.agrees is None and rule.source is None for rule in found.rules)


def test_in_words_the_last_token_rule_is_found_with_prompts_of_whole_blocks():
    for cap in ("none", "length_minus_one"):
        _, rules = probed(Rules(step=16, cap=cap, namespaces=False), kind="acme", engine="openai")
        assert rules["cap"].agrees is (cap == "length_minus_one"), rules["cap"]


def test_prompts_share_nothing_but_in_words_the_templates_head():
    cache = Cache(Rules(step=1, namespaces=False), "acme")
    with FakeServer(cache) as server, Server(server.url, timeout=10) as client:
        target = targets.detect(client)
        about = target.about(client)
        asker = Asker(client, target, about, rng=random.Random(5), salt="salt")
        cached = [asker.ask(asker.fresh(40)).cached for _ in range(12)]
    assert cached == [0, *[len(HEAD)] * 11]


def test_a_request_that_is_refused_ends_its_experiment_only():
    found, rules = probed(Rules(block_label=16, refuses=frozenset({17})))
    assert rules["minimum"].measured is None
    assert "the prompt is too long" in rules["minimum"].note
    assert rules["visible"].measured is not None
    assert found.failed is None


@pytest.mark.parametrize("after", [1, 3, 9, 12])
def test_a_server_that_dies_leaves_what_was_found(after):
    found, rules = probed(Rules(block_label=16), dies_after=after)
    assert found.failed is not None
    assert "closed the connection" in found.failed
    assert ("granularity" in rules) == (after > 4)


def test_a_busy_server_is_asked_again():
    cache = Cache(Rules(block_label=16))
    turned_away = []

    def answer(method: str, path: str, body: bytes):
        if path == "/v1/completions" and len(turned_away) < 2:
            turned_away.append(path)
            return reply(429, {"error": "slow down"}, "Retry-After: 0.01")
        return cache(method, path, body)

    with FakeServer(answer) as server, Server(server.url, timeout=10) as client:
        target = targets.detect(client)
        about = target.about(client)
        asker = Asker(client, target, about, rng=random.Random(5), salt="salt")
        assert asker.ask(asker.fresh(20)).cached == 0
        assert asker.requests == 3


def run(*arguments: str, **options: object):
    return CliRunner().invoke(main, ["probe", *arguments], **options)


def test_the_command_shows_what_agrees_and_its_exit_code_what_does_not():
    with FakeServer(Cache(Rules(block_label=16, visible="scheduling"))) as server:
        good = run(server.url, "--wait", "0")
    assert good.exit_code == 0, good.output
    assert "Nothing differs from the profile vllm." in good.output
    assert max(map(len, good.output.splitlines()[1:])) <= 80
    assert "up to 36 requests, in a namespace of their own (cache_salt)" in good.output
    with FakeServer(Cache(Rules(step=32, block_label=16))) as server:
        bad = run(server.url, "--wait", "0", "-v", "-q")
    assert bad.exit_code == 1
    assert "differs      Granularity             32 tokens (the server's own setting: 16" in bad.output
    assert "leaves the first" in bad.output
    assert "up to 36 requests" not in bad.output


def test_the_plan_sends_nothing():
    cache = Cache(Rules())
    with FakeServer(cache) as server:
        result = run(server.url, "--plan")
    assert result.exit_code == 0
    assert "nothing is emptied" in result.output
    assert cache.completions == 0


@pytest.mark.parametrize("rules", [Rules(block_label=16, visible="scheduling"), Rules(step=32, block_label=16)])
def test_what_was_written_as_json_is_read_again(rules):
    found, _ = probed(rules)
    saved = json.loads(probetext.as_json(found))
    saved["rules"][0]["of_tomorrow"] = 1  # a later version may say more
    again = probetext.restored(saved)
    for look in (Look(80, color=False, verbose=True), Look(40, color=True, verbose=False)):
        assert probetext.text(again, look) == probetext.text(found, look)


def test_json_fits_its_schema():
    with FakeServer(Cache(Rules(block_label=16, visible="scheduling"))) as server:
        result = run(server.url, "--wait", "0", "--format", "json", "-q")
    data = json.loads(result.output)
    jsonschema.validate(data, schemas.load("probe"))
    assert data["schema"] == "prefixlint.probe/1"
    assert [rule["name"] for rule in data["rules"]] == list(TITLES)
    assert data["server"]["block_size"] == 16
    assert data["profile"] == "vllm"
    assert data["differs"] is False


def test_another_profile_may_be_chosen():
    with FakeServer(Cache(Rules(step=128, namespaces=False), "acme")) as server:
        result = run(server.url, "--wait", "0", "--profile", "sglang", "--format", "json", "-q")
        wrong = run(server.url, "--profile", "sgalng")
    data = json.loads(result.output)
    assert result.exit_code == 1
    assert {rule["name"]: rule["agrees"] for rule in data["rules"]}["granularity"] is False
    assert (wrong.exit_code, "Did you mean sglang" in wrong.output) == (2, True)


def test_a_server_that_dies_gives_what_was_found_and_an_error():
    with FakeServer(Cache(Rules(block_label=16), dies_after=9)) as server:
        result = run(server.url, "--wait", "0", "-q")
    assert result.exit_code == 2
    assert "Granularity" in result.output
    assert "probe-broken" in result.output


@pytest.mark.parametrize("url", ["http://", "nonsense", "http://127.0.0.1:1"])
def test_what_cannot_be_probed(url):
    result = run(url)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_names_that_a_server_gives_are_shown_inert():
    found, _ = probed(Rules(block_label=16))
    from dataclasses import replace

    from prefixlint.reports import Look

    odd = replace(found, about=replace(found.about, model="m\x1b[2J", version="\x07"))
    assert "\x1b" not in probetext.text(odd, Look())
    assert "\x07" not in probetext.text(odd, Look())
