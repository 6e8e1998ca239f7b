"""deferred: calls wait until a value is looked at, and nobody can tell by the values."""

from __future__ import annotations

import copy
import io
import pickle
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon import _C
from tenon.nn import functional as F

N = 1 << 18  # large enough to wait
waiting = _C._deferred_calls


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    tn.manual_seed(0)
    yield
    assert waiting() == 0


def large() -> tn.Tensor:
    return tn.randn(N)


def chain(a: tn.Tensor, b: tn.Tensor, c: tn.Tensor, d: tn.Tensor) -> tn.Tensor:
    return tn.relu(a * b + c) * d - a


def test_calls_wait_and_have_the_bits_of_those_that_do_not() -> None:
    ts = [large() for _ in range(4)]
    want = chain(*ts)
    with tn.deferred():
        got = chain(*ts)
        assert waiting() == 5
        assert (got.shape, got.dtype, got.device) == (want.shape, want.dtype, want.device)
        assert got.is_leaf and not got.requires_grad and got.grad_fn is None and got.dim() == 1
        assert waiting() == 5
        assert got[7].item() == want[7].item()
        assert waiting() == 0
    assert tn.equal(got, want)


def test_nothing_waits_outside_and_the_end_of_the_block_runs_all() -> None:
    x = large()
    with tn.deferred():
        with tn.deferred():
            y = x + 1
        assert waiting() == 0
        z = y * 2
        assert waiting() == 1
    assert waiting() == 0
    assert np.array_equal(z.numpy(), (x.numpy() + np.float32(1)) * np.float32(2))
    assert (x + 1) is not None and waiting() == 0


def test_what_nobody_holds_is_not_kept() -> None:
    x = large()
    with tn.deferred():
        for i in range(1000):
            y = x * i
            assert 0 < waiting() <= 48
    assert tn.equal(y, x * 999)


def test_equal_calls_on_other_tensors_and_numbers_have_their_own_values() -> None:
    for i in range(40):
        x, y = large(), large()
        text = ("none", "tanh")[i % 2]
        numbers = (float(i % 3), -1.5)
        with tn.deferred():
            a = F.gelu(x * numbers[0] + y, approximate=text)
            b = tn.add(a, y, alpha=2.0 + i % 4)
            c = a.double() if i % 5 else a.half()
            if i % 3 == 0:
                del a
        want = F.gelu(x * numbers[0] + y, approximate=text)
        assert tn.equal(b, tn.add(want, y, alpha=2.0 + i % 4))
        assert tn.equal(c, want.double() if i % 5 else want.half())


def test_memory_that_only_the_queue_holds_is_bounded() -> None:
    rows = 1 << 22  # 16 MiB each
    with tn.deferred():
        y = tn.zeros(rows)
        most = 0
        for _ in range(12):
            y = y + tn.ones(rows)
            most = max(most, waiting())
    assert most < 8
    assert y[5].item() == 12.0


looks: dict[str, Callable[[tn.Tensor], Any]] = {
    "item": lambda t: t[3].item(),
    "tolist": lambda t: t.tolist()[:3],
    "numpy": lambda t: t.numpy().copy(),
    "asarray": lambda t: np.asarray(t).copy(),
    "from_dlpack": lambda t: np.from_dlpack(t).copy(),
    "memoryview": lambda t: bytes(memoryview(t)[:5]),
    "str": str,
    "bool": lambda t: bool((t > 0).all()),
    "len of nonzero": lambda t: len(t.nonzero()),
    "list": lambda t: [float(v) for v in t[:3]],
    "detach": lambda t: t.detach(),
    "data": lambda t: t.data,
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "clone": lambda t: t.clone(),
    "sum": lambda t: t.sum(),
    "view": lambda t: t.view(2, -1),
    "sort": lambda t: t.sort(),
    "cat": lambda t: tn.cat([t, t]),
    "save": lambda t: saved(t),
    "pickle": lambda t: pickle.loads(pickle.dumps(t)),
    "sent": lambda t: len(ForkingPickler.dumps(t)) > 0,
    "storage": lambda t: t.untyped_storage().nbytes(),
    "stride": lambda t: t.stride(),
    "is_contiguous": lambda t: t.is_contiguous(),
    "layout": lambda t: t.layout,
    "is_sparse": lambda t: t.is_sparse,
    "nbytes": lambda t: t.nbytes,
    "to_sparse": lambda t: t.to_sparse().to_dense(),
    "double": lambda t: t.double(),
    "vmap": lambda t: tn.vmap(lambda v: v + 1)(t),
    "compile": lambda t: tn.compile(lambda v: v + 1)(t),
    "set_data": lambda t: set_data(t),
    "resize_": lambda t: t.resize_(10),
    "copy_": lambda t: tn.zeros(N).copy_(t),
    "out": lambda t: tn.add(t, 1, out=t),
    "share_memory_": lambda t: t.share_memory_(),
    "grad": lambda t: gradient(t),
}


def saved(t: tn.Tensor) -> tn.Tensor:
    file = io.BytesIO()
    tn.save(t, file)
    file.seek(0)
    return tn.load(file)


def set_data(t: tn.Tensor) -> tn.Tensor:
    p = tn.zeros(N)
    p.data = t
    return p


def gradient(t: tn.Tensor) -> tn.Tensor:
    p = tn.ones(N, requires_grad=True)
    (p * 3).backward(t)
    assert p.grad is not None
    return p.grad


def same(a: Any, b: Any) -> bool:
    if isinstance(a, tn.Tensor):
        return tn.equal(a, b) and a.stride() == b.stride()
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    if isinstance(a, tuple) and a and isinstance(a[0], tn.Tensor):
        return all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


@pytest.mark.parametrize("look", looks)
def test_whoever_looks_sees_values(look: str) -> None:
    x = large()
    want = looks[look](x * 2 + 1)
    with tn.deferred():
        y = x * 2 + 1
        assert waiting() == 2
        got = looks[look](y)
        assert same(got, want)
    if look not in ("out", "resize_"):
        assert tn.equal(y, x * 2 + 1)


def test_a_contiguous_tensor_is_itself() -> None:
    x = large()
    with tn.deferred():
        y = x * 2
        assert y.contiguous() is y


writes: dict[str, Callable[[tn.Tensor], Any]] = {
    "add_": lambda x: x.add_(1),
    "+=": lambda x: x.__iadd__(1),
    "setitem": lambda x: x.__setitem__(3, 100.0),
    "zero_": lambda x: x.zero_(),
    "fill_": lambda x: x.fill_(5),
    "copy_": lambda x: x.copy_(tn.ones(N)),
    "normal_": lambda x: x.normal_(),
    "view": lambda x: x[:10].mul_(3),
    "view, twice": lambda x: (v := x[:10], v.mul_(3), v.mul_(3)),
    "detach": lambda x: x.detach().mul_(3),
    "out": lambda x: tn.add(tn.ones(N), 1, out=x),
    "out of a sum": lambda x: tn.sum(tn.ones(3, N), 0, out=x),
    "foreach": lambda x: tn._foreach_add_([x], 1.0),
    "index_add_": lambda x: x.index_add_(0, tn.tensor([1]), tn.ones(1)),
    "clamp_": lambda x: x.clamp_(0, 1),
    "data": lambda x: setattr(x, "data", tn.zeros(N)),
    "resize_": lambda x: x.resize_(3),
    "numpy": lambda x: x.numpy().fill(7),
    "dlpack": lambda x: np.from_dlpack(x).fill(7),
    "optimizer": lambda x: step(x),
    "thread": lambda x: elsewhere(lambda: x.add_(1)),
    "composite": lambda x: tn.nn.init.trunc_normal_(x),
}


def step(x: tn.Tensor) -> None:
    x.grad = tn.ones(N)
    tn.optim.SGD([x], lr=0.5).step()


def elsewhere(fn: Callable[[], Any]) -> Any:
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(fn()))
    thread.start()
    thread.join()
    return got[0]


@pytest.mark.parametrize("write", writes)
def test_what_is_written_later_is_not_seen(write: str) -> None:
    x = large()
    before = x.clone()
    with tn.deferred():
        y = x * 2 + 1
        assert waiting() == 2
        writes[write](x)
        assert tn.equal(y, before * 2 + 1)
        z = x * 2
    assert tn.equal(z, x * 2)
    if write != "optimizer":
        assert x.numel() == 3 or not tn.equal(x, before)


def test_memory_whose_address_is_known_is_read_at_once() -> None:
    x = large()
    array = x.numpy()
    borrowed = np.ones(N, np.float32)
    own = tn.from_numpy(borrowed)
    with tn.deferred():
        y, z = x * 2, own * 2
        assert waiting() == 0
        array[0], borrowed[0] = 100.0, 100.0
    assert y[0].item() != 200.0 and z[0].item() == 2.0
    w = large()
    w.data_ptr()
    with tn.deferred():
        v = w + 1
        assert waiting() == 0
    assert tn.equal(v, w + 1)


def test_another_thread_sees_values() -> None:
    x = large()
    with tn.deferred():
        y = x * 2 + 1
        assert elsewhere(lambda: (y + 1).sum().item()) == (x * 2 + 2).sum().item()
        z = x * 3
        assert waiting() == 1
        assert elsewhere(waiting) == 0
        assert elsewhere(lambda: z.tolist()[:4]) == (x * 3).tolist()[:4]
        assert waiting() == 0


def test_many_threads_at_once() -> None:
    x = large()
    shared: list[tn.Tensor] = []
    wrong: list[int] = []

    def work(seed: int) -> None:
        with tn.deferred():
            for i in range(30):
                y = (x + i) * seed
                shared.append(y)
                other = random.choice(shared)
                if i % 3 == 0 and other.sum().isnan().item():
                    wrong.append(i)
                if i % 5 == 0 and not tn.equal(y, (x + i) * seed):
                    wrong.append(i)

    threads = [threading.Thread(target=work, args=(s,)) for s in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert len(shared) == 120


def test_a_thread_that_ends_within_runs_what_waits() -> None:
    x = large()

    def work() -> tn.Tensor:
        _C._deferred_begin()
        return x * 2

    assert tn.equal(elsewhere(work), x * 2)


def test_errors_come_from_the_line_of_the_call() -> None:
    x = large()
    with tn.deferred():
        y = x * 2
        with pytest.raises(RuntimeError, match="must match the size of tensor b"):
            y + tn.ones(3, 5)
        with pytest.raises(TypeError):
            tn.relu(y, y, y)
    with pytest.raises(KeyError), tn.deferred():
        y = x * 3
        raise KeyError
    assert waiting() == 0 and tn.equal(y, x * 3)


def test_gradients_are_those_of_the_same_calls() -> None:
    def run(mode: Any) -> list[tn.Tensor]:
        tn.manual_seed(3)
        p = tn.randn(N, requires_grad=True)
        seen: list[tn.Tensor] = []
        with mode:
            scale = tn.ones(N) * 3 + 1
            y = tn.tanh(p * scale)
            y.register_hook(lambda g: seen.append(g * scale) or g * 2)
            (y * y).sum().backward()
            with tn.no_grad():
                z = p * 2
                p -= 0.1 * p.grad
            assert not z.requires_grad
            p.grad = scale * 2
            (p * 3).sum().backward()
        return [p, p.grad, z, *seen]

    for a, b in zip(run(nullcontext()), run(tn.deferred()), strict=True):
        assert tn.equal(a, b)


def test_random_numbers_keep_their_order() -> None:
    def run(mode: Any) -> list[tn.Tensor]:
        tn.manual_seed(5)
        with mode:
            a = tn.randn(N) * 2
            b = F.dropout(a, 0.5) + tn.rand(N)
            a.normal_()
            return [a, b, tn.bernoulli(tn.sigmoid(b)), tn.rand(3)]

    for a, b in zip(run(nullcontext()), run(tn.deferred()), strict=True):
        assert tn.equal(a, b)


def test_side_effects_happen_where_they_stand(capsys: pytest.CaptureFixture[str]) -> None:
    x = tn.zeros(N)
    done: list[int] = []
    with tn.deferred():
        for i in range(3):
            x = x + 1
            done.append(i)
            print(int(x[0].item()))
    assert capsys.readouterr().out == "1\n2\n3\n"
    assert done == [0, 1, 2]


def test_modes_of_the_call_count_not_those_of_the_look() -> None:
    x = tn.randn(N)
    with tn.deferred():
        with tn.inference_mode():
            y = x * 2
        with tn.no_grad():
            z = tn.nn.Parameter(x) * 2
        before = tn.get_default_dtype()
        whole = tn.ones(N, dtype=tn.int32)
        w = whole / 3
        v = x * 0.5
        tn.set_default_dtype(tn.float64)
        try:
            assert w.dtype == tn.float32 and v.dtype == tn.float32
            assert tn.equal(v, x * 0.5)
            assert w[0].item() == np.float32(1) / np.float32(3)
        finally:
            tn.set_default_dtype(before)
    assert y.is_inference() and not z.requires_grad and tn.equal(z, y)


def test_layouts_are_those_of_eager() -> None:
    x = tn.randn(8, 32, 32, 32).to(memory_format=tn.channels_last)
    row, column = tn.randn(1, 512), tn.randn(512, 1)
    big = tn.randn(512, 512)
    want = x * 2 + 1, big + row * column, (big * row).t(), tn.relu(big * column)
    with tn.deferred():
        got = x * 2 + 1, big + row * column, (big * row).t(), tn.relu(big * column)
    for a, b in zip(got, want, strict=True):
        assert tn.equal(a, b) and a.stride() == b.stride()


def test_layers_profilers_and_recordings_see_calls() -> None:
    x = large()
    with tn.deferred():
        y = x * 2
        with tn.profiler.profile() as p:
            z = y + 1
        assert waiting() == 0
        with tn.autocast("cpu"):
            w = x * 2
            assert waiting() == 0
        program = tn.jit.trace(lambda t: t * 2 + 1, (x,))
        assert tn.equal(program(x), x * 2 + 1)
    assert tn.equal(z, x * 2 + 1) and tn.equal(w, x * 2)
    assert any("add" in e.key for e in p.key_averages())


def test_empty_results() -> None:
    with tn.deferred():
        y = tn.ones(1, N) * tn.ones(0, 1)
        z = y + tn.ones(1, N)
        assert y.shape == (0, N) and waiting() == 0
    assert z.tolist() == []


def test_programs_run_with_their_own_groups() -> None:
    x = large()
    program = tn.jit.trace(lambda t: tn.relu(t * 2 + 1), (x,))
    with tn.deferred():
        y = program(x * 3)
        assert waiting() == 0
        z = x + 1
        assert waiting() == 1
    assert tn.equal(y, program(x * 3)) and tn.equal(z, x + 1)


def test_it_is_a_decorator() -> None:
    counts: list[int] = []

    @tn.deferred()
    def f(x: tn.Tensor) -> tn.Tensor:
        y = x * 2
        counts.append(waiting())
        return y

    x = large()
    assert tn.equal(f(x), x * 2)
    assert counts == [1]


UNARY = ("relu", "tanh", "sigmoid", "abs", "neg", "exp", "sqrt", "isnan", "logical_not", "sign")
BINARY = ("add", "sub", "mul", "maximum", "true_divide", "gt", "eq", "atan2", "logical_and")


def program(seed: int, trace: list[Any]) -> None:
    """A program of calls, views, writes, draws, looks and errors; notes what can be seen."""
    r = random.Random(seed)
    tn.manual_seed(seed)
    rows = N // 128
    names = [tn.randn(rows, 128), tn.rand(rows, 128), tn.randn(128), tn.randn(rows, 1).double()]
    for _ in range(r.randrange(8, 30)):
        kind, a, b = r.randrange(14), r.choice(names), r.choice(names)
        if kind < 3:
            names.append(getattr(tn, r.choice(UNARY))(a.to(tn.float32)))
        elif kind < 7:
            try:
                names.append(getattr(tn, r.choice(BINARY))(a, b))
            except RuntimeError as err:
                trace.append(str(err))
        elif kind == 7:
            names.append(r.choice((F.gelu, F.silu, F.softplus))(a.float()))
        elif kind == 8:
            names.append(a * r.choice((2, 0.5, -1)) + r.random())
        elif kind == 9:
            v = r.choice(names)[: r.randrange(1, 60)]
            if v.dtype.is_floating_point:
                v.mul_(r.choice((2.0, -1.0)))
        elif kind == 10:
            names.append(a.t() if a.dim() == 2 else a.clone())
        elif kind == 11:
            look = r.choice(("sum", "min", "stride", "tolist"))
            trace.append(a[0].tolist() if look == "tolist" else getattr(a, look)())
        elif kind == 12:
            names.append(tn.where(a > 0, a, a * 2) + tn.rand(1))
        elif len(names) > 4:
            del names[r.randrange(len(names))]
    trace.extend(names)


@pytest.mark.parametrize("part", range(8))
def test_random_programs(part: int) -> None:
    for seed in range(part * 15, part * 15 + 15):
        want: list[Any] = []
        got: list[Any] = []
        program(seed, want)
        with tn.deferred():
            program(seed, got)
        assert len(want) == len(got)
        for a, b in zip(want, got, strict=True):
            if isinstance(a, tn.Tensor):
                assert a.dtype == b.dtype and a.stride() == b.stride()
                np.testing.assert_array_equal(a.numpy(), b.numpy())
            else:
                np.testing.assert_equal(a, b)
