"""Plugins as a user meets them: one cc line, the SDK's headers and nothing else; or pip, in a fresh
environment with the Tenon wheel and without a network."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

import tenon as tn
from tenon._plugin import compile, packaging

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "plugins" / "examples"
SDK = compile.INCLUDE
HAVE_CC = shutil.which("cc") is not None
# What the build tree, the developer's settings and earlier runs must not change.
OURS = ("TENON_", "PYTHON", "PIP_", "XDG_", "CFLAGS", "CXXFLAGS", "LDFLAGS", "LD_", "PKG_CONFIG")


def have_openmp() -> bool:
    """Whether the compiler comes with it: some lack the library."""
    command = ["cc", "-fopenmp", "-x", "c", "-", "-o", os.devnull]
    return not subprocess.run(command, input=b"int main(void){}", capture_output=True).returncode


def build(source: Path, manifest: Path, folder: Path) -> None:
    """Compiles `source` to the library that `manifest`, copied beside it, names."""
    shutil.copy(manifest, folder)
    library = folder / manifest.with_suffix(".so").name
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]
    command = ["cc", *flags, "-fPIC", "-shared", f"-I{SDK}", str(source), "-o", str(library), "-lm"]
    subprocess.run(command, check=True)


def run(folder: Path, *args: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Python with the plugins of a folder."""
    env = {**os.environ, "TENON_PLUGIN_PATH": str(folder), **variables}
    return subprocess.run([sys.executable, *args], env=env, capture_output=True, text=True)


# ---- A wheel of the Tenon that is tested --------------------------------------------------------

BUILD = Path(tn.__file__).absolute().parents[2]


def meson() -> list[str]:
    beside = Path(sys.executable).with_name("meson")
    found = str(beside) if beside.exists() else shutil.which("meson")
    return [found] if found else []


def have_cmake() -> bool:
    """A cmake that runs: there are launchers that lead nowhere."""
    program = shutil.which("cmake")
    return (
        program is not None
        and not subprocess.run([program, "--version"], capture_output=True).returncode
    )


def no_wheel() -> str:
    """Why there can be no wheel, or ""."""
    if not (BUILD / "build.ninja").exists():
        return "the Tenon that is tested does not come from a build tree"
    if not os.access(BUILD, os.W_OK):
        return "the build tree belongs to somebody else, and Meson keeps its log there"
    return "" if meson() else "there is no meson"


def pack_tenon(folder: Path) -> Path:
    """The wheel of the build tree as it is: what Meson installs, without compiling it again."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    with tempfile.TemporaryDirectory() as root:
        command = [*meson(), "install", "-C", str(BUILD), "--no-rebuild", "--destdir", root]
        subprocess.run([*command, "--quiet"], check=True, capture_output=True)
        (package,) = (p.parents[1] for p in Path(root).rglob("tenon/_plugin/native.py"))
        members = {
            str(path.relative_to(package.parent)): path.read_bytes()
            for path in package.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
    info = {
        "METADATA": packaging.metadata(project, ROOT),
        "entry_points.txt": packaging.entry_points({"console_scripts": project["scripts"]}),
    }
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    name = packaging.write_wheel(
        folder, packaging.stem(project), f"cp311-abi3-{platform}", members, info
    )
    return folder / name


# ---- An environment of its own ------------------------------------------------------------------


def no_venv() -> str:
    """Why there can be no environment, or ""."""
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    return f"this Python has no {' and no '.join(missing)}" if missing else ""


class Environment:
    """A virtual environment with Tenon from a wheel, and a home of its own."""

    def __init__(self, folder: Path, wheelhouse: Path) -> None:
        self.folder, self.wheelhouse = folder, wheelhouse
        base = getattr(sys, "_base_executable", sys.executable)
        subprocess.run([base, "-m", "venv", str(folder)], check=True, capture_output=True)
        self.pip("install", "tenon")

    def variables(self, **more: str) -> dict[str, str]:
        env = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
        path = f"{self.folder / 'bin'}{os.pathsep}{env.get('PATH', os.defpath)}"
        home = self.folder / "home"
        return {**env, "PATH": path, "HOME": str(home), "VIRTUAL_ENV": str(self.folder), **more}

    def run(
        self, *command: str, cwd: Path | None = None, **more: str
    ) -> subprocess.CompletedProcess[str]:
        """A command of the environment, in an empty folder unless told otherwise."""
        env = self.variables(**more)
        home = Path(env["HOME"])
        home.mkdir(exist_ok=True)
        program = shutil.which(command[0], path=env["PATH"]) or command[0]
        return subprocess.run(
            [program, *command[1:]], cwd=cwd or home, env=env, capture_output=True, text=True
        )

    def check(self, *command: str, cwd: Path | None = None, **more: str) -> str:
        """The output of a command that must succeed."""
        done = self.run(*command, cwd=cwd, **more)
        assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def pip(self, *args: str, cwd: Path | None = None, **more: str) -> str:
        offline = (
            ["--no-index", "--find-links", str(self.wheelhouse)] if args[0] == "install" else []
        )
        return self.check(
            "python", "-m", "pip", "--disable-pip-version-check", "-q",
            args[0], *offline, *args[1:],
            cwd=cwd, PIP_ROOT_USER_ACTION="ignore", **more,
        )  # fmt: skip

    def packages(self) -> str:
        return self.pip("freeze", "--all")

    def site(self) -> Path:
        return Path(
            self.check(
                "python", "-c", "import sysconfig as s; print(s.get_path('platlib'))"
            ).strip()
        )

    def files(self) -> set[str]:
        """What is installed, but for compiled Python."""
        site = self.site()
        names = (str(p.relative_to(site)) for p in site.rglob("*"))
        return {name for name in names if "__pycache__" not in name}


def run_tests_of(venv: Environment, file: Path, **more: str) -> None:
    """Runs a plugin's tests without pytest, which a fresh environment does not have."""
    code = (
        "import runpy, sys\n"
        "tests = runpy.run_path(sys.argv[1])\n"
        "names = [name for name in tests if name.startswith('test_')]\n"
        "assert names\n"
        "for name in names: tests[name]()"
    )
    venv.check("python", "-c", code, str(file), **more)


def compiler_line(project: Path) -> str:
    """The cc line of a project's README."""
    lines: Sequence[str] = (project / "README.md").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith(("cc ", "c++ ")))
