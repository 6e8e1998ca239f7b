"""`tenon plugin new`: every kind, built by the line in its README and tested by its own tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import as_user
import pytest
import tenon as tn
from tenon._plugin import skeleton

needs_cc = pytest.mark.skipif(not as_user.HAVE_CC, reason="there is no C compiler")
PACKAGES = Path(tn.__file__).absolute().parents[1]
LANGUAGES = ("c", "c++")
KINDS = [(kind, language, False) for kind in skeleton.KINDS for language in LANGUAGES]
KINDS += [("ops", language, True) for language in LANGUAGES]
FILES = {"README.md", "pyproject.toml", "meson.build", "CMakeLists.txt"}
FILES |= {"tenon_mine.json", "test_mine.py"}


def tenon(*args: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tenon", *args]
    return subprocess.run(
        command, cwd=cwd, env={**os.environ, "PYTHONPATH": str(PACKAGES), **env},
        capture_output=True, text=True,
    )  # fmt: skip


def new(cwd: Path, name: str, kind: str, language: str = "c", openmp: bool = False) -> Path:
    more = ["--openmp"] if openmp else []
    done = tenon("plugin", "new", name, "--kind", kind, "--lang", language, *more, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return cwd / name


@needs_cc
@pytest.mark.parametrize(("kind", "language", "openmp"), KINDS)
def test_project(tmp_path: Path, kind: str, language: str, openmp: bool) -> None:
    """The project is complete, builds as its README says, passes its tests and every check, and has
    nothing of the example's name in it."""
    if language == "c++" and not shutil.which("c++"):
        pytest.skip("there is no C++ compiler")
    if openmp and not as_user.have_openmp():
        pytest.skip("the compiler has no OpenMP")
    project = new(tmp_path, "mine", kind, language, openmp)
    names = {path.name for path in project.iterdir()}
    assert names > FILES
    (source,) = names - FILES
    assert source.endswith(".c" if language == "c" else ".cpp")
    text = "".join(path.read_text(encoding="utf-8").lower() for path in project.iterdir())
    for old in ("example", "acme", "posit16", "oplog"):
        assert old not in text, old
    line = as_user.compiler_line(project).replace("$(tenon config --include)", f"-I{as_user.SDK}")
    subprocess.run(f"{line} -Wall -Werror", shell=True, cwd=project, check=True)
    env = {"TENON_PLUGIN_PATH": str(project), "TENON_CACHE": str(tmp_path / "cache")}
    done = tenon("plugin", "check", "tenon_mine.so", cwd=project, **env)
    assert done.returncode == 0, done.stdout
    assert "mine  0.1.0  found" in tenon("plugin", "list", cwd=project, **env).stdout
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "test_mine.py",
    ]
    full = {**os.environ, "PYTHONPATH": str(PACKAGES), **env}
    done = subprocess.run(command, cwd=project, env=full, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


@pytest.mark.parametrize(
    ("name", "args", "why"),
    [
        ("My-Op", "--kind ops", "small letters, digits and _"),
        ("2fast", "--kind ops", "a letter first"),
        ("a" * 33, "--kind ops", "longer than 32"),
        ("../up", "--kind ops", "small letters"),
        ("lambda", "--kind ops", "means something else"),
        ("tenon", "--kind layer", "means something else"),
        ("cuda", "--kind device", "there is a tn.cuda already"),
        ("float32", "--kind dtype", "there is a tn.float32 already"),
        ("forget", "--kind ops", "there is a tn.ops.forget already"),
        ("fast", "--kind device --openmp", "--openmp is for --kind ops"),
    ],
)
def test_refused(tmp_path: Path, name: str, args: str, why: str) -> None:
    done = tenon("plugin", "new", name, *args.split(), cwd=tmp_path)
    assert done.returncode == 1
    assert why in done.stderr
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    there = tmp_path / "mine"
    there.mkdir()
    done = tenon("plugin", "new", "mine", "--kind", "ops", cwd=tmp_path)
    assert done.returncode == 1 and "mine is there already" in done.stderr
    assert not list(there.iterdir())
    done = tenon("plugin", "new", "mine", "--kind", "ops", "--dir", "deep/er", cwd=tmp_path)
    assert done.returncode == 0 and (tmp_path / "deep/er/tenon_mine.json").exists()
    (tmp_path / "file").write_text("")
    done = tenon("plugin", "new", "mine", "--kind", "ops", "--dir", "file/x", cwd=tmp_path)
    assert done.returncode == 1 and "Traceback" not in done.stderr


def test_kind_must_be_said(tmp_path: Path) -> None:
    assert tenon("plugin", "new", "mine", cwd=tmp_path).returncode == 2
    done = tenon("plugin", "new", "mine", "--kind", "sort", cwd=tmp_path)
    assert done.returncode == 2 and "ops" in done.stderr
