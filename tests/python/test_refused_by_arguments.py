"""Arguments that tools, layers, quantization, parametrizations, passes and pipelines refuse, each
with the words that only this check says; where PyTorch refuses the call, too, with its class."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tenon as tn
from refusals import Refusal, by_name, check, check_beside, part
from tenon import __main__ as command
from tenon import build_plugin
from tenon._plugin import schema
from tenon._program import script_file
from tenon.cuda import _graphed
from tenon.distributed import _groups
from tenon.distributed.pipelining import schedules, stage

Call = Callable[[Any], Any]


def two_kinds_of_hooks(lib: Any) -> None:
    layer = lib.nn.Linear(1, 1)
    layer.register_full_backward_hook(lambda *a: None)
    layer.register_backward_hook(lambda *a: None)


def turned(lib: Any) -> None:
    """A parametrization whose inverse has another dtype the second time."""

    class Turned(lib.nn.Module):
        to = lib.float32

        def forward(self, x: Any) -> Any:
            return x

        def right_inverse(self, x: Any) -> Any:
            return x.to(self.to)

    layer, way = lib.nn.Linear(2, 2), Turned()
    part(lib, "nn", "utils", "parametrize").register_parametrization(layer, "weight", way)
    way.to = lib.float64
    layer.weight = lib.ones(2, 2)


def circle(lib: Any) -> None:
    manager = part(lib, "fx", "passes", "infra", "pass_manager").PassManager(
        [lambda m: None, lambda m: None], constraints=[lambda a, b: False]
    )
    manager.solve_constraints()


def engines(lib: Any) -> None:
    lib.backends.quantized.supported_engines = []


def frozen_flags(lib: Any) -> None:
    backends = part(lib, "backends")
    with pytest.MonkeyPatch.context() as patch:
        for module in (backends, part(lib, "backends", "_options") if lib is tn else backends):
            for name in ("__allow_nonbracketed_mutation_flag", "frozen"):
                if hasattr(module, name):
                    patch.setattr(module, name, getattr(module, name))
        backends.disable_global_flags()
        lib.backends.mkldnn.enabled = False


BESIDE: dict[str, tuple[str, Call]] = {
    "numbers that are none": ("must return numbers", lambda t: t.ones(2).apply_(lambda v: "x")),
    "channel axis": (
        "quantize_per_channel: axis 5 of 2 dimensions",
        lambda t: t.quantize_per_channel(
            t.ones(2, 1), t.tensor([0.5, 1.0]), t.tensor([0, 0]), 5, t.qint8
        ),
    ),
    "zero point above": (
        "zero_point 300 is above upper bound.",
        lambda t: t.quantize_per_tensor(t.ones(2), 0.5, 300, t.quint8),
    ),
    "zero point below": (
        "zero_point -1 is below lower bound.",
        lambda t: t.quantize_per_tensor(t.ones(2), 0.5, -1, t.quint8),
    ),
    "hooks of two kinds": ("both regular backward hooks and full", two_kinds_of_hooks),
    "time for no workers": (
        "argument 'timeout' is for loaders with workers",
        lambda t: iter(part(t, "utils", "data").DataLoader([1, 2], timeout=1)),
    ),
    "inverse of another dtype": ("`right_inverse` has dtype", turned),
    "mode of a grid": (
        "expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: 'none'",
        lambda t: t.nn.functional.grid_sample(
            t.ones(1, 1, 2, 2), t.ones(1, 2, 2, 2), mode="none", align_corners=False
        ),
    ),
    "padding of a grid": (
        "expected padding_mode to be 'zeros', 'border', or 'reflection', but got: 'none'",
        lambda t: t.nn.functional.grid_sample(
            t.ones(1, 1, 2, 2), t.ones(1, 2, 2, 2), padding_mode="none", align_corners=False
        ),
    ),
    "targets in rows": (
        "Expected target size [2], but got [2, 1]",
        lambda t: t.nn.functional.multi_margin_loss(t.ones(2, 3), t.tensor([[0], [1]])),
    ),
    "grid of a line": (
        "affine_grid only supports 4D and 5D sizes",
        lambda t: t.nn.functional.affine_grid(t.ones(1, 2, 3), [1, 1, 2], align_corners=False),
    ),
    "sections by two names": (
        "tensor_split() got several values for",
        lambda t: t.tensor_split(t.arange(4), 2, indices=[1]),
    ),
    "engines": ("Assignment not supported", engines),
    "passes in a circle": ("Circular dependency detected", circle),
    "flags": ("flags after disable_global_flags; please use flags()", frozen_flags),
}


@pytest.mark.parametrize("name", BESIDE)
def test_refused_as_by_pytorch(name: str) -> None:
    check_beside(*BESIDE[name])


# ---- Tenon's own ---------------------------------------------------------------------------------


def stage_of(result: Any, last: bool) -> Any:
    made = stage.PipelineStage.__new__(stage.PipelineStage)
    made.__dict__.update(
        submod=lambda *a: result, stage_index=0, num_stages=1 if last else 2, _running={0: ((), ())}
    )
    return made


def project(text: str, folder: Path) -> Any:
    return build_plugin._metadata(SimpleNamespace(project=text, root=folder))


def hooked() -> tn.nn.Module:
    layer = tn.nn.Sequential(tn.nn.Linear(1, 1))
    layer[0].register_forward_hook(lambda *a: None)
    return layer


OWN: dict[str, Refusal] = by_name(
    tools=(
        (SystemExit, "tenon run: which program?", lambda: command.command_run([])),
        (ValueError, "f: there is no default 'foo' in the schema",
         lambda: schema.parse("f", "(int a=foo) -> int")),
        (build_plugin.BuildError, "[project] in pyproject.toml:",
         lambda: project({"name": 3}, Path("nowhere"))),
        (ValueError, "'what' is nothing that a script holds",
         lambda: script_file.Reader.__new__(script_file.Reader).value({"what": 1})),
        (RuntimeError, "make_graphed_callables: the module has hooks",
         lambda: _graphed._check_module(hooked())),
        (TypeError, "compile_kernel(): nvcc_options must be strings",
         lambda: tn.cuda._compile_kernel("a", "b", nvcc_options=[1])),
    ),
    tensors=(
        (NotImplementedError, "ones(): argument 'layout': it makes no tensors of layout",
         lambda: tn.ones(2, layout=tn.sparse_coo)),
        (RuntimeError, "'lengths' has 4, but the sequences have 3 steps",
         lambda: tn.nn.utils.rnn.pack_padded_sequence(tn.ones(3, 1, 2), [4])),
    ),
    processes=(
        (ValueError, "device_id must have an index, such as 'cuda:0'",
         lambda: _groups._device_index("cuda")),
        (TypeError, "pipeline: stage 0 gives ['int']; stages exchange tensors",
         lambda: stage_of(3, last=False).forward(0, (), {}, None, False)),
        (RuntimeError, "pipeline: the last stage has no loss_fn",
         lambda: stage_of(3, last=True).backward(0, None, None)),
        (RuntimeError, "pipeline: the schedule cannot go on", lambda: schedules.play(
            1, 2, 1, True, lambda rank: 0, lambda action: action, lambda at: 0)),
    ),
)  # fmt: skip


@pytest.mark.parametrize("name", OWN)
def test_refused_with_words(name: str) -> None:
    check(OWN[name])
