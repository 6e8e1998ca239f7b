"""FakeTensorMode: sizes, dtypes, devices and gradients of a program without values."""

from __future__ import annotations

import pytest
import tenon as tn
from tenon import nn
from tenon._torch._subclasses import (
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from tenon._torch._subclasses.fake_tensor import DataDependentOutputException, is_fake


def test_what_a_program_makes_has_sizes_and_no_values() -> None:
    with FakeTensorMode() as mode:
        net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(),
                            nn.Linear(288, 4))  # fmt: skip
        x = tn.randn(2, 3, 8, 8)
        y = net(x)
        loss = nn.functional.cross_entropy(y, tn.tensor([0, 3]))
        loss.backward()
    assert type(y) is FakeTensor and y.shape == (2, 4) and y.fake_mode is mode
    assert y.device == tn.device("cpu") and x.stride() == (192, 64, 8, 1)
    assert repr(y) == "FakeTensor(..., size=(2, 4), grad_fn=<AddmmBackward0>)"
    weight = net[0].weight
    assert isinstance(weight, nn.Parameter) and is_fake(weight.grad)
    assert weight.grad.shape == weight.shape
    assert repr(net[4].bias) == "Parameter(FakeTensor(..., size=(4,), requires_grad=True))"
    assert repr(x.long()[0, 0, 0]) == "FakeTensor(..., size=(8,), dtype=torch.int64)".replace(
        "torch", repr(tn.int64).partition(".")[0]
    )


def test_forms_keep_what_they_write() -> None:
    with FakeTensorMode():
        x = tn.zeros(3, 4)
        assert x.add_(1) is x
        assert tn.cat([x, x]).t().contiguous().stride() == (6, 1)
        assert x.view(-1).shape == (12,) and x.double().dtype is tn.float64
        assert tn.arange(5).dtype is tn.int64 and tn.tensor(2.0, requires_grad=True).requires_grad
        assert x.max(1).indices.shape == (3,)


def test_tensors_with_values_come_in_by_the_mode() -> None:
    mode = FakeTensorMode()
    real = tn.ones(2, 3).t()
    fake = mode.from_tensor(real)
    assert mode.from_tensor(fake) is fake and fake.stride() == (1, 3)
    assert type(mode.from_tensor(nn.Parameter(real))) is FakeTensor
    assert is_fake(fake + 1) and is_fake(fake * tn.tensor(2.0))
    with pytest.raises(AssertionError, match=r"Found in aten.add.Tensor\(FakeTensor\(\.\.\., size"):
        fake + real
    with pytest.raises(AssertionError, match="Mixing fake modes"):
        FakeTensorMode().from_tensor(fake)
    free = FakeTensorMode(allow_non_fake_inputs=True)
    assert (free.from_tensor(real) @ tn.ones(2, 5)).shape == (3, 5)


def test_values_are_refused_by_the_operators_name() -> None:
    with FakeTensorMode():
        x = tn.ones(3)
        for ask in (lambda: x.sum().item(), lambda: bool(x.sum() > 0), lambda: float(x[0])):
            with pytest.raises(DataDependentOutputException, match="_local_scalar_dense"):
                ask()
        with pytest.raises(DynamicOutputShapeException, match="aten.nonzero"):
            x.nonzero()
