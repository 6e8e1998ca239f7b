"""repr of tensors: fixed texts, and PyTorch's text where it can be imported."""

from __future__ import annotations

import random

import pytest
import tenon

np = pytest.importorskip("numpy")


def test_fixed_texts():
    assert repr(tenon.tensor([1.0, 2.5])) == "tensor([1.0000, 2.5000])"
    assert repr(tenon.tensor(3)) == "tensor(3)"
    assert repr(tenon.tensor([[True, False]])) == "tensor([[ True, False]])"
    assert repr(tenon.tensor([])) == "tensor([])"
    assert repr(tenon.zeros(0, 3)) == "tensor([], size=(0, 3))"
    assert repr(tenon.zeros(2, dtype=tenon.float64)) == "tensor([0., 0.], dtype=tenon.float64)"
    assert repr(tenon.ones(1, requires_grad=True)) == "tensor([1.], requires_grad=True)"
    assert "grad_fn=<MulBackward0>" in repr(tenon.ones(1, requires_grad=True) * 2)
    assert repr(tenon.tensor(1 + 2j)) == "tensor(1.+2.j)"
    assert str(tenon.float32) == "tenon.float32"
    assert repr(tenon.Size([2, 3])) == "tenon.Size([2, 3])"
    assert repr(tenon.device("cuda:1")) == "device(type='cuda', index=1)"


def test_format():
    assert f"{tenon.tensor(3.14159):.2f}" == "3.14"
    assert f"{tenon.tensor(3)}" == "3"
    assert f"{tenon.tensor([1.0])}" == "tensor([1.])"
    with pytest.raises(TypeError):
        format(tenon.tensor([1.0]), ".2f")


@pytest.fixture
def torch():
    module = pytest.importorskip("torch")
    previous = tenon._C._set_prefix("torch")
    yield module
    tenon._C._set_prefix(previous)
    module.set_printoptions(profile="default", sci_mode=None)
    tenon.set_printoptions(profile="default", sci_mode=None)


DTYPES = [
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
    "float64", "complex64", "complex128",
]  # fmt: skip
SHAPES = [
    (), (1,), (3,), (11,), (40,), (2, 3), (1, 1), (3, 30), (2, 2, 2), (2, 1, 3, 2), (0,), (2, 0),
    (0, 3), (1001,), (7, 200), (30, 40), (10, 2, 60), (3, 4, 100),
]  # fmt: skip


def same(torch, array, dtype):
    ours = tenon.tensor(array).to(getattr(tenon, dtype))
    theirs = torch.tensor(array).to(getattr(torch, dtype))
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(torch, dtype, shape):
    rng = np.random.default_rng(1)
    array = rng.standard_normal(shape) * 3
    if dtype.startswith("complex"):
        array = array + 1j * rng.standard_normal(shape)
    if dtype == "uint8":
        array = np.abs(array)
    same(torch, array, dtype)


VALUES = [
    [1e-5, 1.0], [1e8, 1.0], [1.5e8, 3.0], [1e9], [1e-4], [9e-5], [1000.0, 1.0], [1001.0, 1.0],
    [1.0, 2.0, 3.0], [float("nan")], [float("inf"), 1.0], [float("nan"), 1.5], [-0.0], [0.0],
    [0.0, 1e-20], [-1.0, 2.0], [1e20, float("inf")], [float("-inf"), float("nan")], [0.1, 100.0],
    [123456.789], [99999.5], [1e-45], [3.4e38], [1, 1e3 + 0.5], [1.00001], [-1e-3, 1e-3],
]  # fmt: skip


@pytest.mark.parametrize("values", VALUES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "bfloat16"])
def test_values(torch, values, dtype):
    same(torch, np.array(values, dtype=np.float64), dtype)
    if dtype == "complex64":
        array = np.array(values) + 1j * np.array(values[::-1])
        same(torch, array, dtype)


def test_random_values(torch):
    rng = random.Random(3)
    for _ in range(200):
        count = rng.randrange(1, 30)
        scale = 10.0 ** rng.randrange(-8, 10)
        values = [rng.uniform(-1, 1) * scale * 10.0 ** rng.randrange(-2, 3) for _ in range(count)]
        if rng.random() < 0.3:
            values = [float(round(v)) for v in values]
        same(torch, np.array(values), rng.choice(["float32", "float64"]))


@pytest.mark.parametrize(
    "options",
    [
        {"precision": 2}, {"precision": 8}, {"threshold": 5}, {"edgeitems": 1, "threshold": 3},
        {"linewidth": 40}, {"sci_mode": True}, {"sci_mode": False}, {"profile": "short"},
        {"profile": "full"}, {"edgeitems": 0, "threshold": 3},
    ],
    ids=str,
)  # fmt: skip
def test_options(torch, options):
    torch.set_printoptions(**options)
    tenon.set_printoptions(**options)
    rng = np.random.default_rng(2)
    for shape in ((), (12,), (4, 9), (3, 4, 5), (1200,)):
        same(torch, rng.standard_normal(shape) * 100, "float32")
        same(torch, rng.integers(-50, 50, shape), "int64")


def test_suffixes(torch):
    for make in (
        lambda m: m.ones(3, requires_grad=True),
        lambda m: m.ones(2, 12, dtype=m.float64, requires_grad=True),
        lambda m: m.ones(3, requires_grad=True) * 2.5,
        lambda m: (m.ones(30, requires_grad=True) + 1).exp(),
        lambda m: m.ones(3, 4, requires_grad=True).sum(),
        lambda m: m.ones(3, 4, requires_grad=True)[0],
        lambda m: m.ones(3, 4, requires_grad=True).view(12),
        lambda m: m.ones(3, 4, requires_grad=True).transpose(0, 1),
        lambda m: m.zeros(2, 0, dtype=m.float16),
        lambda m: m.nn.Parameter(m.ones(2, 2)),
    ):
        assert repr(make(tenon)) == repr(make(torch))


def test_named_results(torch):
    ours, theirs = (m.tensor([[1.0, 5.0], [7.0, 3.0]]).max(dim=1) for m in (tenon, torch))
    assert repr(ours) == repr(theirs)
    assert ours.values.tolist() == ours[0].tolist() == [5.0, 7.0]


def test_subclass(torch):
    class Mine(tenon.Tensor):
        pass

    assert repr(tenon.ones(2).as_subclass(Mine)) == "Mine([1., 1.])"
