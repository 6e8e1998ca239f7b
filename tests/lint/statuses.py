"""The rule that no status is thrown away: a call whose result is a tn_status stands in an
assignment, a condition, a return or a macro, or says `(void)` in front of itself.

Names are told apart as the compiler does: a file's own functions before those that headers declare
and the generator makes of the operator table; of pointers in tables those whose every namesake
gives a status.

And the rule that no call goes on with what a scope failed to make: an operator's arguments are
taken from a scope (dispatch/operators/scope_priv.h) in a statement before, the call is in SCOPE.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

# Their result is their first argument: what they do is to keep a text.
KEEPERS = {"fail", "fail_v", "tn_fail", "tni_fail_v"}
NO_CODE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:[^"\\\n]|\\.)*"', re.DOTALL)
DECLARED = re.compile(r"^(?!static)[^\n(=;]*\btn_status\s+(\w+)\s*\(", re.MULTILINE)
OWN = re.compile(r"\btn_status\s+(\w+)\s*\(")
OTHER = re.compile(r"^(?:static |inline |TMPL_INLINE |const )*(\w+)[ *]+(\w+)\(", re.MULTILINE)
POINTER = re.compile(r"(\w+)\s*\**\s*\(\*(\w+)\)\s*\(")
NESTED = re.compile(
    r"\b(tn_\w+)\((?:[^();]|\((?:[^();]|\([^();]*\))*\))*?\bscope_(?!slot\b|item\b)\w+\(&?\w+,"
)
STATEMENT = re.compile(r"(?<=[;{})])(?<!\(void\))\s*(?:else\s+)?((?:\w+(?:->|\.))*)(\w+)\(")


def blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match.group())


def end_of_call(text: str, at: int) -> int:
    """The place behind the bracket that closes the one in front of `at`."""
    depth = 1
    while depth and at < len(text):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    return at


def thrown_away(files: Iterable[Path], made: set[str]) -> Iterator[tuple[Path, int, str]]:
    """(file, line, name) of every such call; `made`: functions that no header of ours declares."""
    texts = {path: NO_CODE.sub(blank, path.read_text(encoding="utf-8")) for path in files}
    declared = made | {name for text in texts.values() for name in DECLARED.findall(text)}
    pointers = {found for text in texts.values() for found in POINTER.findall(text)}
    tables = {name for result, name in pointers if result == "tn_status"}
    tables -= {name for result, name in pointers if result != "tn_status"}
    for path, text in texts.items():
        own = set(OWN.findall(text))
        others = {name for result, name in OTHER.findall(text) if result != "tn_status"}
        functions = (own | (declared - others)) - KEEPERS
        for match in STATEMENT.finditer(text):
            home, name = match.groups()
            if name not in (tables - KEEPERS if home else functions):
                continue
            if text.startswith(";", end_of_call(text, match.end())):
                yield path, text.count("\n", 0, match.start(2)) + 1, name


def gone_on(files: Iterable[Path]) -> Iterator[tuple[Path, int, str]]:
    """(file, line, operator) of every call that has a scope's step among its arguments: it would be
    made after a failure of that step, with nothing in its place."""
    for path in files:
        text = NO_CODE.sub(blank, path.read_text(encoding="utf-8"))
        for match in NESTED.finditer(text):
            yield path, text.count("\n", 0, match.start()) + 1, match[1]
