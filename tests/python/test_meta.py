"""The meta device: tensors with shapes and no memory, as PyTorch's."""

from __future__ import annotations

import copy
import io
import pickle
import threading
import warnings
from typing import Any

import memory
import pytest
import tenon as tn
from tenon import nn


def meta(*shape: int, **options: Any) -> tn.Tensor:
    return tn.empty(*shape, device="meta", **options)


def test_text() -> None:
    assert repr(meta(2, 3)) == "tensor(..., device='meta', size=(2, 3))"
    assert repr(meta(())) == "tensor(..., device='meta', size=())"
    x = meta(2, requires_grad=True)
    assert repr(x) == "tensor(..., device='meta', size=(2,), requires_grad=True)"
    assert repr(x * 2) == "tensor(..., device='meta', size=(2,), grad_fn=<MulBackward0>)"
    whole = repr(meta(2, dtype=tn.int64)).replace("tenon", "torch")
    assert whole == "tensor(..., device='meta', size=(2,), dtype=torch.int64)"


def test_no_memory_whatever_the_size() -> None:
    before = memory.resident()
    x = meta(10**6, 10**6, dtype=tn.float64)
    y = (x.t()[::2].reshape(-1) + 1).to(tn.float16).cumsum(0)
    assert y.shape == (5 * 10**11,) and y.dtype is tn.float16
    square = x @ x
    assert square.untyped_storage().nbytes() == 8 * 10**12
    assert x.data_ptr() == 0
    assert memory.resident() - before < 50_000_000


def test_sizes_are_still_checked() -> None:
    with pytest.raises((RuntimeError, ValueError), match="too large|overflow|large"):
        meta(2**40, 2**40)
    with pytest.raises(RuntimeError, match="must match|broadcast"):
        meta(2) + meta(3)
    with pytest.raises(RuntimeError, match="same device|expected device"):
        meta(2) + tn.ones(2)
    assert (meta(2) + tn.tensor(1.0)).shape == (2,)  # a number of the CPU goes along


def test_device() -> None:
    x = meta(2)
    assert x.is_meta and not x.is_cpu and not x.is_cuda and x.get_device() == -1
    assert x.device == tn.device("meta") and x.device.index is None
    assert meta(1).to("meta:1").device == tn.device("meta")
    assert not tn.ones(1).is_meta
    with tn.device("meta"):
        assert tn.ones(2).is_meta and nn.Linear(2, 3).weight.is_meta
        assert tn.tensor([1, 2]).dtype is tn.int64
    assert not tn.ones(2).is_meta
    for make in (tn.zeros, tn.ones, tn.rand, tn.randn, tn.empty):
        assert make(3, device="meta").shape == (3,)
    assert tn.arange(5, device="meta").dtype is tn.int64
    assert tn.randperm(4, device="meta").shape == (4,)
    assert tn.empty_like(tn.ones(2, 3).t(), device="meta").stride() == (1, 3)


@pytest.mark.parametrize(
    ("ask", "error", "text"),
    [
        (lambda t: t.item(), RuntimeError, r"Tensor.item\(\) cannot be called on meta tensors"),
        (bool, RuntimeError, "item"),
        (float, RuntimeError, "item"),
        (lambda t: t.tolist(), NotImplementedError, "Cannot copy out of meta tensor; no data!"),
        (lambda t: t.cpu(), NotImplementedError, "Cannot copy out of meta tensor; no data!"),
        (lambda t: tn.empty(1).copy_(t), NotImplementedError, "Cannot copy out"),
        (lambda t: t.numpy(), TypeError, "can't convert meta"),
        (lambda t: t.nonzero(), NotImplementedError, "nonzero"),
        (lambda t: t.unique(), NotImplementedError, "unique"),
        (lambda t: t[t > 0], NotImplementedError, "nonzero"),
        (lambda t: t.masked_select(t > 0), NotImplementedError, "meta"),
        (lambda t: t.long().bincount(), NotImplementedError, "bincount"),
        (lambda t: tn.equal(t, t), NotImplementedError, "equal"),
        (lambda t: tn.allclose(t, t), RuntimeError, "item"),
        (lambda t: t.share_memory_(), RuntimeError, "meta"),
        (lambda t: t.pin_memory(), RuntimeError, "pin"),
        (lambda t: t.__dlpack__(), BufferError, "meta"),
        (lambda t: t.__dlpack_device__(), ValueError, "meta"),
        (memoryview, BufferError, "CPU"),
        (lambda t: tn.Generator("meta"), RuntimeError, "meta"),
        (lambda t: tn.repeat_interleave(t.long()), RuntimeError, "meta"),
    ],
)
def test_what_needs_values_raises(ask: Any, error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        ask(meta(1))


def test_what_could_need_values_and_does_not() -> None:
    x = meta(4, 3)
    x[x > 0] = 1.0
    x.masked_fill_(x > 0, 2.0)
    x.fill_(meta(()))
    assert tn.histc(x).shape == (100,)
    counts = meta(2, dtype=tn.int64)
    assert tn.repeat_interleave(counts, output_size=7).shape == (7,)
    assert tn.normal(x, x).shape == (4, 3)
    assert x.masked_scatter(x > 0, x).shape == (4, 3)
    assert nn.init.trunc_normal_(x) is x
    assert nn.init.trunc_normal_(x, 0.0, 1.0, 3.0, 4.0) is x
    assert nn.init.orthogonal_(x) is x
    y = meta(3, requires_grad=True)
    (grad,) = tn.autograd.grad(y.prod(), y)
    assert grad.shape == (3,)


def test_into_meta_nothing_is_written() -> None:
    x = meta(2, 3)
    assert x.copy_(tn.ones(3)) is x
    with pytest.raises(RuntimeError):
        x.copy_(tn.ones(4))
    assert tn.ones(2, 2).to("meta").stride() == (2, 1)


def test_views_and_versions() -> None:
    x = meta(4, 6)
    row = x[1]
    assert row.storage_offset() == 6 and row._base is x
    row.add_(1)
    assert x._version == 1
    assert x.as_strided((2,), (6,), 3).storage_offset() == 3
    with pytest.raises(RuntimeError, match="bounds"):
        x.as_strided((5,), (6,))
    left, right = x[:, :3], x[:, 2:5]
    with pytest.raises(RuntimeError, match="single memory location"):
        meta(1).expand(3).add_(1)
    assert tn.add(left, right, out=meta(0)).shape == (4, 3)


def test_gradients() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(288, 5))
    model.to("meta")
    loss = nn.functional.cross_entropy(model(meta(2, 3, 8, 8)), meta(2, dtype=tn.int64))
    loss.backward()
    for p in model.parameters():
        assert p.grad is not None and p.grad.is_meta and p.grad.shape == p.shape
    x = meta(3, requires_grad=True)
    (first,) = tn.autograd.grad((x**3).sum(), x, create_graph=True)
    (second,) = tn.autograd.grad(first.sum(), x)
    assert second.is_meta and second.shape == (3,)
    with tn.autograd.detect_anomaly(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (x * x).sum().backward()
    assert x.grad is not None and x.grad.is_meta


def test_modules() -> None:
    model = nn.TransformerEncoderLayer(8, 2, device="meta")
    assert all(p.is_meta for p in model.parameters())
    assert model(meta(5, 1, 8)).shape == (5, 1, 8)
    with pytest.raises(NotImplementedError, match=r"to_empty\(\)"):
        model.to("cpu")
    here = nn.TransformerEncoderLayer(8, 2)
    with pytest.warns(UserWarning, match="which is a no-op"):
        model.load_state_dict(here.state_dict())
    assert model.linear1.weight.is_meta
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.load_state_dict(here.state_dict(), assign=True)
    x = tn.randn(5, 1, 8)
    assert tn.equal(model.eval()(x), here.eval()(x))
    empty = nn.Linear(2, 3, device="meta").to_empty(device="cpu")
    assert empty.weight.is_cpu and empty.weight.requires_grad
    lstm = nn.LSTM(3, 4, num_layers=2, device="meta")
    assert lstm(meta(5, 2, 3))[0].shape == (5, 2, 4)


def test_optimizers_step() -> None:
    for kind in (tn.optim.SGD, tn.optim.Adam, tn.optim.AdamW):
        x = meta(3, requires_grad=True)
        opt = kind([x], lr=0.1)
        (x * x).sum().backward()
        opt.step()
        assert x.is_meta


def test_copies_and_files() -> None:
    x = meta(2, 3).t()
    state = {"a": x, "p": nn.Parameter(meta(2)), "b": tn.ones(2)}
    pair = copy.deepcopy([meta(3), meta(3)])
    assert pair[0].untyped_storage()._cdata != pair[1].untyped_storage()._cdata
    for back in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert back.is_meta and back.shape == (3, 2) and back.stride() == (1, 3)
    file = io.BytesIO()
    tn.save(state, file)
    file.seek(0)
    got = tn.load(file)
    assert got["a"].is_meta and got["a"].stride() == (1, 3) and got["b"].tolist() == [1, 1]
    assert isinstance(got["p"], nn.Parameter) and got["p"].is_meta
    file.seek(0)
    assert tn.load(file, map_location="meta")["b"].is_meta


def test_files_are_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    file = io.BytesIO()
    tn.save({"a": meta(2, 3).t(), "g": meta(2, requires_grad=True)}, file)
    file.seek(0)
    got = torch.load(file, weights_only=True)
    assert got["a"].is_meta and got["a"].stride() == (1, 3) and got["g"].requires_grad
    file = io.BytesIO()
    torch.save({"a": torch.empty(4, device="meta", dtype=torch.int8)}, file)
    file.seek(0)
    assert tn.load(file)["a"].dtype is tn.int8


def test_device_as_context_and_decorator() -> None:
    here = tn.device("meta")

    @here
    def make() -> tn.Tensor:
        with tn.device("cpu"):
            inner = tn.zeros(1)
        assert not inner.is_meta
        return tn.zeros(2)

    assert make().is_meta
    with here, pytest.raises(ZeroDivisionError):
        with tn.device("cpu"):
            assert tn.get_default_device() == tn.device("cpu")
            1 / 0  # noqa: B018
    assert not tn.zeros(1).is_meta
    tn.set_default_device("meta")
    with tn.device("cpu"):
        assert not tn.zeros(1).is_meta
    assert tn.zeros(1).is_meta
    tn.set_default_device(None)
    with here:
        seen = []
        thread = threading.Thread(target=lambda: seen.append(tn.zeros(1).is_meta))
        thread.start()
        thread.join()
        assert seen == [False]  # a block is its thread's own


def test_explain() -> None:
    assert "nothing is computed" in tn.explain("add", "meta", tn.float32)


@pytest.mark.parametrize("make", [tn.tensor, tn.as_tensor, tn.asarray])
def test_no_device_is_the_default_device(make: Any) -> None:
    with tn.device("meta"):
        for given in ([1.0], 2):
            assert make(given, device=None).is_meta and make(given).is_meta
            assert not make(given, device="cpu").is_meta
        assert all(t.is_meta for t in tn.nn.BatchNorm1d(2).state_dict().values())
        assert not tn.from_dlpack(tn.ones(2, device="cpu"), device=None).is_meta
        assert not tn.from_dlpack(tn.ones(2, device="cpu")).is_meta
    assert not make([1.0], device=None).is_meta
