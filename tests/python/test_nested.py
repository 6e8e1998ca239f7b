"""Nested tensors: each component against NumPy, attention against masked padding."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon import nested, nn
from tenon.nested import NestedTensor
from tenon.nn import functional as F

RNG = np.random.default_rng(0)
PARTS = [RNG.normal(size=(n, 6)) for n in (2, 4, 3)]
LAYOUTS = pytest.mark.parametrize("layout", [tn.strided, tn.jagged], ids=str)


def ours(layout: Any = tn.strided, **options: Any) -> NestedTensor:
    return nested.nested_tensor(PARTS, layout=layout, **options)


def check(got: Any, want: list[np.ndarray], atol: float = 1e-12) -> None:
    assert isinstance(got, NestedTensor) and got.is_nested and len(got) == len(want)
    for g, w in zip(got.unbind(), want, strict=True):
        assert g.shape == w.shape and np.allclose(g.detach().numpy(), w, atol=atol)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


ROW, EACH = RNG.normal(size=6), RNG.normal(size=(3, 1, 6))


@LAYOUTS
@pytest.mark.parametrize(
    ("make", "want"),
    [
        (lambda x: x + x, lambda p, i: 2 * p), (lambda x: 1 - 2 * x, lambda p, i: 1 - 2 * p),
        (lambda x: -x, lambda p, i: -p), (lambda x: x > 0, lambda p, i: p > 0),
        (lambda x: tn.sin(x), lambda p, i: np.sin(p)), (F.relu, lambda p, i: np.maximum(p, 0)),
        (lambda x: x * tn.tensor(ROW), lambda p, i: p * ROW),
        (lambda x: x * tn.tensor(EACH), lambda p, i: p * EACH[i]),
        (lambda x: x.softmax(-1), lambda p, i: softmax(p)),
        (lambda x: F.softmax(x, dim=2), lambda p, i: softmax(p)),
        (lambda x: x.transpose(1, 2), lambda p, i: p.T),
        (lambda x: x.transpose(-1, -2), lambda p, i: p.T),
        (lambda x: x @ x.transpose(1, 2), lambda p, i: p @ p.T),
        (lambda x: tn.matmul(x, tn.tensor(EACH).transpose(1, 2)), lambda p, i: p @ EACH[i].T),
        (lambda x: x.chunk(3, -1)[1], lambda p, i: p[:, 2:4]),
        (lambda x: x.split(4, dim=2)[0], lambda p, i: p[:, :4]),
        (lambda x: x.unflatten(-1, [2, 3]), lambda p, i: p.reshape(-1, 2, 3)),
        (lambda x: x.view(3, -1, 3, 2), lambda p, i: p.reshape(-1, 3, 2)),
        (lambda x: x.unsqueeze(-1), lambda p, i: p[..., None]),
        (lambda x: x.unsqueeze(1).squeeze(1), lambda p, i: p),
        (lambda x: x.unflatten(-1, [2, 3]).flatten(-2), lambda p, i: p),
        (lambda x: x.sum(-1, keepdim=True), lambda p, i: p.sum(-1, keepdims=True)),
        (lambda x: x.cumsum(1), lambda p, i: p.cumsum(0)),
        (lambda x: x.float().double(), lambda p, i: p.astype("f4")),
        (lambda x: x.clone().mul_(2), lambda p, i: 2 * p),
        (lambda x: tn.ones_like(x), lambda p, i: np.ones_like(p)),
        (lambda x: tn.cat([x, x], -1), lambda p, i: np.concatenate([p, p], -1)),
        (lambda x: x[:, 1:], lambda p, i: p[1:]),
    ],
)  # fmt: skip
def test_each_component(make: Any, want: Any, layout: Any) -> None:
    check(make(ours(layout)), [want(p, i) for i, p in enumerate(PARTS)], 1e-6)


@LAYOUTS
def test_sizes(layout: Any) -> None:
    x = ours(layout)
    assert x.dim() == x.ndim == 3 and x.size(0) == len(x) == 3 and x.size(2) == x.size(-1) == 6
    assert x.numel() == 54 and x.dtype is tn.float64 and x.layout is layout
    assert not x.requires_grad and x.is_contiguous()
    if layout is tn.strided:
        with pytest.raises(RuntimeError, match="irregular"):
            x.size(1)
        with pytest.raises(RuntimeError, match="no sizes"):
            x.shape  # noqa: B018
    else:
        assert repr(x.size(1)).startswith("j") and x.shape[0] == 3 and x.shape[2] == 6
        assert x.shape[1] is x.size(1) is (x * 2).shape[1]
        assert x.offsets().tolist() == [0, 2, 6, 9] and x.lengths() is None
        assert np.array_equal(x.values().numpy(), np.concatenate(PARTS))
    with pytest.raises(IndexError):
        x.size(3)


def test_parts_of_it() -> None:
    x = ours()
    assert np.array_equal(x[1].numpy(), PARTS[1]) and np.array_equal(x[1, 2].numpy(), PARTS[1][2])
    assert [len(p) for p in x] == [2, 4, 3]
    check(x[1:], PARTS[1:])
    check(tn.cat([x, x]), PARTS + PARTS)
    with pytest.raises(RuntimeError, match="along dimension 0"):
        x.unbind(1)


@LAYOUTS
def test_padding(layout: Any) -> None:
    x = ours(layout)
    want = np.full((3, 4, 6), -1.0)
    for i, p in enumerate(PARTS):
        want[i, : len(p)] = p
    assert np.array_equal(x.to_padded_tensor(-1.0).numpy(), want)
    wide = nested.to_padded_tensor(x, 0.0, (3, 5, 7))
    assert wide.shape == (3, 5, 7) and wide[:, 4].abs().sum() == 0
    with pytest.raises(RuntimeError, match="Truncation"):
        x.to_padded_tensor(0.0, (3, 3, 6))
    with pytest.raises(TypeError, match="nested"):
        nested.to_padded_tensor(tn.ones(2), 0.0)


@LAYOUTS
@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_that_of_padded_batches(layout: Any, causal: bool) -> None:
    tn.manual_seed(0)
    pack, out, norm = nn.Linear(6, 18).double(), nn.Linear(6, 6).double(), nn.LayerNorm(6).double()

    def attend(x: Any, mask: Any) -> Any:
        q, k, v = (t.unflatten(-1, [2, 3]).transpose(1, 2) for t in pack(norm(x)).chunk(3, dim=-1))
        options = {"is_causal": causal} if mask is None else {"attn_mask": mask}
        y = F.scaled_dot_product_attention(q, k, v, **options)
        return out(y.transpose(1, 2).flatten(-2))

    x = ours(layout)
    padded, sizes = x.to_padded_tensor(0.0), [len(p) for p in PARTS]
    seen = tn.stack([(tn.arange(4) < n).expand(4, 4) for n in sizes]).unsqueeze(1)
    if causal:
        seen = seen & tn.ones(4, 4, dtype=tn.bool).tril()
    want = attend(padded, seen)
    got = attend(x, None)
    check(got, [want[i, :n].detach().numpy() for i, n in enumerate(sizes)], 1e-9)
    got.to_padded_tensor(0.0).square().sum().backward()
    mine = [p.grad.clone() for p in (pack.weight, out.weight, norm.weight)]
    for p in (pack.weight, out.weight, norm.weight):
        p.grad = None
    sum(want[i, :n].square().sum() for i, n in enumerate(sizes)).backward()
    theirs = [p.grad for p in (pack.weight, out.weight, norm.weight)]
    assert all(a.allclose(b, atol=1e-9) for a, b in zip(mine, theirs, strict=True))


def test_reductions_over_what_differs_are_plain_for_jagged() -> None:
    got = ours(tn.jagged).sum(dim=1)
    assert type(got) is tn.Tensor
    assert np.allclose(got.numpy(), [p.sum(0) for p in PARTS])
    assert np.isclose(ours().mean().item(), np.concatenate(PARTS).mean())


def test_histories() -> None:
    x = ours(requires_grad=True)
    (x * x).to_padded_tensor(0.0).sum().backward()
    check(x.grad, [2 * p for p in PARTS])
    rows = tn.tensor(PARTS[1], requires_grad=True)
    both = nested.as_nested_tensor([rows[:1], rows])
    both.to_padded_tensor(0.0).sum().backward()
    assert rows.grad.sum(1).tolist() == [12.0, 6.0, 6.0, 6.0]
    assert both.requires_grad and not both.is_leaf and not both.detach().requires_grad


def test_ways_to_make_one() -> None:
    values = tn.arange(10).view(5, 2)
    x = nested.nested_tensor_from_jagged(values, tn.tensor([0, 1, 5]))
    assert [p.tolist() for p in x] == [[[0, 1]], [[2, 3], [4, 5], [6, 7], [8, 9]]]
    assert x[0].data_ptr() == values.data_ptr()
    x = nested.nested_tensor_from_jagged(values, lengths=tn.tensor([2, 3]))
    assert x.offsets().tolist() == [0, 2, 5]
    x = nested.narrow(tn.arange(12).view(2, 6), 1, tn.tensor([0, 2]), 3, tn.jagged)
    assert [p.tolist() for p in x] == [[0, 1, 2], [8, 9, 10]]
    x = nested.masked_select(tn.arange(4).view(2, 2), tn.tensor([[True, False], [True, True]]))
    assert [p.tolist() for p in x] == [[0], [2, 3]]
    x = nested.nested_tensor([[1, 2], [3]], dtype=tn.float32)
    assert x.dtype is tn.float32 and x[1].tolist() == [3.0]
    assert [p.tolist() for p in nested.as_nested_tensor(tn.eye(2))] == [[1, 0], [0, 1]]
    for again in (copy.deepcopy(ours()), pickle.loads(pickle.dumps(ours()))):
        check(again, PARTS)


def test_text() -> None:
    x = nested.nested_tensor([tn.ones(1), tn.ones(2)])
    assert repr(x) == "nested_tensor([\n  tensor([1.]),\n  tensor([1., 1.])\n])"
    x = nested.nested_tensor([tn.ones(1, 2), tn.ones(3, 2)], layout=tn.jagged)
    assert str(x) == f"NestedTensor(size=(2, {x.size(1)}, 2), offsets=tensor([0, 1, 4]), " \
                     "contiguous=True)"  # fmt: skip


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: x.softmax(0), RuntimeError, "list of components"),
        (lambda x: x.softmax(3), IndexError, "out of range"),
        (lambda x: tn.svd(x), RuntimeError, "svd.* is not there for nested tensors"),
        (lambda x: x + nested.nested_tensor([tn.ones(2, 6)]), RuntimeError, "different lengths"),
        (lambda x: x * tn.ones(2, 1, 6), RuntimeError, "2 rows beside"),
        (lambda x: x.view(9, 6), RuntimeError, "first dimension"),
        (lambda x: nested.nested_tensor([tn.ones(1), tn.ones(1, 1)]), RuntimeError,
         "same dimension"),
        (lambda x: nested.nested_tensor([tn.ones(1, 2), tn.ones(2, 3)], layout=tn.jagged),
         RuntimeError, "one dimension only"),
        (lambda x: nested.as_nested_tensor(5), TypeError, "list"),
        (lambda x: nested.nested_tensor_from_jagged(tn.ones(3)), RuntimeError, "offsets or length"),
        (lambda x: x.backward(), RuntimeError, "nested gradient"),
    ],
)  # fmt: skip
def test_mistakes(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call(ours())


@pytest.mark.parametrize("make", [nested.nested_tensor, nested.as_nested_tensor])
@pytest.mark.parametrize("layout", [tn.strided, tn.jagged])
def test_values_share_the_memory_of_components(make: Any, layout: Any) -> None:
    a, b = tn.ones(2, 3), tn.full((1, 3), 2.0)
    x = make([a, b], layout=layout)
    x.mul_(2)
    assert a.tolist() == [[1, 1, 1]] * 2 and x[1].tolist() == [[4, 4, 4]]
    for y in (x, x * 2):
        first, values = y[0], y.values()
        assert values.shape == ((9,) if layout is tn.strided else (3, 3))
        values.zero_()
        assert all(part.tolist() == [[0] * 3] * len(part) for part in y)
        assert y is not x or first.sum() == 0


def test_values_have_gradients() -> None:
    a = tn.ones(2, 3, requires_grad=True)
    x = nested.as_nested_tensor([a, tn.ones(4, 5)])
    assert x.values().shape == (26,) and x._nested_tensor_size().tolist() == [[2, 3], [4, 5]]
    (x.values() * tn.arange(26.0)).sum().backward()
    assert a.grad is not None and a.grad.tolist() == [[0, 1, 2], [3, 4, 5]]
    x = nested.nested_tensor([tn.ones(2), tn.ones(3)], requires_grad=True)
    (x.values() * tn.arange(5.0)).sum().backward()
    assert x.grad is not None and [g.tolist() for g in x.grad] == [[0, 1], [2, 3, 4]]
    with tn.no_grad():
        assert nested.nested_tensor([]).values().shape == (0,)


def test_values_of_equal_components_along_a_later_dimension() -> None:
    v = tn.arange(12.0).view(3, 4)
    x = nested.nested_tensor_from_jagged(v, offsets=tn.tensor([0, 2, 4]), jagged_dim=2)
    assert x.values().shape == (3, 4) and x.offsets().tolist() == [0, 2, 4]
    assert x.shape[:2] == (2, 3) and x.shape[2] is x.size(2)
    y = x + 1
    assert y.values().shape == (3, 4) and y.offsets().tolist() == [0, 2, 4]
    x.values().mul_(0)
    assert v.sum() == 0 and x[0].tolist() == [[0, 0]] * 3


RAGGED = np.concatenate(PARTS)


@pytest.mark.parametrize(
    ("make", "want"),
    [
        (lambda x: x.sum((0, 1)), RAGGED.sum(0)),
        (lambda x: x.mean((0, 1), keepdim=True), RAGGED.mean(0)[None, None]),
        (lambda x: x.mean(dim=(0, 1, 2)), RAGGED.mean()),
        (lambda x: x.amax(dim=(1, 0)), RAGGED.max(0)),
        (lambda x: x.transpose(1, 2).sum((0, 2)), RAGGED.sum(0)),
        (lambda x: x.prod(1), np.stack([p.prod(0) for p in PARTS])),
        (lambda x: x.prod(), RAGGED.prod()), (lambda x: x.max(), RAGGED.max()),
        (lambda x: x.max(1)[0], np.stack([p.max(0) for p in PARTS])),
        (lambda x: x.min(dim=1).indices, np.stack([p.argmin(0) for p in PARTS])),
        (lambda x: x.var(correction=0), RAGGED.var()),
        (lambda x: x.mean(dim=(1, 2)), np.stack([p.mean() for p in PARTS])),
        (lambda x: x.transpose(1, 2) @ (2 * x), np.stack([p.T @ (2 * p) for p in PARTS])),
    ],
)  # fmt: skip
def test_jagged_reductions_are_dense(make: Any, want: np.ndarray) -> None:
    got = make(ours(tn.jagged))
    assert type(got) is tn.Tensor and got.shape == np.shape(want)
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_reductions_over_components_alone_are_refused() -> None:
    for layout, dims in ((tn.jagged, 0), (tn.jagged, (0, 2)), (tn.strided, (0, 1))):
        with pytest.raises(RuntimeError, match="list of components"):
            ours(layout).sum(dims)
    assert ours(tn.jagged).float().sum(dtype=tn.float64).dtype is tn.float64


@LAYOUTS
def test_calls_along_the_list(layout: Any) -> None:
    x = ours(layout)
    check(x.chunk(2)[0], PARTS[:2])
    check(x.chunk(2, dim=0)[1], PARTS[2:])
    check(x.split(2)[0], PARTS[:2])
    check(x.split([1, 2], 0)[1], PARTS[1:])
    check(x.narrow(0, 1, 2), PARTS[1:])
    np.testing.assert_array_equal(x.select(0, 1), PARTS[1])
    np.testing.assert_array_equal(tn.unbind(x)[2], PARTS[2])
    with pytest.raises(RuntimeError, match="do not add up"):
        x.split([1, 1])
    with pytest.raises(RuntimeError, match="exceeds the 3 components"):
        x.narrow(0, 2, 2)


@LAYOUTS
@pytest.mark.parametrize(
    ("make", "want"),
    [
        (lambda x: x[...], lambda p, i: p), (lambda x: x[..., 1], lambda p, i: p[..., 1]),
        (lambda x: x[:, ..., None], lambda p, i: p[..., None]),
        (lambda x: x.permute(0, 2, 1), lambda p, i: p.T), (lambda x: x.mT, lambda p, i: p.T),
        (lambda x: x.permute((0, -1, 1)), lambda p, i: p.T), (lambda x: x.data, lambda p, i: p),
        (lambda x: tn.stack([x, 2 * x], -1), lambda p, i: np.stack([p, 2 * p], -1)),
        (lambda x: tn.bmm(x, tn.tensor(EACH).transpose(1, 2)), lambda p, i: p @ EACH[i].T),
        (lambda x: x.type_as(tn.ones(1)), lambda p, i: p.astype(np.float32)),
        (lambda x: tn.zeros_like(x).copy_(x), lambda p, i: p),
        (lambda x: (x + 1).fill_(3.0), lambda p, i: np.full_like(p, 3.0)),
        (lambda x: (x + 1).zero_(), lambda p, i: 0 * p),
        (lambda x: x.max(2 * x), lambda p, i: np.maximum(p, 2 * p)),
        (lambda x: x.view((3, -1, 2, 3)), lambda p, i: p.reshape(-1, 2, 3)),
        (lambda x: x.reshape([3, -1, 6, 1]), lambda p, i: p.reshape(-1, 6, 1)),
        (lambda x: tn.bmm(tn.tensor(EACH), mat2=x.mT), lambda p, i: EACH[i] @ p.T),
        (lambda x: tn.matmul(tn.tensor(EACH), other=x.mT), lambda p, i: EACH[i] @ p.T),
        (lambda x: tn.add(tn.tensor(1.0), other=x), lambda p, i: 1 + p),
    ],
)  # fmt: skip
def test_more_calls(layout: Any, make: Any, want: Any) -> None:
    check(make(ours(layout)), [want(p, i) for i, p in enumerate(PARTS)])


def test_a_dimension_of_one_place_somewhere_stays() -> None:
    x = nested.nested_tensor([PARTS[0], PARTS[1][:1]])
    check(x.squeeze(1), [PARTS[0], PARTS[1][:1]])


def test_what_tensors_say_of_themselves() -> None:
    x = ours(tn.jagged)
    assert x.nbytes == RAGGED.nbytes and (x._min_seqlen, x._max_seqlen) == (2, 4)
    for call, message in (
        (lambda: tn.stack([x, x]), "list of components"),
        (lambda: x[None, 0], "numbers and slices"),
        (lambda: x.permute(1, 0, 2), "list of components first"),
    ):  # fmt: skip
        with pytest.raises((RuntimeError, IndexError), match=message):
            call()


def test_gradients_of_some_components() -> None:
    x = ours(tn.jagged, requires_grad=True)
    assert x.grad is None and x.grad_fn is None
    assert (2 * x).grad_fn.name() == "MulBackward0"
    assert nested.nested_tensor([]).grad_fn is None
    x.unbind()[1].sum().backward()
    check(x.grad, [0 * PARTS[0], 0 * PARTS[1] + 1, 0 * PARTS[2]])


def test_components_that_leave_room() -> None:
    """offsets() are those of values(), which has more than the components."""
    values = tn.tensor(RAGGED)
    x = nested.nested_tensor_from_jagged(values, tn.tensor([0, 4, 9]), tn.tensor([3, 2]))
    check(x, [RAGGED[:3], RAGGED[4:6]])
    assert x.values() is values and not x.is_contiguous()
    assert x.offsets().tolist() == [0, 4, 9] and x.lengths().tolist() == [3, 2]
    y = x.contiguous()
    check(y, [RAGGED[:3], RAGGED[4:6]])
    assert y.offsets().tolist() == [0, 3, 5] and y.lengths() is None and y.is_contiguous()
    assert np.array_equal(y.values(), np.concatenate([RAGGED[:3], RAGGED[4:6]]))
    rows = RNG.normal(size=(3, 5))
    z = nested.narrow(tn.tensor(rows), 1, tn.tensor([0, 1, 4]), tn.tensor([2, 3, 1]), tn.jagged)
    check(z, [rows[0, :2], rows[1, 1:4], rows[2, 4:]])
    assert z.offsets().tolist() == [0, 6, 14, 15] and z.lengths().tolist() == [2, 3, 1]
    for layout in (tn.jagged, tn.strided):
        with pytest.raises(RuntimeError, match="within the 5 places"):
            nested.narrow(tn.tensor(rows), 1, 4, tn.tensor([1, 2, 1]), layout)


@pytest.mark.parametrize(
    ("cut", "words"),
    [
        (lambda n: n.chunk(0), "chunk expects `chunks` to be greater than 0, got: 0"),
        (lambda n: n.chunk(-1), "greater than 0, got: -1"),
        (lambda n: n.split(0), "sizes are numbers from 1, got 0"),
        (lambda n: n.split([3, -1]), r"sizes are numbers from 1, got \[3, -1\]"),
        (lambda n: n.split([1, 2]), r"sizes \[1, 2\] do not add up to 2 components"),
        (lambda n: n.narrow(0, -1, 1), r"start \(-1\) \+ length \(1\) exceeds the 2 components"),
    ],
)
def test_lists_that_cannot_be_cut_so(cut, words):
    two = tn.nested.nested_tensor([tn.ones(2, 3), tn.zeros(4, 3)], layout=tn.jagged)
    with pytest.raises(RuntimeError, match=words):
        cut(two)
    assert [len(part.unbind()) for part in two.chunk(2)] == [1, 1]


@LAYOUTS
def test_where_and_of_what_dtype_components_are_made(layout: Any) -> None:
    made = nested.nested_tensor(PARTS, layout=layout, device="meta", dtype=tn.float16)
    taken = nested.as_nested_tensor([tn.tensor(p) for p in PARTS], tn.float16, "meta", layout)
    rows = nested.as_nested_tensor(tn.ones(2, 3), dtype=tn.int8, device="meta", layout=layout)
    for n, kind, shapes in (
        (made, tn.float16, [p.shape for p in PARTS]),
        (taken, tn.float16, [p.shape for p in PARTS]),
        (rows, tn.int8, [(3,), (3,)]),
    ):
        assert n.device.type == "meta" and n.dtype is kind and n.layout is layout
        assert [p.shape for p in n.unbind()] == shapes
        assert all(p.device.type == "meta" and p.dtype is kind for p in n.unbind())
    kept = nested.as_nested_tensor([tn.ones(2, dtype=tn.int16)], layout=layout)
    assert kept.dtype is tn.int16 and kept.device.type == "cpu"


@LAYOUTS
@pytest.mark.parametrize(
    "act",
    [
        lambda n: n.flatten(), lambda n: n.flatten(0), lambda n: n.flatten(start_dim=0, end_dim=1),
        lambda n: n.flatten(1, -3), lambda n: n.unflatten(0, [1, 3]), lambda n: n.transpose(0, 1),
        lambda n: n.squeeze(0), lambda n: n.unsqueeze(0), lambda n: n.softmax(0),
        lambda n: n.softmax(dim=-3), lambda n: n.cumsum(0),
    ],
)  # fmt: skip
def test_the_list_of_components_is_no_dimension_of_them(layout: Any, act: Any) -> None:
    with pytest.raises(RuntimeError, match="dimension 0 of a nested tensor is the list of"):
        act(ours(layout))


@LAYOUTS
def test_lists_are_cut_by_positions_and_by_names(layout: Any) -> None:
    x = ours(layout)
    for parts in (x.chunk(2, 0), x.chunk(chunks=2, dim=-3), x.chunk(2), x.split(2), x.split(2, 0),
                  x.split(split_size=2, dim=0), x.split([2, 1], dim=-3)):  # fmt: skip
        assert len(parts) == 2
        check(parts[0], PARTS[:2])
        check(parts[1], PARTS[2:])
    for part in (x.select(0, 1), x.select(dim=0, index=1), x.select(-3, -2)):
        assert np.array_equal(part.numpy(), PARTS[1])
    for part in (x.narrow(0, 1, 2), x.narrow(dim=-3, start=1, length=2)):
        check(part, PARTS[1:])
    check(x.narrow(0, 0, 3), PARTS)
    if layout is tn.strided:
        assert [len(x.narrow(0, start, 0)) for start in (0, 3)] == [0, 0]
    for start, length in ((4, 0), (3, 1), (0, 4), (0, -1)):
        with pytest.raises(RuntimeError, match="exceeds the 3 components"):
            x.narrow(0, start, length)
