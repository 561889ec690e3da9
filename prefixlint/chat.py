"""From messages to the text that a model's engine gives its tokenizer. Jinja alone; nothing here tokenizes.

`ChatTemplate.render` equals `transformers.apply_chat_template(tokenize=False)`; `ChatTemplate.prompt` is what the
engine's chat route makes of a request, `normalise` included. Templates run in a sandbox with limits (`sandbox.py`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from threading import Lock
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import jinja2
import orjson

from prefixlint.chatroute import ContentFormat, Route, content_format, normalise, normalise_tools
from prefixlint.errors import ModelError, TemplateError, TemplateRefusedError
from prefixlint.jinja_limits import LimitError
from prefixlint.model import JsonObject, Messages, Output
from prefixlint.modelfiles import ModelFiles
from prefixlint.sandbox import FIXED_TIME, Environment

if TYPE_CHECKING:
    from prefixlint.harmony import Harmony

__all__ = [
    "FIXED_TIME",
    "ChatTemplate",
    "Renderer",
    "Route",
    "normalise",
    "renderer",
    "template_arguments",
    "why_not_exact",
]

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_SOURCE_LIMIT = 2**20  # characters; the longest published chat templates are below 50,000
_KNOWN_TOOL_LISTS = 256
_PATIENCE = 3  # conversations on which a template may have to be stopped before it has rendered any
_ROUTES: tuple[Route, ...] = ("vllm", "sglang")
_RESERVED = ("messages", "tools", "chat_template", "tokenize", "add_generation_prompt", "continue_final_message")
_PLAIN = ("role", "content")
_REASONING = ("reasoning_content", "thinking", "reasoning")  # the order in which transformers looks
_END = "END-OF-ANSWER-MARK"
_TAG = "CONTINUE_FINAL_MESSAGE_TAG "  # transformers' own, so that templates that trim behave the same


class _Compiled:
    """One Jinja source, compiled, with what the engines read from its syntax tree."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.environment = Environment()
        self.template, self.formats = _compile(self.environment, source)
        self.knows_developer = '"developer"' in source or "'developer'" in source
        self._one_at_a_time = Lock()

    def render(self, variables: dict[str, Any], time: float | None) -> str:
        environment = self.environment
        try:
            with self._one_at_a_time:
                environment.begin(time)
                return str(environment.concat(self.template.root_render_func(self.template.new_context(variables))))
        except (LimitError, jinja2.exceptions.SecurityError, RecursionError, MemoryError, OverflowError) as error:
            raise self._stopped(error) from error
        except Exception as error:  # a template is a foreign program: what it raises is its answer
            raise TemplateRefusedError(
                f"the chat template refuses this conversation{self._where(error)}: {_words(error)}",
                slug="template-refused",
            ) from error

    def _stopped(self, error: BaseException) -> TemplateError:
        if isinstance(error, jinja2.exceptions.SecurityError):
            what = "tries to leave the sandbox"
        elif isinstance(error, RecursionError):
            what = "calls itself too deeply"
        else:
            what = "is stopped"
        return TemplateError(
            f"the chat template {what}{self._where(error)}: {_words(error)}",
            slug="template-stopped",
            hint="use another one with --chat-template FILE",
        )

    def _where(self, error: BaseException) -> str:
        line = None
        trace: TracebackType | None = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == "<template>":
                line = self.template.get_corresponding_lineno(trace.tb_lineno)
            trace = trace.tb_next
        return "" if line is None else f" (line {line})"


@lru_cache(maxsize=64)
def _compiled(source: str) -> _Compiled:
    return _Compiled(source)


def _compile(environment: Environment, source: str) -> tuple[jinja2.Template, dict[Route, ContentFormat]]:
    if len(source) > _SOURCE_LIMIT:
        raise TemplateError("the chat template is longer than 1 Mi characters", slug="template-too-large")
    environment.begin(None)
    try:
        tree = environment.parse(source)
        formats: dict[Route, ContentFormat] = {route: content_format(tree, source, route) for route in _ROUTES}
        return environment.load(tree), formats
    except jinja2.exceptions.TemplateSyntaxError as error:
        raise TemplateError(
            f"the chat template does not compile (line {error.lineno}): {error.message}",
            slug="template-syntax",
            hint="give a Jinja chat template with --chat-template FILE",
        ) from error
    except Exception as error:  # Jinja and Python report nesting and size in many ways
        raise TemplateError(f"the chat template does not compile: {_words(error)}", slug="template-syntax") from error


def _words(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text if len(text) <= 500 else text[:500] + " …"


class _Patience:
    """A template that had to be stopped on each of its first conversations is given up; later ones cost themselves."""

    def __init__(self) -> None:
        self._left: int | None = _PATIENCE

    def worked(self) -> None:
        self._left = None

    def judge(self, error: TemplateError) -> TemplateError | TemplateRefusedError:
        if self._left is not None:
            self._left -= 1
        if self._left == 0:
            return error
        return TemplateRefusedError(error.message, slug=error.slug)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A request as its template sees it; `prefix` is text that SGLang adds behind what the template wrote."""

    messages: list[JsonObject]
    tools: list[JsonObject]
    arguments: dict[str, Any]
    keeps_open: bool
    prefix: str


class Renderer(Protocol):
    """What turns conversations into prompts: a `ChatTemplate` or `Harmony`."""

    def prompt(self, content: Messages, *, params: Mapping[str, Any], time: float | None) -> str:
        """Give the prompt text of a request."""
        ...

    def generated(
        self, content: Messages, output: Output, *, params: Mapping[str, Any], time: float | None, prompt: str | None
    ) -> str | None:
        """Give the text that the model generated, or None where it cannot be known."""
        ...


@dataclass(frozen=True)
class ChatTemplate:
    """The chat templates of one model, compiled once.

    `templates` maps names to compiled sources: `tool_use` is taken where tools are given, else `default`.
    `special_tokens` are variables of each template. `route` is whose chat route prompts go through unless told.
    """

    templates: Mapping[str, _Compiled]
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    route: Route = "vllm"
    _tools: OrderedDict[bytes, list[JsonObject]] = field(default_factory=OrderedDict, repr=False, compare=False)
    _patience: _Patience = field(default_factory=_Patience, repr=False, compare=False)
    _each_tool: dict[bytes, JsonObject] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def compile(
        cls,
        source: str | ModelFiles | Mapping[str, str],
        *,
        special_tokens: Mapping[str, str] = _NOTHING,
        route: Route = "vllm",
    ) -> ChatTemplate:
        """Compile a source, named sources, or those of a model (with its special tokens).

        Raises TemplateError for one that does not compile, ModelError for a model without one.
        """
        if isinstance(source, ModelFiles):
            special_tokens = {**source.special_tokens, **special_tokens}
            if not source.templates:
                raise ModelError(
                    f"{source.name} has no chat template",
                    slug="no-chat-template",
                    hint="give one with --chat-template FILE",
                )
            source = source.templates
        named = {"default": source} if isinstance(source, str) else source
        return cls({name: _compiled(text) for name, text in named.items()}, special_tokens, route)

    def _for(self, tools: Sequence[JsonObject]) -> _Compiled:
        if tools and "tool_use" in self.templates:
            return self.templates["tool_use"]
        if "default" in self.templates:
            return self.templates["default"]
        if len(self.templates) == 1:
            return next(iter(self.templates.values()))
        names = ", ".join(sorted(self.templates))
        raise TemplateError(f"no chat template is the default; there are: {names}", slug="no-chat-template")

    def render(
        self,
        messages: Sequence[JsonObject],
        tools: Sequence[JsonObject] = (),
        *,
        params: Mapping[str, Any] = _NOTHING,
        time: float | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
    ) -> str:
        """Render messages as `apply_chat_template` does; `params` are the template's arguments.

        `time` (seconds since the epoch, UTC) is what `strftime_now` gives; None is `FIXED_TIME`.
        Raises TemplateRefusedError where the template fails on these messages or must be stopped on them, TemplateError
        where it had to be stopped on each of the first conversations.
        """
        if not messages:
            raise TemplateRefusedError("the conversation is empty", slug="template-refused")
        chat = [m if len(m) == 2 and None not in map(m.get, _PLAIN) else _as_transformers(m) for m in messages]
        final: str | None = None
        if continue_final_message:
            final = chat[-1].get("content")
            if not isinstance(final, str):
                raise TemplateRefusedError("the final message has no text to continue", slug="template-refused")
            chat[-1] = {**chat[-1], "content": final + _TAG}
        variables = {
            **self.special_tokens,
            "documents": None,
            **{key: value for key, value in params.items() if key not in _RESERVED},
            "messages": chat,
            "tools": list(tools) or None,
            "add_generation_prompt": add_generation_prompt and not continue_final_message,
        }
        compiled = self._for(tools)
        try:
            text = compiled.render(variables, time)
        except TemplateError as error:
            raise self._patience.judge(error) from error
        self._patience.worked()
        return text if final is None else _cut_at_tag(text)

    def prompt(
        self,
        content: Messages,
        *,
        params: Mapping[str, Any] = _NOTHING,
        time: float | None = None,
        route: Route | None = None,
    ) -> str:
        """Give the prompt text of a logged request; `params` are those of `Request`."""
        route = route or self.route
        request = self._prepare(content, params, route)
        generation = params.get("add_generation_prompt", True) is not False
        return self._rendered(request, time, route, generation=generation) + request.prefix

    def generated(
        self,
        content: Messages,
        output: Output,
        *,
        params: Mapping[str, Any] = _NOTHING,
        time: float | None = None,
        prompt: str | None = None,
        route: Route | None = None,
    ) -> str | None:
        """Give the text that the model generated for this output, as far as the template tells; None where it does not.

        The answer is appended to the conversation and rendered; what follows the prompt, up to where the template ends
        the turn, is what was generated. The token that ends the turn is left out: it was sampled, but nothing was
        computed for it. Tool calls are as the template writes them, which the model may have written differently.
        `prompt` is what `prompt()` gave for the request, where the caller has it.
        """
        if output.text is None and output.reasoning is None and not output.tool_calls:
            return None
        route = route or self.route
        try:
            if prompt is None:
                prompt = self.prompt(content, params=params, time=time, route=route)
            request = self._prepare(content, params, route)
            text = self._until_end(request, output, time, route)
        except (TemplateRefusedError, TemplateError):
            return None
        if text is None or not text.startswith(prompt):
            return None
        suffix = text[len(prompt) :]
        complete = all(part.strip() in suffix for part in (output.text, output.reasoning) if part)
        named = all(str(call.get("function", {}).get("name", "")) in suffix for call in output.tool_calls)
        return suffix if complete and named else None

    def _until_end(self, request: _Prepared, output: Output, time: float | None, route: Route) -> str | None:
        """Render the conversation up to the end of the answer; None where it is unclear what ends the turn."""

        def continued(answer: JsonObject) -> str:
            turn = normalise([answer], route=route, content=self._for(request.tools).formats[route])
            last = replace(request, messages=[*request.messages, *turn], keeps_open=False)
            return self._rendered(last, time, route, generation=False)

        answer = _answer(output)
        if not output.tool_calls:
            text, found, _ = continued({**answer, "content": answer["content"] + _END}).rpartition(_END)
            return text if found else None
        # calls stand behind the content; what ends the turn is seen in an answer without calls
        _, found, end = continued({"role": "assistant", "content": _END}).rpartition(_END)
        whole = continued(answer)
        return whole.removesuffix(end) if found and whole.endswith(end) else None

    def _prepare(self, content: Messages, params: Mapping[str, Any], route: Route) -> _Prepared:
        tools = self._known_tools(content.tools, route, params.get("tool_choice")) if content.tools else []
        compiled = self._for(tools)
        messages = normalise(
            content.messages,
            route=route,
            content=compiled.formats[route],
            knows_developer=compiled.knows_developer,
        )
        keeps_open = bool(params.get("continue_final_message"))
        prefix = ""
        if route == "sglang" and messages and messages[-1].get("role") == "assistant":
            messages, prefix = _sglang_last(messages, keeps_open=keeps_open)
            keeps_open = False
        return _Prepared(messages, tools, template_arguments(params, route=route), keeps_open, prefix)

    def _rendered(self, request: _Prepared, time: float | None, route: Route, *, generation: bool) -> str:
        tools: Sequence[JsonObject] = request.tools
        try:
            return self._render(request, tools, time, generation=generation)
        except TemplateRefusedError:
            if route != "sglang" or not tools:
                raise
        # SGLang tries once more, with tools as some templates want them
        return self._render(request, [tool["function"] for tool in tools], time, generation=generation)

    def _render(self, request: _Prepared, tools: Sequence[JsonObject], time: float | None, *, generation: bool) -> str:
        return self.render(
            request.messages,
            tools,
            params=request.arguments,
            time=time,
            add_generation_prompt=generation,
            continue_final_message=request.keeps_open,
        )

    def _known_tools(self, tools: Sequence[JsonObject], route: Route, choice: Any) -> list[JsonObject]:
        """Give the normalised tools; equal ones give the same objects, whose JSON is then written once."""
        try:
            key = orjson.dumps([route, choice if route == "sglang" else None, tools])
        except (TypeError, orjson.JSONEncodeError):  # not plain JSON, or a lone surrogate
            return normalise_tools(tools, route=route, choice=choice)
        known = self._tools.get(key)
        if known is None:
            if len(self._tools) >= _KNOWN_TOOL_LISTS:
                self._forget_tools()
            known = [self._known_tool(tool) for tool in normalise_tools(tools, route=route, choice=choice)]
            self._tools[key] = known
            self._keep_json(known)
        return known

    def _known_tool(self, tool: JsonObject) -> JsonObject:
        """Give the tool that is equal to this one, so that lists of the same tools in any order share their JSON."""
        key = orjson.dumps(tool)
        known = self._each_tool.get(key)
        if known is None:
            known = self._each_tool[key] = tool
            function = tool["function"]
            self._keep_json(tool, function)
            if isinstance(function.get("parameters"), dict):
                self._keep_json(function["parameters"])
        return known

    def _keep_json(self, *values: Any) -> None:
        """Let the templates remember the JSON of these values, which must live as long as that."""
        for compiled in self.templates.values():
            for value in values:
                compiled.environment.known_json[id(value)] = (value, {})

    def _forget_tools(self) -> None:
        self._tools.clear()
        self._each_tool.clear()
        for compiled in self.templates.values():
            compiled.environment.known_json.clear()


def renderer(files: ModelFiles, *, route: Route = "vllm") -> ChatTemplate | Harmony:
    """Give what renders a model's conversations as an engine does: its chat template, or Harmony for gpt-oss with vLLM.

    Raises ModelError where the model has no chat template. Whether the prompts are the engine's: `why_not_exact`.
    """
    if files.renderer == "harmony" and route == "vllm":
        from prefixlint.harmony import Harmony

        try:
            return Harmony()
        except ModelError:
            if not files.templates:
                raise
    return ChatTemplate.compile(files, route=route)


def why_not_exact(files: ModelFiles, *, route: Route = "vllm") -> str | None:
    """Say why prompts can never be called exact for this model; None where nothing speaks against it."""
    if files.stand_in:
        return "the tokenizer and the chat template are stand-ins"
    if files.renderer.startswith("deepseek"):
        return f"engines render {files.renderer} with an encoder of their own, and not with a chat template"
    if files.renderer == "none":
        return "the model has no chat template"
    if files.renderer == "harmony" and route == "vllm" and isinstance(renderer(files, route=route), ChatTemplate):
        return "vLLM renders gpt-oss with Harmony, which is not installed (pip install 'prefixlint[harmony]')"
    return None


def _answer(output: Output) -> JsonObject:
    answer: JsonObject = {"role": "assistant", "content": output.text or ""}
    if output.reasoning:
        answer["reasoning_content"] = output.reasoning
    if output.tool_calls:
        answer["tool_calls"] = list(output.tool_calls)
    return answer


def _as_transformers(message: JsonObject) -> JsonObject:
    """Drop keys without a value and name the reasoning as transformers 5 does; most messages pass untouched."""
    if None in message.values():
        message = {key: value for key, value in message.items() if value is not None}
    for key in _REASONING:
        if key in message:
            return {"thinking": message[key], **message, "reasoning_content": message[key]}
    return message


def _cut_at_tag(text: str) -> str:
    at = text.rfind(_TAG.strip())
    if at < 0:
        raise TemplateRefusedError(
            "the final message to continue is not in the chat template's output", slug="template-refused"
        )
    return text[:at] if text.startswith(_TAG, at) else text[:at].rstrip()


def _sglang_last(messages: list[JsonObject], *, keeps_open: bool) -> tuple[list[JsonObject], str]:
    """Do what SGLang does with a final message by the assistant: cut it off to continue it, or give it to the user."""
    content = messages[-1].get("content")
    if not isinstance(content, str):
        return messages, ""
    if keeps_open:
        return messages[:-1], content
    return [*messages[:-1], {"role": "user", "content": content}], ""


def template_arguments(params: Mapping[str, Any], *, route: Route = "vllm") -> dict[str, Any]:
    """Give the template's arguments out of the parameters of a request."""
    given = params.get("chat_template_kwargs")
    own: dict[str, Any] = dict(given) if isinstance(given, Mapping) else {}
    effort = params.get("reasoning_effort")
    if route == "sglang":
        return own if effort is None else {"reasoning_effort": effort, **own}
    if effort is not None:
        own.setdefault("enable_thinking", effort != "none")
        own["reasoning_effort"] = effort
    if params.get("documents") is not None:
        own["documents"] = params["documents"]
    return own
