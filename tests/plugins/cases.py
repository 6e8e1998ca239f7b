"""Plugins that are right, and plugins that are wrong in one way each, made as the tests need them.

`lay_out` fills a folder with all of CASES; each case says what `tenon doctor` must tell about it.
Nothing here is loaded by importing it, and no binary lies in the repository."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import as_user

ACME = (as_user.EXAMPLES / "device" / "acme.c").read_text(encoding="utf-8")
TRAP = "__attribute__((constructor)) static void trap(void) { __builtin_trap(); }\n"
NO_MEMBERS = """
static const void *no_members(void *ctx, const char *iface) {
    static uint32_t table[256] = {sizeof table};
    (void)ctx, (void)iface;
    return table;
}
"""


def edited(old: str, new: str, source: str = ACME) -> str:
    """The example device with one change."""
    assert source.count(old) == 1, old
    return source.replace(old, new)


def leaving(change: str) -> str:
    """The example device whose entry function spoils the table that it has filled."""
    start = "    return tn_plugin_fill("
    line = next(x for x in ACME.splitlines() if x.startswith(start))
    call = line.removeprefix("    return ")
    return edited(line, f"    (void){call}\n    {change}\n    return TN_OK;")


def activating(change: str) -> str:
    """The example device whose activate function does something before it registers anything."""
    return "#include <unistd.h>\n" + edited("    host = h;\n", f"    host = h;\n    {change}\n")


def with_null_tables() -> str:
    """The example device with every optional table, and nothing in them."""
    line = "        .describe = chip_describe,\n"
    queried = edited(line, line + "        .query = no_members,\n")
    return edited("/* ---- The door", NO_MEMBERS + "/* ---- The door", queried)


def compile_text(source: str, library: Path, *flags: str, include: Path = as_user.SDK) -> None:
    command = ["cc", "-O2", "-fPIC", "-shared", f"-I{include}", "-x", "c", "-", "-o", str(library)]
    subprocess.run([*command, *flags], input=source, text=True, check=True)


def add(
    folder: Path, name: str, source: str | bytes | None, /, *flags: str, **more: object
) -> Path:
    """A plugin with its manifest: compiled from text, or with these bytes as its library."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / f"tenon_{name}.so"
    manifest = {
        "manifest": 1, "name": name, "version": "1.0", "library": library.name,
        "abi": {"major": 1, "min_minor": 0}, "devices": [name], **more,
    }  # fmt: skip
    (folder / f"{name}.json").write_text(json.dumps(manifest))
    if isinstance(source, bytes):
        library.write_bytes(source)
    elif source is not None:
        text = source.replace('"acme"', f'"{name}"')
        compile_text(text, library, "-DTN_ABI_TARGET=0", *flags)
    return library


def tenon(*args: str, **variables: object) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **{name: str(value) for name, value in variables.items()}}
    return subprocess.run([sys.executable, *args], env=env, capture_output=True, text=True)


def said(text: str, name: str, nth: int = 0) -> str:
    """The line of `tenon doctor` about a plugin; of several with one name, the nth."""
    lines = [line for line in text.splitlines() if line.startswith(f"plugin      {name} ")]
    assert nth < len(lines), (name, text)
    return lines[nth]


@dataclass(frozen=True)
class Case:
    """One plugin, what it is for people, and words of what the doctor says about it."""

    title: str
    words: str
    source: str | bytes | None = None
    flags: tuple[str, ...] = ()
    more: dict[str, Any] = field(default_factory=dict)
    nth: int = 0  # among the plugins of its name, in the order in which they are found

    @property
    def loads(self) -> bool:
        return self.words == "works"


CASES = {
    "fine": Case("an ordinary device", "works", ACME),
    "nulls": Case("every optional table there, all members NULL", "works", with_null_tables()),
    "major": Case("another major version", "needs plugin ABI 2.0",
                  leaving("ret_plugin->abi_major++;")),
    "manifestmajor": Case("another major version in the manifest", "needs plugin ABI 7.0", ACME,
                          more={"abi": {"major": 7, "min_minor": 0}}),
    "truncated": Case("a plugin table of 8 bytes", "no name",
                      leaving("ret_plugin->struct_size = 8;")),
    "noentry": Case("no entry function", "exports no", ACME, ("-Dtn_plugin_entry_v1=other",)),
    "garbage": Case("the first 300 bytes of a library", "reinstall"),
    "text": Case("a text file", "reinstall", b"echo this is a script\n"),
    "machine": Case("a library for another processor", "reinstall"),
    "missing": Case("no library", "no such file"),
    "world": Case("a library that everybody may write", "everybody may write", ACME),
    "trap": Case("a crash when it is mapped", "died of SIG", TRAP + ACME),
    "trapentry": Case("a crash in the entry function", "died of SIG",
                      edited("    (void)h;\n", "    (void)h;\n    __builtin_trap();\n")),
    "trapactivate": Case("a crash in `activate`", "died of SIG", activating("__builtin_trap();")),
    "quit": Case("`exit()` in `activate`", "exited with 0", activating("exit(0);")),
    "hang": Case("an endless `activate`", "did not start within", activating("for (;;) pause();")),
    "second": Case("a second plugin for one device", "served by plugin 'fine'",
                   edited('.name = "acme"', '.name = "fine"'), more={"devices": ["fine"]}),
    "twin": Case("a second plugin of one name", "is hidden by", ACME, more={"name": "fine"}, nth=1),
}  # fmt: skip


def lay_out(folder: Path) -> Path:
    """Fills a folder with every case."""
    for name, case in CASES.items():
        source = case.source
        if name == "garbage":
            source = (folder / "tenon_fine.so").read_bytes()[:300]
        if name == "machine":
            elf = bytearray((folder / "tenon_fine.so").read_bytes())
            elf[18:20] = b"\x02\x00"  # SPARC
            source = bytes(elf)
        library = add(folder, name, source, *case.flags, **case.more)
        if name == "world":
            library.chmod(0o777)
    return folder


def plugin_name(name: str) -> str:
    """What the manifest of a case calls the plugin."""
    return str(CASES[name].more.get("name", name))
