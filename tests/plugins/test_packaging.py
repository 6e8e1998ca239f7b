"""Plugins as packages: the build backend, pip in an empty environment, Meson, CMake, pkg-config."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import as_user
import pytest
from tenon import build_plugin
from tenon._plugin import elf as _elf

pytestmark = [
    pytest.mark.skipif(not as_user.HAVE_CC, reason="there is no C compiler"),
    pytest.mark.slow,
]
# Example and plugin.
PROJECTS = {
    "ops": "example", "ops-cpp": "examplecpp", "ops-openmp": "exampleomp",
    "device": "acme", "dtype": "posit16", "layer": "oplog",
}  # fmt: skip
PLATFORM_TAG = r"py3-none-manylinux_2_\d+_\w+"


def copy(example: str, folder: Path) -> Path:
    """An example on its own, as if it had come by mail."""
    left_behind = shutil.ignore_patterns("build", "__pycache__", "*.so")
    return Path(shutil.copytree(as_user.EXAMPLES / example, folder / example, ignore=left_behind))


def change(project: Path, file: str, before: str, after: str) -> None:
    path = project / file
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after), encoding="utf-8")


def installable() -> list[str]:
    """The examples for which this machine has all tools."""
    lacking = set() if shutil.which("c++") else {"ops-cpp"}
    lacking |= set() if as_user.have_openmp() else {"ops-openmp"}
    return [example for example in PROJECTS if example not in lacking]


# ---- pip ----------------------------------------------------------------------------------------


def test_install_and_uninstall_all(venv: as_user.Environment, tmp_path: Path) -> None:
    """Every example in one image: each is listed, found without being asked for, and passes its
    tests. Uninstalled, they leave nothing."""
    before = venv.files()
    projects = [copy(example, tmp_path) for example in installable()]
    names = [PROJECTS[project.name] for project in projects]
    venv.pip("install", "--no-build-isolation", "--no-deps", *map(str, projects))
    listing = venv.check("tenon", "plugin", "list")
    for project, name in zip(projects, names):
        assert f"{name}  0.1.0  found" in listing
        as_user.run_tests_of(venv, project / f"test_{name}.py")
    doctor = venv.check("tenon", "doctor")
    assert all(f"plugin      {name} 0.1.0: works, not loaded\n" in doctor for name in names), doctor
    venv.pip("uninstall", "-y", *(f"tenon-{name}" for name in names))
    assert venv.files() == before
    assert "example" not in venv.check("tenon", "plugin", "list")


def test_build_isolation(venv: as_user.Environment, tmp_path: Path) -> None:
    """pip makes an environment for the build and finds Tenon for it as for any other package."""
    venv.pip("install", str(copy("ops", tmp_path)))
    as_user.run_tests_of(venv, tmp_path / "ops" / "test_example.py")
    venv.pip("uninstall", "-y", "tenon-example")


def test_source_archive(venv: as_user.Environment, tmp_path: Path) -> None:
    """What a vendor uploads: from the archive pip makes the same wheel as from the project."""
    project = copy("dtype", tmp_path)
    files = {path.name for path in project.iterdir()}
    (project / "build").mkdir()
    (project / "build" / "rubbish").write_text("")
    script = (
        "from tenon import build_plugin as b; print(b.build_sdist('dist'), b.build_wheel('dist'))"
    )
    (project / "dist").mkdir()
    sdist, wheel = venv.check("python", "-c", script, cwd=project).split()
    assert sdist == "tenon_posit16-0.1.0.tar.gz"
    with tarfile.open(project / "dist" / sdist) as archive:
        names = {name.removeprefix("tenon_posit16-0.1.0/") for name in archive.getnames()}
    assert names == files | {"PKG-INFO"}
    archive_path = str(project / "dist" / sdist)
    venv.pip("wheel", "--no-build-isolation", "--no-deps", "-w", str(tmp_path), archive_path)
    assert (tmp_path / wheel).read_bytes() == (project / "dist" / wheel).read_bytes()


def test_editable(venv: as_user.Environment, tmp_path: Path) -> None:
    """The library lies in the project; the same command compiles again after a change."""
    project = copy("ops", tmp_path)
    ask = "import tenon as tn; print(tn.ops.example.gelu(tn.tensor(3.0)).item())"
    venv.pip("install", "--no-build-isolation", "-e", str(project))
    assert float(venv.check("python", "-c", ask)) == pytest.approx(2.99595, abs=1e-4)
    assert str(project) in venv.check("tenon", "plugin", "list")
    change(project, "gelu.c", "return x * cdf(x);", "return 7;")
    venv.pip("install", "--no-build-isolation", "-e", str(project))
    assert float(venv.check("python", "-c", ask)) == 7.0
    venv.pip("uninstall", "-y", "tenon-example")


# ---- The wheel ----------------------------------------------------------------------------------


def wheel_of(project: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(project)
    folder.mkdir(exist_ok=True)
    return folder / build_plugin.build_wheel(str(folder))


def test_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tag names a platform and no Python; library, manifest, entry point, and nothing else. Two
    builds, from two folders, give the same bytes."""
    wheel = wheel_of(copy("device", tmp_path), tmp_path / "one", monkeypatch)
    assert re.fullmatch(rf"tenon_acme-0\.1\.0-{PLATFORM_TAG}\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        info = "tenon_acme-0.1.0.dist-info"
        files = {"tenon_acme/tenon_acme.so", "tenon_acme/tenon_acme.json"}
        texts = {f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt")}
        assert set(archive.namelist()) == files | texts
        points = archive.read(f"{info}/entry_points.txt").decode()
        assert points == "[tenon.plugins]\nacme = tenon_acme:tenon_acme.json\n"
        metadata = archive.read(f"{info}/METADATA").decode()
        assert "Name: tenon-acme\nVersion: 0.1.0\n" in metadata
        assert "Requires-Dist: tenon\n" in metadata and "# acme\n" in metadata
        tag = re.search(rf"^Tag: {PLATFORM_TAG}$", archive.read(f"{info}/WHEEL").decode(), re.M)
        assert tag
        library = Path(archive.extract("tenon_acme/tenon_acme.so", tmp_path))
    elf = _elf.read(library)
    assert elf.exported == {"tn_plugin_entry_v1"}
    assert b".symtab" not in library.read_bytes()
    (tmp_path / "elsewhere").mkdir()
    again = wheel_of(copy("device", tmp_path / "elsewhere"), tmp_path / "two", monkeypatch)
    assert again.read_bytes() == wheel.read_bytes()


def test_tag_says_what_the_library_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """glibc alone: its version, as readelf finds it. Anything else: the processor alone."""
    project = copy("ops", tmp_path)
    wheel = wheel_of(project, tmp_path / "out", monkeypatch)
    with zipfile.ZipFile(wheel) as archive:
        library = archive.extract("tenon_example/tenon_example.so", tmp_path)
    if shutil.which("readelf"):
        text = subprocess.check_output(["readelf", "-V", library], text=True)
        minors = [int(minor) for minor in re.findall(r"Name: GLIBC_2\.(\d+)", text)]
        assert minors and f"-manylinux_2_{max(17, *minors)}_" in wheel.name
    change(project, "pyproject.toml", '["m"]', '["m", "gcc_s"]')
    change(project, "pyproject.toml", '"-std=c11"', '"-std=c11", "-Wl,--no-as-needed"')
    other = wheel_of(project, tmp_path / "out", monkeypatch)
    assert re.search(r"-py3-none-linux_\w+\.whl$", other.name)


MORE_CPP = """
#include <string>
extern "C" int more(void);
int more(void) { return static_cast<int>(std::to_string(12).size()); }
"""
MORE_TOML = """
[project.optional-dependencies]
test = ["pytest>=7; python_version>'3'"]
[project.scripts]
say = "tenon_example:say"
[tool.tenon]
files = ["firmware.bin"]
"""


def test_wheel_of_two_languages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C and C++ in one plugin, a firmware, Python beside it, scripts and extras in the metadata."""
    if not shutil.which("c++"):
        pytest.skip("there is no C++ compiler")
    project = copy("ops", tmp_path)
    (project / "more.cpp").write_text(MORE_CPP)
    (project / "firmware.bin").write_bytes(b"\0\1")
    (project / "tenon_example").mkdir()
    (project / "tenon_example" / "__init__.py").write_text('"""Names."""\n')
    change(project, "gelu.c", "return x * cdf(x);", "extern int more(void); return more() * x;")
    change(project, "pyproject.toml", '["gelu.c"]\nflags = ["-std=c11"]', '["gelu.c", "more.cpp"]')
    change(project, "pyproject.toml", "[tool.tenon]", MORE_TOML)
    with zipfile.ZipFile(wheel_of(project, tmp_path / "out", monkeypatch)) as archive:
        names = {n.removeprefix("tenon_example/") for n in archive.namelist()}
        assert {"tenon_example.so", "firmware.bin", "__init__.py", "tenon_example.json"} <= names
        info = "tenon_example-0.1.0.dist-info"
        points = archive.read(f"{info}/entry_points.txt").decode()
        assert "[console_scripts]\nsay = tenon_example:say\n" in points
        requirement = "Requires-Dist: pytest>=7; (python_version>'3') and extra == \"test\"\n"
        assert requirement in archive.read(f"{info}/METADATA").decode()


FAULTS = {
    "compile": ("gelu.c", "static double cdf", "static dubble cdf", "gelu.c:.*dubble"),
    "link": ("gelu.c", "return x * cdf(x);", "double other(double); return other(x);", "other"),
    "key": ("pyproject.toml", "libraries =", "librarys =", "has no 'librarys'; it has .*libraries"),
    "type": ("pyproject.toml", '["m"]', '"m"', r"libraries must be a list of texts, not 'm'"),
    "source": ("pyproject.toml", "gelu.c", "gone.c", "there is no file gone.c"),
    "outside": ("pyproject.toml", "gelu.c", "../ops/gelu.c", "no file ../ops/gelu.c"),
    "suffix": ("pyproject.toml", "gelu.c", "README.md", r"ends in '\.md'"),
    "sources": ("pyproject.toml", 'sources = ["gelu.c"]\n', "", "name the files to compile"),
    "toml": ("pyproject.toml", "[project]", "[project", "pyproject.toml: "),
    "table": ("pyproject.toml", "[tool.tenon]", "[tool.other]", r"no table \[tool.tenon\]"),
    "name": ("pyproject.toml", '"tenon-example"', '"not/this"', r"name must be .*'not/this'"),
    "version": ("pyproject.toml", '"0.1.0"', '"0.2.0"', "says version 0.1.0, pyproject.toml 0.2.0"),
    "readme": ("pyproject.toml", '"README.md"', '"GONE.md"', "GONE.md"),
    "dynamic": ("pyproject.toml", "readme =", 'dynamic = ["version"]\nreadme =', "dynamic"),
    "json": ("tenon_example.json", '"manifest": 1,', '"manifest": 1', "is no JSON"),
    "abi": ("tenon_example.json", '"major": 1', '"major": 2', "'abi' must be"),
    "minor": ("tenon_example.json", '"min_minor": 0', '"min_minor": "0"', "'abi' must be"),
    "empty": ("tenon_example.json", '"ops": [', '"op": [', "nothing would load it"),
    "library": ("tenon_example.json", '"tenon_example.so"', '"../x.so"', "a file beside"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_named(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, before, after, why = FAULTS[fault]
    project = copy("ops", tmp_path)
    change(project, file, before, after)
    with pytest.raises(build_plugin.BuildError, match=rf"(?s)^tenon.build_plugin: .*{why}"):
        wheel_of(project, tmp_path / "out", monkeypatch)


def test_no_compiler_and_no_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = copy("ops", tmp_path)
    with monkeypatch.context() as patch:
        patch.setenv("CC", "no-such-compiler")
        with pytest.raises(
            build_plugin.BuildError, match="no compiler 'no-such-compiler': install"
        ):
            wheel_of(project, tmp_path / "out", monkeypatch)
    (project / "tenon_example.json").unlink()
    with pytest.raises(build_plugin.BuildError, match="one manifest tenon_.*and there is none"):
        wheel_of(project, tmp_path / "out", monkeypatch)


def test_pip_shows_the_error_without_a_traceback(venv: as_user.Environment, tmp_path: Path) -> None:
    project = copy("ops", tmp_path)
    change(project, "gelu.c", "static double cdf", "static dubble cdf")
    done = venv.run(
        "python", "-m", "pip", "install", "--no-index", "--no-build-isolation", str(project)
    )
    assert done.returncode != 0
    assert re.search(r"gelu\.c:\d+:.*dubble", done.stderr), done.stderr
    assert "Traceback" not in done.stderr


# ---- Compiler line, pkg-config, Meson, CMake ----------------------------------------------------


def config(venv: as_user.Environment, name: str) -> str:
    return venv.check("tenon", "config", f"--{name}").strip()


@pytest.mark.parametrize("where", ["wheel", "build tree"])
def test_config_names_what_is_there(venv: as_user.Environment, where: str) -> None:
    def ask(name: str) -> str:
        if where == "wheel":
            return config(venv, name)
        command = [sys.executable, "-m", "tenon", "config", f"--{name}"]
        return subprocess.check_output(command, text=True).strip()

    include = Path(ask("include").removeprefix("-I"))
    assert ask("cflags") == f"-I{include}"
    for header in ("plugin.h", "op_args.h", "tenon.h", "ops.h", "optim.h"):
        assert (include / "tenon" / header).is_file(), header
    assert (Path(ask("pkgconfigdir")) / "tenon.pc").is_file()
    assert (Path(ask("plugindir")) / "tenon_cpu.so").is_file()
    folder = re.match(r"-L(\S+) -ltenon -Wl,-rpath,\1$", ask("libs"))
    assert folder and (Path(folder[1]) / "libtenon.so").is_file()
    assert (include == as_user.SDK) == (where == "build tree")


# What an editable installation does: Python from the sources, the extension from a build.
EDITABLE = """
import importlib.util, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "tenon._C":
            return importlib.util.spec_from_file_location(name, sys.argv[1])
sys.meta_path.insert(0, Finder())
sys.path.insert(0, sys.argv[2])
from tenon import __main__
__main__.main(["config", "--" + sys.argv[3]])
"""


def test_config_of_an_editable_installation() -> None:
    if as_user.no_wheel():
        pytest.skip(as_user.no_wheel())
    extension, sources = as_user.BUILD / "python" / "_C.abi3.so", as_user.ROOT / "python"

    def ask(name: str) -> Path:
        command = [sys.executable, "-I", "-c", EDITABLE, str(extension), str(sources), name]
        return Path(subprocess.check_output(command, text=True).strip().removeprefix("-I"))

    assert (ask("include") / "tenon" / "plugin.h").is_file()
    assert (ask("pkgconfigdir") / "tenon.pc").is_file()
    assert (ask("plugindir") / "tenon_cpu.so").is_file()


@pytest.mark.parametrize("example", PROJECTS)
def test_compiler_line(venv: as_user.Environment, tmp_path: Path, example: str) -> None:
    """The line of the README, as it stands, in a shell of the environment."""
    if example not in installable():
        pytest.skip("the compiler for it is missing")
    project, name = copy(example, tmp_path), PROJECTS[example]
    venv.check("sh", "-c", as_user.compiler_line(project), cwd=project)
    as_user.run_tests_of(venv, project / f"test_{name}.py", TENON_PLUGIN_PATH=str(project))
    for what in (f"tenon_{name}.so", f"tenon_{name}.json", name):
        said = venv.check(
            "tenon", "plugin", "check", what, cwd=project, TENON_PLUGIN_PATH=str(project)
        )
        assert "activates" in said and "PROBLEM" not in said


def test_check_reads_the_manifest(tmp_path: Path) -> None:
    """What the library does not say: that this Tenon is too old, that nothing is offered."""
    project = copy("layer", tmp_path)
    as_user.build(project / "oplog.c", project / "tenon_oplog.json", tmp_path)
    faults = {
        '"min_minor": 99': "needs plugin ABI 1.99 and this Tenon serves 1.",
        '"min_minor": -1': "'abi' must be",
        '"layer": [': "nothing would load it",
    }
    for fault, why in faults.items():
        before = '"min_minor": 0' if "minor" in fault else '"layers": ['
        shutil.copy(project / "tenon_oplog.json", tmp_path)
        change(tmp_path, "tenon_oplog.json", before, fault)
        done = as_user.run(
            tmp_path, "-m", "tenon", "plugin", "check", str(tmp_path / "tenon_oplog.so")
        )
        assert done.returncode == 1
        assert "manifest    PROBLEM" in done.stdout and why in done.stdout, done.stdout


def pkg_config(venv: as_user.Environment) -> dict[str, str]:
    if not shutil.which("pkg-config"):
        pytest.skip("there is no pkg-config")
    return {"PKG_CONFIG_PATH": config(venv, "pkgconfigdir")}


def test_pkg_config_is_relocatable(venv: as_user.Environment, tmp_path: Path) -> None:
    env = pkg_config(venv)
    moved = shutil.copytree(venv.site() / "tenon", tmp_path / "moved", symlinks=True)
    for folder in (venv.site() / "tenon", moved):
        env = {"PKG_CONFIG_PATH": str(folder / "pkgconfig")}
        flags = venv.check("pkg-config", "--cflags", "--libs", "tenon", **env).split()
        paths = [Path(re.sub(r"^-Wl,-rpath,|^-[IL]", "", f)) for f in flags if "/" in f]
        assert len(paths) == 3 and all(p.resolve().is_relative_to(folder) for p in paths), flags
        assert all(p.is_dir() for p in paths)


@pytest.mark.parametrize("tool", ["cc", "meson", "cmake"])
def test_program_on_libtenon(venv: as_user.Environment, tmp_path: Path, tool: str) -> None:
    """examples/c from the wheel: found at build time by pkg-config, at run time by its rpath."""
    env = pkg_config(venv)
    project = Path(shutil.copytree(as_user.ROOT / "examples" / "c", tmp_path / "c"))
    line = "mkdir build && cc regression.c $(pkg-config --cflags --libs tenon) -o build/regression"
    for command in commands(tool, [["sh", "-c", line]], tmp_path):
        venv.check(*command, cwd=project, **env)
    assert "mean squared error" in venv.check(str(project / "build" / "regression"))


def commands(tool: str, cc: list[list[str]], prefix: Path) -> list[list[str]]:
    """What configures and builds a project in build/, or a skip where the tool is missing."""
    if tool == "cc":
        return cc
    if tool == "meson":
        meson = as_user.meson() or pytest.skip("there is no meson")
        return [
            [*meson, "setup", "build", f"--prefix={prefix}"],
            [*meson, "compile", "-C", "build"],
        ]
    if not as_user.have_cmake():
        pytest.skip("there is no cmake")
    configure = ["cmake", "-B", "build", f"-DCMAKE_INSTALL_PREFIX={prefix}"]
    return [configure, ["cmake", "--build", "build"]]


@pytest.mark.parametrize("example", ["ops", "ops-cpp", "ops-openmp"])
@pytest.mark.parametrize("tool", ["meson", "cmake"])
def test_plugin_by(venv: as_user.Environment, tmp_path: Path, tool: str, example: str) -> None:
    """Library and manifest work in build/ and where they were installed to, and link nothing of
    Tenon's."""
    if example not in installable():
        pytest.skip("the compiler for it is missing")
    env, project, name = pkg_config(venv), copy(example, tmp_path), PROJECTS[example]
    prefix = tmp_path / "usr"
    for command in commands(tool, [], prefix):
        venv.check(*command, cwd=project, **env)
    install = [*as_user.meson(), "install", "-C"] if tool == "meson" else ["cmake", "--install"]
    venv.check(*install, "build", cwd=project, **env)
    for folder in (project / "build", prefix / "share" / "tenon" / "plugins.d"):
        library = folder / f"tenon_{name}.so"
        assert not any("tenon" in needed for needed in _elf.read(library).needed)
        assert json.loads((folder / f"tenon_{name}.json").read_text())["library"] == library.name
        as_user.run_tests_of(venv, project / f"test_{name}.py", TENON_PLUGIN_PATH=str(folder))
        listing = venv.check("tenon", "plugin", "list", TENON_PLUGIN_PATH=str(folder))
        assert f"{name}  0.1.0  found" in listing and "problem" not in listing, listing
