"""tenon-conform: the level of the simulated device and of the example with six functions, each of a
device's faults found and named, reports that parse, runs that go on where they were cut off."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import as_user
import pytest
import tenon as tn

PROGRAM = Path(tn.__file__).parent / "tenon-conform"
FEW = ("add", "neg", "tanh", "sum", "softmax", "conv2d", "gather", "uniform_", "sort")

pytestmark = pytest.mark.skipif(not as_user.HAVE_CC, reason="there is no C compiler")


def compile_device(sources: list[Path], library: Path) -> None:
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
    command = ["cc", *flags, f"-I{as_user.SDK}", *map(str, sources), "-o", str(library)]
    subprocess.run([*command, "-lm", "-pthread"], check=True)


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the simulated device and the example."""
    folder = tmp_path_factory.mktemp("plugins")
    sim = as_user.ROOT / "plugins" / "sim"
    compile_device(sorted(sim.glob("*.c")), folder / "tenon_sim.so")
    manifest = (sim / "tenon_sim.json").read_text(encoding="utf-8")
    (folder / "tenon_sim.json").write_text(manifest, encoding="utf-8")
    example = as_user.EXAMPLES / "device"
    as_user.build(example / "acme.c", example / "tenon_acme.json", folder)
    return folder


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("faulty") / "faulty.so"
    compile_device([Path(__file__).parent / "faulty_device.c"], library)
    return library


def conform(
    *args: str | Path, plugins: Path | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, **env}
    if plugins:
        variables["TENON_PLUGIN_PATH"] = str(plugins)
    command = [str(PROGRAM), *map(str, args)]
    return subprocess.run(command, env=variables, capture_output=True, text=True)


def only(*ops: str) -> list[str]:
    return [word for op in ops for word in ("--op", op)]


def report(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


# ---- Devices that are right ----------------------------------------------------------------------


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_levels(plugins: Path, tmp_path: Path, level: int) -> None:
    env = {"TENON_SIM_LEVEL": str(level), "TENON_SIM_DELAY": "5"}
    out = tmp_path / "r.json"
    done = conform("sim:1", *only(*FEW), "--json", out, plugins=plugins, **env)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    result = report(out)
    assert result["level"] == level and result["failed"] == 0
    n = result["passed"]
    assert done.stdout.splitlines()[-1] == f"level {level}, {n}/{n} (100.0 %)"
    streams = [c["note"] for c in result["checks"] if c["mode"] == "streams" and "note" in c]
    assert streams and all(("emulated" in note) == (level < 3) for note in streams)
    if level < 3:
        more = ["--mode", "abi", "--level", str(level + 1)]
        done = conform("sim", *more, plugins=plugins, **env)
        assert done.returncode == 1 and f"level {level + 1} lacks: " in done.stdout


def has_gradient(row: dict[str, Any]) -> bool:
    """A public operator with all of its gradients that is no in-place one and draws no numbers."""
    random = any(a["type"] == "Generator?" for a in row["args"]) or "dropout" in row["name"]
    plain = row["where"] and not row["inplace_only"] and not random and row["result"] != "bool"
    whole = row["samples"] and "missing" not in str(row["grad"])
    return bool(row["differentiable"] and plain and whole and "float32" in row["dtypes"])


def test_every_operator_on_six_functions(plugins: Path, tmp_path: Path) -> None:
    """All pass by fallback; every operator that has samples has a case that the CPU takes."""
    out = tmp_path / "r.json"
    done = conform("acme", "--json", out, "--jobs", "2", plugins=plugins)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    result = report(out)
    assert result["level"] == 0 and "mm float32" in result["missing"][1]
    table = json.loads((PROGRAM.parent / "ops.json").read_text(encoding="utf-8"))
    run = {c["name"] for c in result["checks"] if c["mode"] == "test" and c["cases"]}
    assert run == {row["name"] for row in table if row["samples"]}
    # Samples are dense tensors, which the operators of sparse tensors do not take.
    none = {row["file"] for row in table if row["where"] and not row["samples"]}
    assert none == {"dispatch/ops/sparse.toml"}, "an operator without samples"
    graded = {c["name"] for c in result["checks"] if c["mode"] == "grad" and c["cases"]}
    assert {row["name"] for row in table if has_gradient(row)} <= graded


def test_support_is_what_coverage_says(plugins: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    conform("sim", "--mode", "support", "--json", out, plugins=plugins, TENON_SIM_LEVEL="2")
    cells: dict[str, dict[str, str]] = {}
    for c in report(out)["checks"]:
        cells.setdefault(c["name"], {})[c["dtype"]] = c["note"]
    args = ("-m", "tenon", "coverage", "sim", "--json")
    coverage = as_user.run(plugins, *args, TENON_SIM_LEVEL="2")
    assert cells == json.loads(coverage.stdout)["ops"]


def test_perf(plugins: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    done = conform("sim", *only("add", "digamma"), "--mode", "perf", "--json", out, plugins=plugins)
    assert done.returncode == 0, done.stdout
    notes = {c["name"]: c["note"] for c in report(out)["checks"]}
    assert re.search(r"1048576: +\d", notes["add"]) and "copied to the CPU" not in notes["add"]
    assert notes["digamma"].count("copied to the CPU") == 3


def test_the_cpu_conforms_to_itself() -> None:
    done = conform("cpu", *only("add", "cumsum"))
    assert done.returncode == 0 and "level 2 lacks" not in done.stdout, done.stdout


# ---- Devices that are wrong ----------------------------------------------------------------------

FAULTS = {
    "wrong": ("test", "test neg float32: input[3,4], plain: 1 of 12 elements are wrong"),
    "strides": ("test", "test neg float32: input[3,4], strided: "),
    "input": ("test", "test neg float32: input[3,4], plain: input 0 was changed"),
    "crash": ("test", "test neg float32: input[3,4], plain: crashed: killed by SIGSEGV"),
    "abort": ("test", "test neg float32: input[3,4], plain: crashed: killed by SIGABRT"),
    "exit": ("test", "test neg float32: input[3,4], plain: ended the process with exit status 3"),
    "hang": ("test", "test neg float32: input[3,4], plain: hangs: no answer within 2 s"),
    "leak": ("test", "test neg float32: leak: "),
    "gradient": ("grad", "grad tanh float32: input[3,4], first order: 12 of 12 elements are wrong"),
    "race": ("threads", "threads neg float32: 4 threads at once, thread "),
    "free": ("abi", "abi memory: leak: free gives nothing back"),
    "code": ("abi", "abi out of memory: alloc of 2^60 bytes fails with "),
    "offset": ("abi", "abi copies: device 0: byte 50 is 0 after copies"),
    "member": ("abi", "abi interfaces: tn.memory/1: reset_peak is NULL"),
    "size": ("abi", "abi interfaces: tn.memory/1: struct_size is 16"),
    "answers": ("abi", "abi interfaces: query of the device returns a table for a name"),
    "signature": ("abi", "abi kernel rows: the row of '_tanh_backward' was compiled with another"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named(faulty: Path, tmp_path: Path, fault: str) -> None:
    """The check that finds it fails, the others around it pass."""
    mode, expected = FAULTS[fault]
    out = tmp_path / "r.json"
    args = ["--plugin", faulty, "--mode", mode, *only("neg", "tanh"), "--json", out]
    good = conform("faulty", *args)
    assert good.returncode == 0, good.stdout + good.stderr
    patience = "2" if fault == "hang" else "30"
    done = conform("faulty", *args, "--timeout", patience, FAULTY=fault)
    assert done.returncode == 1, done.stdout + done.stderr
    assert any(line.startswith("FAIL " + expected) for line in done.stdout.splitlines()), (
        done.stdout
    )
    result = report(out)
    assert result["level"] == -1 and result["passed"] > 0
    assert {c["status"] for c in result["checks"]} <= {"passed", "failed", "skipped"}


def test_a_device_that_does_not_load(faulty: Path, tmp_path: Path) -> None:
    for args in (["nowhere"], ["other", "--plugin", faulty]):
        done = conform(*args)
        assert done.returncode == 1 and "no plugin serves device" in done.stderr
    (tmp_path / "bad.so").write_bytes(b"not a library")
    done = conform("faulty", "--plugin", tmp_path / "bad.so")
    assert done.returncode == 1 and "bad.so could not be loaded" in done.stderr


# ---- Reports, journals, usage --------------------------------------------------------------------


class Cells(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.classes: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.classes += [value or "" for name, value in attrs if tag == "td" and name == "class"]


def test_reports(faulty: Path, tmp_path: Path) -> None:
    files = {name: tmp_path / f"r.{name}" for name in ("json", "junit", "html")}
    args = [word for name, path in files.items() for word in (f"--{name}", path)]
    modes = ["--mode", "test", "--mode", "support"]
    done = conform("faulty", "--plugin", faulty, *only("neg", "mm"), *modes, *args, FAULTY="wrong")
    assert done.returncode == 1
    result = report(files["json"])
    suite = ElementTree.parse(files["junit"]).getroot()[0]
    assert int(suite.attrib["tests"]) == len(suite) == len(result["checks"])
    assert int(suite.attrib["failures"]) == result["failed"] == 3
    for failure in suite.iter("failure"):  # float16 and bfloat16 are computed by the same kernel
        assert failure.text is not None and "got " in failure.text and "expected " in failure.text
    cells = Cells()
    cells.feed(files["html"].read_text(encoding="utf-8"))
    assert cells.classes.count("wrong") == 3 and "cpu" in cells.classes
    support = [c for c in result["checks"] if c["mode"] == "support"]
    assert len(cells.classes) == len(support)


def test_resume(faulty: Path, tmp_path: Path) -> None:
    """What stands in the journal is believed; what was cut off is run."""
    journal, out = tmp_path / "journal", tmp_path / "r.json"
    args = ["faulty", "--plugin", faulty, *only("neg"), "--mode", "test", "--resume", journal]
    first = conform(*args, FAULTY="wrong")
    assert first.returncode == 1
    lines = journal.read_text(encoding="utf-8").splitlines()
    kept = [lines[0], next(line for line in lines if "neg float32" in line)]
    journal.write_text("\n".join([*kept, "test neg float6"]), encoding="utf-8")
    again = conform(*args, "--json", out)  # without the fault
    result = report(out)
    assert again.returncode == 1 and result["failed"] == 1
    assert result["passed"] == len(lines) - 2
    other = conform(*args, "--seed", "2")
    assert other.returncode == 2 and "journal of another run" in other.stderr


def test_list_and_selection(plugins: Path) -> None:
    args = ["--op", "s?n", "--dtype", "float32", "--mode", "test", "--list"]
    done = conform("acme", *args, plugins=plugins)
    assert done.stdout.split("\n") == ["test sgn float32", "test sin float32", ""]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "name a device"),
        (["a", "b"], "one device only"),
        (["cpu", "--mode", "speed"], "--mode must be abi, support"),
        (["cpu", "--dtype", "float33"], "--dtype must be the name"),
        (["cpu", "--level", "4"], "--level must be 0, 1, 2 or 3, not '4'"),
        (["cpu", "--jobs", "0"], "--jobs must be 1 to 64"),
        (["cpu", "--timeout", "soon"], "--timeout must be seconds"),
        (["cpu", "--seed", "-1"], "--seed must be a whole number"),
        (["cpu", "--plugin", "/nowhere.so"], "--plugin must be a file that exists"),
        (["cpu", "--op", "nothing*", "--mode", "test"], "leave nothing to check"),
        (["cpu", "--colour"], "--help"),
    ],
)
def test_bad_usage(args: list[str], words: str) -> None:
    done = conform(*args)
    assert done.returncode == 2 and words in done.stderr, done.stderr


def test_a_lock_file_keeps_the_shim_out(faulty: Path, tmp_path: Path) -> None:
    """What it would have seen is said to be unknown; everything else runs."""
    lock, out = tmp_path / "lock", tmp_path / "r.json"
    digest = hashlib.sha256(faulty.read_bytes()).hexdigest()
    lock.write_text(f"{digest}  {faulty}\n", encoding="utf-8")
    args = ["faulty", "--plugin", faulty, *only("neg"), "--mode", "abi", "--mode", "test"]
    done = conform(*args, "--json", out, TENON_PLUGINS_LOCK=str(lock))
    assert done.returncode == 0, done.stdout + done.stderr
    checks = {(c["mode"], c["name"]): c for c in report(out)["checks"]}
    assert "not looked at" in checks["abi", "kernel rows"]["note"]
    assert checks["abi", "kernel rows"]["status"] == "skipped"
    assert checks["test", "neg"]["status"] == "passed"


def test_command(venv: as_user.Environment) -> None:
    """`tenon conform` is that program, and it is installed with what it needs."""
    assert venv.check("tenon", "conform", "--help").startswith("usage: tenon-conform DEVICE")
    assert venv.check("tenon", "conform", "cpu", *only("add")).endswith("(100.0 %)\n")
