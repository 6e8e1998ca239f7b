"""The `tenon` command, as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tenon._plugin import command


def tenon(*args: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "tenon", *args]
    return subprocess.run(
        words, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=60
    )


def test_version() -> None:
    out = tenon("--version")
    assert out.returncode == 0
    assert out.stdout.startswith("tenon 0.")


def test_no_command_shows_help() -> None:
    out = tenon()
    assert out.returncode == 2
    assert "doctor" in out.stdout


def test_doctor_is_content() -> None:
    out = tenon("doctor")
    assert out.returncode == 0, out.stdout + out.stderr
    assert "all is well" in out.stdout
    assert "tenon-cpu" in out.stdout


def test_doctor_names_variables_that_matter() -> None:
    out = tenon("doctor", OPENBLAS_CORETYPE="Haswell", OPENBLAS_L2_SIZE="1048576")
    assert "OPENBLAS_CORETYPE=Haswell" in out.stdout
    assert "OPENBLAS_CORETYPE" not in out.stderr  # the processors of today know its instructions
    assert "OPENBLAS_L2_SIZE=1048576 is set" in out.stderr


def test_kernels_of_an_older_processor_are_named() -> None:
    out = tenon("doctor", OPENBLAS_CORETYPE="Nehalem")
    if "BLAS Nehalem" not in out.stdout or "avx" not in out.stdout:
        pytest.skip("an OpenBLAS that does not listen, or an old processor")
    assert "OPENBLAS_CORETYPE=Nehalem is set: OpenBLAS runs as on a Nehalem" in out.stderr


def test_plugin_list_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    out = tenon("plugin", "list", TENON_PLUGIN_PATH=str(tmp_path))
    assert out.returncode == 0
    assert "tenon-cpu" in out.stdout
    assert str(tmp_path / "broken.json") in out.stdout


def test_the_current_folder_is_not_searched(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "broken.json").write_text("{")
    for path in ("", ".", "plugins", "./plugins"):
        out = tenon("plugin", "list", cwd=tmp_path, TENON_PLUGIN_PATH=path)
        assert "broken" not in out.stdout


def test_op_shows_entry_and_kernels() -> None:
    out = tenon("op", "leaky_relu", "--device", "cpu", "--dtype", "float32")
    assert out.returncode == 0, out.stderr
    for part in ("negative_slope", "dispatch/ops/activation.toml:", "grad.input", "cpu float32"):
        assert part in out.stdout


def test_op_unknown() -> None:
    out = tenon("op", "nosuch")
    assert out.returncode == 1
    assert "nosuch" in out.stderr


def test_config_flags() -> None:
    out = tenon("config", "--include", "--libs").stdout
    assert out.startswith("-I")
    assert "-ltenon" in out


SCRIPT = """
import sys
import torch
import torch.nn.functional as F
from torch import nn

assert sys.argv[1:] == ["--lr", "0.1"]
assert torch is sys.modules["torch"]
torch.manual_seed(3)
x = torch.rand(4, 3)
assert x.shape == (4, 3)
assert F.relu is sys.modules["torch.nn.functional"].relu
assert nn is torch.nn
print("ran", __name__)
"""


def test_run_gives_tenon_to_torch_programs(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    out = tenon("run", str(script), "--lr", "0.1")
    assert out.returncode == 0, out.stderr
    assert "ran __main__" in out.stdout


@pytest.mark.parametrize("name", ["torch.nosuch", "torch.nn.nosuch"])
def test_run_reports_missing_modules_by_their_name(tmp_path: Path, name: str) -> None:
    script = tmp_path / "missing.py"
    script.write_text(f"import {name}\n")
    out = tenon("run", str(script))
    assert out.returncode == 1
    assert "ModuleNotFoundError" in out.stderr
    assert name in out.stderr


def test_names_that_packages_import_without_using_them(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(
        "import torch\n"
        "from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex\n"
        "from torch._subclasses.fake_tensor import is_fake\n"
        "from torch.autograd.profiler import EventList, emit_nvtx, profile\n"
        "from torch.utils.flop_counter import FlopCounterMode\n"
        "from torch.fx.experimental import symbolic_shapes as shapes\n"
        "from torch.fx.experimental.proxy_tensor import get_proxy_mode\n"
        "from torch.nn.modules.module import _EXTRA_STATE_KEY_SUFFIX\n"
        "from torch.utils.checkpoint import get_device_states, set_device_states\n"
        "x = torch.arange(6).reshape(2, 3)\n"
        "print(issubclass(torch.ScriptModule, torch.nn.Module), _EXTRA_STATE_KEY_SUFFIX)\n"
        "print(isinstance(x.shape[0], (torch.SymInt, torch.SymFloat, torch.SymBool)))\n"
        "print([f(n > 1) for f in (shapes.guard_or_false, shapes.guard_or_true,\n"
        "      shapes.statically_known_true) for n in x.shape if n != 3], get_proxy_mode())\n"
        "print([f(0) for f in (shapes.guard_or_false, shapes.guard_or_true,\n"
        "      shapes.statically_known_true)])\n"
        "print(get_device_states(x, [x]), set_device_states([], []))\n"
        "for refused in (emit_nvtx, torch.SymInt):\n"
        "    try:\n"
        "        refused(torch.nn.Linear(1, 1), 'weight')\n"
        "    except (NotImplementedError, TypeError) as err:\n"
        "        print(err)\n"
        "with TransformGetItemToIndex():\n"
        "    print(torch.vmap(lambda i: x[1, i])(torch.arange(3)).tolist(), is_fake(x))\n"
        "with profile() as p:\n"
        "    x + x\n"
        "print(isinstance(p.key_averages(), EventList))\n"
        "import json, os\n"
        "torch.profiler.tensorboard_trace_handler('traces', 'me')(p)\n"
        "(trace,) = os.listdir('traces')\n"
        "print(trace.split('.')[0], trace.endswith('.pt.trace.json'),\n"
        "      len(json.load(open('traces/' + trace))['traceEvents']) > 0)\n"
        "print([a.name for a in torch.profiler.ProfilerAction])\n"
        "torch.use_deterministic_algorithms(True, warn_only=True)\n"
        "print(torch.is_deterministic_algorithms_warn_only_enabled())\n"
        "torch.use_deterministic_algorithms(False)\n"
        "print(torch.is_deterministic_algorithms_warn_only_enabled())\n"
        "counter = FlopCounterMode(display=False)\n"
        "print(counter.get_total_flops(), counter.get_flop_counts())\n"
    )
    done = tenon("run", "main.py", cwd=tmp_path)
    assert done.stdout.splitlines() == [
        "True _extra_state",
        "False",
        "[True, True, True] None",
        "[False, False, False]",
        "([], []) None",
        "torch.autograd.profiler.emit_nvtx: Tenon does not have it yet; cuda.nvtx marks ranges",
        "SymInt: sizes are numbers here, never symbols",
        "[3, 4, 5] False",
        "True",
        "me True True",
        "['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE']",
        "True",
        "False",
        "0 {'Global': {}}",
    ], done.stderr


def test_run_without_a_file() -> None:
    out = tenon("run", "/nonexistent.py")
    assert out.returncode == 1
    assert "nonexistent" in out.stderr


def test_what_a_plugin_may_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries of the system; not the library itself nor its symbols: both are named."""
    path = Path("plugin.so")
    for needed, undefined, told in (
        (["libc.so.6", "libm.so.6"], ["malloc", "tnx"], "needs libc.so.6, libm.so.6"),
        ([], [], "needs nothing"),
    ):
        file = SimpleNamespace(needed=needed, undefined=undefined)
        monkeypatch.setattr(command._elf, "read", lambda _, file=file: file)
        assert command.check_needs(path) == told
    for needed, undefined, names in (
        (["libtenon.so", "libc.so.6"], ["tni_b", "tn_a"], "libtenon.so, tn_a, tni_b"),
        (["_C.abi3.so"], ["malloc"], "_C.abi3.so"),
        (["libc.so.6"], ["tn_add"], "tn_add"),
    ):
        file = SimpleNamespace(needed=needed, undefined=undefined)
        monkeypatch.setattr(command._elf, "read", lambda _, file=file: file)
        with pytest.raises(ValueError, match=f"^it needs {names}: a plugin gets all from the host"):
            command.check_needs(path)
