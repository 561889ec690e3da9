"""Results to draw: of real runs, and of a measurement as `verify` writes it."""

import json
import random

from click.testing import CliRunner

from prefixlint.cli import main

HOSTILE = (
    "</script><script>window.ran = 1</script><img src=x onerror='window.ran = 2'><svg onload='window.ran = 3'>"
    '"><iframe srcdoc="<script>parent.ran = 4</script>"></iframe><a href="javascript:window.ran = 5">here</a>'
    "{{ 7 * 7 }}${window.ran = 6}<!--<style>*{display:none}</style>\x1b[31mred\x1b]0;title\x07\0"
    "\u202egnirts\u2066\u2067\u200b\u200f\u2028\u2029\ufeff\U000e0041"
)
RULES = "Weigh each crate, note the road it takes, and never guess what is in it. " * 24


def run(*arguments, codes=(0, 1)):
    done = CliRunner().invoke(main, list(map(str, arguments)))
    assert done.exit_code in codes, done.output
    return done


def analyzed(folder, rows, name="log", *options):
    """Write a log, analyze it, and give the page and the result."""
    log = folder / f"{name}.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run("analyze", log, "--format", "json", "-o", folder / f"{name}.json", *options)
    run("report", folder / f"{name}.json", "--format", "html", "-o", folder / f"{name}.html")
    return folder / f"{name}.html"


def chat(n, system, question, **more):
    return {
        "model": "m",
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": question}],
        **more,
    }


def hostile_log(folder):
    """Prompts whose names, tools, values and lines are made to run, to hide and to flood."""
    tool = {
        "type": "function",
        "function": {"name": HOSTILE[:60], "description": HOSTILE, "parameters": {HOSTILE: HOSTILE}},
    }
    rows = [
        chat(n, f"{HOSTILE} {n:03d} " + RULES, HOSTILE * (1 + n % 3), tools=[tool], user=f"{HOSTILE}{n % 3}")
        for n in range(12)
    ]
    rows += [chat(n, RULES + "x" * 1_000_000, f"{n}\r\n\t" + HOSTILE) for n in range(3)]
    rows += [chat(n, f"It is 2026-03-01 09:{n:02d}:17. {HOSTILE}" + RULES, HOSTILE) for n in range(12)]
    (folder / "broken.jsonl").write_text(HOSTILE + "\n")
    return analyzed(folder, rows, "hostile", "--by", "user")


def large_log(requests):
    """Many conversations of eight families: some share their instructions, some have a clock ahead of them."""
    drawn = random.Random(7)
    heads = [
        f"You are desk {k} of the harbour. " + "\n".join(f"Rule {i} of desk {k}: weigh it." for i in range(30))
        for k in range(8)
    ]
    for n in range(requests):
        k = drawn.randrange(8)
        clock = f"It is 2026-03-01 {n // 3600 % 24:02d}:{n // 60 % 60:02d}:{n % 60:02d}. " if k < 2 else ""
        yield chat(n, clock + heads[k], f"where is crate {drawn.randrange(10**9)}?")


def measured(requests=240):
    """A result of `verify`: two runs on an engine, some requests with other hits than were predicted."""
    drawn = random.Random(3)
    residuals, cold, warm = [], [], []
    for line in range(1, requests + 1):
        predicted = 16 * drawn.randrange(4, 160)
        off = drawn.random() < 0.04
        residuals.append({
            "line": line,
            "predicted": predicted,
            "measured": max(0, predicted - 16 * drawn.randrange(1, 40)) if off else predicted,
            "reason": drawn.choice(["evicted", "still being computed when this one came"]) if off else None,
            "run": "baseline",
            "cache": "warm",
            "round": 1,
        })  # fmt: skip
        cold.append(180 + 240 * drawn.random() ** 2)
        warm.append(38 + 120 * drawn.random() ** 4)

    def spread(values):
        values = sorted(values)
        at = lambda share: values[min(len(values) - 1, int(share * len(values)))]  # noqa: E731
        return {
            "p50": at(0.5),
            "p95": at(0.95),
            "p99": at(0.99),
            "mean": sum(values) / len(values),
            "quantiles": [at(i / 100) for i in range(100)] + [values[-1]],
        }

    def one(cache, values, hit, parts):
        queue, prefill = parts
        rest = [1 - queue - prefill] * len(values)
        return {
            "label": "baseline", "cache": cache, "isolation": "flush", "prompt_tokens": 520_000, "cached_tokens": int(520_000 * hit), "hit_rate": hit, "ttft_ms": spread(values),
            "queue_ms": spread([queue * v for v in values]), "prefill_ms": spread([prefill * v for v in values]), "other_ms": spread([r * v for r, v in zip(rest, values, strict=True)]),
            "server": {"hit_rate": hit, "queries": 520_000, "hits": int(520_000 * hit), "preemptions": 0, "kv_usage_max": 0.41}, "errors": {},
        }  # fmt: skip

    equal = sum(r["predicted"] == r["measured"] for r in residuals)
    return {
        "schema": "prefixlint.verify/1",
        "engine": {"name": "sglang", "version": "0.5.23", "device": "cuda", "model": "Qwen/Qwen3-8B", "flags": {"--page-size": 1}, "launched": True},
        "load": {"requests": requests, "concurrency": 8, "duration_s": 61.2, "arrival": "closed", "output": "one"},
        "runs": [one("cold", cold, 0.0, (0.1, 0.8)), one("warm", warm, 0.83, (0.2, 0.5))],
        "prediction": {"cached_tokens": 436_000, "hit_rate": 0.42, "token_counts_equal": requests, "cached_equal": equal, "of": requests, "max_error_tokens": 640},
        "residuals": residuals,
        "comparison": {
            "baseline": "baseline", "candidate": "fixed",
            "ttft_p50": {"before": 248.0, "after": 57.0, "change": -0.77, "low": -0.79, "high": -0.74, "sure": True, "points": False},
            "ttft_p95": {"before": 400.0, "after": 276.0, "change": -0.31, "low": -0.44, "high": 0.02, "sure": False, "points": False},
            "hit_rate": {"before": 0.42, "after": 0.91, "change": 0.49, "low": 0.48, "high": 0.5, "sure": True, "points": True},
            "warm": {"ttft_p50": {"before": 44.0, "after": 43.0, "change": -0.02, "low": -0.05, "high": 0.01, "sure": False, "points": False}},
            "variants": [{"name": "page size 16", "verdict": "slower", "cold": {"ttft_p50": {"change": 0.12}}, "warm": {}, "error": None, "expect": "fewer hits"}],
        },
        "token_differences": [{"path": "log.jsonl", "line": 7, "counted": 512, "measured": 511, "token": 40, "before": "the crate", "our_text": " a", "their_text": " an"}],
        "status": "complete", "notes": [{"slug": "note", "message": "The server tells no queue time."}],
    }  # fmt: skip


PROMPTS = {
    "clock.py": (
        "import datetime\nimport openai\n\n\ndef ask(question):\n"
        f'    system = f"It is {{datetime.datetime.now()}}. " + {RULES!r}\n'
        "    return openai.OpenAI().chat.completions.create(\n"
        '        model="m", messages=[{"role": "system", "content": system}, {"role": "user", "content": question}]\n'
        "    )\n"
    ),
    "prompts/tools.j2": "You have these tools: {{ tools | shuffle }}\n" + RULES,
    "prompts/</script><img src=x onerror=alert(1)>.j2": "{{ now() }} "
    + HOSTILE.replace("{{ 7 * 7 }}", "").replace("\0", "")
    + RULES,
}


def checked(folder):
    """Give the page of a check."""
    for name, text in PROMPTS.items():
        path = folder / "source" / name.replace("/script", "|script").replace("prompts/", "prompts_")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    run("check", folder / "source", "--format", "html", "--no-cache", "-o", folder / "check.html")
    return folder / "check.html"
