"""What a shared library says of itself: read as data, so that none of its code runs."""

from __future__ import annotations

import platform
import struct
from dataclasses import dataclass, field
from pathlib import Path

from tenon._plugin.files import contents

MAX_BYTES = 4 << 30
DYNAMIC, DYNSYM, VERNEED = 6, 11, 0x6FFFFFFE  # section types
NEEDED = 1  # tag in the dynamic section
MACHINES = {"x86_64": 62, "aarch64": 183, "riscv64": 243, "ppc64le": 21, "s390x": 22}


@dataclass
class Elf:
    machine: int
    needed: list[str] = field(default_factory=list)
    exported: set[str] = field(default_factory=set)
    undefined: set[str] = field(default_factory=set)
    versions: set[str] = field(default_factory=set)  # of other libraries' symbols: "GLIBC_2.29"

    def fits(self) -> bool:
        """Whether it is for this machine's processor; true where that is not known."""
        return self.machine == MACHINES.get(platform.machine(), self.machine)


def read(path: Path) -> Elf:
    return parse(contents(path, MAX_BYTES))


def parse(data: bytes) -> Elf:
    """Raises ValueError with what is wrong when it is no 64-bit shared library."""
    if data[:4] != b"\x7fELF":
        raise ValueError("it is no shared library (no ELF file)")
    if data[4:5] != b"\x02":
        raise ValueError("it is not for a 64-bit machine")
    order = "<" if data[5:6] == b"\x01" else ">"
    try:
        return _read(data, order)
    except (struct.error, IndexError, OverflowError):
        raise ValueError("it is cut off or damaged") from None


def _read(data: bytes, order: str) -> Elf:
    kind, machine = struct.unpack_from(f"{order}HH", data, 16)
    if kind != 3:
        raise ValueError("it is no shared library (link it with -shared)")
    (table,) = struct.unpack_from(f"{order}Q", data, 40)
    _, count = struct.unpack_from(f"{order}HH", data, 58)
    sections = [
        struct.unpack_from(f"{order}IIQQQQIIQQ", data, table + 64 * i) for i in range(count)
    ]
    found = Elf(machine)

    def text(strings: tuple[int, ...], at: int) -> str:
        start = strings[4] + at
        return data[start : data.index(b"\0", start)].decode(errors="replace")

    for section in sections:
        _, what, _, _, offset, size, link, _, _, _ = section
        if what == DYNAMIC:
            for at in range(offset, offset + size, 16):
                tag, value = struct.unpack_from(f"{order}QQ", data, at)
                if tag == NEEDED:
                    found.needed.append(text(sections[link], value))
        elif what == DYNSYM:
            for at in range(offset + 24, offset + size, 24):
                name, info, _, where = struct.unpack_from(f"{order}IBBH", data, at)
                weak = info >> 4 == 2
                if where:
                    found.exported.add(text(sections[link], name))
                elif not weak:
                    found.undefined.add(text(sections[link], name))
        elif what == VERNEED:
            names = _version_names(data, order, offset)
            found.versions |= {text(sections[link], name) for name in names}
    return found


def _version_names(data: bytes, order: str, at: int) -> list[int]:
    """Where the names of the versions stand that a library needs: lists in a list, each entry with
    the distance to the next, 0 for the last."""
    names = []
    step = -1
    while step:
        _, _, _, first, step = struct.unpack_from(f"{order}HHIII", data, at)
        inner, inner_step = at + first, -1
        while inner_step:
            _, _, _, name, inner_step = struct.unpack_from(f"{order}IHHII", data, inner)
            names.append(name)
            inner += inner_step
        at += step
    return names
