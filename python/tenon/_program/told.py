"""What compiled functions tell through Python's logger "tenon.compile" where a program asks for it:
where a graph ends, what was recorded, and that a function was recorded once more."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

NAMES = frozenset(("graph_breaks", "graph_code", "recompiles"))

log = logging.getLogger("tenon.compile")
_asked: frozenset[str] = frozenset()
_to_stderr: list[logging.Handler] = []


def ask_for(names: Iterable[str]) -> None:
    """From now on these are told, on standard error and to whoever else listens, and no others."""
    global _asked
    _asked = NAMES & frozenset(names)
    while _to_stderr:
        log.removeHandler(_to_stderr.pop())
    log.setLevel(logging.DEBUG if _asked else logging.NOTSET)
    if _asked:
        _to_stderr.append(logging.StreamHandler())
        log.addHandler(_to_stderr[0])


def tell(name: str, text: Callable[[], str]) -> None:
    """Tells what text() says, if it is asked for."""
    if name in _asked:
        log.debug("[%s] %s", name, text())
