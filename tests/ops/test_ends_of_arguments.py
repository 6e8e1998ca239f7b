"""Arguments at the ends of what operators made of others take, and next to them: empty lists, no
steps, the most dimensions, the first and the last number that is refused. By NumPy's answers, by
Python's own, or by what PyTorch documents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tenon as tn
import tenon.nn.functional as F
from table import call, make_case, rows, tensor_args
from test_formulas import formulas

ops = tn._C._ops
RNG = np.random.default_rng(11)
MOST = 64  # dimensions


@pytest.mark.parametrize("step", [1, 2, 3, 7])
def test_slices_are_those_of_lists(step: int) -> None:
    x = list(range(5))
    for start in (None, *range(-7, 8)):
        for end in (None, *range(-7, 8)):
            got = ops.slice(tn.tensor(x), 0, start, end, step).tolist()
            assert got == x[start:end:step], (start, end)


@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.int8, np.complex64])
@pytest.mark.parametrize("to", ["uint8", "int16", "float32", "float64", "complex128"])
def test_views_as_other_dtypes(dtype: Any, to: str) -> None:
    """Where rows begin between two numbers of the other dtype there is none."""
    for width, kept in ((16, 16), (24, 8), (17, 16), (18, 16), (20, 16)):
        x = (RNG.standard_normal((3, 2, width)) * 50).astype(dtype)[..., :kept]
        t = tn.from_numpy(np.ascontiguousarray(x.base)).reshape(3, 2, width)[..., :kept]
        size, other = x.itemsize, np.dtype(to).itemsize
        if width * size % other and size != other:
            with pytest.raises(RuntimeError, match="divisible"):
                t.view(getattr(tn, to))
            continue
        got = t.view(getattr(tn, to)).numpy()
        assert got.tobytes() == np.ascontiguousarray(x).view(to).tobytes()
        assert got.shape == (3, 2, kept * size // other)


def test_sequences_without_steps_and_their_dtypes() -> None:
    for fn in (tn.linspace, tn.logspace):
        assert fn(0, 1, 0).shape == (0,)
        with pytest.raises(RuntimeError, match="non-negative"):
            fn(0, 1, -1)
        with pytest.raises(RuntimeError, match="not implemented for 'Bool'"):
            fn(0, 1, 3, dtype=tn.bool)
    for default, want in ((tn.float32, tn.complex64), (tn.float64, tn.complex128)):
        tn.set_default_dtype(default)
        try:
            assert tn.linspace(0, 1, 3).dtype is default
            assert tn.linspace(1j, 2, 3).dtype is tn.linspace(1, 2j, 3).dtype is want
        finally:
            tn.set_default_dtype(tn.float32)


def test_the_most_dimensions() -> None:
    full = tn.arange(6).reshape([2, 3] + [1] * (MOST - 2))
    less = full.select(-1, 0)
    assert less.unflatten(1, (1, 3)).shape == (2, 1, 3, *[1] * (MOST - 3))
    assert less.unfold(1, 2, 1).shape == (2, 2, *[1] * (MOST - 3), 2)
    assert less.unsqueeze(0).ndim == tn.stack([less, less]).ndim == MOST
    assert F.one_hot(less, 6).ndim == MOST
    assert full.reshape(2, 3).reshape(full.shape).equal(full)
    assert full.as_strided(full.shape, full.stride()).equal(full)
    assert full.expand(2, 3, *[1] * (MOST - 3), 2).ndim == full.diagonal().ndim + 1 == MOST
    for refused in (lambda: full.unflatten(1, (1, 3)), lambda: full.unfold(1, 2, 1),
                    lambda: full.unsqueeze(0), lambda: tn.stack([full, full]),
                    lambda: F.one_hot(full, 6)):  # fmt: skip
        with pytest.raises((RuntimeError, ValueError, IndexError)):
            refused()


def test_indices_of_the_most_dimensions() -> None:
    x = RNG.standard_normal((2, 3))
    t = tn.from_numpy(x).reshape([2, 3] + [1] * (MOST - 2))
    mask = x > 0
    assert t[..., 0].shape == t.shape[:-1] and t[0, ...].shape == t.shape[1:]
    assert t[(1, 2, *[0] * (MOST - 2))].item() == x[1, 2]
    assert t[(slice(None), 1, *[0] * (MOST - 3), ...)].flatten().tolist() == x[:, 1].tolist()
    np.testing.assert_array_equal(t[tn.from_numpy(mask)].flatten().numpy(), x[mask])
    picked = t[tn.tensor([1, 0]), tn.tensor([2, 0])].flatten()
    assert picked.tolist() == [x[1, 2], x[0, 0]]
    assert t[(*[slice(None)] * (MOST - 1), tn.tensor([0, 0]))].shape == (*t.shape[:-1], 2)
    for key in (None, (0, None, None), (..., True), (True, False), (*[0] * MOST, 0)):
        with pytest.raises((RuntimeError, ValueError, IndexError)):
            t[key]
    low = t[..., 0]
    assert low[None].ndim == low[..., True].ndim == MOST
    t[(1, 2, *[0] * (MOST - 2))] = 7
    assert t.flatten()[5].item() == 7


def test_nuclear_norms_have_two_dimensions() -> None:
    x = RNG.standard_normal((3, 4, 2))
    t = tn.from_numpy(x)
    want = np.linalg.svd(x.transpose(2, 0, 1), compute_uv=False).sum(-1)
    np.testing.assert_allclose(tn.norm(t, "nuc", dim=(0, 1)).numpy(), want, rtol=1e-12)
    np.testing.assert_allclose(tn.norm(t[..., 0], "nuc").item(), want[0], rtol=1e-12)
    for x, dim in ((t, None), (t[..., 0], []), (t, (0, 1, 2)), (t, (0,))):
        with pytest.raises(RuntimeError, match="2-tuple"):
            tn.norm(x, "nuc", dim=dim)


@pytest.mark.parametrize("dim", [None, [], 0])
def test_the_norm_of_one_number_is_its_magnitude(dim: Any) -> None:
    for x in [tn.tensor([-1e30])] if dim == 0 else [tn.tensor(-1e30), tn.tensor(1e-30)]:
        assert tn.linalg.vector_norm(x, dim=dim).item() == x.abs().item()


def test_what_fills_a_number() -> None:
    x = tn.tensor(3.0)
    assert x.index_fill(0, tn.tensor([], dtype=tn.int64), 5.0).item() == 3
    assert x.index_fill(0, tn.tensor([0]), 5.0).item() == x.index_fill(0, tn.tensor(0), 5).item()
    assert x.index_fill(0, tn.tensor([0]), 5.0).item() == 5


def test_sums_over_dimensions_of_size_one() -> None:
    """The other's dimension of size one stands for as many as there are."""
    a, b = RNG.standard_normal((2, 3)), RNG.standard_normal((1, 4))
    got = tn.tensordot(tn.from_numpy(a), tn.from_numpy(b), dims=([1], [0]))
    np.testing.assert_allclose(got.numpy(), np.outer(a.sum(1), b[0]), rtol=1e-13)
    got = tn.tensordot(tn.from_numpy(b), tn.from_numpy(a), dims=([0], [1]))
    np.testing.assert_allclose(got.numpy(), np.outer(b[0], a.sum(1)), rtol=1e-13)
    same = tn.tensordot(tn.from_numpy(a), tn.from_numpy(a[:, :2]), dims=([0], [0]))
    np.testing.assert_allclose(same.numpy(), a.T @ a[:, :2], rtol=1e-13)


def test_levels_of_fake_quantization_at_their_bounds() -> None:
    x = tn.arange(-2.0, 3.0)
    for zero, low, high in ((4, 0, 4), (0, 0, 4), (0, 0, 1 << 24), (0, -(1 << 24), 0)):
        got = tn.fake_quantize_per_tensor_affine(x, 0.5, zero, low, high).numpy()
        want = (np.clip(np.rint(x.numpy() / 0.5) + zero, low, high) - zero) * 0.5
        np.testing.assert_array_equal(got, want)
    for zero, low, high in ((5, 0, 4), (-1, 0, 4), (0, 0, (1 << 24) + 1), (0, -(1 << 24) - 1, 0),
                            (0, 1, 0)):  # fmt: skip
        with pytest.raises((RuntimeError, ValueError)):
            tn.fake_quantize_per_tensor_affine(x, 0.5, zero, low, high)


def test_classes_that_are_told() -> None:
    meta = tn.zeros(3, dtype=tn.int64, device="meta")
    assert F.one_hot(meta, 1).shape == (3, 1)
    assert F.one_hot(tn.zeros(3, dtype=tn.int64), 1).tolist() == [[1]] * 3


@pytest.mark.parametrize("wrong", [(2, 2), (3, 1, 2), (3,)])
def test_weights_of_entropies_fit_all_dimensions(wrong: tuple[int, ...]) -> None:
    p, y = tn.full((3, 2), 0.5), tn.ones(3, 2)
    for fn in (F.binary_cross_entropy, F.binary_cross_entropy_with_logits):
        if wrong == (3, 1, 2):  # broadcast to a dimension more
            continue
        with pytest.raises(RuntimeError):
            fn(p, y, weight=tn.ones(wrong))


def test_probabilities_at_fault() -> None:
    good = tn.tensor([0.0, 1.0])
    for args, at in (((tn.tensor([0.5, 1.5]), good), 0), ((good, tn.tensor([0.5, -0.5])), 1)):
        with pytest.raises(RuntimeError) as err:
            F.binary_cross_entropy(*args)
        assert err.value.arg == at
    assert F.binary_cross_entropy(good, good).item() == 0


def test_hashes_of_nothing() -> None:
    for shape, dim in (((0, 3), 0), ((3, 0), 1), ((2, 0, 3), 1)):
        with pytest.raises(IndexError, match="non-zero size"):
            tn.hash_tensor(tn.ones(shape), dim=dim)
    assert tn.hash_tensor(tn.ones(0, 3), dim=1).shape == (0,)
    assert tn.hash_tensor(tn.ones(3, 0), dim=0).shape == (0,)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_the_least_number_of_rms_norm(dtype: str) -> None:
    """The machine's epsilon of the dtype that is computed in, float32 for halves."""
    kind = getattr(tn, dtype)
    eps = float(np.finfo(np.float64 if dtype == "float64" else np.float32).eps)
    for size in (2.0**-10, 2.0**-25 if dtype == "float64" else 2.0**-12):
        want = size / np.sqrt(size**2 + eps)
        for needs in (False, True):
            x = tn.full((2, 4), size, dtype=kind, requires_grad=needs)
            for weight in (None, tn.ones(4, dtype=kind)):
                got = F.rms_norm(x, (4,), weight)
                assert got.dtype is kind
                tol = 2e-2 if kind is tn.bfloat16 else 2e-3 if kind is tn.float16 else 1e-6
                np.testing.assert_allclose(got.detach().double().numpy(), want, rtol=tol)


def test_one_sequence_has_the_loss_of_a_batch_of_one() -> None:
    x = tn.from_numpy(RNG.standard_normal((6, 4))).log_softmax(1)
    for target in ([1, 2], [3, 1, 1], [2]):
        t, n = tn.tensor(target), len(target)
        one = F.ctc_loss(x, t, tn.tensor(6), tn.tensor(n), reduction="none")
        many = F.ctc_loss(x[:, None], t[None], [6], [n], reduction="none")
        assert one.shape == () and many.shape == (1,)
        assert one.item() == pytest.approx(many.item(), rel=1e-14)


@pytest.mark.parametrize("values", [[0.0, 2.0, 3.0, -1.5], [0.0, 0.0, 3.0, 2.0], [1, 2, 3, 4]])
@pytest.mark.parametrize("include_self", [True, False])
def test_gradients_of_products_that_are_scattered(values: list[float], include_self: bool) -> None:
    """No zero, one and two among the factors of a product: finite differences."""
    index = tn.tensor([0, 0, 0, 1])
    src = tn.tensor(values, dtype=tn.float64, requires_grad=True)
    for first in (0.0, 2.0):
        x = tn.tensor([first, 1.5, -2.0], dtype=tn.float64, requires_grad=True)

        def product(x: Any, src: Any) -> Any:
            return x.scatter_reduce(0, index, src, "prod", include_self=include_self)

        assert tn.autograd.gradcheck(product, (x, src))


@pytest.mark.parametrize("fn", [F.softmax, F.log_softmax])
def test_softmax_of_nothing(fn: Any) -> None:
    for shape, dim in (((0, 4), 0), ((0, 4), 1), ((3, 0), 1), ((3, 0), 0)):
        assert fn(tn.ones(shape), dim).shape == shape
        with formulas():
            assert fn(tn.ones(shape), dim).shape == shape


def test_targets_of_classes_and_of_probabilities() -> None:
    """A target of as many dimensions has the input's shape, or it is none."""
    for target in (tn.ones(3, 5), tn.ones(3, 1), tn.zeros(3, 1, dtype=tn.int64)):
        with pytest.raises(RuntimeError, match="multi-target not supported"):
            F.cross_entropy(tn.ones(3, 4), target)
    x = RNG.standard_normal((3, 4))
    shares = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    got = F.cross_entropy(tn.from_numpy(x), tn.from_numpy(shares[::-1].copy())).item()
    assert got == pytest.approx(-(np.log(shares) * shares[::-1]).sum(1).mean(), rel=1e-12)


def test_images_of_no_size() -> None:
    for scale in (0.1, 0.0, -1.0, 1e15, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="should be greater than 0"):
            tn._C._nn.interpolate(tn.ones(1, 1, 3, 3), scale_factor=scale)
    x = tn._C._nn.interpolate(tn.ones(1, 1, 3, 3), scale_factor=0.34)
    assert x.shape == F.interpolate(tn.ones(1, 1, 3, 3), scale_factor=0.34).shape == (1, 1, 1, 1)


def test_frequencies_are_no_whole_numbers() -> None:
    for dtype in (tn.bool, tn.int64):
        for fn in (tn.fft.fftfreq, tn.fft.rfftfreq):
            with pytest.raises(RuntimeError, match="floating point or complex"):
                fn(3, dtype=dtype)
    full = tn.arange(6).reshape([2, 3] + [1] * (MOST - 2))
    assert tn.fft.fftshift(full).flatten().tolist() == [5, 3, 4, 2, 0, 1]
    assert tn.fft.ifftshift(full).flatten().tolist() == [4, 5, 3, 1, 2, 0]


DTYPES = ["int16", "float32", "bool", "float64", "complex64"]


@pytest.mark.parametrize("first", DTYPES)
@pytest.mark.parametrize("other", DTYPES)
def test_lists_of_two_dtypes(first: str, other: str) -> None:
    """Whichever comes first, everything is converted to the dtype that holds both."""
    if first == other:
        return
    a = (RNG.standard_normal((2, 3)) * 4).astype(first if first != "bool" else "int8")
    b = (RNG.standard_normal((2, 3)) * 4).astype(other if other != "bool" else "int8")
    arrays = [a.astype(first), b.astype(other), b.astype(other)]
    tensors = [tn.from_numpy(x) for x in arrays]
    dtype = tn.promote_types(getattr(tn, first), getattr(tn, other))
    for fn, theirs in ((tn.cat, np.concatenate), (tn.stack, np.stack), (tn.hstack, np.hstack),
                       (tn.vstack, np.vstack), (tn.dstack, np.dstack),
                       (tn.column_stack, np.column_stack)):  # fmt: skip
        got = fn(tensors)
        assert got.dtype is dtype
        np.testing.assert_array_equal(got.numpy(), theirs(arrays))
        got = fn([t[0] for t in tensors])
        np.testing.assert_array_equal(got.numpy(), theirs([x[0] for x in arrays]))
    for low, high in ((0, 1), (1, 0)):
        if not tn.can_cast(tensors[high].dtype, tensors[low].dtype):
            with pytest.raises(TypeError, match="can't be cast"):
                tn.cat([tensors[high], tensors[low]], out=tn.empty(4, 3, dtype=tensors[low].dtype))
            with pytest.raises(TypeError, match="can't be cast"):
                tn.cat([tensors[low], tensors[high]], out=tn.empty(4, 3, dtype=tensors[low].dtype))


def test_similarity_of_two_dtypes() -> None:
    a, b = RNG.standard_normal((2, 4, 3))
    want = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    for x, y in ((np.float32, np.float64), (np.float64, np.float32)):
        got = F.cosine_similarity(tn.from_numpy(a.astype(x)), tn.from_numpy(b.astype(y)))
        assert got.dtype is tn.float64
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)


def test_what_is_laid_out_as_asked_is_not_copied() -> None:
    plain = tn.arange(120.0).reshape(2, 3, 4, 5)
    last = plain.to(memory_format=tn.channels_last)
    for x, y, form in ((plain, last, tn.contiguous_format), (last, plain, tn.channels_last)):
        assert x.contiguous(memory_format=form).data_ptr() == x.data_ptr()
        moved = y.contiguous(memory_format=form)
        assert moved.data_ptr() != y.data_ptr()
        assert moved.stride() == x.stride() and moved.equal(x)


@pytest.mark.parametrize(
    "row",
    [
        r for r in rows() if "_copy" in r["name"] and r["samples"] and "Tensor!" not in r["sig"]
        and r["name"] != "view_copy_as_type"
    ],
    ids=lambda row: row["name"],
)  # fmt: skip
def test_copies_are_their_own(row: dict[str, Any]) -> None:
    """Nothing that is written to a copy of a view shows in what it was taken from."""
    for sample in row["samples"]:
        args = tensor_args(make_case(row, sample, "float32"))
        first = next(v for v in args.values() if isinstance(v, tn.Tensor))
        before = first.clone()
        got = call(row, args)
        for t in got if isinstance(got, (list, tuple)) else [got]:
            (t.real if t.is_complex() else t).fill_(1)
        assert first.equal(before)


@pytest.mark.parametrize(
    ("start", "end", "step", "count"),
    [
        (0, -(2**63), -1, None), (-1, -(2**63), -1, None), (0, -(2**63), -(2**62), 2),
        (2**63 - 1, -(2**63), -(2**62), 4), (-(2**63), 0, 2**63 - 1, 2),
        (2**63 - 3, 2**63 - 1, 1, 2), (-(2**63), -(2**63) + 5, 2, 3),
    ],
)  # fmt: skip
def test_ranges_to_the_ends_of_whole_numbers(
    start: int, end: int, step: int, count: int | None
) -> None:
    """Python's range is the oracle; what has more numbers than there can be is refused."""
    if count is None:
        with pytest.raises((RuntimeError, ValueError), match="invalid size|address space"):
            tn.arange(start, end, step)
    else:
        assert tn.arange(start, end, step).tolist() == list(range(start, end, step))
        assert len(range(start, end, step)) == count


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_masks_of_attention(dtype: str) -> None:
    """Bool, of the query's dtype or of single precision, and no others."""
    kind = getattr(tn, dtype)
    q, k, v = (tn.from_numpy(RNG.standard_normal((1, 2, 5, 4))).to(kind) for _ in range(3))
    score = q.double().numpy() @ k.double().numpy().swapaxes(-1, -2) / 2
    bias = tn.from_numpy(RNG.standard_normal((5, 5)) * 2).to(tn.bfloat16)
    seen = bias > -1
    seen.fill_diagonal_(True)
    tol = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 1e-5, "float64": 1e-12}[dtype]
    for mask in (bias.to(kind), bias.float(), seen, bias.float()[None, None], seen[None]):
        if mask.dtype is tn.bool:
            masked = np.where(mask.numpy(), score, -np.inf)
        else:
            masked = score + mask.double().numpy()
        p = np.exp(masked - masked.max(-1, keepdims=True))
        want = p / p.sum(-1, keepdims=True) @ v.double().numpy()
        got = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        assert got.dtype is kind
        np.testing.assert_allclose(got.double().numpy(), want, rtol=tol, atol=tol)
    for bad in (tn.float16, tn.float64, tn.int64):
        if bad is not kind:
            with pytest.raises(RuntimeError, match="to be bool or float or to match query") as err:
                F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(bad))
            assert err.value.arg == 3


@pytest.mark.parametrize("shape", [(5,), (1, 5), (3, 5), (1,), (3, 1), ()])
def test_what_is_added_before_an_activation(shape: tuple[int, ...]) -> None:
    """A vector for every row, for which there is a kernel, and all else that is broadcast."""
    b, x, w = (RNG.standard_normal(s) for s in (shape, (3, 2), (2, 5)))
    args = [tn.from_numpy(np.asarray(v).astype(np.float32)) for v in (b, x, w)]
    for alpha, beta in ((1, 1), (2, 1), (1, 0.5)):
        want = np.maximum(beta * b + alpha * (x @ w), 0)
        got = tn._addmm_activation(*args, alpha=alpha, beta=beta)
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-6)


def test_products_at_the_places_of_a_pattern_fit_it() -> None:
    pattern = tn.eye(3, 4).to_sparse_csr()
    got = tn.sparse.sampled_addmm(pattern, tn.ones(3, 2), tn.ones(2, 4)).to_dense()
    assert got.equal(3 * tn.eye(3, 4))
    for a, b in (((3, 2), (3, 4)), ((4, 2), (2, 4)), ((3, 2), (2, 3)), ((2,), (2, 4))):
        with pytest.raises(RuntimeError, match="sampled_addmm: shapes"):
            tn.sparse.sampled_addmm(pattern, tn.ones(a), tn.ones(b))


def test_batch_norm_of_no_samples() -> None:
    for shape in ((0, 1, 2), (0, 1), (0, 3)):
        w, b, m, v = (tn.ones(shape[1]) for _ in range(4))
        for training in (True, False):
            assert F.batch_norm(tn.ones(shape), m, v, w, b, training).shape == shape
        assert m.tolist() == v.tolist() == [1] * shape[1]


def test_nothing_is_similar_to_nothing() -> None:
    for a, b in ((tn.zeros(2, 3), tn.ones(2, 3)), (tn.ones(2, 3), tn.zeros(2, 3))):
        assert F.cosine_similarity(a, b).tolist() == [0, 0]
        with formulas():
            assert F.cosine_similarity(a, b).tolist() == [0, 0]


@pytest.mark.parametrize("of_statistics", ["float16", "float32", "float64"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("weighted", [True, False])
def test_statistics_of_instances_keep_their_dtype(
    dtype: str, of_statistics: str, weighted: bool
) -> None:
    x = RNG.standard_normal((2, 3, 5))
    old = np.array([0.25, 0.5, 0.75]), np.array([1.0, 2.0, 3.0])
    mean, var = (tn.tensor(v, dtype=getattr(tn, of_statistics)) for v in old)
    weight = tn.tensor([1.0, 2.0, 3.0], dtype=getattr(tn, dtype)) if weighted else None
    scale = np.array([1.0, 2.0, 3.0])[:, None] if weighted else 1.0
    t = tn.tensor(x, dtype=getattr(tn, dtype))
    got = F.instance_norm(t, mean, var, weight, use_input_stats=False)
    want = (x - old[0][:, None]) / np.sqrt(old[1][:, None] + 1e-5) * scale
    assert got.dtype is t.dtype
    np.testing.assert_allclose(got.double().numpy(), want, rtol=1e-5, atol=1e-6)
    got = F.instance_norm(t, mean, var, weight)
    want = (x - x.mean(2, keepdims=True)) / np.sqrt(x.var(2, keepdims=True) + 1e-5) * scale
    np.testing.assert_allclose(got.double().numpy(), want, rtol=1e-5, atol=1e-6)
    assert mean.dtype is var.dtype is getattr(tn, of_statistics)
    tol = 1e-3 if of_statistics == "float16" else 1e-6
    want = 0.9 * old[0] + 0.1 * x.mean((0, 2)), 0.9 * old[1] + 0.1 * x.var(2, ddof=1).mean(0)
    np.testing.assert_allclose(mean.double().numpy(), want[0], rtol=tol)
    np.testing.assert_allclose(var.double().numpy(), want[1], rtol=tol)


def test_attention_of_one_sequence() -> None:
    q, k, v = (RNG.standard_normal(shape) for shape in ((5, 4), (6, 4), (6, 3)))
    p = np.exp(q @ k.T / 2)
    got = F.scaled_dot_product_attention(*map(tn.from_numpy, (q, k, v)))
    np.testing.assert_allclose(got.numpy(), p / p.sum(1, keepdims=True) @ v, rtol=1e-12)
    for low in range(3):
        args = [tn.ones(4) if at == low else tn.ones(5, 4) for at in range(3)]
        with pytest.raises(RuntimeError, match="at least 2 dimensional"):
            F.scaled_dot_product_attention(*args)


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("smoothing", [0.0, 0.25])
def test_one_sample_has_the_loss_of_a_batch_of_one(classes: int, smoothing: float) -> None:
    x, share = RNG.standard_normal(classes), RNG.uniform(0.1, 1.0, classes)
    weight = RNG.uniform(0.5, 2.0, classes)
    for target in (tn.tensor(1), tn.from_numpy(share)):
        for w in (None, tn.from_numpy(weight)):
            one, many = (
                F.cross_entropy(a, b, w, label_smoothing=smoothing).item()
                for a, b in ((tn.from_numpy(x), target), (tn.from_numpy(x)[None], target[None]))
            )
            assert one == pytest.approx(many, rel=1e-12)
            log = x - np.log(np.exp(x).sum())
            aim = np.eye(classes)[1] if target.ndim == 0 else share
            aim = aim * (1 - smoothing) + smoothing / classes
            terms = -log * aim * (1 if w is None else weight)
            want = terms.sum() / (weight[1] if w is not None and target.ndim == 0 else 1)
            assert one == pytest.approx(want, rel=1e-12)


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_one_number_of_a_wider_dtype_beside_many() -> None:
    wide, x = tn.tensor(0.1, dtype=tn.float64), tn.tensor([0.5, 2.0])
    for loss in (F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.l1_loss):
        for args in ((wide, x), (x, wide)):
            got = loss(*args, reduction="none")
            if loss is F.huber_loss and args[0] is x:  # the input's own dtype, as in PyTorch
                assert got.dtype is tn.float32
                continue
            assert got.dtype is tn.float64
            want = loss(*(t.double().expand(2) for t in args), reduction="none")
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-15)


def test_transforms_of_one_sample() -> None:
    x = RNG.standard_normal(6)
    got = tn.stft(tn.from_numpy(x), 1, 1, 1, window=tn.tensor([2.0]).double(), center=False,
                  return_complex=True)  # fmt: skip
    np.testing.assert_allclose(got.numpy(), 2 * x[None], rtol=1e-15)


def test_truths_go_round_and_are_not_reflected() -> None:
    x = tn.tensor([[True, False, False, True]])
    assert F.pad(x, (1, 1), mode="circular").tolist() == [[True, True, False, False, True, True]]
    for mode in ("reflect", "replicate"):
        with pytest.raises(NotImplementedError, match="not implemented for 'Bool'"):
            F.pad(x, (1, 1), mode=mode)


def test_steps_that_vanish_as_whole_numbers_are_blamed() -> None:
    for sequence in (tn.arange, tn.range):
        with pytest.raises(ValueError, match="step must be nonzero") as err:
            sequence(0, 5, 0.5, dtype=tn.int64)
        assert err.value.arg == 2


def test_channels_are_shuffled_in_the_most_dimensions() -> None:
    full = tn.arange(12).reshape([2, 6] + [1] * (MOST - 3))
    got = tn.channel_shuffle(full, 3).reshape(2, 6)
    assert got[0].tolist() == [0, 2, 4, 1, 3, 5]
    with pytest.raises(RuntimeError, match="more than|> 2 dims"):
        tn.channel_shuffle(full[..., None], 3)


def test_a_number_has_one_place() -> None:
    x, at = tn.tensor(5.0), tn.tensor([0])
    assert x.gather(0, at).tolist() == [5] and x.gather(0, at[0]).item() == 5
    assert tn.tensor([5.0]).gather(0, at[0]).item() == 5
    for index in (at, at[0]):
        assert x.scatter(0, index, 2.0).item() == 2
        assert x.scatter_add(0, index, tn.tensor([2.0])).item() == 7
        assert x.scatter_reduce(0, index, tn.tensor(2.0), "prod").item() == 10


def test_each_matrix_of_a_batch_has_its_info() -> None:
    a = RNG.standard_normal((2, 3, 4, 4))
    t = tn.from_numpy(a @ a.swapaxes(-1, -2) + np.eye(4))
    for name in ("ldl_factor_ex", "lu_factor_ex", "cholesky_ex", "inv_ex"):
        *_, info = getattr(tn.linalg, name)(t)
        assert info.dtype is tn.int32 and info.tolist() == [[0] * 3] * 2, name


@pytest.mark.parametrize("dtype", [tn.float32, tn.float64])
def test_slopes_of_rms_norm(dtype: tn.dtype) -> None:
    x, w, g = RNG.standard_normal((3, 4)), RNG.standard_normal(4), RNG.standard_normal((3, 4))
    tol = 1e-5 if dtype is tn.float32 else 1e-11
    rstd = 1 / np.sqrt((x**2).mean(1, keepdims=True) + 1e-5)
    along = (g * w * x * rstd).mean(1, keepdims=True)
    for wants in ((False, True), (True, False), (True, True)):
        t, weight = (
            tn.tensor(v, dtype=dtype, requires_grad=n) for v, n in zip((x, w), wants, strict=True)
        )
        F.rms_norm(t, (4,), weight, 1e-5).backward(tn.tensor(g, dtype=dtype))
        for v, want in ((t, (g * w - x * rstd * along) * rstd), (weight, (g * x * rstd).sum(0))):
            assert (v.grad is not None) == v.requires_grad
            if v.grad is not None:
                np.testing.assert_allclose(v.grad.numpy(), want, tol, tol)


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_images_of_one_row_and_of_one_column(mode: str) -> None:
    x = tn.arange(6.0).reshape(1, 2, 1, 3)
    got = F.interpolate(x, size=(4, 3), mode=mode)
    assert got.equal(x.expand(1, 2, 4, 3))
    got = F.interpolate(x.transpose(2, 3), size=(3, 4), mode=mode)
    assert got.equal(x.transpose(2, 3).expand(1, 2, 3, 4))


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
def test_heads_that_share_keys_and_values(lead: tuple[int, ...]) -> None:
    q = RNG.standard_normal((*lead, 6, 5, 4))
    k, v = RNG.standard_normal((2, *lead, 2, 7, 4))
    keys, values = (np.repeat(x, 3, axis=-3) for x in (k, v))
    p = np.exp(q @ keys.swapaxes(-1, -2) / 2)
    want = p / p.sum(-1, keepdims=True) @ values
    got = F.scaled_dot_product_attention(*map(tn.from_numpy, (q, k, v)), enable_gqa=True)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-10, atol=1e-13)


def test_targets_one_after_another_have_the_slopes_of_padded_ones() -> None:
    x = tn.from_numpy(RNG.standard_normal((9, 3, 5))).log_softmax(2)
    padded = tn.tensor([[1, 2, 2, 4], [3, 0, 0, 0], [4, 1, 3, 0]])
    lengths = tn.tensor([4, 1, 3])
    flat = tn.cat([row[:n] for row, n in zip(padded, lengths.tolist(), strict=True)])
    found = []
    for targets in (padded, flat):
        leaf = x.clone().requires_grad_()
        loss = F.ctc_loss(leaf, targets, tn.tensor([9, 8, 9]), lengths, reduction="sum")
        found.append((loss.item(), *tn.autograd.grad(loss, leaf)))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-14)
    assert tn.allclose(found[0][1], found[1][1], rtol=1e-12)
