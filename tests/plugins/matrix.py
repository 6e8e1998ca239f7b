"""Plugins of three minors on hosts of three minors: prints the table of docs/plugin-abi.md.

A host is a copy of this build whose libtenon is compiled anew, without optimisation, with headers
of another minor: the newer one's tables have a member more at their ends, the older one's lack the
last. The package, its extension module and the CPU's plugin are those of this build. A plugin is
tests/plugins/generation.c, compiled with the headers of its minor, or one of cases.py. What each
host makes of each plugin is what `tenon doctor` says there."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import abi
import as_user
import cases
import tenon as tn

HERE = Path(__file__).parent
PACKAGE = Path(tn.__file__).absolute().parent
BUILD = PACKAGE.parents[1]
MINOR = abi.version(abi.LOCK.read_text().splitlines())[1]
OLDER = max(MINOR - 1, 0)
# Tables of plugin.h that grow with the minor version. Those of device.h are interfaces, which get a
# new name instead.
GROWING = [
    name
    for name, fields in abi.structs_of(
        abi.strip_comments((abi.INCLUDE / "tenon/plugin.h").read_text())
    ).items()
    if fields[0] == ("struct_size", "uint32_t") or name == "tn_kernel_row"
]
# What an older header lacks: these members and all behind them. For a plugin, what it may leave
# out; for a host, what the core fills in and does not use.
PLUGIN_LACKS = {"tn_plugin": "retire", "tn_device_desc": "describe", "tn_op_desc": "autocast",
                "tn_host": "register_layer", "tn_kernel_row": "reserved"}  # fmt: skip
HOST_LACKS = {"tn_plugin": "query", "tn_host": "register_layer"}


# ---- Headers of other minors --------------------------------------------------------------------


def each_table(text: str, change: Callable[[str, str], str]) -> str:
    """plugin.h with the members of each growing table changed."""
    for name in GROWING:
        body = rf"(typedef struct {name} \{{)(.*?)(\n\}} {name};)"
        text, n = re.subn(
            body, lambda m, name=name: m[1] + change(name, m[2]) + m[3], text, flags=re.S
        )
        assert n == 1, name
    return text


def longer(_: str, members: str) -> str:
    return members + "\n    void (*later)(void);\n    unsigned char latest[248];"


def lacking(lacks: dict[str, str]) -> Callable[[str, str], str]:
    def shorter(name: str, members: str) -> str:
        if name not in lacks:
            return members
        declared = [line for line in members.split(";") if re.search(rf"\b{lacks[name]}\b", line)]
        assert declared, f"{name} has no member {lacks[name]}"
        return members[: members.index(declared[0])]

    return shorter


def headers(folder: Path, minor: int, change: Callable[[str, str], str]) -> Path:
    """The SDK's headers with tables changed, as another minor; op_args.h is this build's."""
    include = folder / "include"
    shutil.copytree(as_user.SDK, include)
    path = include / "tenon" / "plugin.h"
    path.unlink()
    text = each_table((as_user.SDK / "tenon" / "plugin.h").read_text(encoding="utf-8"), change)
    path.write_text(re.sub(r"(TN_ABI_MINOR) \d+", rf"\1 {minor}", text), encoding="utf-8")
    return include


# ---- Plugins ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Generation:
    """A plugin of another minor: its header, and the host's minor that it asks for."""

    title: str
    minor: int
    min_minor: int
    change: Callable[[str, str], str]
    flags: tuple[str, ...] = ()


LATER, LAYERS = "-DGENERATION_LATER", "-DGENERATION_LAYERS"
GENERATIONS = {
    "older": Generation("an older minor: shorter tables", OLDER, OLDER, lacking(PLUGIN_LACKS)),
    "same": Generation("this minor", MINOR, MINOR, lambda _, members: members, (LAYERS,)),
    "newer": Generation("a newer minor that works with older hosts: longer tables",
                        MINOR + 1, OLDER, longer, (LATER, LAYERS)),
    "needy": Generation("a newer minor that needs a newer host", MINOR + 1, MINOR + 1, longer,
                        (LATER, LAYERS)),
}  # fmt: skip


def add_generations(folder: Path, scratch: Path) -> None:
    text = (HERE / "generation.c").read_text(encoding="utf-8")
    for name, g in GENERATIONS.items():
        include = headers(scratch / name, g.minor, g.change)
        library = cases.add(folder, name, None, ops=[f"{name}::twice"], layers=[name])
        flags = [f'-DNAME="{name}"', f"-DMIN_MINOR={g.min_minor}", *g.flags]
        cases.compile_text(text, library, "-std=c11", *flags, include=include)


# ---- Hosts --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Host:
    title: str
    minor: int
    change: Callable[[str, str], str]
    lacks: dict[str, str]


HOSTS = {
    "older": Host("older host", OLDER, lacking(HOST_LACKS), HOST_LACKS),
    "this": Host("this host", MINOR, lambda _, members: members, {}),
    "newer": Host("newer host", MINOR + 1, longer, {}),
}


def core_commands() -> list[dict[str, str]]:
    """How this build compiled libtenon; empty when the package is not in a build folder."""
    listing = BUILD / "compile_commands.json"
    if not listing.exists():
        return []
    commands = json.loads(listing.read_text(encoding="utf-8"))
    return [entry for entry in commands if entry["output"].startswith("libtenon.so.p/")]


def compile_one(entry: dict[str, str], include: Path, host: Host, folder: Path) -> Path:
    """One source of libtenon, with other headers, without optimisation."""
    words = shlex.split(entry["command"])
    words = words[1:] if Path(words[0]).name == "ccache" else words
    source, output = (Path(entry["directory"]) / entry["file"]), folder / Path(entry["output"]).name
    text = source.read_text(encoding="utf-8")
    for member in host.lacks.values():  # what the core fills in and this host does not have
        text = re.sub(rf"^ *\.{member} = \w+,\n", "", text, flags=re.M)
    copy = output.with_suffix(".c")
    copy.write_text(text, encoding="utf-8")
    flags = [w for w in words[1 : words.index("-MD")] if not w.startswith(("-W", "-O"))]
    command = [words[0], f"-I{include}", *flags, f"-I{source.parent}", "-O0", "-w"]
    subprocess.run(
        [*command, "-c", str(copy), "-o", str(output)], cwd=entry["directory"], check=True
    )
    return output


def build_host(host: Host, folder: Path) -> Path:
    """A package with a libtenon of another minor; returns what PYTHONPATH must name."""
    include = headers(folder, host.minor, host.change)
    objects = folder / "objects"
    objects.mkdir()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = list(
            pool.map(lambda e: str(compile_one(e, include, host, objects)), core_commands())
        )
    site = folder / "site"
    shutil.copytree(PACKAGE, site / "tenon", symlinks=True)
    shutil.copytree(BUILD / "plugins", site / "tenon" / "plugins", dirs_exist_ok=True)
    library = site / "tenon" / "libtenon.so"
    library.unlink()
    link = ["cc", "-shared", "-Wl,-soname,libtenon.so", "-o", str(library), *made]
    subprocess.run([*link, "-lm", "-ldl", "-lpthread"], check=True)
    return site


def site_of(key: str, folder: Path) -> Path:
    """What PYTHONPATH must name for a host, which is built when it is not this build."""
    return PACKAGE.parent if key == "this" else build_host(HOSTS[key], folder / key)


# ---- What each host makes of each plugin --------------------------------------------------------


def title_of(name: str) -> str:
    return GENERATIONS[name].title if name in GENERATIONS else cases.CASES[name].title


def expected(name: str, host: Host) -> str:
    """Words of what the host must say: a plugin loads unless it asks for a newer minor."""
    if name not in GENERATIONS:
        return cases.CASES[name].words
    g = GENERATIONS[name]
    if g.min_minor <= host.minor:
        return "works"
    return f"needs plugin ABI 1.{g.min_minor} and this Tenon serves 1.0 to 1.{host.minor}"


def all_plugins(folder: Path, scratch: Path) -> Path:
    """Every plugin in one folder."""
    cases.lay_out(folder)
    add_generations(folder, scratch)
    return folder


def doctor(site: Path, plugins: Path, cache: Path) -> str:
    """What `tenon doctor` of a host says about a folder of plugins."""
    done = cases.tenon("-m", "tenon", "doctor", PYTHONPATH=site, TENON_PLUGIN_PATH=plugins,
                       TENON_PROBE=2, TENON_CACHE=cache)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# On a host: each plugin's device, operator and layer do their work.
USE = """
import sys, tenon as tn
name, has_layer = sys.argv[1], sys.argv[2] == "True"
assert (tn.ones(3, device=name) + 1).tolist() == [2.0] * 3
twice = getattr(tn.ops, name).twice
assert twice(tn.ones(4)).tolist() == [2.0] * 4
assert twice(tn.ones(4, device=name)).tolist() == [2.0] * 4
try:
    with tn.layer(name):
        assert twice(tn.ones(4)).tolist() == [2.0] * 4
except ImportError:
    assert not has_layer
else:
    assert has_layer
tn.retire_plugin(name)
"""


def use(site: Path, plugins: Path, name: str, host: Host) -> None:
    """Runs USE; a layer is there when both sides know of layers."""
    has_layer = LAYERS in GENERATIONS[name].flags and "tn_host" not in host.lacks
    done = cases.tenon("-c", USE, name, str(has_layer), PYTHONPATH=site, TENON_PLUGIN_PATH=plugins,
                       TENON_PROBE="off", TENON_FALLBACK="allow")  # fmt: skip
    assert done.returncode == 0, done.stderr


def line_about(text: str, name: str) -> str:
    if name in GENERATIONS:
        return cases.said(text, name)
    return cases.said(text, cases.plugin_name(name), cases.CASES[name].nth)


def table(cell: Callable[[str, str], str]) -> str:
    """Markdown: a line per plugin, a column per host; cell(plugin, host) is what happened."""
    rows = [["plugin", *(h.title for h in HOSTS.values())], ["---"] * (1 + len(HOSTS))]
    for name in [*GENERATIONS, *cases.CASES]:
        rows.append([title_of(name), *(cell(name, host) for host in HOSTS)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def cell_text(words: str) -> str:
    return "loads" if words == "works" else f"refused: {words}"


def expected_table() -> str:
    return table(lambda name, host: cell_text(expected(name, HOSTS[host])))


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plugins = all_plugins(folder / "plugins", folder / "headers")
        told = {key: doctor(site_of(key, folder), plugins, folder / "cache" / key) for key in HOSTS}

    def cell(name: str, host: str) -> str:
        words = expected(name, HOSTS[host])
        line = line_about(told[host], name)
        return cell_text(words) if words in line else f"WRONG: {line}"

    print(table(cell))
    return 0


if __name__ == "__main__":
    sys.exit(main())
