"""Who else than a model gets a text that code hands on, by what is called: people, or a store that keeps it."""

from __future__ import annotations

from prefixlint.sources._pyscope import words
from prefixlint.wordset import word_set

_TO_PEOPLE = word_set(
    "log logger logging debug info warning error exception critical warn print echo secho raise write_line "
    "add_argument add_parser option argument field help panel markdown fail exit"
)
"""Words of calls whose text people read: logs, command lines, exceptions, documentation of fields."""
NOTES = word_set("description help detail doc epilog usage label placeholder tooltip error title msg reason")
"""Keywords whose text people read, or tools."""
_SCREENS = word_set("renderer console ui view screen terminal display window widget tui panel")
"""Words of objects that show texts to people."""
_KEEP = word_set("save store insert upsert persist")
_CHANGE = word_set("create update add put set new")
_KEPT = word_set("persona profile template record row preset prompt")
"""What is made, or changed, once, to be read later: a function that does so calls no model."""


def tells_people(path: str) -> bool:
    """Tell whether a call's text is read by people."""
    return bool(words(path) & _TO_PEOPLE)


def shows(owner: str) -> bool:
    """Tell whether an object shows texts to people: `console.add_system_message(…)`."""
    return bool(words(owner) & _SCREENS)


def keeps(path: str) -> bool:
    """Tell whether a function keeps what it is given in a store: `create_persona(…)`, `db.prompts.insert(…)`."""
    last = path.rsplit(".", 1)[-1]
    said = words(last)
    return last[:1].islower() and bool(said & _KEEP or (said & _CHANGE and said & _KEPT))
