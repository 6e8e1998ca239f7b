"""Reads pickled data without running any of it.

This is an interpreter of our own for the opcodes that build plain data. Names in the stream are
never imported: `find` maps the few that are allowed to constructors, and refuses all others.

A stream takes time and memory in proportion to its size, whatever it says. An opcode costs little
and is paid by its own byte; what copies or compares more than that pays from `Budget`. Lengths are
checked against the stream before memory is taken. Objects are nested at most MAX_DEPTH deep: they
are built from the inside out, because only an object that has stayed on the stack since it was made
may be filled, so that the height of a finished one stays what it was.
"""

from __future__ import annotations

import struct
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

from tenon.io.errors import FileFormatError, UnsafeContentError

MAX_DEPTH = 500
MAX_DEPTH_OF_KEYS = 8
MAX_CYCLES = 16  # references from inside an object to itself
MAX_INT_BYTES = 4096
WORK_PER_BYTE = 16
LEAST_WORK = 1 << 16
PLAIN = (str, bytes, int, float, complex, bool, type(None))
_PLAIN = frozenset(PLAIN)
_SPREAD = (str, bytes, bool, type(None))  # their hashes are salted or few, so they do not collide
_FILLABLE = frozenset((list, dict, set, OrderedDict, defaultdict, Counter))
_COPIED = frozenset((str, bytes, bytearray, tuple, list, set, frozenset, dict, OrderedDict))


def shown(value: Any) -> str:
    """A value of the stream in a message: short, whatever it is."""
    if type(value) is int and value.bit_length() > 64:
        return f"an integer of {value.bit_length()} bits"
    if type(value) in (str, bytes):
        return repr(value[:40])
    return repr(value) if type(value) in PLAIN else f"an object of type {type(value).__name__}"


class Budget:
    """The work that a stream may ask for, besides that of its opcodes."""

    def __init__(self, stream_bytes: int) -> None:
        self.left = LEAST_WORK + WORK_PER_BYTE * stream_bytes
        self.hashes: dict[tuple[int, int], int] = {}

    def charge(self, work: int) -> None:
        """Takes from what is left: a unit is a byte that is copied or a member that is visited."""
        self.left -= work
        if self.left < 0:
            raise FileFormatError("pickled data asks for more work than data of its size can mean")

    def key(self, container: Any, value: Any, allowed: tuple[type, ...]) -> None:
        """Checks what becomes a key of `container`, plain or of a type in `allowed`, and charges
        what its place there costs."""
        size = self._unfolded(value, allowed, 0)
        if isinstance(value, _SPREAD) or (type(value) is int and -(1 << 60) < value < 1 << 60):
            return
        # Equal hashes are compared with each other: numbers and tuples can be made to have them.
        place = (id(container), hash(value))
        before = self.hashes.get(place, 0)
        self.hashes[place] = before + 1
        self.charge(before * size)

    def _unfolded(self, value: Any, allowed: tuple[type, ...], depth: int) -> int:
        """The number of values that hashing visits: one that is there twice is visited twice."""
        self.charge(1)
        if isinstance(value, (PLAIN, allowed)):
            return 1
        if type(value) in (tuple, frozenset) and depth < MAX_DEPTH_OF_KEYS:
            return 1 + sum(self._unfolded(item, allowed, depth + 1) for item in value)
        raise UnsafeContentError(f"an object of type {type(value).__name__} is used as a key")


class Global:
    """An allowed name: a constructor, called with the arguments that the stream gives."""

    __slots__ = ("name", "make")

    def __init__(self, name: str, make: Callable[..., Any] | None = None) -> None:
        self.name = name
        self.make = make

    def call(self, budget: Budget, args: tuple[Any, ...]) -> Any:
        """The object, once its arguments are paid for."""
        del budget
        assert self.make is not None
        return self.make(*args)


class Filled(Global):
    """A constructor of something with keys: it gets the budget as its first argument."""

    __slots__ = ()

    def call(self, budget: Budget, args: tuple[Any, ...]) -> Any:
        assert self.make is not None
        return self.make(budget, *args)


class Loose(Global):
    """A constructor that a stream may also give one argument to that is no tuple."""

    __slots__ = ()


def construct(budget: Budget, target: Any, args: Any) -> Any:
    """Calls an allowed constructor; whatever is wrong with the arguments is the file's fault."""
    if not isinstance(target, Global) or target.make is None:
        raise UnsafeContentError(
            f"the file calls {describe(target)}; only constructors of plain data may be called"
        )
    if type(args) is not tuple and isinstance(target, Loose):
        args = (args,)
    if type(args) is not tuple:
        raise FileFormatError(f"the arguments of {target.name} are no tuple")
    budget.charge(sum(len(a) for a in args if type(a) in _COPIED))
    try:
        return target.call(budget, args)
    except (FileFormatError, MemoryError):
        raise
    except (TypeError, ValueError, ArithmeticError, LookupError, RuntimeError) as err:
        raise FileFormatError(f"bad arguments of {target.name}: {err}") from err


class _Mark:
    """Where the arguments of the next opcode begin."""


_MARK = _Mark()


class Reader:
    """One run over one stream."""

    def __init__(
        self,
        data: bytes,
        find: Callable[[str, str], Any],
        persistent: Callable[[Any], Any] | None = None,
        key_types: tuple[type, ...] = (),
        takes_state: Callable[[Any, Any], bool] | None = None,
        fillable: tuple[type, ...] = (),
    ) -> None:
        self.data = data
        self.at = 0
        self.stack: list[Any] = []
        self.budget = Budget(len(data))
        self.open: list[tuple[int, int]] = []  # what may be filled: place on the stack, id
        self.open_ids: set[int] = set()
        self.heights: dict[int, int] = {}  # by id, of what is no plain value
        self.cycles = 0
        self.memo: dict[int, Any] = {}
        self.find = find
        self.persistent = persistent
        self.key_types = key_types
        self.takes_state = takes_state
        self.fillable = _FILLABLE.union(fillable)

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
        self.close(len(self.stack) - 1)
        return self.stack.pop()

    def close(self, place: int) -> None:
        """From now on nothing that lies on the stack from that place on can be filled."""
        while self.open and self.open[-1][0] >= place:
            self.open_ids.discard(self.open.pop()[1])

    def push_open(self, value: Any, height: int = 1) -> None:
        """Pushes an object that the next opcodes may fill."""
        self.open.append((len(self.stack), id(value)))
        self.open_ids.add(id(value))
        self.stack.append(value)
        self.grow(value, height)

    def push_over(self, value: Any, items: Any) -> None:
        """Pushes a finished object that holds `items`."""
        self.stack.append(value)
        self.grow(value, self.height(items) + 1)

    def height(self, items: Any) -> int:
        """How deep the deepest of some objects is nested."""
        heights = [self.heights.get(id(v), 1) for v in items if type(v) not in _PLAIN]
        return max(heights) if heights else 0

    def grow(self, value: Any, height: int) -> None:
        if height > MAX_DEPTH:
            raise FileFormatError(f"pickled data is nested more than {MAX_DEPTH} deep")
        self.heights[id(value)] = height

    def top(self, kind: type | tuple[type, ...], items: Any) -> Any:
        """The object on top of the stack, which is about to get `items`."""
        if not self.stack or not isinstance(self.stack[-1], kind):
            raise FileFormatError(f"pickled data fills an object of the wrong type at {self.at}")
        value = self.stack[-1]
        if not self.open or self.open[-1][0] != len(self.stack) - 1:
            raise FileFormatError(f"pickled data fills an object that is in use at byte {self.at}")
        self.grow(value, max(self.heights[id(value)], self.height(items) + 1))
        return value

    def pop_mark(self) -> list[Any]:
        for i in range(len(self.stack) - 1, -1, -1):
            if self.stack[i] is _MARK:
                items = self.stack[i + 1 :]
                del self.stack[i:]
                self.close(i)
                return items
        raise FileFormatError(f"pickled data has no mark at byte {self.at}")

    def put(self, index: int) -> None:
        if not self.stack or self.stack[-1] is _MARK:
            raise FileFormatError(f"pickled data stores nothing at byte {self.at}")
        self.memo[index] = self.stack[-1]

    def get(self, index: int) -> None:
        if index not in self.memo:
            raise FileFormatError(f"pickled data refers to an item {index} that is not there")
        value = self.memo[index]
        if id(value) in self.open_ids:
            self.cycles += 1  # its height is not known yet, so these are counted instead
            if self.cycles > MAX_CYCLES:
                raise FileFormatError("pickled data holds too many objects that hold themselves")
        self.stack.append(value)

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
        self.close(len(self.stack) - 1)
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
        self.push_over(bytearray(self.take(self.unsigned(8))), ())

    def op_tuple(self, n: int) -> None:
        items = [self.pop() for _ in range(n)]
        self.push_over(tuple(reversed(items)), items)

    def op_marked_tuple(self) -> None:
        items = self.pop_mark()
        self.push_over(tuple(items), items)

    def op_list(self) -> None:
        items = self.pop_mark()
        self.push_open(items, self.height(items) + 1)

    def op_append(self) -> None:
        value = self.pop()
        self.top(list, (value,)).append(value)

    def op_appends(self) -> None:
        items = self.pop_mark()
        self.top(list, items).extend(items)

    def set_items(self, target: dict[Any, Any], items: list[Any]) -> None:
        if len(items) % 2:
            raise FileFormatError("pickled data has a key without a value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            self.budget.key(target, key, self.key_types)
            target[key] = value

    def op_setitem(self) -> None:
        value = self.pop()
        key = self.pop()
        self.set_items(self.top(dict, (key, value)), [key, value])

    def op_setitems(self) -> None:
        items = self.pop_mark()
        self.set_items(self.top(dict, items), items)

    def op_dict(self) -> None:
        items = self.pop_mark()
        result: dict[Any, Any] = {}
        self.push_open(result, self.height(items) + 1)
        self.set_items(result, items)

    def op_additems(self) -> None:
        items = self.pop_mark()
        target = self.top(set, items)
        for item in items:
            self.budget.key(target, item, self.key_types)
            target.add(item)

    def op_frozenset(self) -> None:
        items = self.pop_mark()
        for item in items:
            self.budget.key(items, item, self.key_types)
        self.push_over(frozenset(items), items)

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
        value = construct(self.budget, target, args)
        if type(value) in self.fillable:
            self.push_open(value, self.height((args,)) + 1)
        elif type(value) in _PLAIN:
            self.stack.append(value)
        else:
            self.push_over(value, (args,))

    def op_build(self) -> None:
        state = self.pop()
        target = self.top(object, (state,))
        self.budget.charge(len(state) if type(state) is dict else 1)
        if self.takes_state is None or not self.takes_state(target, state):
            raise UnsafeContentError(f"the file sets the state of {describe(target)}")

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
    ord("t"): Reader.op_marked_tuple,
    ord("]"): lambda r: r.push_open([]),
    ord("l"): Reader.op_list,
    ord("a"): Reader.op_append,
    ord("e"): Reader.op_appends,
    ord("}"): lambda r: r.push_open({}),
    ord("d"): Reader.op_dict,
    ord("s"): Reader.op_setitem,
    ord("u"): Reader.op_setitems,
    0x8F: lambda r: r.push_open(set()),
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
    """Constructors of Python's own data types; key_types: what else may be a key."""

    def members(budget: Budget, items: Any = ()) -> list[Any]:
        if type(items) not in (list, tuple, set, frozenset):
            raise FileFormatError("a set of something that is no list")
        for item in items:
            budget.key(items, item, key_types)
        return list(items)

    def ordered(budget: Budget, items: Any = ()) -> OrderedDict[Any, Any]:
        result: OrderedDict[Any, Any] = OrderedDict()
        if type(items) not in (list, tuple):
            raise FileFormatError("an OrderedDict of something that is no list of pairs")
        for pair in items:
            if type(pair) not in (list, tuple) or len(pair) != 2:
                raise FileFormatError("an OrderedDict of something that is no list of pairs")
            budget.key(result, pair[0], key_types)
            result[pair[0]] = pair[1]
        return result

    names: list[Global] = [
        Filled("collections.OrderedDict", ordered),
        Global("_codecs.encode", _encode),
    ]
    for module in ("builtins", "__builtin__"):
        names += [
            Filled(f"{module}.set", lambda budget, items=(): set(members(budget, items))),
            Filled(
                f"{module}.frozenset", lambda budget, items=(): frozenset(members(budget, items))
            ),
            Global(f"{module}.bytes", lambda: b""),  # how protocol 2 writes those without any
            Global(f"{module}.complex", _complex),
            Global(f"{module}.bytearray", _bytearray),
        ]
    return {entry.name: entry for entry in names}
