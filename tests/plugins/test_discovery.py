"""How plugins are found, and what a broken one does: a line in `tenon doctor`, and nothing else."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import as_user
import pytest
import tenon as tn
from cases import ACME, CASES, add, lay_out, plugin_name, said, tenon

pytestmark = pytest.mark.skipif(not as_user.HAVE_CC, reason="there is no C compiler")

PACKAGES = Path(tn.__file__).absolute().parents[1]


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lay_out(tmp_path_factory.mktemp("bad"))


def test_doctor_has_a_line_for_each(bad: Path, tmp_path: Path) -> None:
    done = tenon(
        "-m", "tenon", "doctor", TENON_PLUGIN_PATH=bad, TENON_PROBE=2, TENON_CACHE=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for name, case in CASES.items():
        line = said(done.stdout, plugin_name(name), case.nth)
        assert case.words in line, line
        assert ("PROBLEM" in line) == (not case.loads), line
    assert "a small product is right" in done.stdout


def test_the_process_lives(bad: Path, tmp_path: Path) -> None:
    """Each broken device is an error, also the second time, and the others work."""
    script = f"""
import tenon as tn
for name in {[n for n, case in CASES.items() if not case.loads and n != "second"]!r} * 2:
    try:
        tn.ones(2, device=name)
    except RuntimeError as err:
        assert name in str(err), err
    else:
        raise AssertionError(name)
assert (tn.ones(2, device="fine") + 1).tolist() == [2.0, 2.0]
assert tn.ones(2).sum().item() == 2
"""
    done = tenon("-c", script, TENON_PLUGIN_PATH=bad, TENON_PROBE=1, TENON_CACHE=tmp_path)
    assert done.returncode == 0, done.stderr


def test_verdict_is_kept(tmp_path: Path) -> None:
    """A verdict lasts until the library changes; the trial leaves a trace that can be counted."""
    trace = tmp_path / "trace"
    mark = f'FILE *f = fopen("{trace}", "a"); if (f) {{ fputs("x", f); fclose(f); }}'
    counting = f"__attribute__((constructor)) static void mark(void) {{ {mark} }}\n"
    library = add(tmp_path / "p", "count", "#include <stdio.h>\n" + counting + ACME)
    script = "import tenon as tn; tn.ones(1, device='count')"
    env = {"TENON_PLUGIN_PATH": tmp_path / "p", "TENON_CACHE": tmp_path / "cache"}
    counts = []
    for turn in range(4):
        if turn == 2:
            os.utime(library, ns=(1, 1))
        more = {"TENON_PROBE": "off"} if turn == 3 else {}
        done = tenon("-c", script, **env, **more)
        assert done.returncode == 0, done.stderr
        counts.append(len(trace.read_text()))
    assert counts == [2, 3, 5, 6]


def test_selection(bad: Path) -> None:
    for value, left in (("none", False), ("f?n*", True), ("text,fine", True), ("text", False)):
        script = "import tenon as tn; print(tn.ones(1, device='fine'))"
        done = tenon("-c", script, TENON_PLUGIN_PATH=bad, TENON_PLUGINS=value, TENON_PROBE="off")
        assert (done.returncode == 0) == left, done.stderr
        assert left or f"TENON_PLUGINS={value}" in done.stderr
    done = tenon("-c", f"import tenon as tn; tn.load_plugin({str(bad / 'tenon_fine.so')!r})",
                 TENON_PLUGINS="none")  # fmt: skip
    assert "TENON_PLUGINS" in done.stderr


def test_lock(bad: Path, tmp_path: Path) -> None:
    folder, lock = tmp_path / "p", tmp_path / "plugins.lock"
    library = add(folder, "locked", ACME)
    env = {"TENON_PLUGIN_PATH": folder, "TENON_PLUGINS_LOCK": lock, "TENON_PROBE": "off"}
    script = "import tenon as tn; tn.ones(1, device='locked')"
    done = tenon("-c", script, **env)
    assert done.returncode != 0 and "lock file" in done.stderr  # named and missing: nothing loads
    assert tenon("-m", "tenon", "plugin", "lock", **env).returncode == 0
    assert hashlib.sha256(library.read_bytes()).hexdigest() in lock.read_text()
    assert tenon("-c", script, **env).returncode == 0
    library.write_bytes(library.read_bytes() + b"\0")
    done = tenon("-c", script, **env)
    assert done.returncode != 0 and "its sha256 is not in" in done.stderr
    lock.chmod(0o666)
    assert "everybody may write it" in tenon("-c", script, **env).stderr


AUDIT = """
import sys
seen = []
def hook(event, args):
    if event == "tenon.load_plugin":
        seen.append(args)
        if args[0] == "fine" and "refuse" in sys.argv:
            raise RuntimeError("not on this machine")
sys.addaudithook(hook)
import tenon as tn
tn.ones(1)
assert len(seen) == 1, seen
try:
    tn.ones(1, device="fine")
except RuntimeError as err:
    assert "refuse" in sys.argv and "not on this machine" in str(err), err
else:
    assert "refuse" not in sys.argv
assert seen[1][0] == "fine" and seen[1][1].endswith("tenon_fine.so"), seen
"""


@pytest.mark.parametrize("what", ["allow", "refuse"])
def test_audit_event(bad: Path, what: str) -> None:
    env = {"TENON_PLUGIN_PATH": bad, "TENON_PLUGINS": "fine", "TENON_PROBE": "off"}
    done = tenon("-c", AUDIT, what, **env)
    assert done.returncode == 0, done.stderr


# ---- Installed packages -------------------------------------------------------------------------


def distribution(site: Path, package: str, value: str) -> None:
    info = site / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[tenon.plugins]\n{package} = {value}\n")


def with_site(site: Path) -> str:
    return os.pathsep.join([str(site), str(PACKAGES)])


@pytest.mark.parametrize("value", ["vendor_acme", "vendor_acme.extra:a.json", "vendor_acme.extra"])
def test_installed_package(tmp_path: Path, value: str) -> None:
    """Found through metadata; the package itself is never imported."""
    package = tmp_path / "vendor_acme"
    add(package if value == "vendor_acme" else package / "extra", "a", ACME)
    (package / "__init__.py").write_text("raise AssertionError('imported')\n")
    distribution(tmp_path, "vendor_acme", value)
    script = "import tenon as tn; assert tn.ones(2, device='a').device.type == 'a'"
    env = {"PYTHONPATH": with_site(tmp_path), "TENON_CACHE": tmp_path / "cache"}
    done = tenon("-c", script, **env)
    assert done.returncode == 0, done.stderr
    assert "vendor_acme" in tenon("-m", "tenon", "plugin", "list", **env).stdout


def test_config_folder(tmp_path: Path) -> None:
    add(tmp_path / "tenon" / "plugins.d", "mine", ACME)
    env = {"XDG_CONFIG_HOME": tmp_path, "TENON_PROBE": "off"}
    done = tenon("-c", "import tenon as tn; tn.ones(2, device='mine')", **env)
    assert done.returncode == 0, done.stderr


def test_current_folder_is_not_searched(tmp_path: Path) -> None:
    add(tmp_path / "plugins", "here", ACME)
    distribution(tmp_path, "here", "plugins")
    script = "import tenon as tn; tn.ones(2, device='here')"
    env = {**os.environ, "PYTHONPATH": str(PACKAGES)}
    command = [sys.executable, "-P", "-c", script]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True)
    assert done.returncode != 0 and b"no plugin serves device 'here'" in done.stderr


def test_import_reads_no_metadata(tmp_path: Path) -> None:
    """`import tenon` and work on the CPU leave installed plugins alone."""
    distribution(tmp_path, "vendor", "vendor")
    script = """
import sys
import tenon as tn
tn.ones(2).exp()
assert "importlib.metadata" not in sys.modules and "tenon._plugin.trial" not in sys.modules
assert "tenon._plugin.installed" not in sys.modules
"""
    done = tenon("-c", script, PYTHONPATH=with_site(tmp_path))
    assert done.returncode == 0, done.stderr


def test_a_name_that_is_none_costs_little() -> None:
    """Where no package declares plugins, no metadata is parsed and next to nothing is imported."""
    script = """
import sys
import tenon as tn
before = set(sys.modules)
assert not hasattr(tn, "zeors")
fresh = set(sys.modules) - before
assert fresh <= {"tenon._plugin", "tenon._plugin.installed"}, fresh
"""
    done = tenon("-S", "-c", script, PYTHONPATH=str(PACKAGES))
    assert done.returncode == 0, done.stderr


ELEVATED = """
import os, sys
script = '''
from tenon._plugin import environment, trial
import tenon as tn
assert environment.elevated() and environment.variable("TENON_PROBE") == ""
assert trial.limit() == trial.SECONDS
assert str(environment.cache_folder()) != "/nowhere"
assert not any(p["name"] == "fine" for p in tn.plugins())
'''
os.setresuid(65534, 0, 0)
os.execv(sys.executable, [sys.executable, "-c", script])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start such a process")
def test_elevated_rights_take_no_variables(bad: Path) -> None:
    env = {"TENON_PLUGIN_PATH": bad, "TENON_PROBE": "off", "XDG_CACHE_HOME": "/nowhere"}
    done = tenon("-c", ELEVATED, **env)
    assert done.returncode == 0, done.stderr


# ---- tenon plugin check -------------------------------------------------------------------------


def test_check(bad: Path, tmp_path: Path) -> None:
    def check(library: Path) -> str:
        done = tenon(
            "-m", "tenon", "plugin", "check", str(library), TENON_CACHE=tmp_path, TENON_PROBE=2
        )
        assert (done.returncode == 0) == ("PROBLEM" not in done.stdout), done.stdout + done.stderr
        return done.stdout

    assert "start       activates" in check(bad / "tenon_fine.so")
    assert "exports no" in check(bad / "tenon_noentry.so")
    assert "another processor" in check(bad / "tenon_machine.so")
    assert "no ELF file" in check(bad / "tenon_text.so")
    assert "damaged" in check(bad / "tenon_garbage.so")
    assert "died of" in check(bad / "tenon_trap.so")
    linked = add(tmp_path / "l", "linked", ACME + "int tn_grad_enabled(void);\n"
                 "int use(void);\nint use(void) { return tn_grad_enabled(); }\n")  # fmt: skip
    assert "it needs tn_grad_enabled" in check(linked)
    alone = tmp_path / "alone.so"
    alone.write_bytes((bad / "tenon_fine.so").read_bytes())
    assert "no manifest" in check(alone)
