"""Rules of the house, checked: `check_src.py` reports, `check_src.py --fix` formats.

Looks at the files that git knows or would add. Each rule is one function that yields
"file:line: what is wrong"; the last lines of the output say how many rules hold.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numerics
import statuses

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("dispatch", "autograd", "backends", "plugins", "nn", "optim", "python")
# Programs beside the library: they print, end, call the system, and know the public headers alone.
PROGRAMS = ("plugins/conform",)
MAX_LINES = 800
MAX_README_LINES = 80
MAX_MACRO_LINES = 5
# What a library must not do to its user: print, end the process, write past a buffer.
BANNED = re.compile(
    r"(?<![\w.>])(printf|vprintf|puts|putchar|perror|abort|exit|_exit|quick_exit|strcpy|strcat|"
    r"sprintf|vsprintf|gets|strtok|rand|srand|system|popen|setjmp|longjmp|alloca)\s*\("
)
STD_STREAMS = re.compile(r"\b(stdout|stderr)\b")
# Who lends memory of a size that somebody computed, and the files that may ask for bytes.
LENDERS = re.compile(r"\b(room_scratch|room_bytes|cpu_room|malloc|calloc)\(")
RAW_LENDERS = re.compile(r"(\bhost->scratch|(?<!\w)cpu_alloc)\s*\(")
RAW_FILES = {"room.h", "cpu_priv.h", "alloc.c"}
# A product that nothing checks: not of constants, and not what rounds a quotient up.
CONSTANT = r"(?:\d+|[A-Z][A-Z_0-9]*|sizeof(?:\([^()]*\)| \**[\w.>\[\]-]+))"
OWN_LOCK = re.compile(r"\bcpu_lock \w+(\[\w+\])?(;| =)")
PRODUCT = re.compile(r"[\w\])] \* [\w(]")
# Words in capitals that stand for work left undone; put together here so as not to find themselves.
UNDONE = re.compile("|".join(rf"\b{word}\b" for word in ("TO" + "DO", "FIX" + "ME", "X" * 3)))
UNMERGED = re.compile("^(?:<{7}|>{7}) ")
# Headers of ours that the files of a room may include, besides those of the room itself.
SDK = {"tenon/plugin.h", "tenon/op_args.h", "tenon/status.h", "tenon/dtype.h", "tenon/device.h"}
SDK |= {"tenon/engine.h"}
SDK |= {"pointwise_ops.inc", "pointwise_rows.inc"}
FAMILIES = sorted(p.stem for p in ROOT.glob("dispatch/ops/*.toml"))
SDK |= {f"tenon/args_{name}.h" for name in FAMILIES}
CORE = SDK | {"tenon/tensor.h", "tenon/error.h", "tenon/random.h", "tenon/runtime.h", "tenon/ops.h"}
CORE |= {"tenon/ops_meta.h", "tenon/device_ext.h", "tenon/processes.h", "tenon/program.h"}
CORE |= {"tenon/wrapped.h", *(f"tenon/ops_{name}.h" for name in FAMILIES)}
KNOWS = {
    "backends": SDK,
    "dispatch": CORE,
    "plugins": CORE | {"tenon/ffi.h"},
    "autograd": CORE | {"tenon/autograd.h"},
    "nn": CORE | {"tenon/autograd.h", "tenon/nn.h"},
    "optim": CORE | {"tenon/autograd.h", "tenon/nn.h", "tenon/optim.h"},
    "plugins/conform": CORE | {"tenon/autograd.h"},
    "python": CORE | {"tenon/autograd.h", "tenon/nn.h", "tenon/optim.h", "tenon/tenon.h"}
    | {"tenon/ffi.h", "py_rows.inc"},
}  # fmt: skip
# The rooms of libtenon from the bottom up: a room knows itself and those in front of it.
ORDER = (
    "dispatch/ground", "dispatch/device", "dispatch/tensor", "dispatch/call", "dispatch/added",
    "dispatch/processes", "dispatch/door", "dispatch/operators", "dispatch/program", "autograd",
    "nn", "optim", "plugins", "plugins/ffi",
)  # fmt: skip
BACKENDS = {
    "backends/cpu": ("host", "walk", "libs", "map", "random", "ops", "."),
    "backends/cuda": ("kernels/args", "host", "libs", "ops", "."),
}
HOUSES = (ORDER, *(tuple(str(Path(b, r)) for r in rooms) for b, rooms in BACKENDS.items()))
GENERATED = {"op_args.h", "ops.h", "op_list.c", "ops.json", "py_rows.inc", "_ops.pyi", "ops.md"}
GENERATED |= {f"op_{name}.{end}" for name in FAMILIES for end in ("c", "h")}


def sources() -> list[Path]:
    names = []
    if shutil.which("git"):
        command = ["git", "ls-files", "-co", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        names = listed.stdout.splitlines() if listed.returncode == 0 else []
    if not names:  # an unpacked archive, or no git
        skipped = {".venv", ".cache", ".git", *(p.parts[-2] for p in ROOT.glob("*/meson-private"))}
        paths = (p.relative_to(ROOT) for p in ROOT.rglob("*") if p.is_file())
        names = [str(p) for p in paths if p.parts[0] not in skipped and p.suffix != ".pyc"]
    return [ROOT / n for n in names if (ROOT / n).is_file()]


FILES = sources()
C_FILES = [p for p in FILES if p.suffix in (".c", ".h", ".cpp", ".cu")]
PY_FILES = [p for p in FILES if p.suffix == ".py"]


def room(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    program = "/".join(parts[:2])
    if program in PROGRAMS:
        return program
    return parts[0] if len(parts) > 1 else ""


def product() -> Iterator[Path]:
    """The library's files."""
    return (p for p in C_FILES if room(p) in ROOMS)


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def at(path: Path, line: int, message: str) -> str:
    return f"{path.relative_to(ROOT)}:{line}: {message}"


def code_lines(path: Path) -> list[str]:
    """Lines of a C file with comments and string contents blanked."""

    def blank(m: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", m[0]) if m[0].startswith("/") else '""'

    pattern = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"'
    return re.sub(pattern, blank, text_of(path), flags=re.S).split("\n")


def matches(path: Path, pattern: re.Pattern[str], message: str) -> Iterator[str]:
    for n, line in enumerate(code_lines(path), 1):
        for m in pattern.finditer(line):
            yield at(path, n, message.format(m[0].rstrip("( ")))


# ---- Rules ---------------------------------------------------------------------------------------


def file_length() -> Iterator[str]:
    for path in [*C_FILES, *PY_FILES, *(p for p in FILES if p.suffix == ".toml")]:
        n = text_of(path).count("\n")
        if n > MAX_LINES:
            yield at(path, n, f"{n} lines; split the file at {MAX_LINES}")


def head_comment() -> Iterator[str]:
    for path in C_FILES:
        if not text_of(path).startswith(("/*", "//")):
            yield at(path, 1, "starts with no comment that says what the file is for")
    for path in PY_FILES:
        text = text_of(path)
        if text.strip() and not re.match(r"(#[^\n]*\n)*\s*[rR]?\"\"\"", text):
            yield at(path, 1, "has no docstring that says what the file is for")


def banned_calls() -> Iterator[str]:
    for path in product():
        yield from matches(path, BANNED, "{} is not for library code")
        yield from matches(path, STD_STREAMS, "the library does not write to {}")


def macro_length() -> Iterator[str]:
    for path in C_FILES:
        lines = code_lines(path)
        for n, line in enumerate(lines):
            m = re.match(r"\s*#\s*define\s+(\w+)", line)
            if not m or m[1].endswith("_LIST"):
                continue  # a list of X(...) rows may have as many rows as it needs
            end = n
            while lines[end].rstrip().endswith("\\"):
                end += 1
            if end - n > MAX_MACRO_LINES:
                yield at(path, n + 1, f"macro {m[1]} has {end - n + 1} lines; write a function")


def floor(path: Path) -> str:
    """The room of a house that a file lies in; "" for others."""
    folder = str(path.relative_to(ROOT).parent)
    return folder if any(folder in house for house in HOUSES) else ""


def rooms_look_down() -> Iterator[str]:
    """A file includes headers of its own room and of those below."""
    for house in HOUSES:
        files = [p for p in C_FILES if floor(p) in house]
        homes = {p.name: floor(p) for p in files if p.suffix == ".h"}
        for path in files:
            for n, line in enumerate(text_of(path).split("\n"), 1):
                m = re.match(r'\s*#\s*include "(?:kernels/args/)?([\w.]+)"', line)
                home = homes.get(m[1]) if m else None
                if not m or not home or house.index(home) <= house.index(floor(path)):
                    continue
                yield at(path, n, f'room {floor(path)} may not know "{m[1]}" of {home} above it')


def compiled() -> dict[str, dict[Path, list[Path]]]:
    """By target folder of the newest build: its objects of files of ours. Templates and what is
    compiled by dtype or instruction set have several. Generated files stand in no room."""
    folders = sorted(ROOT.glob("build*/libtenon.so.p"), key=lambda p: p.stat().st_mtime)
    groups: dict[str, dict[Path, list[Path]]] = {}
    if not folders or not shutil.which("nm"):
        return groups
    build = folders[-1].parent
    sources = [p for p in product() if p.suffix != ".h"]
    for folder in build.glob("**/*.p"):
        base = str(folder.parent.relative_to(build))
        if base.startswith("tests"):
            continue
        for path in sources:
            named = path.relative_to(ROOT / base) if path.is_relative_to(ROOT / base) else None
            one = folder / (str(named).replace("/", "_") + ".o")
            if named and one.exists():
                groups.setdefault(base, {}).setdefault(path, []).append(one)
    return groups


def calls(group: dict[Path, list[Path]]) -> dict[Path, dict[Path, str]]:
    """Which file of a target uses which others, and by what symbol, as its objects say."""
    owner = {o: path for path, objects in group.items() for o in objects}
    command = ["nm", "-A", *map(str, owner)]
    listed = subprocess.run(command, capture_output=True, text=True).stdout
    symbols = re.findall(r"^(.*?):\s*[0-9a-f]* (\w) (\S+)$", listed, re.M)
    homes = {name: owner[Path(o)] for o, kind, name in symbols if kind.isupper() and kind != "U"}
    uses: dict[Path, dict[Path, str]] = {}
    for o, kind, name in symbols:
        if kind == "U" and name in homes and homes[name] != owner[Path(o)]:
            uses.setdefault(owner[Path(o)], {})[homes[name]] = name
    return uses


def includes() -> dict[Path, dict[Path, str]]:
    """Which file includes which of ours, as the compiler looks: beside it first, then by name."""
    files = list(product())
    homes: dict[str, list[Path]] = {}
    for path in files:
        homes.setdefault(path.name, []).append(path)
    uses: dict[Path, dict[Path, str]] = {}
    for path in files:
        for name in re.findall(r'^\s*#\s*include\s+["<]([\w/.+-]+)[">]', text_of(path), re.M):
            beside = path.parent / name
            found = [q for q in homes.get(Path(name).name, []) if str(q).endswith("/" + name)]
            near = [q for q in found if room(q) == room(path)] or found
            for q in [beside] if beside in files else near[:1]:
                uses.setdefault(path, {})[q] = name
    return uses


def calls_look_down() -> Iterator[str]:
    """No file uses a function or datum of a room above it. What a lower room needs of a higher one
    is a table that the higher one fills at start."""
    for group in compiled().values():
        for path, used in calls(group).items():
            for home, name in used.items():
                both = floor(home) in ORDER and floor(path) in ORDER
                if both and ORDER.index(floor(home)) > ORDER.index(floor(path)):
                    yield at(path, 1, f"uses {name} of {home.relative_to(ROOT)} above it")


def small_circles() -> Iterator[str]:
    """No more than two files use each other, directly or by way of others: by what their objects
    call, and by what they include."""
    for uses in (includes(), *map(calls, compiled().values())):
        reach: dict[Path, set[Path]] = {}
        for path in uses:
            seen, open_ = set(), [path]
            while open_:
                more = set(uses.get(open_.pop(), ())) - seen
                seen |= more
                open_ += more
            reach[path] = seen
        circles = {frozenset(q for q in reach[p] if p in reach.get(q, ())) for p in reach}
        for circle in (c for c in circles if len(c) > 2):
            names = ", ".join(sorted(p.name for p in circle))
            yield at(min(circle), 1, f"{len(circle)} files use each other: {names}")


def room_includes() -> Iterator[str]:
    for path in (p for p in C_FILES if room(p) in (*ROOMS, *PROGRAMS)):
        own = room(path)
        for n, line in enumerate(text_of(path).split("\n"), 1):
            m = re.match(r'\s*#\s*include\s+["<]([\w/.+-]+)[">]', line)
            umbrella = path.name == "tenon.h"  # includes every public header, by its nature
            if not m or m[1] in KNOWS[own] or umbrella:
                continue
            if m[1].startswith("tenon/"):
                yield at(path, n, f"room {own} may not know <{m[1]}>")
            elif floor(path) in ORDER and any(
                p.name == m[1] and floor(p) in ORDER for p in C_FILES
            ):
                continue  # rooms_look_down judges it
            elif any(p.name == Path(m[1]).name and room(p) not in (own, "tests") for p in C_FILES):
                if not any(p.name == Path(m[1]).name and room(p) == own for p in C_FILES):
                    yield at(path, n, f'room {own} may not know "{m[1]}" of another room')


def enclosed(text: str, start: int) -> str:
    """What stands between the parenthesis at `start` and the one that closes it."""
    depth = 0
    for i in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return " ".join(text[start + 1 : i].split())
    return ""


def is_bare_product(expression: str) -> bool:
    """Whether sizes are multiplied in it without a check."""
    rest = re.sub(r"\((?:size_t|u?int\d+_t|const [\w ]+\*|[\w ]+\*)\)", "", expression)
    rest = re.sub(rf"{CONSTANT}(?: \* {CONSTANT})+|/ (\w+) \* \1\b", "1", rest)
    return PRODUCT.search(rest) is not None


def bare_products() -> Iterator[str]:
    """Sizes of memory are products that room_mul or calloc checks: in the call that asks for the
    memory and, for kernels, in the local variables that the call names."""
    for path in product():
        text = "\n".join(code_lines(path))
        if room(path) == "backends" and path.name not in RAW_FILES:
            yield from matches(path, RAW_LENDERS, "{} takes bytes; room_scratch and cpu_room check")
        for m in LENDERS.finditer(text):
            line = text.count("\n", 0, m.start()) + 1
            size = enclosed(text, m.end() - 1)
            body = text[text.rfind("\n}", 0, m.start()) + 1 : m.start()]
            parts = [] if size.startswith(("sizeof *", "1, sizeof *")) else [size]
            if m[1] not in ("malloc", "calloc"):  # count, then bytes of an element
                parts = [re.split(r", (?![^(]*\))", size)[m[1] != "cpu_room"]]
                for name in re.findall(r"(?<![\w.>&])[a-z]\w*(?![\w(])", parts[0]):
                    parts += re.findall(rf"(?<![\w.>]){name} [+*]?= ([^;,]*)[;,]", body)
            if any(is_bare_product(part) for part in parts):
                yield at(path, line, f"the size for {m[1]} is a product that nothing checks")


def undone_work() -> Iterator[str]:
    for path in [
        *C_FILES,
        *PY_FILES,
        *(p for p in FILES if p.suffix in (".toml", ".md", ".build")),
    ]:
        for n, line in enumerate(text_of(path).split("\n"), 1):
            if UNDONE.search(line) or UNMERGED.match(line):
                yield at(path, n, "unfinished work belongs into no source file")


def no_generated_files() -> Iterator[str]:
    for path in FILES:
        if path.name in GENERATED:
            yield at(path, 1, "is generated and does not belong into git")


def room_readmes() -> Iterator[str]:
    for name in (*ROOMS, *PROGRAMS):
        path = ROOT / name / "README.md"
        if not path.exists():
            yield at(path, 1, "is missing: what lives here, what may not, read in this order")
        elif text_of(path).count("\n") > MAX_README_LINES:
            yield at(path, MAX_README_LINES, f"is longer than {MAX_README_LINES} lines")


def unique_operators() -> Iterator[str]:
    seen: dict[str, Path] = {}
    for path in (p for p in FILES if p.match("dispatch/ops/*.toml")):
        for name in tomllib.loads(text_of(path)):
            if name in seen:
                yield at(path, 1, f"operator {name} is also in {seen[name].relative_to(ROOT)}")
            seen[name] = path


def unique_test_files() -> Iterator[str]:
    """pytest imports every test file by its bare name."""
    seen: dict[str, Path] = {}
    for path in PY_FILES:
        if path.name.startswith("test_") and path.name in seen:
            yield at(path, 1, f"the name is that of {seen[path.name].relative_to(ROOT)}")
        seen[path.name] = path


def whitespace() -> Iterator[str]:
    for path in [
        *C_FILES,
        *PY_FILES,
        *(p for p in FILES if p.suffix in (".toml", ".md", ".build")),
    ]:
        text = text_of(path)
        if text and not text.endswith("\n"):
            yield at(path, text.count("\n") + 1, "has no newline at its end")
        for n, line in enumerate(text.split("\n"), 1):
            if "\t" in line or line != line.rstrip():
                yield at(path, n, "has a tab or a trailing space")


def system_calls_in_one_file() -> Iterator[str]:
    """Of libtenon, only dispatch/ground/os.c talks to the system; plugins do as they like."""
    headers = re.compile(r"#include <(unistd|dlfcn|pthread|fcntl|dirent|sys/\w+|sched)\.h>")
    for path in product():
        library = room(path) in ("dispatch", "autograd", "plugins", "nn", "optim")
        library &= path.relative_to(ROOT).parts[:2] not in (
            ("plugins", "sim"),
            ("plugins", "examples"),
        )
        if not library or path.name in ("os.c", "os_priv.h"):
            continue
        for n, line in enumerate(text_of(path).split("\n"), 1):
            if headers.match(line):
                yield at(path, n, "operating-system calls belong into dispatch/ground/os.c")


def locks_that_forks_know() -> Iterator[str]:
    """A fork takes every lock of the CPU plugin; it finds those that CPU_LOCK made."""
    for path in product():
        if path.is_relative_to(ROOT / "backends/cpu") and path.name != "cpu_priv.h":
            yield from matches(path, OWN_LOCK, "{} is not known to forks: CPU_LOCK(name)")


def no_numerics_in_python() -> Iterator[str]:
    tables = sorted(ROOT.glob("dispatch/ops/*.toml"))
    for path, line, message in numerics.complaints(ROOT / "python" / "tenon", tables):
        yield at(path, line, message)


def no_status_thrown_away() -> Iterator[str]:
    tables = [tomllib.loads(text_of(p)) for p in FILES if p.match("dispatch/ops/*.toml")]
    made = {f"tn_{name.replace('.', '_')}" for table in tables for name in table}
    for path, line, name in statuses.thrown_away(C_FILES, made):
        yield at(path, line, f"nobody looks at what {name} answers")


def no_call_after_a_failed_step() -> Iterator[str]:
    for path, line, name in statuses.gone_on(C_FILES):
        yield at(
            path, line, f"{name} goes on with a step that failed: make it before, and use SCOPE"
        )


RULES = (
    file_length, head_comment, banned_calls, macro_length, bare_products, room_includes,
    rooms_look_down, calls_look_down,
    small_circles, undone_work, no_generated_files, room_readmes, unique_operators,
    unique_test_files, whitespace, system_calls_in_one_file, locks_that_forks_know,
    no_numerics_in_python,
    no_status_thrown_away, no_call_after_a_failed_step,
)  # fmt: skip


# ---- Formatters ----------------------------------------------------------------------------------


def tool(name: str) -> str | None:
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name)


def formatters(fix: bool) -> Iterator[tuple[str, list[str]]]:
    """(name, complaints) of each formatter; one that is not installed says so."""
    python = [str(p) for p in PY_FILES]
    c = [str(p) for p in C_FILES]
    commands = {
        "ruff check": [
            "ruff",
            "check",
            "-q",
            "--output-format=concise",
            *(["--fix"] if fix else []),
            *python,
        ],
        "ruff format": ["ruff", "format", "-q", *([] if fix else ["--check"]), *python],
        "clang-format": ["clang-format", *(["-i"] if fix else ["--dry-run", "-Werror"]), *c],
    }
    for name, (program, *args) in commands.items():
        path = tool(program)
        if path is None:
            print(f"note: {name} was left out: {program} is not installed")
            continue
        run = subprocess.run([path, *args], cwd=ROOT, capture_output=True, text=True)
        lines = (run.stdout + run.stderr).splitlines()
        if name == "clang-format":
            lines = [line.removeprefix(f"{ROOT}/") for line in lines if ": error:" in line]
        if name == "ruff format":
            lines = [line.strip(" ->") for line in lines if "-->" in line]
        yield name, (lines or ["failed"]) if run.returncode != 0 else []


def main() -> int:
    fix = "--fix" in sys.argv
    results = list(formatters(fix))
    if not fix:
        results += [(rule.__name__, list(rule())) for rule in RULES]
    broken = [(name, faults) for name, faults in results if faults]
    for name, faults in broken:
        print(f"-- {name}")
        print("\n".join(faults[:40]))
        if len(faults) > 40:
            print(f"... and {len(faults) - 40} more")
    print(f"{len(results) - len(broken)} passed, {len(broken)} failed")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
