"""The tutorials of docs, executed as they stand: C files are written and built by the page's own
line, Python runs top to bottom."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import as_user
import pytest
import tenon as tn

pytestmark = pytest.mark.skipif(not as_user.HAVE_CC, reason="there is no C compiler")
PACKAGES = str(Path(tn.__file__).absolute().parents[1])


def have_ffi() -> bool:
    try:
        tn._C._ffi_available()
    except ImportError:
        return False
    return True


HAVE_FFI = have_ffi()


def blocks(page: str, language: str) -> list[str]:
    """The page's blocks; without libffi, those that do not need it."""
    text = (as_user.ROOT / "docs" / page).read_text(encoding="utf-8")
    found = re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.S | re.M)
    return [b for b in found if HAVE_FFI or "tn.ffi" not in b]


def write_sources(page: str, folder: Path) -> None:
    """A block of C that begins with a file's name begins that file; others go on with the last."""
    name = ""
    for block in blocks(page, "c"):
        start = re.match(r"/\* (\w+\.c) \*/", block)
        name = start[1] if start else name
        assert name, "the first C block of a page starts with its file name"
        with (folder / name).open("a", encoding="utf-8") as out:
            out.write(block)


def build(page: str, folder: Path) -> None:
    (line,) = (b for b in blocks(page, "sh") if b.startswith("cc "))
    line = line.replace("$(tenon config --include)", f"-I{as_user.SDK} -Wall -Wextra -Werror")
    subprocess.run(line, shell=True, cwd=folder, check=True)


def run(folder: Path, *args: str, **variables: str) -> None:
    env = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "PYTHONPATH": PACKAGES}
    command = [sys.executable, *args]
    done = subprocess.run(
        command, cwd=folder, env={**env, **variables}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def run_page(page: str, folder: Path, **variables: str) -> None:
    assert len(blocks(page, "python")) >= 1
    script = folder / "page.py"
    script.write_text("\n".join(blocks(page, "python")), encoding="utf-8")
    run(folder, str(script), **variables)


def test_operator(tmp_path: Path) -> None:
    write_sources("plugins.md", tmp_path)
    run_page("plugins.md", tmp_path)


def test_compiler_line_of_the_operator(tmp_path: Path) -> None:
    write_sources("plugins.md", tmp_path)
    build("plugins.md", tmp_path)
    use = 'import tenon as tn; tn.load_library("mish.so"); tn.ops.mish.mish(tn.ones(2))'
    run(tmp_path, "-c", use)


def test_device(tmp_path: Path) -> None:
    write_sources("device.md", tmp_path)
    (manifest,) = blocks("device.md", "json")
    (tmp_path / "slate.json").write_text(manifest, encoding="utf-8")
    build("device.md", tmp_path)
    run_page("device.md", tmp_path, TENON_PLUGIN_PATH=str(tmp_path))


@pytest.mark.slow
def test_shell_of_the_operator(venv: as_user.Environment, tmp_path: Path) -> None:
    """The lines from `tenon plugin new` to an installed wheel, in an empty environment."""
    for lines in blocks("plugins.md", "sh"):
        if not lines.startswith("cc "):
            offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(venv.wheelhouse)}
            said = venv.check("sh", "-e", "-c", lines, cwd=tmp_path, **offline)
            assert "tensor(0.8413)" in said
    venv.pip("uninstall", "-y", "tenon-mygelu")
