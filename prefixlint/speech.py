"""Whether a text is written to a model, or is code or a notice to people, in the languages that prompts are written in.

A text of a script without spaces says more with each character: `weight` counts such a one as several.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from prefixlint.prompts import Choice, Node, Repeat, Text

LONG = 120
"""Characters of imperative static text from which a text counts as a prompt whatever its name."""
IMPERATIVE = re.compile(
    r"\b(?:You are|You're|Your (?:task|job|goal|role)|You (?:must|will|should)|Act as|"
    r"Follow these (?:rules|steps|instructions)|"
    r"Respond (?:with|in|only)|Answer the (?:question|following)|"
    r"Du bist|Sie sind ein|(?:Deine|Ihre) (?:Aufgabe|Rolle)|(?:Beantworte|Antworte|Antworten Sie)|"
    r"Tu es|Vous êtes|(?:Ta|Votre) (?:tâche|mission)|(?:Réponds|Répondez)|"
    r"Eres un|Usted es|(?:Tu|Su) (?:tarea|función) es|(?:Responde|Responda)|"
    r"Você é|(?:Sua|Tua) tarefa|Sei un|Il tuo (?:compito|ruolo)|Rispondi|"
    r"Ты —|Вы —|Ты [а-яё]+(?:ый|ий|ой) (?:помощник|ассистент)|(?:Твоя|Ваша) (?:задача|роль)|"
    r"Отвечай(?:те)?|Ответь(?:те)?)\b|"
    r"(?:你|您)(?:是一|是|的任务|的职责|的角色|需要|必须|应该|将|只能|可以)|"
    r"请(?:你|您|根据|按照?|依据|基于|仔细|严格|务必|注意|直接|只|仅|不要|勿|用|以|将|把|对|从|为|在|给出|"
    r"回答|输出|返回|生成|提取|总结|分析|判断)|"
    r"あなた(?:は|の)|(?:して|に|で|を)ください|してはいけません|"
    r"당신은|당신의|(?:하|으|해 주)(?:세요|십시오)"
)
_CODE = re.compile(
    r"\s*(?:from [\w.]+ import |import [\w.{}]+(?: as \w+)?\s*$|(?:async )?def \w+\(|class \w+[(:]|"
    r"#!/|<!doctype|<html|<\?xml|<script|\(?(?:async )?\(\w*\) =>|\(?function ?\w*\(|(?:const|let|var) \w+ = |"
    r"select\s[^.?!]*?\sfrom\s|insert into |delete from |update \w+ set |create (?:table|index|view) |with \w+ as \()",
    re.IGNORECASE | re.MULTILINE,
)


_DENSE = re.compile("[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]")
_PER_DENSE = 2.4
"""Characters of English to one of Chinese, Japanese or Korean: tokenizers of today give it 0.6 tokens, not 0.25."""


def weight(text: str) -> int:
    """Give the length of a text, in characters of English with as many tokens."""
    if text.isascii():
        return len(text)
    return len(text) + round((_PER_DENSE - 1) * len(_DENSE.findall(text)))


def static_text(nodes: Iterable[Node]) -> str:
    """Give the fixed text of nodes in order, optional parts included, what is repeated once."""
    texts: list[str] = []
    for node in nodes:
        if isinstance(node, Text):
            texts.append(node.text)
        elif isinstance(node, Repeat):
            texts.append(static_text(node.nodes))
        elif isinstance(node, Choice):
            texts.extend(map(static_text, node.branches))
    return "".join(texts)


def is_code(nodes: Iterable[Node]) -> bool:
    """Tell whether a text begins as a program, a query or a page does."""
    return _CODE.match(static_text(nodes)) is not None


def is_addressed(nodes: Iterable[Node]) -> bool:
    """Tell whether a text is long enough for instructions, or speaks to a model."""
    text = static_text(nodes)
    return weight(text) >= LONG or IMPERATIVE.search(text) is not None
