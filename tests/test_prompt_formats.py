"""Prompt files of frameworks: which messages a model gets from them, in which order, and where each place stands."""

import json

import pytest

from prefixlint.link import link
from prefixlint.prompts import Include, Text, flatten
from prefixlint.sources import SourceFile, kind_of
from tests.linting import places, project_of

RULES = "You are a careful assistant of a small library. Answer in one sentence and name the shelf of each book."
TODAY = "Today is {{current_date}}."


def read(files, path):
    """Give, for each prompt of a file, what stands in it: (role, `line:column`, names of the hole or None for text)."""
    project, data = project_of(files)
    out = []
    for prompts in link(project, [path]).prompts.values():
        for prompt in prompts:
            rows = []
            for segment in flatten(prompt):
                node = segment.node
                before = data[node.span.path][: node.span.start]
                at = f"{before.count(10) + 1}:{len(before) - before.rfind(10) - 1 + 1}"
                if isinstance(node, Text):
                    if not node.text.strip():
                        continue
                    rows.append((segment.role, node.text.strip()))
                elif isinstance(node, Include):
                    rows.append((segment.role, at, f"include {node.target}"))
                else:
                    rows.append((segment.role, at, node.names[0]))
            out.append(rows)
    return out


def wanted(path, text):
    file = SourceFile(path, text.encode())
    kind = kind_of(file)
    return kind is not None and kind.wanted(file)


# ---------------------------------------------------------------------- prompty and promptflow

PROMPTY = f"""---
name: Librarian {{{{name}}}}
model:
  api: chat
  configuration:
    azure_endpoint: ${{env:ENDPOINT}}
inputs:
  current_date: {{type: string}}
sample: ${{file:sample.json}}
---
system:
Date: {{{{ current_date }}}}
{RULES}

# user:
{{{{question}}}}
"""


def test_a_prompty_file_is_its_messages_without_its_settings():
    assert read({"p.prompty": PROMPTY}, "p.prompty") == [
        [
            ("system", "Date:"),
            ("system", "12:7", "current_date"),
            ("system", RULES),
            ("user", "16:1", "question"),
        ]
    ]


FLOW = f"""# system:
{TODAY}
{RULES}
{{% for item in chat_history %}}
# user:
{{{{item.question}}}}
# assistant:
{{{{item.answer}}}}
{{% endfor %}}
# user:
{{{{question}}}}
"""
DAG = """inputs:
  question: {type: string}
outputs:
  answer: {type: string, reference: "${chat.output}"}
nodes:
- name: clock
  type: python
  source: {type: code, path: clock.py}
- name: chat
  type: llm
  source:
    type: code
    path: chat.jinja2
  inputs:
    deployment_name: gpt
    question: ${inputs.question}
    current_date: ${session_id.output}
"""


@pytest.mark.parametrize("marks", ["", "# ", "## "])
def test_headings_of_promptflow_begin_messages_and_a_loop_of_turns_is_a_history(marks):
    found = read({"chat.jinja2": FLOW.replace("# ", marks)}, "chat.jinja2")
    assert [row[0] for row in found[0]] == ["system", "system", "system", "user"]
    project, _ = project_of({"chat.jinja2": FLOW})
    (prompt,) = link(project, ["chat.jinja2"]).prompts["chat.jinja2"]
    assert [message.role for message in prompt.messages] == ["system", "history", "user"]


def test_a_graph_says_what_fills_the_template_of_its_node():
    files = {"flow/chat.jinja2": FLOW, "flow/flow.dag.yaml": DAG}
    assert wanted("flow/flow.dag.yaml", DAG)
    assert read(files, "flow/flow.dag.yaml") == [], "it holds no text itself"
    found = places(files)
    assert ("PFX105", "flow/chat.jinja2", 2) in found, "a session's id, whatever the template calls it"
    fixed = {**files, "flow/flow.dag.yaml": DAG.replace("${session_id.output}", "2024-01-01")}
    assert not [row for row in places(fixed) if row[0] in ("PFX102", "PFX105")], "a constant"


# ---------------------------------------------------------------------- promptfoo

PROMPTFOO = f"""description: an evaluation
prompts:
  - file://texts/librarian.txt
  - file://check.py:prompt
  - "{TODAY} {RULES} {{{{question}}}}"
  - id: second
    label: Second
    raw: |
      Now: {{{{current_time}}}}
      {RULES}
providers: [x]
tests:
  - vars: {{question: What?}}
"""


def test_promptfoo_lists_texts_files_and_mappings():
    files = {"promptfooconfig.yaml": PROMPTFOO, "texts/librarian.txt": f"{TODAY}\n{RULES}\n"}
    found = sorted(read(files, "promptfooconfig.yaml"))
    assert [row for prompt in found for row in prompt if len(row) == 3] == [
        ("text", "9:12", "current_time"),
        ("text", "1:10", "current_date"),
        ("text", "5:15", "current_date"),
        ("text", f"5:{5 + len(TODAY) + 1 + len(RULES) + 2}", "question"),
    ]
    assert not wanted("texts/librarian.txt", TODAY), "only the file that lists it says that it is a prompt"
    assert ("PFX102", "texts/librarian.txt", 1) in places(files)


def test_messages_in_json_keep_their_columns():
    text = json.dumps([{"role": "system", "content": f"{TODAY} {RULES}"}, {"role": "user", "content": "{{question}}"}])
    assert read({"prompts/chat.json": text}, "prompts/chat.json") == [
        [
            ("system", "Today is"),
            ("system", f"1:{text.index('{{current') + 1}", "current_date"),
            ("system", f". {RULES}"),
            ("user", f"1:{text.index('{{question') + 1}", "question"),
        ]
    ]


# ---------------------------------------------------------------------- LangChain


@pytest.mark.parametrize("style", ["f-string", "jinja2", "mustache"])
def test_a_langchain_prompt_is_read_in_its_own_format(style):
    hole = "{current_date}" if style == "f-string" else "{{current_date}}"
    other = "{{not a hole}}" if style == "f-string" else "{not a hole}"
    text = f"_type: prompt\ninput_variables: [current_date]\ntemplate_format: {style}\ntemplate: |\n  Today is {hole}.\n  {RULES}\n  {other}\n"
    (found,) = read({"prompt.yaml": text}, "prompt.yaml")
    assert [row for row in found if len(row) == 3] == [("text", "5:12", "current_date")]


def test_a_few_shot_prompt_is_one_text():
    text = f"""_type: few_shot
input_variables: [adjective]
prefix: |
  Today is {{current_date}}.
example_prompt:
  _type: prompt
  input_variables: [input, output]
  template: "Input: {{input}} Output: {{output}}"
examples:
  - {{input: happy, output: sad}}
suffix: |
  {RULES}
  Input: {{adjective}}
"""
    (found,) = read({"few.yaml": text}, "few.yaml")
    assert found == [
        ("text", "Today is"),
        ("text", "4:12", "current_date"),
        ("text", "."),
        ("text", "happy\nsad"),
        ("text", f"{RULES}\nInput:"),
        ("text", "13:10", "adjective"),
    ]
    assert ("PFX102", "few.yaml", 4) in places({"few.yaml": text})


def test_a_template_path_leads_to_the_text():
    files = {
        "lc/prompt.yaml": "_type: prompt\ninput_variables: [current_date]\ntemplate_path: body.txt\n",
        "lc/body.txt": f"Today is {{current_date}}.\n{RULES}\n",
    }
    assert wanted("lc/prompt.yaml", files["lc/prompt.yaml"])
    assert ("PFX102", "lc/body.txt", 1) in places(files)


def constructor(name, **kwargs):
    return {"lc": 1, "type": "constructor", "id": ["langchain", "prompts", "x", name], "kwargs": kwargs}


def test_the_constructor_form_of_the_hub_is_a_list_of_messages():
    def part(name, template):
        return constructor(name, prompt=constructor("PromptTemplate", template=template, template_format="f-string"))

    tree = constructor(
        "ChatPromptTemplate",
        messages=[
            part("SystemMessagePromptTemplate", f"Today is {{current_date}}. {RULES}"),
            constructor("MessagesPlaceholder", variable_name="chat_history"),
            constructor("AIMessage", content="Which book?"),
            part("HumanMessagePromptTemplate", "{question}"),
        ],
    )
    text = json.dumps(tree)
    assert read({"hub.json": text}, "hub.json") == [
        [
            ("system", "Today is"),
            ("system", f"1:{text.index('{current') + 1}", "current_date"),
            ("system", f". {RULES}"),
            ("assistant", "Which book?"),
            ("user", f"1:{text.index('{question') + 1}", "question"),
        ]
    ]


def test_a_langchain_chat_file_is_a_list_of_messages():
    text = f"_type: chat\nmessages:\n  - role: system\n    content: |\n      Today is {{current_date}}.\n      {RULES}\n  - role: human\n    content: '{{question}}'\n"
    (found,) = read({"chat.yaml": text}, "chat.yaml")
    assert [row[0] for row in found] == ["system", "system", "system", "user"]


# ---------------------------------------------------------------------- dotprompt and Semantic Kernel

DOTPROMPT = f"""---
model: googleai/gemini
input:
  schema: {{current_date: string}}
---
{{{{role "system"}}}}
{TODAY}
{RULES}
{{{{#each facts}}}}
- {{{{this}}}}
{{{{/each}}}}
{{{{>style}}}}
{{{{history}}}}
{{{{role "model"}}}}
Which book?
{{{{role "user"}}}}
{{{{question}}}} {{{{media url=photo}}}}
"""


def test_dotprompt_has_roles_partials_and_a_history():
    files = {"greet.prompt": DOTPROMPT, "_style.prompt": "The place is {{location}}.\n"}
    (found,) = read(files, "greet.prompt")
    assert [row for row in found if len(row) == 3][:2] == [
        ("system", "7:10", "current_date"),
        ("system", "9:1", "facts"),
    ]
    assert ("system", "1:14", "location") in found, "the partial stands where it is put in"
    assert ("assistant", "Which book?") in found
    assert found[-2] == ("user", "17:1", "question")
    project, _ = project_of(files)
    (prompt,) = link(project, ["greet.prompt"]).prompts["greet.prompt"]
    assert [message.role for message in prompt.messages] == ["system", "history", "assistant", "user"]


def test_a_partial_that_is_missing_is_an_include():
    (found,) = read({"greet.prompt": DOTPROMPT}, "greet.prompt")
    assert ("system", "12:1", "include _style") in found


def test_a_history_variable_alone_is_no_message():
    (found,) = read({"prompts/a.hbs": f"{RULES}\n{{{{history}}}}\n"}, "prompts/a.hbs")
    assert found == [("text", RULES), ("text", "2:1", "history")]


def test_a_semantic_kernel_folder_is_its_text():
    text = f"It is {{{{time.now}}}}.\n{RULES}\n{{{{$history}}}}\nUser: {{{{$input}}}}\n"
    config = '{"schema": 1, "description": "Answers {{x}}", "type": "completion"}'
    (found,) = read({"Plug/Fn/skprompt.txt": text}, "Plug/Fn/skprompt.txt")
    assert [row for row in found if len(row) == 3] == [
        ("text", "1:7", "time.now"),
        ("text", "3:1", "history"),
        ("text", "4:7", "input"),
    ]
    assert ("PFX101", "Plug/Fn/skprompt.txt", 1) in places({"Plug/Fn/skprompt.txt": text})
    assert not wanted("Plug/Fn/config.json", config)


def test_semantic_kernel_yaml_has_messages_as_tags():
    text = f'name: Answer\ntemplate_format: handlebars\ntemplate: |\n  <message role="system">{TODAY}\n  {RULES}</message>\n  <message role="user">{{{{question}}}}</message>\n'
    (found,) = read({"fn.yaml": text}, "fn.yaml")
    assert [(row[0], *row[1:]) for row in found if len(row) == 3] == [
        ("system", "4:35", "current_date"),
        ("user", "6:24", "question"),
    ]


# ---------------------------------------------------------------------- YAML of agents


@pytest.mark.parametrize(
    ("path", "text", "line"),
    [
        (
            "swe/default.yaml",
            f"agent:\n  templates:\n    system_template: |-\n      It is {{{{current_time}}}}.\n      {RULES}\n",
            4,
        ),
        (
            "smol/code_agent.yaml",
            f"system_prompt: You help.\nplanning:\n  initial_plan: |-\n    It is {{{{current_time}}}}.\n    {RULES}\n",
            4,
        ),
        (
            "smol/code_agent.yaml",
            f"system_prompt: You help.\nmanaged_agent:\n  task: |-\n    It is {{{{current_time}}}}.\n    {RULES}\n",
            4,
        ),
        (
            "smol/code_agent.yaml",
            f"final_answer:\n  pre_messages: |-\n    It is {{{{current_time}}}}.\n    {RULES}\n",
            3,
        ),
        (
            "crew/agents.yaml",
            f"a:\n  role: >\n    one\n  goal: >\n    know {{current_time}}\n  backstory: >\n    {RULES}\n",
            5,
        ),
        (
            "crew/tasks.yaml",
            f"t:\n  description: >\n    It is {{current_time}}. {RULES}\n  expected_output: >\n    A list\n",
            3,
        ),
        (
            "nemo/prompts.yml",
            f"prompts:\n  - task: general\n    content: |-\n      It is {{{{ current_time }}}}.\n      {RULES}\n",
            4,
        ),
        (
            "nemo/prompts.yml",
            f'prompts:\n  - task: general\n    messages:\n      - type: system\n        content: |\n          It is {{{{ current_time }}}}.\n          {RULES}\n      - "{{{{ history | to_chat_messages }}}}"\n',
            6,
        ),
        (
            "deer/x.yaml",
            f"format: chat\nmessages:\n  - role: system\n    content: |\n      It is {{current_time}}.\n      {RULES}\n",
            5,
        ),
        (
            "goose/prompts/system.md",
            f"You help.\nIt is {{{{current_time}}}}.\n{{% if x %}}\n# More\n{{% endif %}}\n{RULES}\n",
            2,
        ),
        ("rag/prompts/ask.md", f"It is {{{{ sys.now }}}}\n{RULES}\n{{{{ user_query }}}}\n", 1),
        ("profiles/x.yaml", f"custom_instructions: |\n  It is {{{{datetime.now()}}}}.\n  {RULES}\n", 2),
    ],
)
def test_a_clock_is_found_in_the_files_of_agents(path, text, line):
    assert wanted(path, text)
    assert ("PFX101", path, line) in places({path: text})


def test_the_turns_that_nemo_puts_in_are_a_history():
    text = f'prompts:\n  - task: x\n    messages:\n      - type: system\n        content: |\n          {TODAY} {RULES}\n      - "{{{{ history | to_chat_messages }}}}"\n'
    project, _ = project_of({"prompts.yml": text})
    (prompt,) = link(project, ["prompts.yml"]).prompts["prompts.yml"]
    assert [message.role for message in prompt.messages] == ["system", "history"]


def test_dify_marks_and_components_are_places():
    text = json.dumps({"context_prompt": f"Use this:\n{{{{#context#}}}}\n{RULES}", "query_prompt": "{{#query#}}"})
    assert ("PFX202", "dify.json", 1) in places({"dify.json": text})
    agent = json.dumps({"sys_prompt": f"Today is {{sys.date}}. {RULES}"})
    assert ("PFX102", "agent.json", 1) in places({"agent.json": agent})


@pytest.mark.parametrize(
    ("hole", "code"), [("{current_time}", "PFX101"), ("{user:name?}", "PFX105"), ("{app:session_id}", "PFX105")]
)
def test_state_in_an_adk_instruction_is_a_place(hole, code):
    text = f'from google.adk.agents import LlmAgent\nagent = LlmAgent(name="a", instruction="""You help.\nNow {hole}.\n{RULES}\n""")\n'
    assert (code, "a.py", 3) in places({"a.py": text})


# ---------------------------------------------------------------------- what is none of these


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.yaml", "_type: prompt\ntemplate: 3\ninput_variables: [prompt, '{x}']\n"),
        ("a.yaml", "_type: few_shot\nexamples: [1, {a: {b: c}}]\nexample_prompt: {template: '{x}'}\n"),
        ("a.yaml", "prompts: [[], {}, {raw: 3}, {id: 4}, 'file://gone.txt {x}', null]\nprompt: '{x}'\n"),
        ("a.json", '{"lc": 1, "type": "constructor", "id": [], "kwargs": {"messages": [1, {}]}, "template": "{x}"}'),
        (
            "a.json",
            '{"lc": 1, "type": "constructor", "id": ["ChatPromptTemplate"], "kwargs": {"messages": [{"id": ["SystemMessage"], "kwargs": {"content": [1]}}]}, "x": "{y}"}',
        ),
        (
            "flow.dag.yaml",
            "outputs: 1\nnodes: [1, {type: llm}, {type: llm, source: {path: 3}, inputs: 4}]\nprompt: '${x}'\n",
        ),
        ("a.prompt", '---\nmodel: x\n{{role "system"}}\n'),
        ("a.prompt", '{{role "system"}}{{>a}}{{>../../etc/passwd}}{{role}}'),
        ("a.prompty", "---\nname: x\n"),
    ],
)
def test_broken_files_of_a_format_end_in_nothing(path, text):
    assert not places({path: text})


def test_a_partial_that_puts_in_itself_ends():
    assert isinstance(places({"_a.prompt": f"{{{{>a}}}} {{{{current_time}}}} {RULES}"}), list)
