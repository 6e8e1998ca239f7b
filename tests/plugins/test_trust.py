"""Code is loaded from files that nobody else can change, by paths that nobody else can turn; what
is no file is refused and not waited for; the CPU is served by Tenon alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tenon as tn

ROOT = os.geteuid() == 0
OTHER = 65534  # a user who is neither root nor this one


def problem_of(path: Path) -> str:
    with pytest.raises(ImportError) as caught:
        tn._C.load_plugin(str(path))
    return str(caught.value)


def library(folder: Path, name: str = "tenon_x.so") -> Path:
    """A file that is refused as no library, once it is trusted."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("no library", encoding="utf-8")
    return path


def test_trusted(tmp_path: Path) -> None:
    assert "reinstall" in problem_of(library(tmp_path / "a" / "b"))


def group_file(path: Path) -> Path:
    path.chmod(0o664)
    return path


def group_folder(path: Path) -> Path:
    path.parent.chmod(0o775)
    return path


def sticky_folder(path: Path) -> Path:
    path.parent.chmod(0o1777)
    return path


def open_ancestor(path: Path) -> Path:
    path.parent.parent.chmod(0o777)
    return path


def group_ancestor(path: Path) -> Path:
    path.parent.parent.chmod(0o770)
    return path


def link_in_open_folder(path: Path) -> Path:
    folder = path.parent.parent / "open"
    folder.mkdir()
    (folder / "x.so").symlink_to(path)
    folder.chmod(0o777)
    return folder / "x.so"


def link_to_open_folder(path: Path) -> Path:
    link = path.parent.parent / "link.so"
    link.symlink_to(Path("b") / ".." / "b" / path.name)
    path.parent.chmod(0o777)
    return link


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (group_file, "its group may write it"),
        (group_folder, "a folder on its path may be written by others"),
        (sticky_folder, "its folder may be written by others"),
        (open_ancestor, "a folder on its path may be written by others"),
        (group_ancestor, "a folder on its path may be written by others"),
        (link_in_open_folder, "a folder on its path may be written by others"),
        (link_to_open_folder, "a folder on its path may be written by others"),
    ],
)
def test_what_others_can_change(change: Callable[[Path], Path], why: str, tmp_path: Path) -> None:
    assert f"was not loaded: {why}" in problem_of(change(library(tmp_path / "a" / "b")))


def test_a_sticky_ancestor(tmp_path: Path) -> None:
    path = library(tmp_path / "a" / "b")
    path.parent.parent.chmod(0o1777)
    assert "reinstall" in problem_of(path)
    if ROOT:
        os.chown(path.parent, OTHER, -1)
        assert "may be written by others" in problem_of(library(path.parent, "tenon_y.so"))


@pytest.mark.skipif(not ROOT, reason="only root gives files away")
def test_what_belongs_to_others(tmp_path: Path) -> None:
    path = library(tmp_path / "a" / "b")
    os.chown(path, OTHER, -1)
    assert "it belongs to another user" in problem_of(path)
    path = library(tmp_path / "c" / "d")
    link = tmp_path / "link.so"
    link.symlink_to(path)
    os.lchown(link, OTHER, -1)
    assert "a link on its path belongs to another user" in problem_of(link)


def test_links_in_a_circle(tmp_path: Path) -> None:
    a, b = tmp_path / "a.so", tmp_path / "b.so"
    a.symlink_to(b)
    b.symlink_to(a)
    assert "too many links" in problem_of(a)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("make", [pipe, device, folder])
def test_what_is_no_file(make: Callable[[Path], None], tmp_path: Path) -> None:
    """As a library, as the library of a manifest, as a manifest, as the lock, for ffi."""
    bad = tmp_path / "tenon_bad.so"
    make(bad)
    make(tmp_path / "bad.json")
    manifest = {"manifest": 1, "name": "x", "version": "1", "library": bad.name, "devices": ["x"]}
    manifest["abi"] = {"major": 1, "min_minor": 0}
    (tmp_path / "x.json").write_text(json.dumps(manifest), encoding="utf-8")
    code = """
import os, sys, tenon as tn
def refused(fn, *args):
    try:
        fn(*args)
    except (RuntimeError, ImportError, OSError) as err:
        assert "not a regular file" in str(err) or "directory" in str(err), err
    else:
        raise SystemExit(f"{fn} {args}")
refused(tn.load_library, sys.argv[1])
refused(lambda: tn.ones(1, device="x"))
refused(lambda: tn.ffi.library(sys.argv[1]))
assert any("not a regular file" in str(p) for p in tn.plugins())
assert tn.ones(2).sum().item() == 2
"""
    for lock in ("", str(bad)):
        env = {**os.environ, "TENON_PLUGIN_PATH": str(tmp_path), "TENON_PLUGINS_LOCK": lock}
        command = [sys.executable, "-c", code, str(bad)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr


def test_the_cpu_is_not_offered(tmp_path: Path) -> None:
    library(tmp_path)
    manifest = {"manifest": 1, "name": "x", "version": "1", "library": "tenon_x.so"}
    manifest |= {"devices": ["y", "cpu"], "abi": {"major": 1, "min_minor": 0}}
    (tmp_path / "x.json").write_text(json.dumps(manifest), encoding="utf-8")
    code = """
import tenon as tn
assert tn.ones(2).sum().item() == 2
assert any("device 'cpu' is Tenon's own" in str(p) for p in tn.plugins())
"""
    env = {**os.environ, "TENON_PLUGIN_PATH": str(tmp_path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


TAKES_CPU = r"""
#include <tenon/plugin.h>
static tn_status f(void *c, int32_t d, uint64_t b, void **r) {
    (void)c, (void)d, (void)b, *r = 0;
    return TN_OK;
}
static tn_status activate(const tn_host *host, tn_txn *txn) {
    int32_t slot;
    tn_device_desc cpu = {.struct_size = sizeof cpu, .name = "cpu", .count = 1};
    cpu.alloc = f;
    cpu.free = (void *)f;
    cpu.copy_in = (void *)f;
    cpu.copy_out = (void *)f;
    cpu.copy_within = (void *)f;
    cpu.sync = (void *)f;
    return host->register_device(txn, &cpu, &slot);
}
TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin) {
    (void)host;
    return tn_plugin_fill(ret_plugin, "thief", "1.0", "takes the CPU", activate);
}
"""


@pytest.mark.slow
def test_the_cpu_is_not_taken(tmp_path: Path) -> None:
    """Before anybody has used it."""
    code = """
import sys, tenon as tn
try:
    tn.load_inline(sys.stdin.read(), "thief")
except ImportError as err:
    assert "device 'cpu' is Tenon's own" in str(err), err
else:
    raise SystemExit("loaded")
assert tn.ones(2).sum().item() == 2
"""
    command = [sys.executable, "-c", code]
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        command, env=env, input=TAKES_CPU, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
