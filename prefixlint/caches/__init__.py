"""How caches with limits behave: one module for each kind of cache, exact where an engine's own code can be compared.

Every cache here serves requests that run at the same time. A request is admitted (which looks it up and holds what it
uses), its prompt is computed, it generates, it finishes:

    ticket = cache.admit(namespace, prompt)     None: it does not fit beside the requests that run now
    cache.prefilled(ticket)                     the prompt was computed, and the request goes on
    cache.generate(ticket, tokens)              these generated tokens were computed too
    cache.finish(ticket)                        nothing is held any more; what was computed stays until it is evicted

Prompts and outputs are one-dimensional uint32 arrays; all sizes are numbers of their elements, which are tokens, or the
blocks of a hash trace. A cache copies what it keeps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Hashable

    import numpy as np
    from numpy.typing import NDArray

    Ids = NDArray[np.uint32]


class Ticket(Protocol):
    """A request that runs. `hit` is what it found in the cache when it was admitted."""

    @property
    def hit(self) -> int:
        """Elements of the prompt that came from the cache."""
        ...


class Cache(Protocol):
    """What every cache offers; the type of the ticket is the cache's own."""

    def fits(self, size: int) -> bool:
        """Say whether a prompt of that size fits when nothing else runs."""
        ...

    def admit(self, namespace: Hashable, prompt: Ids) -> Any:
        """Look a prompt up and hold what it needs: a Ticket, or None where it does not fit now."""
        ...

    def prefilled(self, ticket: Any) -> None:
        """Note that the prompt was computed and that the request goes on."""
        ...

    def generate(self, ticket: Any, tokens: Ids) -> int:
        """Hold generated tokens as well; give how many of them fitted."""
        ...

    def finish(self, ticket: Any) -> None:
        """End a request."""
        ...


class Tier(Protocol):
    """Memory behind a cache: it keeps what was computed, and gives it back where the cache has lost it."""

    def find(self, namespace: Hashable, prompt: Ids) -> int:
        """Give the leading elements of a prompt that are kept."""
        ...

    def keep(self, namespace: Hashable, ids: Ids) -> None:
        """Store a sequence, as far as it fits."""
        ...
