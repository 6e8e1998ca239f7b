"""Warnings point at the line of the program that is warned."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from threading import Lock
from typing import Any

import pytest
import tenon as tn
from tenon import fx, nn, vision
from tenon.nn import init
from tenon.nn.utils import clip_grad_norm_, stateless, weight_norm
from tenon.optim import lr_scheduler
from tenon.utils import checkpoint, data
from tenon.utils.data import datapipes, graph_settings

X = tn.ones(2, 2)
PIPE = datapipes.iter.IterableWrapper([1, 2])


def layer() -> nn.Module:
    return nn.Linear(2, 2)


def steps(kind: str = "StepLR", *args: Any) -> Any:
    return getattr(lr_scheduler, kind)(tn.optim.SGD(layer().parameters(), 0.1), *args)


def replica() -> nn.Module:
    made = layer()
    made._is_replica = True
    return made


def hooked(result: Any) -> None:
    """A module with a hook for gradients whose result is no tensor."""

    class Made(nn.Module):
        def forward(self, x: tn.Tensor) -> Any:
            return result

    made = Made()
    made.register_full_backward_hook(lambda *args: None)
    made(X.clone().requires_grad_())


def failing() -> None:
    """A module that fails, with a hook that does, too."""

    def fail(*args: Any) -> None:
        raise KeyError("in the hook")

    class Made(nn.Module):
        def forward(self, x: tn.Tensor) -> Any:
            raise ValueError("in forward")

    made = Made()
    made.register_forward_hook(fail, always_call=True)
    with pytest.raises(ValueError, match="in forward"):
        made(X)


class Bare(tn.distributions.Distribution):
    """Says nothing of its values."""

    arg_constraints: dict[str, Any] = {}

    @property
    def support(self) -> Any:
        raise NotImplementedError

    def log_prob(self, value: tn.Tensor) -> tn.Tensor:
        self._validate_sample(value)
        return value


class Nameless(Bare):
    """Nothing of its arguments, either."""

    @property
    def arg_constraints(self) -> Any:
        raise NotImplementedError


def turning(x: tn.Tensor) -> tn.Tensor:
    return x * 2 if bool(x.sum() > 0) else x


def internal(name: str) -> Any:
    return importlib.import_module(f"tenon._torch.{name}")


CASES: tuple[tuple[str, Callable[[], Any]], ...] = (
    ("duplicate parameters", lambda: tn.optim.SGD([X, X], 0.1)),
    ("epoch parameter", lambda: steps("ReduceLROnPlateau").step(1.0, epoch=1)),
    ("get_last_lr", lambda: steps("StepLR", 2).get_lr()),
    ("before `optimizer.step()`", lambda: steps("StepLR", 2).step()),
    ("Complex modules are a new feature", lambda: layer().to(tn.complex64)),
    (".zero_grad() from a module", lambda: replica().zero_grad()),
    ("module output should be a Tensor or a", lambda: hooked({"y": X})),
    ("that was silenced as another error", failing),
    ("Positional args are being deprecated", lambda: layer().state_dict({})),
    ("dropout option adds dropout", lambda: nn.LSTM(2, 2, dropout=0.5)),
    ("dropout option adds dropout", lambda: nn.GRU(2, 2, dropout=0.5)),
    ("`min_value` is deprecated", lambda: nn.Hardtanh(min_value=-2.0)),
    ("`max_value` is deprecated", lambda: nn.Hardtanh(max_value=2.0)),
    ("enable_nested_tensor is True", lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(2, 1, 2), 1)),
    ("NLLLoss2d is an older name", lambda: nn.NLLLoss2d()),
    ("mean is more than 2 std", lambda: init.trunc_normal_(tn.empty(3), 9.0)),
    ("zero-element tensors", lambda: init.kaiming_normal_(tn.empty(0, 2))),
    ("zero-element tensors", lambda: init.kaiming_uniform_(tn.empty(0, 2))),
    ("nn.init.uniform` is now deprecated", lambda: init.uniform(tn.empty(3))),
    ("empty generator", lambda: clip_grad_norm_((p for p in ()), 1.0)),
    ("weight_norm` is deprecated", lambda: weight_norm(layer())),
    ("stateless.functional_call is deprecated", lambda: stateless.functional_call(
        layer(), {}, X)),
    ("instead of `torch._vmap_internals.vmap`", lambda: internal("_vmap_internals").vmap(tn.sin)),
    ("'set_vital' is deprecated", lambda: internal("functions").set_vital("a", "b", "c")),
    ("Converting a tensor to a Python number", lambda: tn.jit.trace(
        lambda x: x * x.sum().item(), X, check_trace=False)),
    ("does not match the corresponding output", lambda: tn.jit.trace(
        turning, X, check_inputs=[-X])),
    ("inner type of an empty container", lambda: tn.jit.isinstance([], list[int])),
    ("there is no such device", lambda: tn.autocast("cuda" if not tn.cuda.is_available()
                                                      else "xpu")),
    ("but the target dtype is not supported", lambda: tn.autocast("cpu", dtype=tn.float64)),
    ("does not define `arg_constraints`", lambda: Nameless(validate_args=True)),
    ("does not define `support`", lambda: Bare(
        validate_args=True).log_prob(X)),
    ("not measured", lambda: tn.profiler.profile(with_flops=True)),
    ("Scale and ratio should be of kind", lambda: vision.transforms.RandomErasing(
        scale=(0.5, 0.1))),
    ("default weight initialization of GoogleNet", lambda: vision.models.GoogLeNet(2)),
    ("is not one of 'highest'", lambda: tn.set_float32_matmul_precision("most")),
    ("_check_is_size will be removed", lambda: tn._check_is_size(1)),
    ("GradScaler is enabled, but", lambda: tn.amp.GradScaler("xpu")),
    ("None of the inputs have requires_grad", lambda: checkpoint.checkpoint(
        tn.sin, X, use_reentrant=True)),
    ("Was not able to add assertion", lambda: fx.symbolic_trace(
        lambda x, y: x + y, concrete_args={"y": X})),
    ("suggested max number of worker", lambda: data.DataLoader([1], num_workers=999)),
    ("low == high is deprecated", lambda: tn.testing.make_tensor(
        (2,), dtype=tn.float32, device="cpu", low=1, high=1)),
    ("Unlimited buffer size is set for `fork`", lambda: PIPE.fork(2, buffer_size=-1)),
    ("Unlimited buffer size is set for `demux`", lambda: PIPE.demux(
        2, lambda x: 0, buffer_size=-1)),
    ("input iterable can not be deepcopied", lambda: list(datapipes.iter.IterableWrapper(
        [Lock()]))),
    ("input sequence can not be deepcopied", lambda: datapipes.map.SequenceWrapper([Lock()])),
    ("Length of split at index 1 is 0", lambda: data.random_split([1, 2], [1.0, 0.0])),
    ("does not contain a `Shuffler`", lambda: graph_settings.apply_shuffle_settings(PIPE, True)),
    ("`apply_shuffle_seed` is deprecated", lambda: graph_settings.apply_shuffle_seed(
        PIPE, tn.Generator())),
    ("`traverse` function is deprecated", lambda: data.graph.traverse(PIPE)),
)  # fmt: skip


@pytest.mark.parametrize(("words", "call"), CASES, ids=lambda v: v if isinstance(v, str) else "")
def test_warnings_point_at_the_program(words: str, call: Callable[[], Any]) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        call()
    found = [w.filename for w in told if words in str(w.message)]
    assert found == [__file__], [(str(w.message), w.filename) for w in told]


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("TENON_RNG", "what", "philox, torch, mt19937"),
        ("TENON_CHECK", "yes", "0, 1"),
        ("TENON_CPU_ISA", "what", "baseline, avx2, avx512"),
    ],
)
def test_a_setting_of_an_unknown_word_is_named_and_ignored(
    setting: str, value: str, words: str
) -> None:
    program = "import tenon as tn; tn.manual_seed(0); print(tn.rand(3).tolist())"
    plain, told = (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True,
                       env={**os.environ, setting: given}) for given in ("", value)
    )  # fmt: skip
    assert told.stdout == plain.stdout and "Warning" not in plain.stderr
    assert f"{setting} is '{value}', none of {words}; ignored" in told.stderr
