"""What a README or a page of docs/ names exists: files, folders and links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    p for p in [*ROOT.glob("*.md"), *ROOT.glob("*/**/*.md"), *ROOT.glob(".github/*.md")]
    if not re.search(r"/(build[^/]*|\.venv|\.cache|node_modules)/", p.as_posix())
    and p.name != "CHANGELOG.md"
)  # fmt: skip
ROOMS = {p.name for p in ROOT.iterdir() if p.is_dir() and not p.name.startswith((".", "build"))}
_CODE = re.compile(r"^```.*?^```|`([^`\n]+)`", re.S | re.M)


def named(text: str) -> set[str]:
    """Paths of the repository that stand in backquotes, without wildcards and placeholders."""
    words = {w.strip("./") for m in _CODE.finditer(text) if m[1] for w in m[1].split()}
    words = {w.split("#")[0].split(":")[0].rstrip(",;)") for w in words}
    return {
        w for w in words
        if "/" in w and w.split("/")[0] in ROOMS and re.fullmatch(r"[\w./-]+", w)
        and re.search(r"\.\w+$|/$", w)
    }  # fmt: skip


def beside(page: Path, name: str) -> bool:
    """Whether a path exists in the repository, beside the page, or as a room of what is built."""
    return (ROOT / name).exists() or (page.parent / name).exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_files_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    gone = {name for name in named(text) if not beside(page, name)}
    links = {t.split("#")[0] for t in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in t}
    gone |= {t for t in links if t and not beside(page, t)}
    assert not gone, f"{page.relative_to(ROOT)} names what is not there: {sorted(gone)}"


def test_keys_of_the_op_table_are_documented() -> None:
    source = (ROOT / "dispatch/opgen/table.py").read_text(encoding="utf-8")
    keys = re.findall(r'"(\w+)"', source[source.index("KEYS = {") : source.index("KINDS = ")])
    page = (ROOT / "docs/op-table.md").read_text(encoding="utf-8")
    assert len(keys) > 25
    assert not [k for k in keys if not re.search(rf"`{k}[`.]", page)]
    rows = re.findall(r"^\| (`.*?) \|", page[: page.index("## Types")], re.M)
    told = [k for row in rows for k in re.findall(r"`(\w+)", row)]
    assert sorted(told) == sorted(set(told))
    generated = page[page.index("## What is generated") :]
    emitted = (ROOT / "dispatch/opgen/emit_c.py").read_text(encoding="utf-8")
    files = re.findall(r'"([a-z_]+\.(?:h|c|inc))":', emitted)
    assert len(files) >= 4
    assert not [f for f in files if f not in generated]


def test_the_c_api_names_the_headers() -> None:
    page = (ROOT / "docs/c-api.md").read_text(encoding="utf-8")
    headers = {f"tenon/{p.name}" for p in ROOT.glob("*/**/include/tenon/*.h")
               if p.relative_to(ROOT).parts[0] in ROOMS}  # fmt: skip
    named = set(re.findall(r"tenon/\w+\.h", page))
    assert headers - {"tenon/ops_meta.h"} - named == set()
    assert named - headers - {"tenon/ops.h", "tenon/op_args.h"} == set()  # generated


def test_variables_of_the_environment_are_documented() -> None:
    """By their names, or after a first one by how theirs end: `TENON_A_X`, `_Y`."""
    told = "".join(p.read_text(encoding="utf-8") for p in PAGES)
    sources = [f for room in ("backends", "dispatch", "plugins", "python/tenon")
               for f in (ROOT / room).rglob("*") if f.suffix in (".c", ".h", ".cpp", ".py")
               ]  # fmt: skip
    read = {n for f in sources for n in re.findall(r'"(TENON_[A-Z_]+)"', f.read_text("utf-8"))}
    assert len(read) > 30
    inner = {"TENON_CONFORM_DEVICE", "TENON_CONFORM_LIBRARY"}  # from the kit to its own workers
    short = {n for n in read for i, c in enumerate(n) if c == "_" and f"`{n[i:]}`" in told}
    assert {n for n in read if n not in told} - inner - short == set()


# Rooms whose README says what each file holds, by file names or by their stems.
LISTED = {
    "dispatch": ("ground", "device", "tensor", "call", "added", "door", "operators", "program"),
    "dispatch/processes": ("",), "autograd": ("",), "nn": ("",), "optim": ("",),
    "plugins": ("",), "plugins/conform": ("",), "plugins/ffi": ("", "engine"),
    "plugins/sim": ("",), "backends": ("cuda", "cpu/host", "engines"),
}  # fmt: skip


@pytest.mark.parametrize("room", LISTED)
def test_rooms_name_their_files(room: str) -> None:
    text = (ROOT / room / "README.md").read_text(encoding="utf-8")
    words = set(re.findall(r"\w+\*?", text))
    kins = tuple(w[:-1] for w in words if w.endswith("*"))
    files = [f for below in LISTED[room] for f in (ROOT / room / below).glob("*.c*")]
    left_out = {f.name for f in files if f.stem not in words and not f.stem.startswith(kins)}
    assert files
    assert not left_out, f"{room}/README.md says nothing about {sorted(left_out)}"
