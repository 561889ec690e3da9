"""Small logs that show one cause each, or none; every dialect and many ways to write the values."""

import copy


def system(text):
    return {"role": "system", "content": text}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def tool(call, text):
    return {"role": "tool", "tool_call_id": call, "content": text}


def call(number, name="f", arguments="{}"):
    return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}


def conversation(head=None, turns=3, tools=None, **settings):
    """Give the requests of one conversation; `head`, `tools` and settings are functions of the turn."""
    found, history = [], []
    for turn in range(turns):
        history = [*history, user(f"question number {'abc'[turn % 3] * (turn + 1)}?")]
        body = {"model": "m", "messages": ([system(head(turn))] if head else []) + copy.deepcopy(history)}
        if tools:
            body["tools"] = tools(turn)
        body |= {name: value(turn) for name, value in settings.items()}
        found.append(body)
        history = [*history, assistant(f"answer {'xyz'[turn % 3] * (turn + 1)}")]
    return found


def tools(names, text="does it"):
    return [
        {
            "type": "function",
            "function": {"name": n, "description": text, "parameters": {"type": "object", "properties": {}}},
        }
        for n in names
    ]


def claude(messages, head="s", **more):
    return {"model": "claude-x", "max_tokens": 9, "system": head, "messages": messages, **more}


def siblings(heads):
    return [{"messages": [system(head), user(f"question {'abcdef'[i]}")]} for i, head in enumerate(heads)]


RULES = "You are the support agent of a ferry line. Rules: be brief; never promise refunds; cite the timetable."
CASES = []


def case(name, want, bodies):
    CASES.append((name, want.split(), bodies))


case("clock hm end", "PFX101", conversation(lambda t: RULES + f"\nCurrent time: 09:1{t}"))
case("clock date str", "PFX101", conversation(lambda t: f"It is Monday, 4 March 2031, 9:1{t} AM.\n" + RULES))
case("epoch", "PFX101", conversation(lambda t: f"ts={1735689600 + t * 7}\n" + RULES))
case("iso compact", "PFX101", conversation(lambda t: f"[20310304T09124{t}Z] " + RULES))
case("clock python str", "PFX101", conversation(lambda t: f"Now: 2031-03-04 09:12:4{t}.123456+00:00\n" + RULES))
case("date", "PFX102", conversation(lambda t: f"Today is 2031-03-0{t + 3}.\n" + RULES))
case(
    "date words",
    "PFX102",
    conversation(lambda t: f"Today is {['Monday', 'Tuesday', 'Wednesday'][t]}, March {t + 3}, 2031.\n" + RULES),
)
WHO = ("Marco Bellini (customer 89229)", "Nguyễn Thị Lan (customer 32616)", "Björn Karlsson (customer 36497)")
case("a name and a number", "PFX105", siblings([f"You are speaking with {who}. " + RULES * 6 for who in WHO]))
case("age words", "PFX103", conversation(lambda t: f"Files: a.py (modified {t + 2} minutes ago)\n" + RULES))
case("age hours", "PFX103", conversation(lambda t: f"Last deploy: {t + 2}h ago. " + RULES))
case(
    "age just now",
    "PFX103",
    conversation(lambda t: f"a.py edited {['just now', '1 minute ago', '2 minutes ago'][t]}\n" + RULES),
)
case("uptime", "PFX103", conversation(lambda t: f"Uptime: {t + 3} min\n" + RULES))
case("uuid", "PFX104", conversation(lambda t: f"[req 6f1e0b5c-0d5{t}-4a8e-9b3e-0a1b2c3d4e5{t}] " + RULES))
case(
    "nonce hex",
    "PFX104",
    conversation(lambda t: f"Data is between <{['a9f3c1d2', '77e0b4aa', '0c1d9e8f'][t]}> marks.\n" + RULES),
)
case("trace", "PFX104", conversation(lambda t: f"trace={['01HZX3K9', '01HZX7QP', '01HZY0AB'][t]}\n" + RULES))
case(
    "email sib",
    "PFX105",
    [
        {"messages": [system(f"User: {n} <{n}@x.example>\n" + RULES), user(q)]}
        for n, q in (("ann", "a"), ("bob", "b"), ("cyd", "c"))
    ],
)
case(
    "name sib",
    "PFX105",
    [
        {"messages": [system(f"You help {n}, a customer. Customer name: {n}\n" + RULES), user(q)]}
        for n, q in (("Ann Lee", "a"), ("Bob Orr", "b"), ("Cyd Poe", "c"))
    ],
)
case(
    "conv id sib",
    "PFX105",
    [
        {"messages": [system(f"conversation: {n}\n" + RULES), user(q)]}
        for n, q in (("c-9912", "a"), ("c-1831", "b"), ("c-7719", "c"))
    ],
)
case(
    "identity end quiet",
    "",
    [
        {"messages": [system(RULES + f"\nUser: {n}"), user(q)]}
        for n, q in (("Ann Lee", "a"), ("Bob Orr", "b"), ("Cyd Poe", "c"))
    ],
)
case("cwd", "PFX106", conversation(lambda t: f"Working directory: /srv/u/proj{t}/src\n" + RULES))
case(
    "git",
    "PFX106",
    conversation(lambda t: "git status:\n" + [" M a.py", " M a.py\n M b.py", "?? c.py"][t] + "\n" + RULES),
)
case("tmp", "PFX106", conversation(lambda t: f"Scratch: /tmp/tmp{['a8s7', 'k2j3', 'zz91'][t]}\n" + RULES))
case("host", "PFX106", conversation(lambda t: f"Host: {['web-1a', 'web-2c', 'web-9f'][t]}\n" + RULES))
case("step", "PFX107", conversation(lambda t: f"Step {t + 1} of 20.\n" + RULES))
case("budget", "PFX107", conversation(lambda t: f"Budget left: {9000 - t * 731} tokens ({90 - t * 7}%).\n" + RULES))
case("unread", "PFX107", conversation(lambda t: f"You have {t + 3} unread messages.\n" + RULES))
case("cost", "PFX107", conversation(lambda t: f"Cost so far: ${t}.4{t}\n" + RULES))
case("addr", "PFX109", conversation(lambda t: f"Store: <shop.Store object at 0x7f2ac81d3f{t}0>\n" + RULES))
case(
    "hdr",
    "PFX110",
    [
        {
            "model": "m",
            "system": [
                {
                    "type": "text",
                    "text": f"x-anthropic-billing-header: cc_version=2.1.{37}.f5b; cc_entrypoint=cli; cch={c};",
                },
                {"type": "text", "text": RULES},
            ],
            "messages": [user("a")] if i == 0 else [user("a"), assistant("b"), user("c")][: 1 + 2 * i],
        }
        for i, c in enumerate(["0a4f1", "9be02"])
    ],
)
case(
    "rag conv",
    "PFX202",
    conversation(
        lambda t: (
            RULES
            + "\n\nContext:\n"
            + [
                "The 9:20 leaves from pier 4.\nTickets cost 12.",
                "Dogs travel free on weekdays.\nBikes cost 3.",
                "The bar closes at ten.",
            ][t]
        )
    ),
)
case(
    "mem conv",
    "PFX202",
    conversation(
        lambda t: (
            "You are helpful.\n<memory>\n"
            + ["- likes tea", "- owns a boat\n- likes tea", "- hates fish"][t]
            + "\n</memory>\n"
            + RULES
        )
    ),
)
case(
    "doc moves",
    "PFX203",
    [
        {"messages": [system("H"), user("DOC: ALPHA BETA GAMMA\n\nWho signed?")]},
        {"messages": [system("H"), user("Who signed?"), assistant("Orr"), user("DOC: ALPHA BETA GAMMA\n\nWhen?")]},
        {
            "messages": [
                system("H"),
                user("Who signed?"),
                assistant("Orr"),
                user("When?"),
                assistant("May"),
                user("DOC: ALPHA BETA GAMMA\n\nWhy?"),
            ]
        },
    ],
)
case(
    "sys after",
    "PFX203",
    [
        {"messages": [*[user("q1"), system(RULES)][:2]]},
        {"messages": [user("q1"), assistant("a1"), system(RULES), user("q2")]},
        {"messages": [user("q1"), assistant("a1"), user("q2"), assistant("a2"), system(RULES), user("q3")]},
    ],
)
case(
    "json state",
    "PFX302",
    conversation(
        lambda t: (
            "State: " + ['{"a": 1, "b": [2, 3]}', '{"b": [2, 3], "a": 1}', '{"a": 1, "b": [2, 3]}'][t] + "\n" + RULES
        )
    ),
)
case(
    "json spaces",
    "PFX302",
    conversation(lambda t: "State: " + ['{"a": 1, "b": 2}', '{"a":1,"b":2}', '{"a": 1, "b": 2}'][t] + "\n" + RULES),
)
case(
    "json ascii",
    "PFX302",
    conversation(
        lambda t: "State: " + ['{"name": "Zoë"}', '{"name": "Zo\\u00eb"}', '{"name": "Zoë"}'][t] + "\n" + RULES
    ),
)
case(
    "tools order3",
    "PFX304",
    conversation(
        lambda t: RULES, tools=lambda t: tools([["a1", "b1", "c1"], ["b1", "a1", "c1"], ["c1", "b1", "a1"]][t])
    ),
)
case(
    "tools order sib",
    "PFX304",
    [
        {"tools": tools(n), "messages": [system(RULES), user(q)]}
        for n, q in ((["a1", "b1", "c1"], "x"), (["c1", "b1", "a1"], "y"))
    ],
)
case("tools set", "PFX305", conversation(lambda t: RULES, tools=lambda t: tools(["a1", "b1", "c1"][: t + 1])))
case("tools removed", "PFX305", conversation(lambda t: RULES, tools=lambda t: tools(["a1", "b1", "c1"][: 3 - t])))
case(
    "tool date",
    "PFX306",
    conversation(lambda t: RULES, tools=lambda t: tools(["book"], f"Book a room. Today is 2031-03-0{t + 1}.")),
)
case(
    "tool enum",
    "PFX306",
    conversation(
        lambda t: RULES,
        tools=lambda t: [
            {
                "type": "function",
                "function": {
                    "name": "who",
                    "description": "d",
                    "parameters": {"type": "object", "properties": {"u": {"enum": ["ann", "bob", "cyd"][: t + 1]}}},
                },
            }
        ],
    ),
)
case(
    "schema",
    "PFX307",
    conversation(
        lambda t: RULES,
        response_format=lambda t: {
            "type": "json_schema",
            "json_schema": {"name": "o", "schema": {"type": "object", "properties": {f"f{t}": {"type": "string"}}}},
        },
    ),
)
case(
    "truncate tool",
    "PFX401",
    [
        {"messages": [system("x"), user("a"), assistant(None, tool_calls=[call("1")]), tool("1", "L" * 300)]},
        {
            "messages": [
                system("x"),
                user("a"),
                assistant(None, tool_calls=[call("1")]),
                tool("1", "L" * 50 + "... [300 chars]"),
                assistant("k"),
                user("b"),
            ]
        },
    ],
)
case(
    "user edited",
    "PFX401",
    [
        {"messages": [system("x"), user("please list all the ferries"), assistant("ok ferry one"), user("next")]},
        {
            "messages": [
                system("x"),
                user("please list all the boats"),
                assistant("ok ferry one"),
                user("next"),
                assistant("y"),
                user("more"),
            ]
        },
    ],
)
case(
    "restamped",
    "PFX401",
    [
        {"messages": [system("x"), user("a"), assistant("b"), user("[09:12] hi there")]},
        {
            "messages": [
                system("x"),
                user("a"),
                assistant("b"),
                user("[09:14] hi there"),
                assistant("y"),
                user("[09:14] more"),
            ]
        },
    ],
)
case(
    "window",
    "PFX402",
    [
        {
            "messages": [system("x")]
            + [user(f"u{i}") if i % 2 == 0 else assistant(f"a{i}") for i in range(max(0, 2 * t + 1 - 5), 2 * t + 1)]
        }
        for t in range(8)
    ],
)
case(
    "window big quant quiet",
    "",
    [
        {
            "messages": [system("x")]
            + [
                user(f"u{i}") if i % 2 == 0 else assistant(f"a{i}")
                for i in range(max(0, 2 * t + 1 - 20) // 8 * 8, 2 * t + 1)
            ]
        }
        for t in range(25)
    ],
)
case(
    "compaction quiet",
    "",
    [
        {"messages": [system("x")] + [user(f"u{i}") if i % 2 == 0 else assistant(f"a{i}") for i in range(2 * t + 1)]}
        for t in range(8)
    ]
    + [
        {
            "messages": [
                system("x"),
                user("Summary of the conversation so far: they talked."),
                assistant("ok"),
                user("u15"),
            ]
        },
        {
            "messages": [
                system("x"),
                user("Summary of the conversation so far: they talked."),
                assistant("ok"),
                user("u15"),
                assistant("a16"),
                user("u17"),
            ]
        },
    ],
)
case(
    "compaction keep tail quiet",
    "",
    [
        {"messages": [system("x")] + [user(f"u{i}") if i % 2 == 0 else assistant(f"a{i}") for i in range(2 * t + 1)]}
        for t in range(8)
    ]
    + [
        {
            "messages": [
                system("x"),
                user("Summary of the conversation so far: they talked."),
                assistant("a13"),
                user("u14"),
                assistant("a15"),
                user("u16"),
            ]
        }
    ],
)
case(
    "think strip",
    "PFX403",
    [
        {"messages": [system("x"), user("a"), assistant("<think>hm hm</think>b"), user("c")]},
        {"messages": [system("x"), user("a"), assistant("b"), user("c"), assistant("<think>z</think>d"), user("e")]},
    ],
)
case(
    "anthropic thinking",
    "PFX403",
    [
        {
            "model": "claude-x",
            "max_tokens": 9,
            "system": "s",
            "messages": [
                user("a"),
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "hm", "signature": "s"},
                        {"type": "tool_use", "id": "t1", "name": "f", "input": {}},
                    ],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "r"}]},
            ],
        },
        {
            "model": "claude-x",
            "max_tokens": 9,
            "system": "s",
            "messages": [
                user("a"),
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "r"}]},
                assistant("k"),
                user("b"),
            ],
        },
    ],
)
case(
    "reminder behind",
    "PFX404",
    [
        {"messages": [system("x"), user("fix it\n<system-reminder>tasks: 1</system-reminder>")]},
        {
            "messages": [
                system("x"),
                user("fix it"),
                assistant("done"),
                user("test\n<system-reminder>tasks: 2</system-reminder>"),
            ]
        },
    ],
)
case(
    "env message moves",
    "PFX404",
    [
        {"messages": [system("x"), user("q1"), user("Environment: file a.py open, line 12")]},
        {
            "messages": [
                system("x"),
                user("q1"),
                assistant("a1"),
                user("q2"),
                user("Environment: file b.py open, line 7"),
            ]
        },
    ],
)
case(
    "item ids",
    "PFX405",
    [
        {
            "messages": [
                system("x"),
                {"role": "user", "content": "a", "id": "m1"},
                {"role": "assistant", "content": "b", "id": "m2"},
                {"role": "user", "content": "c", "id": "m3"},
            ]
        },
        {
            "messages": [
                system("x"),
                {"role": "user", "content": "a", "id": "n1"},
                {"role": "assistant", "content": "b", "id": "n2"},
                {"role": "user", "content": "c", "id": "n3"},
                assistant("k"),
                user("z"),
            ]
        },
    ],
)
case(
    "anthropic ids",
    "PFX405",
    [
        {
            "model": "claude-x",
            "max_tokens": 9,
            "system": "s",
            "messages": [
                user("a"),
                {"role": "assistant", "content": [{"type": "tool_use", "id": i, "name": "f", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": i, "content": "r"}]},
                *m,
            ],
        }
        for i, m in (("t1", []), ("t2", [assistant("k"), user("b")]))
    ],
)
case(
    "null vs empty",
    "PFX406",
    [
        {"messages": [user("a"), assistant(None, tool_calls=[call("1")]), tool("1", "r")]},
        {"messages": [user("a"), assistant("", tool_calls=[call("1")]), tool("1", "r"), assistant("k"), user("b")]},
    ],
)
case(
    "trim",
    "PFX406",
    [
        {"messages": [system("x"), user("hello \n")]},
        {"messages": [system("x"), user("hello"), assistant("k"), user("b ")]},
    ],
)
case(
    "hoist anthropic",
    "PFX407",
    [
        {"model": "claude-x", "max_tokens": 9, "system": "Base.", "messages": [user("a")]},
        {
            "model": "claude-x",
            "max_tokens": 9,
            "system": "Base.\n\nBe nice now.",
            "messages": [user("a"), assistant("b"), user("c")],
        },
    ],
)
case(
    "hoist msgs",
    "PFX407",
    [
        {"messages": [system("Base."), user("a")]},
        {"messages": [system("Base."), system("Use the list tool."), user("a"), assistant("b"), user("c")]},
    ],
)
case(
    "anthropic parallel",
    "PFX408",
    [
        {
            "model": "claude-x",
            "max_tokens": 9,
            "system": "s",
            "messages": [
                user("a"),
                {
                    "role": "assistant",
                    "content": [
                        {"type": "tool_use", "id": "1", "name": "f", "input": {}},
                        {"type": "tool_use", "id": "2", "name": "g", "input": {}},
                    ],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": i, "content": "r" + i} for i in o]},
                *m,
            ],
        }
        for o, m in (("12", []), ("21", [assistant("k"), user("b")]))
    ],
)
case(
    "b64 image",
    "PFX409",
    [
        {
            "messages": [
                user(
                    [
                        {"type": "text", "text": "what is it?"},
                        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + x}},
                    ]
                )
                if 0
                else {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "what is it?"},
                        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + x}},
                    ],
                },
                *m,
            ]
        }
        for x, m in (("iVBORAAAA", []), ("iVBORBBBB", [assistant("k"), user("b")]))
    ],
)
case(
    "file id",
    "PFX409",
    [
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "sum up"}, {"type": "file", "file": {"file_id": x}}],
                },
                *m,
            ]
        }
        for x, m in (("file-a1", []), ("file-b2", [assistant("k"), user("b")]))
    ],
)
case(
    "title quiet",
    "",
    [
        *conversation(lambda t: RULES),
        {"messages": [system("Write a title for this chat."), user("question number a?")]},
    ],
)
case(
    "sidecall appended instr",
    "PFX410",
    [
        *conversation(lambda t: RULES),
        {
            "messages": [
                system("Summarise the chat."),
                user("question number a?"),
                assistant("answer x"),
                user("question number bb?"),
                assistant("answer yy"),
                user("question number ccc?"),
                assistant("answer zzz"),
                user("Summarise."),
            ]
        },
    ],
)
case("key", "PFX503", conversation(lambda t: RULES, prompt_cache_key=lambda t: f"9f8e7d6c-{t}"))
case("salt", "PFX503", conversation(lambda t: RULES, cache_salt=lambda t: f"s{t}"))
case(
    "key per conv quiet",
    "",
    [
        dict(b, prompt_cache_key=f"k{i}")
        for i in range(3)
        for b in [
            {"messages": [system(RULES), user(f"hello {i * 'x'}")]},
            {"messages": [system(RULES), user(f"hello {i * 'x'}"), assistant("yo"), user("bye")]},
        ]
    ],
)
case("effort", "PFX504", conversation(lambda t: RULES, reasoning_effort=lambda t: ["low", "high", "low"][t]))
case(
    "thinking",
    "PFX504",
    [
        dict(
            b,
            model="claude-x",
            max_tokens=9,
            thinking={"type": "enabled", "budget_tokens": 100} if i % 2 else {"type": "disabled"},
        )
        for i, b in enumerate(conversation(None))
    ],
)
case(
    "tool choice",
    "PFX504",
    conversation(lambda t: RULES, tools=lambda t: tools(["a1"]), tool_choice=lambda t: ["auto", "required", "auto"][t]),
)
case(
    "two agents quiet",
    "",
    [
        {"messages": [system("You are agent A. " + RULES), user("x")]},
        {"messages": [system("You translate Danish into Finnish."), user("y")]},
        {"messages": [system("You are agent A. " + RULES), user("z")]},
    ],
)
case("plain conv quiet", "", conversation(lambda t: RULES))
case(
    "newest volatile quiet",
    "",
    [
        {"messages": [system("x"), user("[09:12] hi")]},
        {"messages": [system("x"), user("[09:12] hi"), assistant("k"), user("[09:14] more")]},
    ],
)
case(
    "tool result clock quiet",
    "",
    [
        {
            "messages": [
                system("x"),
                user("a"),
                assistant(None, tool_calls=[call("1")]),
                tool("1", "2031-01-01T00:00:01Z ok"),
            ]
        },
        {
            "messages": [
                system("x"),
                user("a"),
                assistant(None, tool_calls=[call("1")]),
                tool("1", "2031-01-01T00:00:01Z ok"),
                assistant("k"),
                user("b"),
            ]
        },
    ],
)
case(
    "const date quiet",
    "",
    conversation(lambda t: "Copyright 2023-01-05. id 6f1e0b5c-0d50-4a8e-9b3e-0a1b2c3d4e50 " + RULES),
)
case(
    "branch quiet",
    "",
    [
        {"messages": [system("x"), user("first"), assistant("ok"), user("tell me about cats")]},
        {"messages": [system("x"), user("first"), assistant("ok"), user("dogs then")]},
        {"messages": [system("x"), user("first"), assistant("ok"), user("dogs then"), assistant("woof"), user("more")]},
    ],
)
case("retry quiet", "", [{"messages": [system("x"), user("first")]}] * 3)
case(
    "fewshot quiet",
    "",
    [
        {"messages": [system("x"), user("2+2"), assistant("4"), user("3+3"), assistant("6"), user(q)]}
        for q in ("7+9", "apples and pears", "who?")
    ],
)
case(
    "no sys template clock",
    "PFX101",
    [
        {"messages": [user(f"Time: 09:1{i}. You grade essays by these rules: be fair, be brief, be kind. Essay: {e}")]}
        for i, e in enumerate(("sea", "sky", "sun"))
    ],
)
case(
    "prompt text clock",
    "PFX101",
    [
        {
            "model": "m",
            "prompt": f"Time: 09:1{i}. You grade essays by these rules: be fair, be brief, be kind. Essay: {e}",
            "max_tokens": 5,
        }
        for i, e in enumerate(("sea", "sky", "sun"))
    ],
)
case(
    "mistral reserial",
    "PFX303",
    [
        {
            "model": "claude-x",
            "max_tokens": 9,
            "system": "s",
            "messages": [
                user("a"),
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {"b": 1, "a": 2}}],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "r"}]},
            ],
        },
        {
            "model": "claude-x",
            "max_tokens": 9,
            "system": "s",
            "messages": [
                user("a"),
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {"a": 2, "b": 1}}],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "r"}]},
                assistant("k"),
                user("b"),
            ],
        },
    ],
)
case(
    "deploy quiet",
    "",
    [{"messages": [system("Version one of the rules. " + RULES), user(f"q{i}")]} for i in range(12)]
    + [{"messages": [system("Version two of the rules. " + RULES), user(f"q{i}")]} for i in range(12, 24)],
)
case(
    "shuffle list",
    "PFX301",
    conversation(lambda t: "Topics: " + ["cats, dogs, eels", "dogs, eels, cats", "eels, cats, dogs"][t] + "\n" + RULES),
)
case(
    "multi",
    "PFX101 PFX304",
    conversation(
        lambda t: f"Now 09:1{t}\n" + RULES,
        tools=lambda t: tools([["a1", "b1", "c1"], ["b1", "a1", "c1"], ["c1", "b1", "a1"]][t]),
    ),
)


def _closed(name, turn, kept=9):
    """Give a turn of a conversation, of which `kept` messages are sent, and behind them a rule that all requests end with."""
    asked = [user(f"what does the {name} fare {'abcd'[n]} cover?") for n in range(turn + 1)]
    answers = [assistant(f"the {name} fare {'abcd'[n]} covers it") for n in range(turn)]
    history = [m for pair in zip(asked, answers, strict=False) for m in pair]
    return {"messages": [system(RULES), *[*history, asked[turn]][-kept:], user(CLOSING)]}


CLOSING = "Remember: answer in the traveller's own words, name the pier, and never promise a refund to anybody."
case("one rule behind all quiet", "", [_closed(name, 0) for name in ("dog", "car", "bus", "cat", "bike")])
case("rule behind a window", "PFX203 PFX402", [_closed("dog", turn, kept=3) for turn in range(4)])


def _reminded(turn, results):
    """Give the newest result of a tool with a reminder behind it, which is gone from the results before."""
    said = [tool(f"c{n}", f"{results[n]} leaves at noon") for n in range(turn + 1)]
    said[-1]["content"] += f"\n\n<system-reminder>\nTodo: {turn + 2} items open.\n</system-reminder>"
    calls = [assistant("", tool_calls=[call(f"c{n}", arguments=f'{{"q": "{results[n]}"}}')]) for n in range(turn + 1)]
    return [user("which ferries leave?"), *(m for pair in zip(calls, said, strict=True) for m in pair)]


case(
    "reminder behind a result",
    "PFX404",
    [{"messages": [system(RULES), *_reminded(turn, ("Ada", "Bea", "Cleo"))]} for turn in range(3)],
)
case(
    "age at the end of some turns",
    "PFX103",
    conversation(lambda t: RULES + (f"\nTimetable: rebuilt {t + 3} min ago" if t != 1 else ""), turns=3),
)


def _stated(name, turn):
    return tools([name], f"finds {name} (index of 09:1{turn})" if name == "a1" else f"finds {name}")


case(
    "clock in one of shuffled tools",
    "PFX304 PFX306",
    conversation(
        lambda t: RULES,
        tools=lambda t: [one for name in (["a1", "b2"], ["b2", "a1"], ["a1", "b2"])[t] for one in _stated(name, t)],
    ),
)
case(
    "clock in one of tools that join",
    "PFX305 PFX306",
    conversation(
        lambda t: RULES,
        tools=lambda t: [one for name in ["a1", "b2", "c3"][: t + 1] for one in _stated(name, t)],
    ),
)


def _thinking(turn):
    """Give a turn of which only the newest answer has its thought, and older ones only their first sentence."""
    said = [assistant(f"Fare {'abc'[n]} is {n} crowns. It covers a seat on deck {n}.") for n in range(turn)]
    if said:
        said[-1]["content"] = f"<think>\nDeck {turn}, then.\n</think>\n\n{said[-1]['content']}"
    for message in said[:-1]:
        message["content"] = message["content"].split(". ")[0]
    asked = [user(f"what is fare {'abc'[n]}?") for n in range(turn + 1)]
    return [m for pair in zip(asked, said, strict=False) for m in pair] + asked[-1:]


case("thoughts gone and answers cut", "PFX401 PFX403", [{"messages": [system(RULES), *_thinking(t)]} for t in range(3)])


_DESK = "You are Eva, the assistant of a ferry line, and you help the people at the pier.\n" + RULES
case(
    "line ahead of one that begins alike, in some",
    "PFX105",
    [
        {"model": "m", "messages": [system(head + _DESK), user(f"question {'abcdefgh'[n]}")]}
        for n, head in enumerate(["", "You are talking to Ann (ann@corp.example).\n", "", "", ""])
    ],
)
case("clock of French", "PFX101", conversation(lambda t: f"Nous sommes le 4 mars, il est 9 h 1{t}.\n" + RULES))
case("clock of German", "PFX101", conversation(lambda t: f"Es ist jetzt 9.1{t} Uhr.\n" + RULES))
case(
    "clock of a repr",
    "PFX101",
    siblings([f"datetime.datetime(2031, 3, {d}, 9, {d}, {d * 7})\n" + RULES * 6 for d in (4, 5, 6)]),
)
case("clock of a zone", "PFX101", siblings([f"Time of the user: 0{z}:12 (UTC+{z})\n" + RULES * 6 for z in (1, 2, 5)]))
case("a mark at both ends", "PFX104", conversation(lambda t: f"<a-9f3e1c7{t}b0>\nData.\n</a-9f3e1c7{t}b0>\n" + RULES))
FIRMS = ("Casa Lumen", "Nordkap Freight", "Blue Finch Dental")
case(
    "whose company",
    "PFX105",
    siblings([f"You sell.\nThe company you work for is {n}. Always sign as {n} desk.\n" + RULES * 20 for n in FIRMS]),
)
