"""Measures the plugin ABI: `abi.py` prints what plugins/abi.lock must hold.

`abi.py --update --because "REASON"` writes the lock. While it holds the line `draft`, anything may
change, each time with its reason; without that line, what would break existing plugins is refused.

The headers are read for the names of structs, fields and constants; a generated C program, compiled
with them, then says what the compiler makes of each. A lock is a list of lines:

    abi 1.0
    struct tn_view 64                       size
    field tn_view.word 0 8 uint64_t         offset, size, type
    const TN_MAX_DIMS 64
    because REASON                          of each change while it was a draft
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "plugins" / "include"
LOCK = ROOT / "plugins" / "abi.lock"
HEADERS = ("status.h", "dtype.h", "device.h", "plugin.h")
# Doors with a version of their own (TN_ENGINE_VERSION), which core checks where it enters them.
OTHER_DOORS = ("engine.h",)
DECLARATOR = re.compile(
    r"^(?P<stars>[\s*]*(?:const\b)?[\s*]*)(?P<name>\w+)\s*(?P<dims>(?:\[[^]]*\])*)$"
)


def strip_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def squeeze(text: str) -> str:
    return re.sub(r"\s*\*\s*", " *", " ".join(text.split())).strip()


def fields_of(body: str) -> list[tuple[str, str]]:
    """(name, type text) of each member of a struct."""
    found = []
    for declaration in (squeeze(d) for d in body.split(";")):
        if not declaration:
            continue
        pointer = re.match(r"^(.*?)\(\s*\*\s*(\w+)\s*\)\s*(\(.*\))$", declaration)
        if pointer:
            found.append((pointer[2], squeeze(f"{pointer[1]}(*){pointer[3]}")))
            continue
        first, *rest = declaration.split(",")
        base = re.match(r"^((?:const\s+)?(?:struct\s+)?\w+)\b(.*)$", first)
        if not base:
            raise ValueError(f"cannot read the member '{declaration}'")
        for declarator in [base[2], *rest]:
            m = DECLARATOR.match(declarator.strip())
            if not m:
                raise ValueError(f"cannot read the member '{declaration}'")
            found.append((m["name"], squeeze(f"{base[1]} {m['stars']}{m['dims']}")))
    return found


def structs_of(text: str) -> dict[str, list[tuple[str, str]]]:
    """C name of each struct with a body -> its members."""
    found = {}
    for m in re.finditer(r"typedef struct \w+ \{(.*?)\n\} (\w+);", text, flags=re.S):
        found[m[2]] = fields_of(m[1])
    for m in re.finditer(r"^struct (\w+) \{(.*?)\n\};", text, flags=re.S | re.M):
        found[f"struct {m[1]}"] = fields_of(m[2])
    return found


def constants_of(text: str) -> list[str]:
    """Object-like macros with a value, and enumerators that are spelled out."""
    macros = re.findall(r"^#define (TN_\w+)[ \t]+(?!__)\S", text, flags=re.M)
    lists = [m for m in re.finditer(r"^enum \w+ \{(?!\s*#)(.*?)\}", text, flags=re.S | re.M)]
    macros += [name for m in lists for name in re.findall(r"\b(TN_\w+)", m[1])]
    return [m for m in macros if not m.endswith("_LIST") and not m.endswith("_EXPORT")]


def program(include: Path) -> str:
    body = []
    for header in HEADERS:
        text = strip_comments((include / "tenon" / header).read_text())
        for name, fields in structs_of(text).items():
            short = name.removeprefix("struct ")
            body.append(f'    printf("struct {short} %zu\\n", sizeof({name}));')
            for field, kind in fields:
                body.append(
                    f'    printf("field {short}.{field} %zu %zu {kind}\\n", '
                    f"offsetof({name}, {field}), sizeof((({name} *)0)->{field}));"
                )
        for name in constants_of(text):
            if re.search(rf'#define {name}\s+"', text):
                body.append(f'    printf("const {name} %s\\n", {name});')
            else:
                body.append(f'    printf("const {name} %lld\\n", (long long)({name}));')
    status = '#define S(n, v, m, e) printf("const TN_%s %d\\n", #n, (int)TN_##n);'
    dtype = (
        "#define D(id, s, n, bytes, dl, cat, c) "
        'printf("const TN_%s %d %s %d %d %d\\n", #id, s, n, bytes, dl, (int)TN_CAT_##cat);'
    )
    lines = ["#include <stdio.h>", "#include <tenon/plugin.h>", status, dtype, "int main(void) {"]
    lines += ['    printf("abi %d.%d\\n", TN_ABI_MAJOR, TN_ABI_MINOR);', *body]
    lines += ["    TN_STATUS_LIST(S)", "    TN_DTYPE_LIST(D)", "    return 0;", "}", ""]
    return "\n".join(lines)


def measure(include: Path = INCLUDE, compiler: str = "cc") -> list[str]:
    """The lock's lines for the headers in `include`."""
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder, "abi.c"), Path(folder, "abi")
        source.write_text(program(include))
        command = [compiler, "-std=c11", f"-I{include}", str(source), "-o", str(binary)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        run = subprocess.run([binary], check=True, capture_output=True, text=True)
        return run.stdout.splitlines()


def version(lines: list[str]) -> tuple[int, int]:
    major, minor = lines[0].split()[1].split(".")
    return int(major), int(minor)


def gaps(lines: list[str]) -> list[str]:
    """Implicit padding: a member added there would not change the struct's size."""
    ends: dict[str, int] = {}
    sizes = {line.split()[1]: int(line.split()[2]) for line in lines if line.startswith("struct ")}
    faults = []
    for line in lines:
        if not line.startswith("field "):
            continue
        _, path, offset, size, *_ = line.split()
        struct = path.split(".")[0]
        if int(offset) != ends.get(struct, 0):
            faults.append(f"there is padding before {path}")
        ends[struct] = int(offset) + int(size)
    return faults + [f"there is padding at the end of {s}" for s in sizes if ends[s] != sizes[s]]


def facts(lock: list[str]) -> list[str]:
    """The measured part of a lock."""
    return [line for line in lock if line != "draft" and not line.startswith("because ")]


def breaks(old: list[str], new: list[str]) -> list[str]:
    """What in `new` breaks plugins that were built with `old`."""
    if "draft" in old or version(new)[0] > version(old)[0]:
        return []
    grown = {line.split()[1] for line in old if line.startswith("struct ")}
    # Versions grow, and so may structs at their ends; everything else stays.
    growing = ("abi ", "struct ", "const TN_ABI_MINOR ", "const TN_ABI_TARGET ")
    lasting = [line for line in facts(old) if not line.startswith(growing)]
    faults = [f"changed or removed: {line}" for line in lasting if line not in new]
    added = [line for line in new if line not in old and not line.startswith(growing)]
    if version(new) <= version(old):
        faults += [f"added without a new TN_ABI_MINOR: {line}" for line in added]
    sizes = {line.split()[1]: int(line.split()[2]) for line in old if line.startswith("struct ")}
    for line in added:
        if line.startswith("field "):
            struct = line.split()[1].split(".")[0]
            if struct in grown and int(line.split()[2]) < sizes[struct]:
                faults.append(f"not at the end of its struct: {line}")
    return faults


def main() -> int:
    lines = measure()
    if "--update" not in sys.argv:
        print("\n".join(lines))
        return 0
    old = LOCK.read_text().splitlines()
    faults = gaps(lines) + breaks(old, lines)
    notes = [line for line in old if line == "draft" or line.startswith("because ")]
    if "draft" in old and facts(old) != lines:
        if "--because" in sys.argv[:-1]:
            notes.append(f"because {sys.argv[sys.argv.index('--because') + 1]}")
        else:
            faults.append("say why: --because REASON")
    if faults:
        print("\n".join(faults), file=sys.stderr)
        return 1
    LOCK.write_text("\n".join([*lines, *notes]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
