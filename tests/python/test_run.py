"""`tenon run`: programs that say `import torch`, as processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.optim.lr_scheduler import StepLR

torch.manual_seed(0)
x = torch.randn(64, 10)
y = (x.sum(1) > 0).long()
loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
net = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2))
opt = torch.optim.AdamW(net.parameters(), lr=0.01)
schedule = StepLR(opt, 2, 0.5)
for epoch in range(4):
    total = 0.0
    for a, b in loader:
        opt.zero_grad()
        loss = F.cross_entropy(net(a), b)
        loss.backward()
        opt.step()
        total += loss.item()
    schedule.step()
    print(f"{total:.5f}")
net.eval()
with torch.no_grad():
    print((net(x).argmax(1) == y).float().mean().item() > 0.8)
print(net)
print(x.dtype, x.shape)
"""


def run(tmp_path: Path, text: str, *args: str, real: bool = False) -> subprocess.CompletedProcess:
    script = tmp_path / "program.py"
    script.write_text(text)
    runner = [] if real else ["-m", "tenon", "run"]
    command = [sys.executable, "-W", "ignore", *runner, str(script), *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ)


def test_a_training_program_prints_what_it_prints_with_pytorch(tmp_path):
    pytest.importorskip("torch", reason="no PyTorch to compare with")
    ours, theirs = run(tmp_path, PROGRAM), run(tmp_path, PROGRAM, real=True)
    assert ours.returncode == 0, ours.stderr
    left, right = ours.stdout.splitlines(), theirs.stdout.splitlines()
    for a, b in zip(left[:4], right[:4]):
        assert float(a) == pytest.approx(float(b), abs=2e-4)
    assert left[4:] == right[4:]


def test_arguments_and_main(tmp_path):
    (tmp_path / "helper.py").write_text("import torch\nvalue = torch.tensor(3)\n")
    text = (
        "import sys, helper\n"
        "assert __name__ == '__main__' and sys.modules['__main__'].__dict__ is globals()\n"
        "print(sys.argv[1:], int(helper.value), __file__ == sys.argv[0])\n"
    )
    out = run(tmp_path, text, "--lr", "0.1")
    assert out.stdout == "['--lr', '0.1'] 3 True\n", out.stderr


@pytest.mark.parametrize(
    "text, code",
    [("import sys; sys.exit(7)", 7), ("raise SystemExit", 0), ("1 / 0", 1), ("x = (", 1)],
)
def test_exit_codes(tmp_path, text, code):
    assert run(tmp_path, text).returncode == code


def test_a_traceback_starts_in_the_program(tmp_path):
    out = run(tmp_path, "def f():\n    raise ValueError('no')\nf()\n")
    assert out.stderr.splitlines()[1].strip().startswith('File "')
    assert "program.py" in out.stderr.splitlines()[1]
    assert "_command" not in out.stderr


def test_what_is_missing_is_named(tmp_path):
    out = run(tmp_path, "import torch\ntorch.no_such_name\n")
    assert "module 'torch' has no attribute 'no_such_name'" in out.stderr
    out = run(tmp_path, "import torch.no_such_module\n")
    assert "ModuleNotFoundError: No module named 'torch.no_such_module'" in out.stderr


def test_submodules_are_the_same_objects(tmp_path):
    text = (
        "import torch, tenon, torch.nn.functional as F, torch.utils.data as data\n"
        "import tenon.nn.functional, tenon.utils.data\n"
        "assert torch is tenon and F is tenon.nn.functional and data is tenon.utils.data\n"
        "print(torch.__version__, torch.float32, torch.zeros(2).type())\n"
    )
    out = run(tmp_path, text)
    assert out.stdout == "2.13.0+tenon torch.float32 torch.FloatTensor\n", out.stderr


ALL_MODULES = """
import importlib, pkgutil, sys
import torch
names = [m.name for m in pkgutil.walk_packages(torch.__path__, "tenon.") if "._" not in m.name]
absent = 0
for name in names:
    if name.endswith("__main__"):
        continue
    alias = "torch" + name.removeprefix("tenon")
    try:
        theirs = importlib.import_module(alias)
    except ImportError:
        absent += 1  # a library that is no module, a package that is not installed
        continue
    assert sys.modules[alias] is theirs is sys.modules[name], (alias, theirs)
print(len(names) > 150, absent < 10)
"""


def test_every_module_is_found_by_both_names(tmp_path):
    out = run(tmp_path, ALL_MODULES)
    assert out.stdout == "True True\n", out.stderr
    first = "from torch.nn.functional import relu\nfrom torch.nn import functional as F\n"
    assert run(tmp_path, first + "print(relu is F.relu)").stdout == "True\n"


DEVICES = """
import pickle, sys
import torch, torch.cpu, torch.mps, torch.mtia, torch.xpu, torch.cpu.amp
from torch.xpu import is_available
from torch.cpu.amp import GradScaler, autocast
print(sys.modules["torch.cpu"] is torch.cpu, sys.modules["torch.xpu"] is torch.xpu is torch.xpu)
print(is_available(), torch.xpu.is_initialized(), torch.cpu.is_initialized())
x = torch.ones(2, 2)
for given in ((), (True, torch.float16)):
    with autocast(*given):
        print((x @ x).dtype)
scaler = pickle.loads(pickle.dumps(GradScaler(4.0)))
print(scaler.get_scale(), isinstance(scaler, torch.amp.GradScaler), scaler._device)
print(torch.cuda.amp.GradScaler(4.0, enabled=False).get_scale())
"""


def test_kinds_of_devices_are_modules(tmp_path):
    out = run(tmp_path, DEVICES)
    want = "True True\nFalse False True\ntorch.bfloat16\ntorch.float16\n4.0 True cpu\n1.0\n"
    assert out.stdout == want, out.stderr
    for name in ("no_such_module", "tensor"):
        out = run(tmp_path, f"import torch.{name}\n")
        assert f"No module named 'torch.{name}'" in out.stderr


CLASSES = """
import io, pickle
import torch
from torch import nn
from torch.autograd import Function
print(type(torch.ones(1)), nn.Linear, nn.Parameter, Function, torch.utils.data.DataLoader)
print(type(torch.float32), torch.Size, torch.distributions.Normal, nn.Parameter(torch.ones(1)))
print(type(pickle.loads(pickle.dumps(nn.ReLU()))), b"tenon" in pickle.dumps(nn.ReLU()))
file = io.BytesIO()
torch.save(nn.ReLU(), file)
print(b"torch.nn.modules.activation\\nReLU" in file.getvalue(), b"torchtorch" in file.getvalue())
file.seek(0)
print(torch.load(file, weights_only=False))
"""


PLACES = """
import torch
print(torch.utils.dlpack.from_dlpack, torch.optim.adam.Adam, torch.nn.modules.pooling.MaxPool2d)
print(torch.fx.passes.shape_prop.ShapeProp, torch.distributed.checkpoint.save)
from torch.optim.sgd import SGD
from torch.optim.sparse_adam import SparseAdam
from torch.functional import einsum
from torch.amp.grad_scaler import GradScaler
from torch.cuda.amp.autocast_mode import autocast
from torch.profiler.profiler import schedule
print(SGD is torch.optim.SGD, SparseAdam is torch.optim.SparseAdam, einsum is torch.einsum)
from torch.amp.grad_scaler import _refresh_per_optimizer_state
from torch.cuda.amp.grad_scaler import OptState
from torch.distributions.exp_family import ExponentialFamily
from torch.nn.modules.conv import _ConvTransposeMixin
from torch.nn.modules.pooling import _AvgPoolNd
from torch.nn.modules.transformer import _get_clones
from torch.nn.modules.loss import _Reduction
from torch.nn.modules.conv import _pair, _single, _triple
from torch.nn.utils.spectral_norm import SpectralNorm, spectral_norm
from torch.nn.utils.weight_norm import WeightNorm, weight_norm
pool = torch.nn.AvgPool2d(2, divisor_override=3)
print(isinstance(pool, _AvgPoolNd), pool, pool.__constants__[4:])
print(_refresh_per_optimizer_state()["stage"] is OptState.READY)
print(spectral_norm is torch.nn.utils.spectral_norm, weight_norm is torch.nn.utils.weight_norm)
print(issubclass(torch.distributions.Gamma, ExponentialFamily), ExponentialFamily)
print(SpectralNorm, WeightNorm)
F = torch.nn.functional
print([F._Reduction.get_enum(r) for r in ("none", "mean", "sum")], F._Reduction is _Reduction)
print(_Reduction.legacy_get_enum(None, False, False), F._pair(3), F._triple(1), _single(2))
print(F._get_softmax_dim("softmax", 3, 2), len(_get_clones(torch.nn.ReLU(), 3)))
print(GradScaler is torch.amp.GradScaler, schedule is torch.profiler.schedule)
from torch.utils.data.datapipes.iter.combinatorics import ShufflerIterDataPipe
from torch.utils.data.datapipes.iter.fileopener import FileOpenerIterDataPipe
from torch.utils.data.datapipes.map.utils import SequenceWrapperMapDataPipe
from torch.utils.data.datapipes import iter, map
print(ShufflerIterDataPipe is iter.Shuffler, FileOpenerIterDataPipe is iter.FileOpener)
print(SequenceWrapperMapDataPipe is map.SequenceWrapper)
from torch.signal.windows.windows import hann
print(hann is torch.signal.windows.hann)
print(hasattr(torch.nn, "no_such"), hasattr(torch.utils, "no_such"))
"""


def test_submodules_are_there_without_an_import_of_their_own(tmp_path):
    out = run(tmp_path, PLACES)
    assert not out.stderr
    lines = out.stdout.splitlines()[2:]
    assert lines == [
        "True True True",
        "True AvgPool2d(kernel_size=2, stride=2, padding=0) ['count_include_pad', "
        "'divisor_override']",
        "True",
        "True True",
        "True <class 'torch.distributions.exp_family.ExponentialFamily'>",
        "<class 'torch.nn.utils.spectral_norm.SpectralNorm'> "
        "<class 'torch.nn.utils.weight_norm.WeightNorm'>",
        "[0, 1, 2] True",
        "0 (3, 3) (1, 1, 1) (2,)",
        "0 3",
        "True True",
        "True True",
        "True",
        "True",
        "False False",
    ]


def test_classes_say_the_names_that_programs_print(tmp_path):
    places = ["Tensor", "nn.modules.linear.Linear", "nn.parameter.Parameter"]
    places += ["autograd.function.Function", "utils.data.dataloader.DataLoader"]
    more = ["dtype", "Size", "distributions.normal.Normal"]
    first, second = (" ".join(f"<class 'torch.{p}'>" for p in row) for row in (places, more))
    parameter = "Parameter containing:\ntensor([1.], requires_grad=True)"
    end = "<class 'torch.nn.modules.activation.ReLU'> False\nTrue False\nReLU()"
    assert run(tmp_path, CLASSES).stdout == f"{first}\n{second} {parameter}\n{end}\n"


def test_it_refuses_after_the_real_one():
    text = "import types, sys; sys.modules['torch'] = types.ModuleType('torch')\n"
    text += "from tenon._command import run\nrun.install()\n"
    out = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert "already imported in this process" in out.stderr


def test_a_script_that_is_not_there():
    command = [sys.executable, "-m", "tenon", "run", "/no/such/script.py"]
    out = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert out.returncode == 1 and "there is no file" in out.stderr


def test_spawned_processes_import_the_same(tmp_path):
    text = """
import torch
import torch.multiprocessing as mp

def work(index, total, answers):
    total[index] = index + 1
    answers.put(torch.__version__)

if __name__ == "__main__":
    total = torch.zeros(2).share_memory_()
    answers = mp.get_context("spawn").Queue()
    group = mp.spawn(work, (total, answers), nprocs=2, join=False)
    versions = {answers.get() for _ in range(2)}
    while not group.join():
        pass
    print(total.tolist(), versions == {torch.__version__})
"""
    out = run(tmp_path, text)
    assert out.stdout.split("\n")[0] == "[1.0, 2.0] True", out.stderr


NAMES = """
import importlib.metadata as metadata, importlib.util, sys
import torch
print(torch.__name__, metadata.version("torch"), "torch" in metadata.packages_distributions())
print(torch.torch is torch, importlib.util.find_spec("torch") is not None)
import torch._dynamo.config, torch._inductor.config
torch._dynamo.config.cache_size_limit = 8
print(torch._dynamo.config.cache_size_limit, bool(torch._inductor.config.anything.deeper))
with torch._dynamo.config.patch(cache_size_limit=9, verbose=True):
    print(torch._dynamo.config.cache_size_limit)
print(torch._dynamo.config.cache_size_limit)
torch._C._log_api_usage_once("event")
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
flat = _flatten_dense_tensors([torch.ones(2, 2), torch.zeros(3)])
like = [torch.ones(2, 2), torch.zeros(3)]
print(flat.tolist(), [tuple(t.shape) for t in _unflatten_dense_tensors(flat, like)])
try:
    import torch._not_there
except ModuleNotFoundError as err:
    print(err)
"""


def test_what_packages_look_for_is_there(tmp_path):
    result = run(tmp_path, NAMES)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        "torch 2.13.0+tenon True",
        "True True",
        "8 False",
        "9",
        "8",
        "[1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0] [(2, 2), (3,)]",
        "No module named 'torch._not_there': Tenon does not have it yet",
    ]


def test_programs_as_python_takes_them(tmp_path):
    (tmp_path / "part.py").write_text(
        "import sys, torch\nprint(__name__, sys.argv[1:], torch.ones(1).sum())\n"
    )
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "__main__.py").write_text("import torch\nprint(__name__, torch.e > 2)\n")

    def tenon(*words: str, text: str | None = None) -> str:
        command = [sys.executable, "-m", "tenon", "run", *words]
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, cwd=tmp_path, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert tenon("-m", "part", "-x", "1") == "__main__ ['-x', '1'] tensor(1.)"
    assert tenon("-c", "import sys, torch; print(torch.ones(2).sum().item(), sys.argv)", "a") == (
        "2.0 ['-c', 'a']"
    )
    assert tenon("-", text="import torch; print(torch.zeros(1).item())") == "0.0"
    assert tenon("folder") == "__main__ True"
    bare = subprocess.run([sys.executable, "-m", "tenon", "run"], capture_output=True, text=True)
    assert bare.returncode == 1 and "which program" in bare.stderr


def test_hints_of_types_are_found(tmp_path: Path) -> None:
    """Names in annotations are looked up in the module that a class says it is of."""
    program = """
import typing, torch
from torch.jit.annotations import BroadcastingList2
hints = typing.get_type_hints(torch.nn.Module)
assert hints["_parameters"] and typing.get_type_hints(torch.nn.Linear)
print(torch.nn.Module.__module__)
"""
    path = tmp_path / "hints.py"
    path.write_text(program)
    done = subprocess.run(
        [sys.executable, "-m", "tenon", "run", str(path)], capture_output=True, text=True
    )
    assert done.stdout == "torch.nn.modules.module\n", done.stderr


VERSIONS = """
import torch
from torch.torch_version import TorchVersion
v = torch.__version__
print(v >= "2.9", v >= (2, 0), v < (3,), v == "2.13.0+tenon", isinstance(v, str), v.split(".")[0])
a = TorchVersion
print(a("1.10.0a") > "1.2", a("2.0.0") == "2.0", a("2.1.0.dev1") < "2.1.0a1", a("2.1rc1") < "2.1",
      a("2.1.post1") > "2.1", a("2.1+cu1") > "2.1", a("1!0.1") > "2.1", a("parrot") > "b")
print({v: 1}[str(v)], __builtins__.len("ab"))
"""


def test_the_version_compares_as_one(tmp_path):
    ours = run(tmp_path, VERSIONS)
    assert ours.returncode == 0, ours.stderr
    assert set(ours.stdout.split()) == {"True", "1", "2"}, ours.stdout


HINTS = """
import typing, torch
for part in (torch.nn.Module(), torch.nn.Tanh()):
    print(typing.get_type_hints(part, globalns={}, localns={})["_buffers"])
"""


def test_hints_of_layers_need_no_names_of_the_program(tmp_path):
    assert run(tmp_path, HINTS).stdout.splitlines() == ["dict[str, torch.Tensor | None]"] * 2
