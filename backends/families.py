"""What stands at the heads of kernel files, as lists for the build.

The first comment of a file may end with a line such as

    family: softmax; types: float; isa: each; fused; small: f16 bf16

    family   the file ends with rows, <backend>_softmax_rows, which the plugin registers
    types    compiled once per element type: words and names of TYPES and SLOTS; without: once
    isa      `each`: compiled once per instruction set; rare element types for the baseline alone
    fused    sums of products may be contracted, which is faster and closer
    small    element types whose code is kept small: vectors, but tails of rows without

    families.py lists FOLDER ISA...     for Meson, one thing a line:
        unit;NAME;SLOT;ISA;HOW;FILE,FILE     what is compiled; slot -1: no element type;
                                             HOW: fused, small, least (a better set is there)
        module;NAME;SLOT;FILE                CUDA C, in FOLDER/kernels
        header;FILE                          what that includes
        digest;HASH                          of all the lines before
    families.py rows FOLDER ISA... --out FILE --digest HASH
        the X-macro of rows; HASH is that of the lists when the build was configured
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RARE = ("b8", "i8", "i16", "c64", "c128")
BASELINE = "baseline"
KEYS = {"family", "types", "isa", "fused", "small"}


def slots() -> dict[str, tuple[int, str]]:
    """Slot and category of each built-in dtype, by the short name that kernels have."""
    text = (ROOT / "plugins/include/tenon/dtype.h").read_text(encoding="utf-8")
    rows = re.findall(r'X\((\w+), (\d+), "\w+", \d+, \d+, (\w+),', text)
    return {
        "b8" if name == "BOOL" else name.lower(): (int(slot), category)
        for name, slot, category in rows
    }


SLOTS = slots()
TYPES = {
    "all": {"BOOL", "INT", "FLOAT", "COMPLEX"},
    "real": {"BOOL", "INT", "FLOAT"},
    "int": {"INT"},
    "float": {"FLOAT"},
    "complex": {"COMPLEX"},
}


class Wrong(Exception):
    """A head that cannot be taken, or does not fit the file."""


@dataclass
class Source:
    path: Path
    family: str = ""
    types: list[str] = field(default_factory=list)
    each_isa: bool = False
    fused: bool = False
    small: list[str] = field(default_factory=list)


def chosen(path: Path, words: str) -> list[str]:
    """The element types behind the words, in order of slots."""
    names: set[str] = set()
    for word in words.split():
        if word not in SLOTS and word not in TYPES:
            raise Wrong(f"{path}: `types: {word}`: neither an element type nor one of {[*TYPES]}")
        names |= {n for n, (_, c) in SLOTS.items() if n == word or c in TYPES.get(word, ())}
    return [n for n in SLOTS if n in names]


def read_head(path: Path) -> Source:
    head = path.read_text(encoding="utf-8").partition("*/")[0]
    lines = [s.strip(" *") for s in head.split("\n")]
    found = [s for s in lines if re.match(rf"({'|'.join(KEYS)})(: \w[\w ]*)?(;|$)", s)]
    source = Source(path)
    if len(found) > 1 or (found and found[0] != lines[-1]):
        raise Wrong(f"{path}: one line tells the build what to do, the last of the first comment")
    for part in found[0].split("; ") if found else []:
        key, _, value = part.partition(": ")
        if key not in KEYS or (key == "isa" and value != "each") or (key == "fused") == bool(value):
            raise Wrong(
                f"{path}: `{part}` is none of: family: NAME, types: NAMES, isa: each, fused, "
                "small: NAMES"
            )
        source.family = value if key == "family" else source.family
        source.types = chosen(path, value) if key == "types" else source.types
        source.each_isa |= key == "isa"
        source.fused |= key == "fused"
        source.small = chosen(path, value) if key == "small" else source.small
    return source


def check_rows(source: Source, backend: str) -> None:
    """The rows that the file ends with are those that its head names."""
    text = source.path.read_text(encoding="utf-8")
    rows = re.findall(rf"^const {backend}_rows (\w+\(?)\s*(\w*)\)? =", text, re.MULTILINE)
    macro = "TN_(" if source.types else "ISA_(" if source.each_isa else ""
    name = f"{backend}_{source.family}_rows"
    wanted = [(macro, name) if macro else (name, "")] if source.family else []
    if rows != wanted:
        has = ", ".join(f"{a}{b}{')' if b else ''}" for a, b in rows) or "none"
        says = f"{macro}{name}{')' if macro else ''}" if source.family else "none"
        raise Wrong(f"{source.path}: its head promises the rows {says}, it has {has}")


def sources(folder: Path) -> list[Source]:
    """The C files of a backend's rooms and beside them."""
    found = [read_head(p) for p in sorted([*folder.glob("*.c"), *folder.glob("*/*.c")])]
    first: dict[str, Path] = {}
    for source in found:
        check_rows(source, folder.name)
        if source.family and source.family in first:
            both = f"{first[source.family]} and {source.path}"
            raise Wrong(f"family {source.family} is in two files, {both}")
        first[source.family] = source.path
    return found


def variants(source: Source, isas: list[str]) -> list[tuple[str, str]]:
    """(element type, instruction set) of each time that the file is compiled; "" for none."""
    sets = isas if source.each_isa else [BASELINE]
    if not source.types:
        return [("", isa) for isa in sets] if source.each_isa else [("", "")]
    return [(t, isa) for isa in sets for t in source.types if t not in RARE or isa == BASELINE]


def how(source: Source, variant: tuple[str, str], isas: list[str]) -> list[str]:
    """What the compiler is told: the least of code that serves where a better set is missing."""
    dtype, isa = variant
    told = ["fused"] if source.fused else []
    if isa == BASELINE and sum(dtype == t for t, _ in variants(source, isas)) > 1:
        return [*told, "least"]
    return [*told, "small"] if dtype in source.small else told


def units(folder: Path, isas: list[str]) -> list[str]:
    files: dict[tuple[str, ...], list[str]] = {}
    for source in sources(folder):
        for variant in variants(source, isas):
            name = str(source.path.relative_to(folder))
            files.setdefault((*variant, *how(source, variant, isas)), []).append(name)
    lines = []
    for (dtype, isa, *flags), names in files.items():
        name = "_".join(filter(None, (folder.name, dtype, isa, *flags)))
        slot = SLOTS[dtype][0] if dtype else -1
        lines.append(f"unit;{name};{slot};{isa};{','.join(flags)};{','.join(names)}")
    return lines


def modules(folder: Path) -> list[str]:
    lines = []
    for source in map(read_head, sorted((folder / "kernels").glob("*.cu"))):
        stem, file = source.path.stem, source.path.relative_to(folder)
        for dtype in source.types or [""]:
            slot = SLOTS[dtype][0] if dtype else -1
            lines.append(f"module;{'_'.join(filter(None, (stem, dtype)))};{slot};{file}")
    return lines


def headers(folder: Path) -> list[str]:
    """All that the CUDA C of a backend includes, but for what is generated and the C library's."""
    places = [folder / "kernels", folder / "kernels/args", folder.parent / "common"]
    found: set[Path] = set()
    # Beside the kernels: what core's table of operators includes, once per operator.
    left = [*sorted((folder / "kernels").glob("*.cu")), *(folder / "kernels").glob("map_tmpl.h")]
    while left:
        path = left.pop()
        found.add(path)
        for name in re.findall(r'#\s*include "([\w.]+)"', path.read_text(encoding="utf-8")):
            hits = [p / name for p in places if (p / name).exists()]
            left += [p for p in hits[:1] if p not in found]
    return [f"header;{p.relative_to(folder.parent)}" for p in sorted(found) if p.suffix == ".h"]


def lists(folder: Path, isas: list[str]) -> list[str]:
    lines = [*units(folder, isas), *modules(folder), *headers(folder)]
    return [*lines, f"digest;{hashlib.sha256(chr(10).join(lines).encode()).hexdigest()[:16]}"]


def rows_list(folder: Path, isas: list[str]) -> str:
    """The X-macro: X(rows, set), where the set is an instruction set or ANY."""
    rows = []
    for source in (s for s in sources(folder) if s.family):
        for dtype, isa in variants(source, isas):
            name = "_".join(filter(None, (f"{folder.name}_{source.family}_rows", dtype, isa)))
            rows.append((name, isa.upper() if source.each_isa and dtype not in RARE else "ANY"))
    listed = " \\\n".join(f"    X({name}, {chosen})" for name, chosen in rows)
    macro = f"{folder.name.upper()}_ROWS_LIST(X)"
    return f"/* Generated by families.py. */\n#define {macro} \\\n{listed}\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["lists", "rows"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("isas", nargs="+")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--digest")
    args = parser.parse_args()
    args.isas.sort(key=lambda isa: isa != BASELINE)  # Meson sorts the names as it likes
    now = lists(args.folder, args.isas)
    if args.command == "lists":
        print("\n".join(now))
    elif now[-1] != f"digest;{args.digest}":
        what = "a head or an include changed after the build was configured: touch meson.build"
        raise Wrong(f"{args.folder}: {what}")
    else:
        args.out.write_text(rows_list(args.folder, args.isas), encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except Wrong as wrong:
        sys.exit(str(wrong))
