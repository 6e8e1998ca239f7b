"""Which modules become units, modules that keep less for backward, errors for a launcher."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
import pytest
import tenon as tn
from tenon import nn
from tenon.distributed.algorithms._checkpoint import checkpoint_wrapper as wrappers
from tenon.distributed.elastic.multiprocessing.errors import (
    ChildFailedError,
    ProcessFailure,
    record,
)
from tenon.distributed.fsdp import wrap


class Wrapped(nn.Module):
    def __init__(self, module: nn.Module, mark: str = "") -> None:
        super().__init__()
        self.inner, self.mark = module, mark


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.big, self.small = nn.Linear(10, 10), nn.Linear(2, 2)


def model() -> nn.Module:
    return nn.Sequential(Layer(), nn.ModuleList([Layer(), Layer()]), nn.Linear(3, 3))


def marked(top: nn.Module) -> list[str]:
    return [n for n, m in top.named_modules() if isinstance(m, Wrapped)]


def test_policies_by_class_and_by_function() -> None:
    top = model()
    policy = wrap.ModuleWrapPolicy({Layer})
    wrap._wrap_by_policy(top, policy, set(), Wrapped, {"mark": "x"})
    assert marked(top) == ["0", "1.0", "1.1"] and top[0].mark == "x"
    top = model()
    own = wrap.CustomPolicy(lambda m: {"mark": "own"} if isinstance(m, nn.Linear) and
                            m.in_features == 3 else isinstance(m, Layer))  # fmt: skip
    wrap._wrap_by_policy(top, own, {top[1][0]}, Wrapped, {"mark": "x"})
    assert marked(top) == ["0", "1.1", "2"] and (top[2].mark, top[0].mark) == ("own", "x")
    with pytest.raises(ValueError, match="False/True or a kwarg"):
        wrap._wrap_by_policy(model(), wrap.CustomPolicy(lambda m: 3), set(), Wrapped, {})
    for old in (
        functools.partial(wrap.transformer_auto_wrap_policy, transformer_layer_cls={Layer}),
        functools.partial(wrap.lambda_auto_wrap_policy, lambda_fn=lambda m: isinstance(m, Layer)),
        functools.partial(wrap._or_policy, policies=[
            functools.partial(wrap.lambda_auto_wrap_policy, lambda_fn=lambda m: False), policy,
        ]),
    ):  # fmt: skip
        top = model()
        wrap._wrap_by_policy(top, old, set(), Wrapped, {})
        assert marked(top) == ["0", "1.0", "1.1"]


def test_policy_by_size_counts_what_is_left() -> None:
    top = model()
    policy = functools.partial(wrap.size_based_auto_wrap_policy, min_num_params=100)
    wrap._wrap_by_policy(top, policy, set(), Wrapped, {})
    # The rest of a layer is smaller than a unit; a list is never one.
    assert marked(top) == ["0.big", "1.0.big", "1.1.big"]
    top = model()
    policy = functools.partial(wrap.size_based_auto_wrap_policy, min_num_params=115)
    wrap._wrap_by_policy(top, policy, set(), Wrapped, {})
    assert marked(top) == ["0", "1.0", "1.1"]


def test_wrap_by_context() -> None:
    layer = nn.Linear(2, 2)
    assert wrap.wrap(layer) is layer
    with wrap.enable_wrap(wrapper_cls=Wrapped, mark="a"):
        first, second = wrap.wrap(layer), wrap.wrap(layer, mark="b")
    assert (first.mark, second.mark) == ("a", "b") and first.inner is layer
    assert wrap.wrap(layer) is layer


@pytest.mark.parametrize("kind", ["once", "reentrant", "offload"])
def test_checkpointed_modules_compute_the_same(kind: str) -> None:
    calls = []

    class Counted(nn.Linear):
        def forward(self, x: tn.Tensor, scale: tn.Tensor | float = 1.0) -> tn.Tensor:
            calls.append(1)
            return super().forward(x) * scale

    tn.manual_seed(0)
    plain = nn.Sequential(Counted(4, 4), nn.Tanh(), Counted(4, 2)).double()
    tn.manual_seed(0)
    kept = nn.Sequential(Counted(4, 4), nn.Tanh(), Counted(4, 2)).double()
    how = {
        "once": wrappers.checkpoint_wrapper,
        "reentrant": functools.partial(
            wrappers.checkpoint_wrapper, checkpoint_impl=wrappers.CheckpointImpl.REENTRANT
        ),
        "offload": wrappers.offload_wrapper,
    }[kind]
    wrappers.apply_activation_checkpointing(kept, how, lambda m: isinstance(m, Counted))
    assert isinstance(kept[0], wrappers.ActivationWrapper) and kept[0].in_features == 4
    assert kept.state_dict().keys() == plain.state_dict().keys()
    kept.load_state_dict(plain.state_dict())
    assert [n for n, _ in kept[0].named_parameters()] == ["weight", "bias"]
    x = tn.arange(12.0).view(3, 4).double() / 10
    grads = []
    for m in (plain, kept):
        calls.clear()
        given = x.clone().requires_grad_()
        (m(given) ** 2).sum().backward()
        count = len(calls)
        grads.append([given.grad, *(p.grad for p in m.parameters())])
    assert count == (2 if kind == "offload" else 4)
    for got, want in zip(grads[1], grads[0], strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-12)
    if kind == "reentrant":
        given = x.clone().requires_grad_()
        kept[0](given, scale=tn.tensor(2.0).double()).sum().backward()
        want = 2 * plain[0].weight.detach().sum(0)
        np.testing.assert_allclose(given.grad[0].numpy(), want.numpy(), rtol=1e-12)


def test_errors_are_written_for_a_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(file))

    @record
    def main(fails: bool) -> int:
        if fails:
            raise ValueError("no data")
        return 3

    assert main(False) == 3 and not file.exists()
    with pytest.raises(ValueError, match="no data"):
        main(True)
    assert json.loads(file.read_text())["message"]["message"] == "ValueError: no data"
    told = ProcessFailure(1, 77, 1, str(file))
    killed = ProcessFailure(0, 78, -9, "none")
    assert killed.signal_name() == "SIGKILL" and "SIGKILL" in killed.message
    killed.timestamp = told.timestamp + 1
    failed = ChildFailedError("train.py", {0: killed, 1: told})
    assert failed.get_first_failure() == (1, told) and "rank 1 (local rank 1" in str(failed)
