"""Archives of TorchScript whose code and structure are changed, with checksums that are right."""

from __future__ import annotations

import io
import random
import re
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import tenon as tn

FOLDER = Path(__file__).parent.parent / "data" / "torchscript"
WORDS = (
    "torch", "ops", "prim", "aten", "__torch__", "CONSTANTS.c0", "__class__", "__builtins__",
    "self", "import os", "lambda x: x", "(", ")", "[", "]", ":", ",", "=", "\n", "\n  ",
    "\n    ", "return ", "def f(", "class X(Module):", "-", "1", "1e999", "None", "int", "getattr",
    "annotate(int, ", "isinstance(", "with ", "for x in ", "while True:", "*", "**", "%", "'",
    "\"", "#", "\\", "f''", "yield", "await ", "@", ":=", "if ", "else:", "pass", "__init__",
    "forward", "List[", "\0", "é",
)  # fmt: skip


@cache
def archives() -> list[list[tuple[zipfile.ZipInfo, bytes]]]:
    """The members of good archives."""
    found = []
    for path in sorted(FOLDER.glob("*.pt")):
        with zipfile.ZipFile(path) as archive:
            found.append([(m, archive.read(m)) for m in archive.infolist()])
    return found


def changed_text(rng: random.Random, text: str) -> str:
    """Words left out, put in, doubled, and exchanged for others of the text."""
    parts = re.split(r"(\W)", text)
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(parts))
        match rng.randrange(5):
            case 0:
                parts[at] = rng.choice(WORDS)
            case 1:
                parts.insert(at, rng.choice(WORDS) * rng.choice((1, 1, 1, 400)))
            case 2:
                parts[at] = rng.choice(parts)
            case 3:
                del parts[at : at + rng.randrange(4)]
            case _:
                parts[at] *= rng.choice((2, 2, 1000))
        parts = parts or [""]
    return "".join(parts)


def changed_bytes(rng: random.Random, data: bytes) -> bytes:
    b = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(b))
        if rng.random() < 0.5:
            b[at] = rng.randrange(256)
        else:
            b[at : at + rng.randrange(8)] = rng.randbytes(rng.randrange(8))
        b = b or bytearray(1)
    return bytes(b)


def script_file(rng: random.Random) -> bytes:
    members = rng.choice(archives())
    code = [i for i, (m, _) in enumerate(members) if m.filename.endswith(".py")]
    pickles = [i for i, (m, _) in enumerate(members) if m.filename.endswith(".pkl")]
    target = rng.choice(code if rng.random() < 0.8 else pickles)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for i, (member, data) in enumerate(members):
            if i == target and i in code:
                data = changed_text(rng, data.decode()).encode()
            elif i == target:
                data = changed_bytes(rng, data)
            archive.writestr(member.filename, data, member.compress_type)
    return file.getvalue()


def read_script(path: Path) -> Any:
    """The weights; every method is made, and none is run, which may take for ever."""
    net = tn.jit.load(path)
    for part in net.modules():
        kind = getattr(type(part), "_archive_kind", None)
        for name in kind.methods() if kind is not None else ():
            kind.function(name)
    return net.state_dict()
