"""What a pickled stream refers to and where it ends, without building what it describes.

Checkpoints without an archive hold their storages behind the structure, which alone knows how long
each is. One pass over the opcodes finds the references; names are kept as text, every other object
is a placeholder.
"""

from __future__ import annotations

import io
from typing import Any, BinaryIO

from tenon.io.errors import FileFormatError, UnsafeContentError

MOST = 1 << 30  # bytes of one structure
PART = 256  # bytes that are read at first; then as many again as there are
PLACE = object()  # stands for whatever is not built
_MARK = object()

# The bytes behind each opcode: so many, or a length of so many bytes and what it counts.
_FIXED = {
    0x80: 1, 0x95: 8, ord("J"): 4, ord("K"): 1, ord("M"): 2, ord("G"): 8, ord("q"): 1,
    ord("r"): 4, ord("h"): 1, ord("j"): 4,
}  # fmt: skip
_COUNTED = {
    0x8A: 1, 0x8B: 4, 0x8C: 1, 0x8D: 8, 0x8E: 8, 0x96: 8, ord("X"): 4, ord("C"): 1, ord("B"): 4,
    ord("U"): 1, ord("T"): 4,
}  # fmt: skip
_TEXTS = frozenset((0x8C, 0x8D, ord("X"), ord("U"), ord("T")))
_PUSHED = {
    ord("N"): None, 0x88: True, 0x89: False, ord("]"): PLACE, ord("}"): PLACE, 0x8F: PLACE,
    ord("G"): PLACE, 0x8E: PLACE, 0x96: PLACE, ord("C"): PLACE, ord("B"): PLACE, ord(")"): (),
}  # fmt: skip
_TUPLES = {0x85: 1, 0x86: 2, 0x87: 3}
_TO_MARK = frozenset(map(ord, "eu")) | {0x90}  # into what lies below
_OF_MARKED = frozenset(map(ord, "ld")) | {0x91}
_TAKEN = {ord("a"): 1, ord("s"): 2, ord("b"): 1, ord("0"): 1}
_CALLS = {ord("R"): 2, 0x81: 2, 0x92: 3}
_KEPT = (str, int, type(None))


class Name(str):
    """A class or function that the stream names: "module.name"."""

    __slots__ = ()


class Outline:
    """One pass over the stream at the file's position, which is left behind its end."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.start = file.tell()
        self.held = file.seek(0, io.SEEK_END) - self.start
        file.seek(self.start)
        self.data = bytearray()
        self.at = 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.references: list[Any] = []
        self._run()
        file.seek(self.start + self.at)
        self.text = bytes(memoryview(self.data)[: self.at])

    # -- The stream --------------------------------------------------------------------------------

    def _take(self, n: int) -> bytes:
        end = self.at + n
        if end > self.held:
            raise FileFormatError(f"pickled data ends inside an item, at byte {self.at}")
        if end > MOST:
            raise FileFormatError(f"a structure of more than {MOST} bytes")
        while len(self.data) < end:
            more = self.file.read(max(PART, len(self.data), end - len(self.data)))
            if not more:
                raise FileFormatError(f"pickled data is cut off at byte {self.at}")
            self.data += more
        piece = bytes(self.data[self.at : end])
        self.at = end
        return piece

    def _line(self) -> str:
        piece = bytearray()
        while len(piece) < 1024:
            byte = self._take(1)
            if byte == b"\n":
                return piece.decode("utf-8", "replace")
            piece += byte
        raise FileFormatError(f"pickled data has an overlong name at byte {self.at}")

    def _pop(self, n: int = 1) -> list[Any]:
        if n > len(self.stack) or any(v is _MARK for v in self.stack[len(self.stack) - n :]):
            raise FileFormatError(f"pickled data takes from an empty stack at byte {self.at}")
        items = self.stack[len(self.stack) - n :]
        del self.stack[len(self.stack) - n :]
        return items

    def _marked(self) -> list[Any]:
        for i in range(len(self.stack) - 1, -1, -1):
            if self.stack[i] is _MARK:
                items = self.stack[i + 1 :]
                del self.stack[i:]
                return items
        raise FileFormatError(f"pickled data has no mark at byte {self.at}")

    # -- Opcodes -----------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            code = self._take(1)[0]
            if code == ord("."):
                return
            argument = b""
            if code in _FIXED:
                argument = self._take(_FIXED[code])
            elif code in _COUNTED:
                argument = self._take(int.from_bytes(self._take(_COUNTED[code]), "little"))
            if not self._value(code, argument) and not self._action(code, argument):
                raise UnsafeContentError(
                    f"opcode 0x{code:02x} at byte {self.at} is not among those that build data"
                )

    def _value(self, code: int, argument: bytes) -> bool:
        """An opcode that pushes what it says."""
        push = self.stack.append
        if code in _TEXTS:
            text = "latin-1" if code in (ord("U"), ord("T")) else "utf-8"
            push(argument.decode(text, "replace"))
        elif code in _PUSHED:
            push(_PUSHED[code])
        elif code in (ord("K"), ord("M")):
            push(int.from_bytes(argument, "little"))
        elif code in (ord("J"), 0x8A, 0x8B):
            push(int.from_bytes(argument, "little", signed=True) if len(argument) <= 8 else PLACE)
        elif code == ord("c"):
            module = self._line()
            push(Name(f"{module}.{self._line()}"))
        elif code == ord("("):
            push(_MARK)
        else:
            return False
        return True

    def _action(self, code: int, argument: bytes) -> bool:
        """An opcode that works on what was pushed."""
        if code in (0x80, 0x95):
            return True
        if code in _TUPLES:
            self._tuple(self._pop(_TUPLES[code]))
        elif code == ord("t"):
            self._tuple(self._marked())
        elif code in _TO_MARK:
            self._marked()
        elif code in _OF_MARKED:
            self._marked()
            self.stack.append(PLACE)
        elif code in _TAKEN:
            self._pop(_TAKEN[code])
        elif code in _CALLS:
            self._pop(_CALLS[code])
            self.stack.append(PLACE)
        elif code == 0x93:
            module, name = self._pop(2)
            self.stack.append(Name(f"{module}.{name}") if isinstance(name, str) else PLACE)
        elif code == ord("Q"):
            self.references += self._pop()
            self.stack.append(PLACE)
        elif code == ord("2"):
            self.stack += self._pop() * 2
        elif code == ord("1"):
            self._marked()
        else:
            return self._remembered(code, argument)
        return True

    def _remembered(self, code: int, argument: bytes) -> bool:
        index = int.from_bytes(argument, "little") if argument else len(self.memo)
        if code in (ord("q"), ord("r"), 0x94):
            value = self._pop()[0]
            self.stack.append(value)
            self.memo[index] = value
        elif code in (ord("h"), ord("j")):
            self.stack.append(self.memo.get(index, PLACE))
        else:
            return False
        return True

    def _tuple(self, items: list[Any]) -> None:
        """A tuple is kept with what a reference may hold: texts, numbers, and tuples of them."""
        if len(items) > 8:
            self.stack.append(PLACE)
            return
        kept = [
            v if isinstance(v, _KEPT) or (type(v) is tuple and all(isinstance(w, _KEPT) for w in v))
            else PLACE
            for v in items
        ]  # fmt: skip
        self.stack.append(tuple(kept))
