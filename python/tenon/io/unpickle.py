"""Reads pickled data without running any of it.

This is an interpreter of our own for the opcodes that build plain data. Names in the stream are
never imported: `find` maps the few that are allowed to constructors, and refuses all others.
Nothing recurses, every length is checked against the stream before memory is taken, and only plain
values may become keys of a dict or members of a set.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from tenon.io.errors import FileFormatError, UnsafeContentError

MAX_DEPTH_OF_KEYS = 8
MAX_INT_BYTES = 4096
PLAIN = (str, bytes, int, float, complex, bool, type(None))


class Global:
    """An allowed name: a constructor, called with the arguments that the stream gives."""

    __slots__ = ("name", "make")

    def __init__(self, name: str, make: Callable[..., Any] | None = None) -> None:
        self.name = name
        self.make = make


class _Mark:
    """Where the arguments of the next opcode begin."""


_MARK = _Mark()


def check_key(value: Any, allowed: tuple[type, ...], depth: int = 0) -> None:
    """A key or member must be plain: hashing it must neither fail nor recurse without end."""
    if isinstance(value, allowed):
        return
    if type(value) in (tuple, frozenset) and depth < MAX_DEPTH_OF_KEYS:
        for item in value:
            check_key(item, allowed, depth + 1)
        return
    raise UnsafeContentError(f"an object of type {type(value).__name__} is used as a key")


class Reader:
    """One run over one stream."""

    def __init__(
        self,
        data: bytes,
        find: Callable[[str, str], Any],
        persistent: Callable[[Any], Any] | None = None,
        key_types: tuple[type, ...] = (),
        takes_state: Callable[[Any, Any], bool] | None = None,
    ) -> None:
        self.data = data
        self.at = 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.find = find
        self.persistent = persistent
        self.key_types = PLAIN + key_types
        self.takes_state = takes_state

    # -- The stream --------------------------------------------------------------------------------

    def take(self, n: int) -> bytes:
        if n < 0 or n > len(self.data) - self.at:
            raise FileFormatError(f"pickled data ends inside an item, at byte {self.at}")
        piece = self.data[self.at : self.at + n]
        self.at += n
        return piece

    def unsigned(self, n: int) -> int:
        return int.from_bytes(self.take(n), "little")

    def line(self) -> str:
        end = self.data.find(b"\n", self.at, self.at + 1024)
        if end < 0:
            raise FileFormatError(f"pickled data has an overlong name at byte {self.at}")
        text = self.text(self.take(end - self.at))
        self.at += 1
        return text

    def text(self, raw: bytes) -> str:
        try:
            return raw.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as err:
            raise FileFormatError(f"pickled data holds text that is not UTF-8: {err}") from None

    # -- The stack ---------------------------------------------------------------------------------

    def pop(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise FileFormatError(f"pickled data takes from an empty stack at byte {self.at}")
        return self.stack.pop()

    def top(self, kind: type | tuple[type, ...]) -> Any:
        if not self.stack or not isinstance(self.stack[-1], kind):
            raise FileFormatError(f"pickled data fills an object of the wrong type at {self.at}")
        return self.stack[-1]

    def pop_mark(self) -> list[Any]:
        for i in range(len(self.stack) - 1, -1, -1):
            if self.stack[i] is _MARK:
                items = self.stack[i + 1 :]
                del self.stack[i:]
                return items
        raise FileFormatError(f"pickled data has no mark at byte {self.at}")

    def put(self, index: int) -> None:
        if not self.stack or self.stack[-1] is _MARK:
            raise FileFormatError(f"pickled data stores nothing at byte {self.at}")
        self.memo[index] = self.stack[-1]

    def get(self, index: int) -> None:
        if index not in self.memo:
            raise FileFormatError(f"pickled data refers to an item {index} that is not there")
        self.stack.append(self.memo[index])

    # -- Opcodes -----------------------------------------------------------------------------------

    def op_proto(self) -> None:
        version = self.unsigned(1)
        if version > 5:
            raise FileFormatError(f"pickle protocol {version} is not known")

    def op_frame(self) -> None:
        if self.unsigned(8) > len(self.data) - self.at:
            raise FileFormatError("pickled data ends inside a frame")

    def op_mark(self) -> None:
        self.stack.append(_MARK)

    def op_pop(self) -> None:
        if not self.stack:
            raise FileFormatError(f"pickled data takes from an empty stack at byte {self.at}")
        self.stack.pop()

    def op_dup(self) -> None:
        value = self.pop()
        self.stack += [value, value]

    def push_int(self, raw: bytes) -> None:
        self.stack.append(int.from_bytes(raw, "little", signed=True))

    def op_long(self, size_bytes: int) -> None:
        size = self.unsigned(size_bytes)
        if size > MAX_INT_BYTES:
            raise FileFormatError(f"pickled data holds an integer of {size} bytes")
        self.push_int(self.take(size))

    def op_float(self) -> None:
        self.stack.append(struct.unpack(">d", self.take(8))[0])

    def op_str(self, size_bytes: int) -> None:
        self.stack.append(self.text(self.take(self.unsigned(size_bytes))))

    def op_bytes(self, size_bytes: int) -> None:
        self.stack.append(self.take(self.unsigned(size_bytes)))

    def op_old_str(self, size_bytes: int) -> None:
        self.stack.append(self.take(self.unsigned(size_bytes)).decode("latin-1"))

    def op_bytearray(self) -> None:
        self.stack.append(bytearray(self.take(self.unsigned(8))))

    def op_tuple(self, n: int) -> None:
        items = [self.pop() for _ in range(n)]
        self.stack.append(tuple(reversed(items)))

    def op_append(self) -> None:
        value = self.pop()
        self.top(list).append(value)

    def op_appends(self) -> None:
        items = self.pop_mark()
        self.top(list).extend(items)

    def set_items(self, target: dict, items: list[Any]) -> None:
        if len(items) % 2:
            raise FileFormatError("pickled data has a key without a value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            check_key(key, self.key_types)
            target[key] = value

    def op_setitem(self) -> None:
        value = self.pop()
        key = self.pop()
        self.set_items(self.top(dict), [key, value])

    def op_setitems(self) -> None:
        items = self.pop_mark()
        self.set_items(self.top(dict), items)

    def op_dict(self) -> None:
        items = self.pop_mark()
        result: dict = {}
        self.set_items(result, items)
        self.stack.append(result)

    def op_additems(self) -> None:
        items = self.pop_mark()
        target = self.top(set)
        for item in items:
            check_key(item, self.key_types)
            target.add(item)

    def op_frozenset(self) -> None:
        items = self.pop_mark()
        for item in items:
            check_key(item, self.key_types)
        self.stack.append(frozenset(items))

    def op_global(self) -> None:
        module = self.line()
        self.stack.append(self.find(module, self.line()))

    def op_stack_global(self) -> None:
        name, module = self.pop(), self.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise FileFormatError("pickled data names a class with something that is no text")
        self.stack.append(self.find(module, name))

    def op_reduce(self) -> None:
        args, target = self.pop(), self.pop()
        if not isinstance(target, Global) or target.make is None:
            raise UnsafeContentError(
                f"the file calls {describe(target)}; only constructors of plain data may be called"
            )
        if type(args) is not tuple:
            raise FileFormatError(f"the arguments of {target.name} are no tuple")
        try:
            self.stack.append(target.make(*args))
        except FileFormatError:
            raise
        except (TypeError, ValueError, OverflowError, IndexError, KeyError) as err:
            raise FileFormatError(f"bad arguments of {target.name}: {err}") from err

    def op_build(self) -> None:
        state = self.pop()
        if (
            not self.stack
            or self.takes_state is None
            or not self.takes_state(self.stack[-1], state)
        ):
            what = describe(self.stack[-1]) if self.stack else "nothing"
            raise UnsafeContentError(f"the file sets the state of {what}")

    def op_persistent(self) -> None:
        if self.persistent is None:
            raise UnsafeContentError("the file refers to an object outside of itself")
        self.stack.append(self.persistent(self.pop()))

    def run(self) -> Any:
        """The object that the stream describes."""
        data, end = self.data, len(self.data)
        while self.at < end:
            code = data[self.at]
            self.at += 1
            if code == 0x2E:
                value = self.pop()
                if self.stack:
                    raise FileFormatError("pickled data leaves objects behind")
                return value
            action = OPCODES.get(code)
            if action is None:
                raise UnsafeContentError(
                    f"opcode 0x{code:02x} at byte {self.at - 1} is not among those that build data"
                )
            action(self)
        raise FileFormatError("pickled data ends without its stop mark")


def describe(value: Any) -> str:
    return value.name if isinstance(value, Global) else f"an object of type {type(value).__name__}"


OPCODES: dict[int, Callable[[Reader], None]] = {
    0x80: Reader.op_proto,
    0x95: Reader.op_frame,
    ord("("): Reader.op_mark,
    ord("0"): Reader.op_pop,
    ord("1"): lambda r: r.pop_mark() and None,
    ord("2"): Reader.op_dup,
    ord("N"): lambda r: r.stack.append(None),
    0x88: lambda r: r.stack.append(True),
    0x89: lambda r: r.stack.append(False),
    ord("J"): lambda r: r.push_int(r.take(4)),
    ord("K"): lambda r: r.stack.append(r.unsigned(1)),
    ord("M"): lambda r: r.stack.append(r.unsigned(2)),
    0x8A: lambda r: r.op_long(1),
    0x8B: lambda r: r.op_long(4),
    ord("G"): Reader.op_float,
    0x8C: lambda r: r.op_str(1),
    ord("X"): lambda r: r.op_str(4),
    0x8D: lambda r: r.op_str(8),
    ord("C"): lambda r: r.op_bytes(1),
    ord("B"): lambda r: r.op_bytes(4),
    0x8E: lambda r: r.op_bytes(8),
    ord("U"): lambda r: r.op_old_str(1),
    ord("T"): lambda r: r.op_old_str(4),
    0x96: Reader.op_bytearray,
    ord(")"): lambda r: r.op_tuple(0),
    0x85: lambda r: r.op_tuple(1),
    0x86: lambda r: r.op_tuple(2),
    0x87: lambda r: r.op_tuple(3),
    ord("t"): lambda r: r.stack.append(tuple(r.pop_mark())),
    ord("]"): lambda r: r.stack.append([]),
    ord("l"): lambda r: r.stack.append(r.pop_mark()),
    ord("a"): Reader.op_append,
    ord("e"): Reader.op_appends,
    ord("}"): lambda r: r.stack.append({}),
    ord("d"): Reader.op_dict,
    ord("s"): Reader.op_setitem,
    ord("u"): Reader.op_setitems,
    0x8F: lambda r: r.stack.append(set()),
    0x90: Reader.op_additems,
    0x91: Reader.op_frozenset,
    ord("q"): lambda r: r.put(r.unsigned(1)),
    ord("r"): lambda r: r.put(r.unsigned(4)),
    0x94: lambda r: r.put(len(r.memo)),
    ord("h"): lambda r: r.get(r.unsigned(1)),
    ord("j"): lambda r: r.get(r.unsigned(4)),
    ord("c"): Reader.op_global,
    0x93: Reader.op_stack_global,
    ord("R"): Reader.op_reduce,
    0x81: Reader.op_reduce,
    ord("b"): Reader.op_build,
    ord("Q"): Reader.op_persistent,
}


# ---- Names that every file may use ---------------------------------------------------------------


def _encode(text: str, encoding: str = "latin1") -> bytes:
    if encoding not in ("latin1", "latin-1") or not isinstance(text, str):
        raise UnsafeContentError("_codecs.encode is only read where it stands for bytes")
    return text.encode("latin-1")


def _bytearray(data: str | bytes = b"", encoding: str = "latin-1") -> bytearray:
    if isinstance(data, str):
        return bytearray(_encode(data, encoding))
    if type(data) not in (bytes, bytearray):
        raise UnsafeContentError("a bytearray of something that is no bytes")
    return bytearray(data)


def _complex(real: float, imag: float) -> complex:
    if not isinstance(real, float | int) or not isinstance(imag, float | int):
        raise FileFormatError("a complex number of something that is no number")
    return complex(real, imag)


def plain_globals(key_types: tuple[type, ...]) -> dict[str, Global]:
    """Constructors of Python's own data types."""
    allowed = PLAIN + key_types

    def members(items: Any = ()) -> list[Any]:
        if type(items) not in (list, tuple, set, frozenset):
            raise FileFormatError("a set of something that is no list")
        for item in items:
            check_key(item, allowed)
        return list(items)

    def ordered(items: Any = ()) -> OrderedDict:
        result: OrderedDict = OrderedDict()
        if type(items) not in (list, tuple):
            raise FileFormatError("an OrderedDict of something that is no list of pairs")
        for pair in items:
            if type(pair) not in (list, tuple) or len(pair) != 2:
                raise FileFormatError("an OrderedDict of something that is no list of pairs")
            check_key(pair[0], allowed)
            result[pair[0]] = pair[1]
        return result

    makers: dict[str, Callable[..., Any]] = {
        "collections.OrderedDict": ordered,
        "_codecs.encode": _encode,
    }
    for module in ("builtins", "__builtin__"):
        makers[f"{module}.set"] = lambda items=(): set(members(items))
        makers[f"{module}.frozenset"] = lambda items=(): frozenset(members(items))
        makers[f"{module}.complex"] = _complex
        makers[f"{module}.bytearray"] = _bytearray
    return {name: Global(name, make) for name, make in makers.items()}
