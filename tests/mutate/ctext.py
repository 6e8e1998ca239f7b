"""Mutants of functions written in C: the functions of a file, and small edits of their text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_NO_CODE = re.compile(
    r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*',
    re.S | re.M,
)
_TOKEN = re.compile(
    r"0[xX][0-9a-fA-F.]+(?:[pP][-+]?\d+)?[uUlLfF]*|\d+\.?\d*(?:[eE][-+]?\d+)?[uUlLfF]*|\w+"
    r"|<<=|>>=|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|."
)
_HEADER = re.compile(r"(?P<type>[\w\s*]+?[\s*])(?P<name>\w+)\s*\((?P<params>.*)\)\s*$", re.S)


@dataclass
class Function:
    """A function definition: text[start:brace] is its head, text[brace:end] its body."""

    name: str
    type: str
    params: list[str]
    start: int
    brace: int
    end: int
    calls: set[str] = field(default_factory=set)

    @property
    def key(self) -> str:
        """Tells functions apart that stand under one name for several classes of types."""
        return f"{self.name}@{self.start}"


@dataclass
class Edit:
    """text[start:end] becomes `new`; or, with a wrap, the function's result is changed."""

    start: int
    end: int
    new: str
    note: str


def blank(text: str) -> str:
    """The text with spaces in place of comments, strings and directives."""
    return _NO_CODE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def functions(text: str) -> list[Function]:
    """All function definitions, in order."""
    code, found = blank(text), []
    depth = start = brace = 0
    for m in re.finditer(r"[{};]", code):
        if m[0] == "{":
            if depth == 0:
                brace = m.start()
            depth += 1
            continue
        depth -= m[0] == "}"
        if depth:
            continue
        if m[0] == "}":
            head = code[start:brace]
            h = _HEADER.match(head.lstrip())
            if (
                h
                and "=" not in head
                and not re.match(r"\s*(typedef|struct|enum|union)\b[^(]*$", head)
            ):
                start += len(head) - len(head.lstrip())
                params = parameter_names(h["params"])
                calls = set(re.findall(r"\b(\w+)\s*\(", code[brace : m.end()]))
                calls |= set(re.findall(r"\b(tn_\w+)\b", code[brace : m.end()]))  # handed on
                calls |= {f"tn_{n}" for n in re.findall(r"&tni_op_(\w+)", code[brace : m.end()])}
                found.append(
                    Function(h["name"], h["type"].strip(), params, start, brace, m.end(), calls)
                )
        start = m.end()
    return found


def parameter_names(text: str) -> list[str]:
    """The names of a parameter list."""
    names, depth, start = [], 0, 0
    for i, ch in enumerate(text + ","):
        depth += (ch == "(") - (ch == ")")
        if ch != "," or depth:
            continue
        m = re.search(r"\(\*(\w+)\)|(\w+)(?:\[\w*\])*\s*$", text[start:i])
        start = i + 1
        if m and m[2] != "void":
            names.append(m[1] or m[2])
    return names


def reached(fns: list[Function], roots: set[str]) -> dict[str, set[str]]:
    """For each function the roots that call it, directly or through others of the file."""
    owners = {f.name: {f.name} & roots for f in fns}
    changed = True
    while changed:
        changed = False
        for f in fns:
            for callee in f.calls & owners.keys():
                if not owners[f.name] <= owners[callee]:
                    owners[callee] |= owners[f.name]
                    changed = True
    return owners


# Before a head: static, and always inlined. Of the templates, of vectors, of transforms.
_INLINE = re.compile(r"\b[A-Z]+_INLINE\b")
# What only compilers of GPUs see.
ELSEWHERE = re.compile(
    r"^#if(?:def TMPL_CUDA| defined\(TMPL_CUDA\))(?: /\*[^\n]*)?$.*?^#(?:else|endif)\b", re.M | re.S
)
_FUSED = re.compile(r"^#if TMPL_HAS_FMA$(.*?)(?:^#else$(.*?))?^#endif$", re.M | re.S)
# Calls whose arguments say nothing that a result depends on.
_MUTE = re.compile(r"\b(tn_fail\w*|tni_fail\w*|sizeof|_Static_assert|assert)\s*\(")
_FLIPS = {
    "+": "-", "-": "+", "*": "/", "/": "*", "==": "!=", "!=": "==", "&&": "||", "||": "&&",
    "+=": "-=", "-=": "+=", "*=": "/=",
}  # fmt: skip
_EDGES = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_TURNS = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _mute_ranges(text: str, first: int, last: int) -> list[tuple[int, int]]:
    """Where no edit is made: messages, constants of the compiler, case labels, other devices."""
    code, ranges = blank(text), []
    for m in _MUTE.finditer(code, first, last):
        depth, at = 0, m.end() - 1
        while at < last:
            depth += (code[at] == "(") - (code[at] == ")")
            at += 1
            if depth == 0:
                break
        ranges.append((m.start(), at))
    for m in re.finditer(r"\b(static const|enum|case)\b[^;:]*[;:]", code[first:last]):
        ranges.append((first + m.start(), first + m.end()))
    return [*ranges, *(m.span() for m in ELSEWHERE.finditer(text, first, last))]


def left_alone(text: str, fused: bool) -> list[tuple[int, int]]:
    """What a compiler for instructions with or without fused products does not see."""
    return [m.span(2 if fused else 1) for m in _FUSED.finditer(text)]


def edits(text: str, fn: Function, kernel: bool) -> Iterator[Edit]:
    """Changes of one token of a function. A kernel's are about values, others' about sizes too."""
    code = blank(text)
    mute = _mute_ranges(text, fn.brace, fn.end)
    before = ""
    for m in _TOKEN.finditer(code, fn.brace + 1, fn.end - 1):
        token, (at, end) = m[0], m.span()
        if token.isspace():
            continue
        operand = bool(re.match(r"[\w)\]]", before[-1:])) and before not in (
            "return",
            "case",
            "sizeof",
        )
        new = None
        if token in _FLIPS and (operand or len(token) == 2):
            pointer = token == "*" and re.fullmatch(r"(const|\w+_t|T|tn_\w+|void|char|int)", before)
            new = None if pointer or _is_cast(code, at) else _FLIPS[token]
        elif token in _EDGES and operand:
            new = (_TURNS if kernel else _EDGES)[token]
        elif re.fullmatch(r"\d+", token) and not kernel:
            skip = _names_argument(code, at) or _picks_lanes(code, at)
            if before not in ("[", "-", "{") and not skip:
                new = str(int(token) + 1)
        elif kernel and re.match(r"0[xX]|\d", token) and re.search(r"[.pP]", token):
            single = "f" if token[-1] in "fF" else ""
            how = "*" if re.search(r"[1-9]|0[xX].*[a-fA-F].*[pP]", token) else "+"  # of zero
            new = f"(1.01{single} {how} {token})"
        elif token == "(" and before == "if":
            close = _matching(code, at)
            if not _muted(mute, at):
                yield Edit(
                    at,
                    close + 1,
                    f"(!{text[at : close + 1]})",
                    f"not: {_short(text[at : close + 1])}",
                )
        elif token == "return" and kernel:
            stop = code.index(";", end)
            value = text[end:stop].strip()
            if fn.type.split()[-1] in ("A", "RA", "float", "double", "uint8_t", "bool", "int64_t"):
                how = "MUTATE_NOT" if fn.type.split()[-1] in ("uint8_t", "bool") else "MUTATE_GROW"
                yield Edit(
                    at, stop, f"return {how}({value})", f"{how[7:].lower()}: return {_short(value)}"
                )
        if new is not None and not _muted(mute, at):
            yield Edit(at, end, new, _around(text, at, end, new))
        before = token


def left_out(text: str, fn: Function) -> Iterator[Edit]:
    """The function without one of its statements, assignments and calls."""
    code = blank(text)
    mute = _mute_ranges(text, fn.brace, fn.end)
    for m in re.finditer(r"(?<=[;{}])(\s*)([^;{}]+);", code[fn.brace : fn.end]):
        at, end = fn.brace + m.start(2), fn.brace + m.end(2)
        if m[2].count("(") != m[2].count(")") or _muted(mute, at):
            continue
        if re.match(r"[\w.>\[\]*+-]+(\s*[-+*/|&]?=[^=]|\()|\w+(\+\+|--)", m[2]):
            if not re.match(r"(return|if|for|while|goto|switch|case|else|do)\b", m[2]):
                yield Edit(at, end, "(void)0", f"without {_short(text[at:end])}")


def never_true(text: str, fn: Function) -> Iterator[Edit]:
    """The function without what it does where a condition holds, its checks among them."""
    code = blank(text)
    for m in re.finditer(r"\b(else )?if \(", code[fn.brace : fn.end]):
        at = fn.brace + m.end() - 1
        close = _matching(code, at) + 1
        yield Edit(at, close, f"(0 && {text[at:close]})", f"never: {_short(text[at:close])}")


def _names_argument(code: str, at: int) -> bool:
    """Whether a number only says which argument a message is about."""
    words = code[max(0, at - 48) : at]
    return bool(re.search(r"(TN_E_\w+|tni_infer_expect\(inf), $|\.roles = $", words))


def _picks_lanes(code: str, at: int) -> bool:
    """Whether a number is an immediate of a vector instruction, which has a range of its own."""
    return bool(re.search(r"\b_mm\d*_\w+\([^;]*$", code[max(0, at - 96) : at]))


def _is_cast(code: str, at: int) -> bool:
    """Whether the sign at `at` stands behind `(type)`, so that it has one operand."""
    m = re.search(
        r"\((const )?(A|RA|U|K|T|int|float|double|\w+_t|int\d+|size_t)\s*\**\)\s*$", code[:at]
    )
    return bool(m) and len(code[:at]) - m.start() < 40  # type: ignore[union-attr]


def _matching(code: str, at: int) -> int:
    depth = 0
    for i in range(at, len(code)):
        depth += (code[i] == "(") - (code[i] == ")")
        if depth == 0:
            return i
    raise ValueError("brackets do not match")


def _muted(ranges: list[tuple[int, int]], at: int) -> bool:
    return any(a <= at < b for a, b in ranges)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def _around(text: str, at: int, end: int, new: str) -> str:
    """What stands beside a place in its line, and how the place changes."""
    first, last = text.rfind("\n", 0, at) + 1, text.find("\n", end)
    left, right = text[max(first, at - 32) : at].lstrip(), text[end : min(last, end + 32)].rstrip()
    return f"{left}[{text[at:end]} -> {new}]{right}"


def head_of(text: str, fn: Function, name: str) -> str:
    """The function's head under another name; such a function is not inlined."""
    head = re.sub(rf"\b{fn.name}\b(?=\s*\()", name, text[fn.start : fn.brace], count=1)
    head = re.sub(r"\b(static|inline)\b", "", _INLINE.sub("", head)).strip()
    return f"static __attribute__((noinline, unused)) {head} "


def copy_of(text: str, fn: Function, name: str, edit: Edit | None = None) -> str:
    """The function under another name, with an edit of its body."""
    body = text[fn.brace : fn.end]
    if edit:
        a, b = edit.start - fn.brace, edit.end - fn.brace
        body = body[:a] + edit.new + body[b:]
    return f"{head_of(text, fn, name)}{body}\n"


def plain_head(text: str, fn: Function) -> str:
    """What stands before the body of a function that calls its mutants: it need not be inlined."""
    return _INLINE.sub("static", text[fn.start : fn.brace])


def prototype(text: str, fn: Function) -> str:
    return f"{plain_head(text, fn).rstrip()};\n"


def choose(fn: Function, seen: str, cases: list[tuple[int, str]], variable: str) -> str:
    """What the function begins with: it notes the call and hands it to the mutant that is on."""
    args = ", ".join(fn.params)
    lines = [f"    {seen} = 1;", f"    switch ({variable}) {{"]
    for number, name in cases:
        call = f"{name}({args});"
        lines.append(
            f"    case {number}: {{ {call} return; }}" if fn.type.split()[-1] == "void"
            else f"    case {number}: return {call}"
        )  # fmt: skip
    return "\n".join([*lines, "    default: break;", "    }", ""])
