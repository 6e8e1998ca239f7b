"""torch.torch_version: a version that is text and compares as a version.

`torch.__version__ >= "2.9"` asks for the release, where texts would compare letter by letter, and
`torch.__version__ >= (2, 0)` may be said, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["TorchVersion"]

_VERSION = re.compile(
    r"\s*v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[-_.]?(?P<stage>a|b|c|rc|alpha|beta|pre|preview)[-_.]?(?P<number>\d*))?"
    r"(?P<post>-\d+|[-_.]?(?:post|rev|r)[-_.]?\d*)?"
    r"(?P<dev>[-_.]?dev[-_.]?\d*)?"
    r"(?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?\s*",
    re.IGNORECASE,
)
_STAGES = {"alpha": "a", "beta": "b", "c": "rc", "pre": "rc", "preview": "rc"}
_BEFORE, _AFTER = -1, 1  # every stage: what comes in front of a release, the release itself


def _number(text: str | None) -> int:
    return int(re.sub(r"\D", "", text or "") or 0)


def _key(text: str) -> tuple[Any, ...] | None:
    """What orders versions as PEP 440 says; None where the text is none."""
    match = _VERSION.fullmatch(text)
    if match is None:
        return None
    release = [int(part) for part in match["release"].split(".")]
    while release and not release[-1]:
        release.pop()
    stage = (match["stage"] or "").lower()
    if stage:
        early: tuple[Any, ...] = (0, _STAGES.get(stage, stage), _number(match["number"]))
    else:
        early = (_BEFORE if match["dev"] and not match["post"] else _AFTER,)
    post = _number(match["post"]) if match["post"] else -1
    dev = (0, _number(match["dev"])) if match["dev"] else (1, 0)
    local = tuple(
        (1, int(part), "") if part.isdigit() else (0, 0, part.lower())
        for part in re.split(r"[-_.]", match["local"] or "")
        if part
    )
    return _number(match["epoch"]), tuple(release), early, post, dev, local


class TorchVersion(str):
    """Text that compares with text, tuples and packaging's versions as a version does."""

    __slots__ = ()

    def _compare(self, other: Any, name: str) -> Any:
        if isinstance(other, Iterable) and not isinstance(other, str):
            other = ".".join(str(part) for part in other)
        mine, theirs = _key(self), _key(str(other))
        if mine is None or theirs is None:
            return getattr(str, name)(self, other)
        return getattr(mine, name)(theirs)


def _comparison(name: str) -> Callable[[TorchVersion, Any], Any]:
    return lambda self, other: self._compare(other, name)


for _name in ("__lt__", "__le__", "__eq__", "__ge__", "__gt__"):
    setattr(TorchVersion, _name, _comparison(_name))
