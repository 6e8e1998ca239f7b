"""Sparse tensors: their layouts, what they are made of, and what operators do with them."""

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse
import scipy.special
import tenon as tn
from tenon.io.errors import FileFormatError

LAYOUTS = ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_are_singletons(name):
    layout = getattr(tn, name)
    assert type(layout) is tn.layout and str(layout) == f"tenon.{name}"
    assert pickle.loads(pickle.dumps(layout)) is layout is copy.deepcopy(layout)
    assert len({getattr(tn, n) for n in LAYOUTS}) == len(LAYOUTS)
    assert tn.ones(2).layout is tn.strided


COMPRESSED = LAYOUTS[2:]
rng = np.random.default_rng(7)


def dense_array(shape, dtype=np.float64, density=0.4):
    """Mostly zeros."""
    a = rng.standard_normal(shape) * (rng.random(shape) < density)
    return (a + 0.0).astype(dtype)  # no negative zeros


def as_layout(a, layout, block=(2, 3)):
    """A strided tensor, or one of a sparse layout, with these elements."""
    t = tn.tensor(a)
    if layout == "strided":
        return t
    return t.to_sparse(layout=getattr(tn, layout), blocksize=block if "bs" in layout else None)


def components(t):
    """The indices and values of a sparse tensor as arrays."""
    if t.layout is tn.sparse_coo:
        return t._indices().numpy(), t._values().numpy()
    rows = t.layout in (tn.sparse_csr, tn.sparse_bsr)
    index = t.crow_indices() if rows else t.ccol_indices()
    plain = t.col_indices() if rows else t.row_indices()
    return index.numpy(), plain.numpy(), t.values().detach().numpy()


# ---- Making --------------------------------------------------------------------------------------


def test_coordinates():
    s = tn.sparse_coo_tensor([[1, 0, 1], [2, 0, 2]], [3.0, 4.0, 5.0], (2, 3))
    assert s.layout is tn.sparse_coo and s.is_sparse and not s.is_sparse_csr
    assert s.shape == (2, 3) and s.dtype is tn.float32 and s.numel() == 6
    assert (s._nnz(), s.sparse_dim(), s.dense_dim(), s.is_coalesced()) == (3, 2, 0, False)
    assert s._indices().tolist() == [[1, 0, 1], [2, 0, 2]] and s._values().tolist() == [3, 4, 5]
    c = s.coalesce()
    assert c.is_coalesced() and c.coalesce() is c
    assert c.indices().tolist() == [[0, 1], [0, 2]] and c.values().tolist() == [4, 8]
    assert s.to_dense().tolist() == c.to_dense().tolist() == [[4, 0, 0], [0, 0, 8]]
    assert tn.sparse_coo_tensor([[1], [2]], [1.0]).shape == (2, 3)
    assert tn.sparse_coo_tensor((2, 3))._nnz() == 0
    with pytest.raises(RuntimeError, match="uncoalesced"):
        s.indices()
    with pytest.raises(RuntimeError, match="uncoalesced"):
        s.values()


def test_hybrid():
    indices, values = np.array([[2, 0, 2]]), rng.standard_normal((3, 2, 2))
    s = tn.sparse_coo_tensor(tn.tensor(indices), tn.tensor(values), (4, 2, 2))
    assert (s.sparse_dim(), s.dense_dim()) == (1, 2)
    expected = np.zeros((4, 2, 2))
    np.add.at(expected, indices[0], values)
    np.testing.assert_allclose(s.to_dense().numpy(), expected)
    np.testing.assert_allclose(s.coalesce().values().numpy(), expected[[0, 2]])
    back = tn.tensor(expected).to_sparse(1)
    assert back.indices().tolist() == [[0, 2]] and back.dense_dim() == 2


@pytest.mark.parametrize("layout", ["csr", "csc", "bsr"])
def test_components_are_those_of_scipy(layout):
    a = dense_array((4, 6))
    t = as_layout(a, f"sparse_{layout}")
    kind = {"csr": scipy.sparse.csr_array, "csc": scipy.sparse.csc_array}.get(layout)
    theirs = kind(a) if kind else scipy.sparse.bsr_array(a, blocksize=(2, 3))
    index, plain, values = components(t)
    np.testing.assert_array_equal(index, theirs.indptr)
    np.testing.assert_array_equal(plain, theirs.indices)
    np.testing.assert_array_equal(values, theirs.data)
    assert t._nnz() == values.shape[0]


@pytest.mark.parametrize("source", LAYOUTS)
@pytest.mark.parametrize("target", LAYOUTS)
def test_conversions(source, target):
    a = dense_array((6, 6))
    t = as_layout(a, source)
    r = (
        t.to_dense()
        if target == "strided"
        else t.to_sparse(layout=getattr(tn, target), blocksize=(3, 2) if "bs" in target else None)
    )
    assert r.layout is getattr(tn, target) and r.shape == (6, 6)
    np.testing.assert_array_equal(r.to_dense().numpy(), a)
    if target not in ("strided", "sparse_coo"):
        index, plain, values = components(r)
        maker = getattr(tn, f"{target}_tensor")
        again = maker(
            tn.tensor(index), tn.tensor(plain), tn.tensor(values), (6, 6), check_invariants=True
        )
        np.testing.assert_array_equal(again.to_dense().numpy(), a)


@pytest.mark.parametrize("layout", COMPRESSED)
def test_batches(layout):
    a = rng.standard_normal((3, 4, 6)) * (dense_array((4, 6)) != 0)
    a[:, 0, 5] = 0.0
    t = as_layout(a, layout)
    assert t.shape == (3, 4, 6) and t.values().shape[0] == 3
    np.testing.assert_array_equal(t.to_dense().numpy(), a)
    a[0, 0, 5] = 1.0
    if layout in ("sparse_csr", "sparse_csc"):
        with pytest.raises(RuntimeError, match="same number of specified elements per batch"):
            as_layout(a, layout)


@pytest.mark.parametrize(
    "make, message",
    [
        (
            lambda: tn.sparse_coo_tensor([[2], [0]], [1.0], (2, 3)),
            "dim 0, size is 2 but found index 2",
        ),
        (lambda: tn.sparse_coo_tensor([[0], [-1]], [1.0], (2, 3)), "negative index -1 for dim 1"),
        (lambda: tn.sparse_coo_tensor([[0], [-1]], [1.0]), "negative index -1 for dim 1"),
        (lambda: tn.sparse_coo_tensor([[2**63 - 1]], [1.0]), "too large"),
        (lambda: tn.sparse_coo_tensor([[0.5]], [1.0]), "int64"),
        (lambda: tn.sparse_coo_tensor([0], [1.0]), "sparse_dim x nnz"),
        (lambda: tn.sparse_coo_tensor([[0, 1]], [1.0]), "same nnz"),
        (lambda: tn.sparse_coo_tensor([[0]], [1.0], (2, 3)), "number of dimensions"),
        (lambda: tn.sparse_coo_tensor([[0]], [[1.0]], (2, 3)), "do not fit size"),
        (
            lambda: tn.sparse_coo_tensor(
                [[1, 0]], [1.0, 2.0], is_coalesced=True, check_invariants=True
            ),
            "uncoalesced",
        ),
        (lambda: tn.sparse_csr_tensor([0, 1, 3], [0, 1], [1.0, 2.0], (2, 3)), "== nnz"),
        (lambda: tn.sparse_csr_tensor([1, 1, 2], [0, 1], [1.0, 2.0], (2, 3)), "== 0"),
        (
            lambda: tn.sparse_csr_tensor([0, 3, 2], [0, 1], [1.0, 2.0], (2, 3)),
            "between 0 and the size",
        ),
        (lambda: tn.sparse_csr_tensor([0, 1, 2], [0, 3], [1.0, 2.0], (2, 3)), "below the size"),
        (lambda: tn.sparse_csr_tensor([0, 1, 2], [0, -1], [1.0, 2.0], (2, 3)), "below the size"),
        (
            lambda: tn.sparse_csr_tensor(
                [0, 2, 2], [1, 0], [1.0, 2.0], (2, 3), check_invariants=True
            ),
            "sorted and distinct",
        ),
        (lambda: tn.sparse_csr_tensor([0, 2], [0, 1], [1.0, 2.0], (2, 3)), "do not fit size"),
        (lambda: tn.sparse_bsr_tensor([0, 1], [0], [[[1.0], [2.0]]], (3, 1)), "do not fit size"),
        (lambda: tn.sparse_bsr_tensor([0, 1], [0], tn.zeros(1, 0, 2)), "must not be empty"),
        (lambda: tn.sparse_csr_tensor([0.0, 1.0], [0], [1.0]), "int32 or int64"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(RuntimeError, match=message):
        make()


def test_invariants_on_demand():
    check = tn.sparse.check_sparse_tensor_invariants

    def unsorted():
        return tn.sparse_csr_tensor([0, 2], [1, 0], [1.0, 2.0], (1, 2))

    assert not check.is_enabled() and unsorted()._nnz() == 2
    with check(), pytest.raises(RuntimeError, match="sorted"):
        unsorted()
    with pytest.raises(RuntimeError, match="sorted"):
        check()(unsorted)()
    check.enable()
    assert check.is_enabled()
    with check(False):
        unsorted()
    check.disable()


# ---- Printing ------------------------------------------------------------------------------------


TEXTS = [
    (lambda m: m.sparse_coo_tensor([[0, 1, 1], [2, 0, 0]], [3.0, 4.0, 5.5], (2, 3)),
     "tensor(indices=tensor([[0, 1, 1],\n                       [2, 0, 0]]),\n"
     "       values=tensor([3.0000, 4.0000, 5.5000]),\n"
     "       size=(2, 3), nnz=3, layout=torch.sparse_coo)"),
    (lambda m: m.sparse_coo_tensor((2, 3)),
     "tensor(indices=tensor([], size=(2, 0)),\n       values=tensor([], size=(0,)),\n"
     "       size=(2, 3), nnz=0, layout=torch.sparse_coo)"),
    (lambda m: m.eye(2, dtype=m.float64).to_sparse_csr(),
     "tensor(crow_indices=tensor([0, 1, 2]),\n       col_indices=tensor([0, 1]),\n"
     "       values=tensor([1., 1.]), size=(2, 2), nnz=2, dtype=torch.float64,\n"
     "       layout=torch.sparse_csr)"),
    (lambda m: m.eye(4).to_sparse_bsr((2, 2)),
     "tensor(crow_indices=tensor([0, 1, 2]),\n       col_indices=tensor([0, 1]),\n"
     "       values=tensor([[[1., 0.],\n                       [0., 1.]],\n\n"
     "                      [[1., 0.],\n                       [0., 1.]]]), size=(4, 4), nnz=2,\n"
     "       layout=torch.sparse_bsr)"),
    (lambda m: m.eye(2).to_sparse_csc().requires_grad_(),
     "tensor(ccol_indices=tensor([0, 1, 2]),\n       row_indices=tensor([0, 1]),\n"
     "       values=tensor([1., 1.]), size=(2, 2), nnz=2, layout=torch.sparse_csc,\n"
     "       requires_grad=True)"),
]  # fmt: skip


@pytest.mark.parametrize("make, text", TEXTS)
def test_text(make, text):
    assert str(make(tn)).replace("tenon.", "torch.") == text


@pytest.mark.parametrize("make, text", TEXTS)
def test_text_is_that_of_pytorch(make, text):
    torch = pytest.importorskip("torch")
    assert str(make(torch)) == text


# ---- Components by name --------------------------------------------------------------------------


def test_components_and_their_layouts():
    csr, csc = tn.eye(2).to_sparse_csr(), tn.eye(2).to_sparse_csc()
    assert csr.crow_indices().tolist() == csc.ccol_indices().tolist() == [0, 1, 2]
    assert csr.col_indices().tolist() == csc.row_indices().tolist() == [0, 1]
    for name, t in [("crow_indices", csc), ("col_indices", csc), ("ccol_indices", csr),
                    ("row_indices", csr), ("indices", csr), ("values", tn.eye(2)),
                    ("coalesce", csr), ("is_coalesced", csr)]:  # fmt: skip
        with pytest.raises(RuntimeError, match=f"{name} expected sparse"):
            getattr(t, name)()
    for name in ("_nnz", "_indices", "_values"):
        with pytest.raises(NotImplementedError, match=f"^{name}|aten::{name}"):
            getattr(tn.eye(2), name)()


def test_sparse_mask():
    a, mask = dense_array((4, 6), density=1.0), dense_array((4, 6))
    for layout in LAYOUTS[1:]:
        t = tn.tensor(a).sparse_mask(as_layout(mask, layout))
        places = mask != 0
        if "bs" in layout:
            places = np.kron(places.reshape(2, 2, 2, 3).any((1, 3)), np.ones((2, 3), bool))
        np.testing.assert_array_equal(t.to_dense().numpy(), a * places)
    other = as_layout(dense_array((4, 6)), "sparse_coo")
    np.testing.assert_array_equal(
        other.sparse_mask(as_layout(mask, "sparse_coo")).to_dense().numpy(),
        other.to_dense().numpy() * (mask != 0),
    )


# sparse_resize_ is tested below
# ---- Refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS[1:])
@pytest.mark.parametrize(
    "call",
    [
        "exp",
        "cumsum(0)",
        "view(-1)",
        "as_strided((1,), (1,))",
        "sort()",
        "diagonal()",
        "max()",
        "fill_(1.0)",
        "nonzero()",
        "scatter_add(0, tn.zeros(1, 1).long(), tn.ones(1, 1))",
    ],
)
def test_operators_without_a_rule_name_themselves_and_the_layout(layout, call):
    s = as_layout(np.eye(4, 6), layout)
    name = call.partition("(")[0]
    with pytest.raises(NotImplementedError, match=f"{name[:4]}.*layout {layout}"):
        eval(f"s.{call}" if "(" in call else f"tn.{call}(s)", {"tn": tn, "s": s})


@pytest.mark.parametrize("layout", LAYOUTS[1:])
def test_a_sparse_tensor_has_no_memory_to_look_at(layout):
    s = as_layout(np.eye(4, 6), layout)
    for look in (lambda: s.numpy(), lambda: s.tolist(), lambda: s.data_ptr(), lambda: s.nbytes,
                 lambda: np.asarray(s), lambda: memoryview(s), lambda: tn.from_dlpack(s),
                 lambda: s.untyped_storage(), lambda: s.item(), lambda: s.set_(tn.ones(1), 0, (2,)),
                 lambda: tn.ones(4, 6).set_(s), lambda: tn.ones(4, 6).copy_(s),
                 lambda: tn.sin(tn.ones(4, 6), out=s)):  # fmt: skip
        with pytest.raises((RuntimeError, TypeError, BufferError, ValueError)):
            look()


# ---- Arithmetic ----------------------------------------------------------------------------------


ZERO_PRESERVING = (
    "abs asin asinh atan atanh ceil deg2rad erf erfinv expm1 floor frac log1p neg rad2deg relu "
    "round sgn sign sin sinh sqrt square tan tanh trunc isnan isinf signbit clone angle"
).split()


@pytest.mark.parametrize("layout", LAYOUTS[1:])
@pytest.mark.parametrize("name", ZERO_PRESERVING)
def test_functions_that_keep_zero(layout, name):
    a = np.clip(dense_array((4, 6)), -0.9, 0.9)
    a = np.abs(a) if name == "sqrt" else a
    s = as_layout(a, layout)
    r = getattr(tn, name)(s)
    expected = getattr(tn, name)(tn.tensor(a))
    assert r.layout is s.layout and r.dtype is expected.dtype
    np.testing.assert_array_equal(r.to_dense().numpy(), expected.numpy())
    if hasattr(s, name + "_") and r.dtype is s.dtype and name != "clone":
        assert getattr(s, name + "_")() is s
        np.testing.assert_array_equal(s.to_dense().numpy(), expected.numpy())


def test_functions_of_sums_see_the_sum():
    s = tn.sparse_coo_tensor([[1, 1]], [2.0, 3.0], (3,))
    assert s.square().to_dense().tolist() == [0, 25, 0] and (s**2).to_dense().tolist() == [0, 25, 0]
    assert s.neg()._nnz() == 2 and s.sin().is_coalesced()


@pytest.mark.parametrize("a_layout", LAYOUTS)
@pytest.mark.parametrize("b_layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.complex128])
def test_sums_and_products(a_layout, b_layout, dtype):
    if a_layout == b_layout == "strided":
        return
    a, b = ((dense_array((4, 6)) * 10).astype(dtype) for _ in range(2))
    s, t = as_layout(a, a_layout), as_layout(b, b_layout)
    np.testing.assert_allclose((s * t).to_dense().numpy(), a * b)
    for r, expected in [(s + t, a + b), (s - t, a - b), (tn.add(s, t, alpha=3), a + 3 * b)]:
        np.testing.assert_allclose(r.to_dense().numpy(), expected)
        if a_layout == b_layout:
            assert r.layout is s.layout
        if "strided" in (a_layout, b_layout):
            assert r.layout is tn.strided
    np.testing.assert_allclose((s + s).to_dense().numpy(), 2 * a)
    np.testing.assert_allclose((s * s).to_dense().numpy(), a * a)
    for scaled, factor in [(s * 3, 3), (3 * s, 3), (s * tn.tensor(3), 3), (s / 2, 0.5)]:
        np.testing.assert_allclose(scaled.to_dense().numpy(), a * factor)


def test_sums_in_place():
    a, b = dense_array((4, 6)), dense_array((4, 6))
    s, t, dense = as_layout(a, "sparse_coo"), as_layout(b, "sparse_coo"), tn.tensor(a)
    address, version = dense.data_ptr(), dense._version
    dense.add_(t, alpha=2)
    np.testing.assert_allclose(dense.numpy(), a + 2 * b)
    assert dense.data_ptr() == address and dense._version > version
    view = tn.tensor(a).t()
    view.add_(as_layout(b.T.copy(), "sparse_coo"))
    np.testing.assert_allclose(view.numpy(), (a + b).T)
    version = s._version
    s.add_(t)
    assert s.is_sparse and s._version > version
    np.testing.assert_allclose(s.to_dense().numpy(), a + b)
    s.mul_(2).sub_(t)
    np.testing.assert_allclose(s.to_dense().numpy(), 2 * a + b)
    with pytest.raises(RuntimeError, match="layout"):
        s.add_(tn.ones(4, 6))
    s.zero_()
    assert s._nnz() == 0 and s.shape == (4, 6)
    copy = t.clone()
    t.zero_()
    np.testing.assert_array_equal(copy.to_dense().numpy(), b)
    s.copy_(copy)
    np.testing.assert_array_equal(s.to_dense().numpy(), b)
    integers = as_layout(np.eye(3, dtype=np.int64), "sparse_coo")
    with pytest.raises(RuntimeError, match="can't be cast"):
        integers.mul_(0.5)


def test_mixed_sums_promote():
    s = as_layout(np.eye(2, dtype=np.int32), "sparse_coo")
    assert (s + tn.ones(2, 2)).dtype is tn.float32 and (s + s).dtype is tn.int32
    assert (s + as_layout(np.eye(2), "sparse_coo")).dtype is tn.float64
    assert (s * 2.5).dtype is tn.float32 and (s / 2).to_dense().tolist() == [[0.5, 0], [0, 0.5]]
    with pytest.raises(RuntimeError, match="do not broadcast"):
        s + tn.sparse_coo_tensor((3, 3))
    with pytest.raises(RuntimeError, match="0-d"):
        s / tn.ones(2, 2)
    with pytest.raises(NotImplementedError, match="layouts"):
        s + 1


def test_like_and_to():
    for layout in LAYOUTS[1:]:
        s = as_layout(dense_array((4, 6)), layout)
        zeros = tn.zeros_like(s)
        assert zeros.layout is s.layout and zeros._nnz() == 0 and not zeros.to_dense().any()
        assert s.to(tn.float32).dtype is tn.float32 and s.float().layout is s.layout
        assert s.to(tn.float64) is s and s.to("cpu") is s and s.detach().layout is s.layout
        again = pickle.loads(pickle.dumps(s))
        assert again.layout is s.layout and again.shape == s.shape
        np.testing.assert_array_equal(again.to_dense().numpy(), s.to_dense().numpy())
        deep = copy.deepcopy(s)
        deep.values().fill_(0) if layout != "sparse_coo" else deep._values().fill_(0)
        assert s.to_dense().any() and not deep.to_dense().any()


# ---- Gradients -----------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS[1:])
@pytest.mark.parametrize(
    "call",
    [
        "s.to_dense()",
        "(s * s).to_dense()",
        "(s * w).to_dense()",
        "(s + s * 2).to_dense()",
        "w + s",
        "s.sin().to_dense()",
        "(s / 3).to_dense()",
        "s.values()",
        "s.to_sparse_csr().to_dense()",
        "s.to_sparse_coo().to_dense()",
        "(s * t).to_dense()",
        "s.double().square().to_dense()",
        "s.clone().mul_(3).sin_().to_dense()",
        "(-s - t).to_dense()",
    ],
)
def test_gradients(layout, call):
    a, b = dense_array((4, 6)), dense_array((4, 6))
    weight = rng.standard_normal((4, 6))

    def gradient(kind):
        s, t = as_layout(a, kind).requires_grad_(), as_layout(b, kind)
        w = tn.tensor(weight, requires_grad=True)
        if kind == "strided" and "values" in call:
            r = s * (s.detach() != 0)
        else:
            text = call.replace(".to_sparse_csr()", "").replace(".to_sparse_coo()", "")
            names = {"s": s, "t": t, "w": w}
            r = eval(text if kind == "strided" else call, names)
        (g,) = tn.autograd.grad((r**2).sum(), s, create_graph=True)
        (h,) = tn.autograd.grad((g.to_dense() ** 2).sum(), s)
        return g, h

    for ours, dense in zip(gradient(layout), gradient("strided")):
        assert ours.layout is getattr(tn, layout)
        mask = a != 0
        np.testing.assert_allclose(
            ours.to_dense().detach().numpy() * mask, dense.detach().numpy() * mask, atol=1e-12
        )


def test_gradients_of_values():
    values = tn.tensor([1.0, 2.0, 3.0], requires_grad=True)
    weight = tn.tensor([[1.0, 2.0], [3.0, 4.0]])
    s = tn._C._ops._sparse_coo(tn.tensor([[0, 1, 1], [1, 0, 0]]), values, (2, 2), False, False)
    (s.to_dense() * weight).sum().backward()
    assert values.grad.tolist() == [2, 3, 3]


def test_sparse_gradients_add_up():
    a, b = (as_layout(dense_array((3, 4)), "sparse_coo") for _ in range(2))
    leaf = tn.ones(3, 4, dtype=tn.float64, requires_grad=True)
    for seen, grad in [(a, a), (a.to_dense() + b.to_dense(), b)]:
        leaf.backward(grad)
        assert leaf.grad.is_sparse
        np.testing.assert_allclose(leaf.grad.to_dense().numpy(), seen.to_dense().numpy())
    total = leaf.grad.to_dense()
    leaf.backward(tn.ones(3, 4, dtype=tn.float64))
    assert leaf.grad.layout is tn.strided
    leaf.backward(a)
    np.testing.assert_allclose(leaf.grad.numpy(), total.numpy() + 1 + a.to_dense().numpy())


# ---- Products ------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS[1:])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128, np.int64])
def test_products(layout, dtype):
    a, b = (
        (dense_array((4, 6)) * 9).astype(dtype),
        (dense_array((6, 35), density=1) * 9).astype(dtype),
    )
    s, dense = as_layout(a, layout), tn.tensor(b)
    close = {"rtol": 1e-5 if dtype is np.float32 else 1e-12}
    np.testing.assert_allclose((s @ dense).numpy(), a @ b, **close)
    np.testing.assert_allclose((dense.t() @ s.t()).numpy(), b.T @ a.T, **close)
    np.testing.assert_allclose(tn.mv(s, dense[:, 3]).numpy(), a @ b[:, 3], **close)
    np.testing.assert_allclose((s @ dense[:, 3]).numpy(), a @ b[:, 3], **close)
    np.testing.assert_allclose(tn.sparse.mm(s, s.t()).to_dense().numpy(), a @ a.T, **close)
    c = np.ones((4, 35), dtype)
    r = tn.sparse.addmm(tn.tensor(c), s, dense, beta=2, alpha=3)
    np.testing.assert_allclose(r.numpy(), 2 * c + 3 * (a @ b), **close)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        s @ s


def test_products_of_batches_and_of_what_is_not_coalesced():
    a, b = dense_array((3, 4, 6)), dense_array((3, 6, 5), density=1)
    np.testing.assert_allclose(
        tn.bmm(as_layout(a, "sparse_coo"), tn.tensor(b)).numpy(), a @ b, atol=1e-12
    )
    s = tn.sparse_coo_tensor([[2, 0, 2], [1, 1, 1]], [1.0, 2.0, 3.0], (3, 2))
    assert (s @ tn.tensor([[1.0], [10.0]])).tolist() == [[20], [0], [40]]
    empty = tn.sparse_coo_tensor((3, 2))
    assert (empty @ tn.ones(2, 5)).tolist() == [[0.0] * 5] * 3
    assert (empty @ tn.ones(2, 0)).shape == (3, 0)


@pytest.mark.parametrize("layout", LAYOUTS[1:])
def test_gradients_of_products(layout):
    a, b = dense_array((4, 6)), dense_array((6, 5), density=1)
    mask = a != 0

    def gradients(kind):
        s, w = as_layout(a, kind).requires_grad_(), tn.tensor(b, requires_grad=True)
        r = ((s @ w) ** 2).sum()
        first = tn.autograd.grad(r, (s, w), create_graph=True)
        total = (first[0].to_dense() * tn.tensor(mask * 1.0)).square().sum() + first[
            1
        ].square().sum()
        return [*first, *tn.autograd.grad(total, (s, w))]

    for i, (ours, dense) in enumerate(zip(gradients(layout), gradients("strided"))):
        seen = 1 if i % 2 else mask
        np.testing.assert_allclose(
            ours.to_dense().detach().numpy() * seen, dense.detach().numpy() * seen, atol=1e-9
        )


def test_sampled_addmm():
    a, x, y = dense_array((4, 6)), dense_array((4, 3), density=1), dense_array((3, 6), density=1)
    s = as_layout(a, "sparse_csr").requires_grad_()
    left, right = tn.tensor(x, requires_grad=True), tn.tensor(y, requires_grad=True)
    r = tn.sparse.sampled_addmm(s, left, right, beta=2, alpha=3)
    expected = (2 * a + 3 * (x @ y)) * (a != 0)
    np.testing.assert_allclose(r.to_dense().detach().numpy(), expected)
    (r.values() ** 2).sum().backward()
    np.testing.assert_allclose(left.grad.numpy(), 6 * expected @ y.T)
    np.testing.assert_allclose(right.grad.numpy(), 6 * x.T @ expected)
    np.testing.assert_allclose(s.grad.to_dense().numpy(), 4 * expected)
    with pytest.raises(RuntimeError, match="sparse_csr"):
        tn.sparse.sampled_addmm(as_layout(a, "sparse_coo"), left, right)
    whole = tn.ones(2, 2, dtype=tn.int64)
    assert tn.sparse.sampled_addmm(whole.to_sparse_csr(), whole, whole).values().dtype == tn.int64


# ---- Shapes --------------------------------------------------------------------------------------


def test_shapes():
    a = dense_array((3, 4, 5))
    s = as_layout(a, "sparse_coo")
    hybrid = tn.tensor(a).to_sparse(2)
    index = tn.tensor([3, 0, 0, 2])
    for t, dims in [(s, (2, 0, 1)), (hybrid, (1, 0, 2))]:
        for r, expected in [
            (t.permute(*dims), a.transpose(dims)),
            (t.transpose(0, 1), a.transpose(1, 0, 2)),
            (t.unsqueeze(1), a[:, None]),
            (t.unsqueeze(-1), a[..., None]),
            (t[1], a[1]),
            (t.select(2, -2), a[:, :, -2]),
            (t.index_select(1, index), a[:, [3, 0, 0, 2]]),
            (t.index_select(2, index), a[:, :, [3, 0, 0, 2]]),
            (tn.cat([t, t * 2], 1), np.concatenate([a, 2 * a], 1)),
            (tn.stack([t, -t], 1), np.stack([a, -a], 1)),
        ]:
            assert r.is_sparse and r.shape == expected.shape
            np.testing.assert_array_equal(r.to_dense().numpy(), expected)
    assert s[1][2][3].item() == a[1, 2, 3] and s[0, 1].is_sparse
    with pytest.raises(NotImplementedError, match="order of the dimensions"):
        hybrid.permute(2, 0, 1)
    for layout in COMPRESSED:
        t = as_layout(a[0], layout, (2, 5))
        turned = t.t()
        assert turned.layout is not t.layout
        np.testing.assert_array_equal(turned.to_dense().numpy(), a[0].T)
        np.testing.assert_array_equal(t.transpose(0, 1).transpose(0, 1).to_dense().numpy(), a[0])
    with pytest.raises(IndexError):
        s[3]
    with pytest.raises(IndexError):
        s.index_select(0, tn.tensor([3]))


def test_sparse_resize_():
    s = tn.sparse_coo_tensor([[1], [2]], [5.0], (2, 3))
    alias = s.detach()
    assert s.sparse_resize_((4, 7), 2, 0) is s and s.shape == (4, 7) and s.to_dense()[1, 2] == 5
    assert alias.shape == (2, 3) and alias.to_dense()[1, 2] == 5
    with pytest.raises(RuntimeError, match="makes no sparse one smaller"):
        s.sparse_resize_((1, 7), 2, 0)


@pytest.mark.parametrize("layout", LAYOUTS[1:])
def test_sums(layout):
    a = dense_array((4, 6))
    s = as_layout(a, layout)
    assert s.sum().item() == pytest.approx(a.sum()) and s.sum().layout is tn.strided
    assert tn.sparse.sum(s, (0, 1)).item() == pytest.approx(a.sum())
    for dim in (0, 1, -1):
        np.testing.assert_allclose(tn.sparse.sum(s, dim).to_dense().numpy(), a.sum(dim))
        kept = s.sum(dim, keepdim=True)
        np.testing.assert_allclose(kept.to_dense().numpy(), a.sum(dim, keepdims=True))
    assert s.norm().item() == pytest.approx(np.linalg.norm(a)) and bool(s.any())
    assert as_layout((a != 0), "sparse_coo").sum().item() == (a != 0).sum()
    hybrid = tn.tensor(a).to_sparse(1)
    np.testing.assert_allclose(hybrid.sum(1).to_dense().numpy(), a.sum(1))
    np.testing.assert_allclose(hybrid.sum(0).numpy(), a.sum(0))


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_softmax(dim):
    a = dense_array((3, 4, 5)) * 20
    minus = np.where(a == 0, -np.inf, a)
    for sparse_dim in (3, 2):
        if sparse_dim == 2:
            minus = a.copy()
            minus[~(a != 0).any(2)] = -np.inf
        s = tn.tensor(a).to_sparse(sparse_dim).requires_grad_()
        with np.errstate(invalid="ignore"):
            expected = np.nan_to_num(scipy.special.softmax(minus, dim))
            logs = scipy.special.log_softmax(minus, dim)
        r = tn.sparse.softmax(s, dim)
        np.testing.assert_allclose(r.to_dense().detach().numpy(), expected, atol=1e-12)
        log = tn.sparse.log_softmax(s, dim).detach()
        _, values = components(log)
        at = tuple(log._indices().numpy())
        np.testing.assert_allclose(values, logs[at], atol=1e-12)
        weight = rng.standard_normal(a.shape)
        (r.to_dense() * tn.tensor(weight)).sum().backward()
        slope = expected * (weight - (expected * weight).sum(dim, keepdims=True))
        np.testing.assert_allclose(
            s.grad.to_dense().numpy(), slope * np.isfinite(minus), atol=1e-12
        )


def test_spdiags():
    rows = rng.standard_normal((3, 5))
    for shape in ((5, 5), (4, 7), (6, 3)):
        s = tn.sparse.spdiags(tn.tensor(rows), tn.tensor([0, -2, 1]), shape)
        theirs = scipy.sparse.spdiags(rows, [0, -2, 1], *shape).toarray()
        np.testing.assert_array_equal(s.to_dense().numpy(), theirs)
    assert tn.sparse.spdiags(tn.ones(2), tn.tensor([0]), (2, 2), tn.sparse_csr).is_sparse_csr


# ---- Networks ------------------------------------------------------------------------------------


def test_embedding():
    weight, index = dense_array((7, 3), density=1), tn.tensor([[1, 4, 1], [0, 2, 4]])
    for padding in (None, 4):
        dense, sparse = (tn.nn.Embedding(7, 3, padding, sparse=on) for on in (False, True))
        for layer in (dense, sparse):
            with tn.no_grad():
                layer.weight.copy_(tn.tensor(weight))
            (layer(index) ** 2).sum().backward()
            (layer(index[0]) * 3).sum().backward()
        assert sparse.weight.grad.is_sparse and dense.weight.grad.layout is tn.strided
        tn.testing.assert_close(sparse.weight.grad.to_dense(), dense.weight.grad)
    bags = tn.nn.EmbeddingBag(7, 3, mode="sum", sparse=True)
    bags(tn.tensor([1, 2, 1]), tn.tensor([0, 2])).sum().backward()
    assert bags.weight.grad.is_sparse
    assert bags.weight.grad.to_dense()[:, 0].tolist() == [0, 2, 1, 0, 0, 0, 0]
    weight = tn.ones(3, 2, dtype=tn.float64, requires_grad=True)
    rows = tn.nn.functional.embedding(tn.tensor([0, 2, 0]), weight * 2, sparse=True)
    (g,) = tn.autograd.grad((rows**2).sum(), weight, create_graph=True)
    assert g.is_sparse
    (h,) = tn.autograd.grad((g.to_dense() ** 2).sum(), weight)
    assert h.to_dense().tolist() == [[16 * 16 * 2.0] * 2, [0, 0], [8 * 8 * 2.0] * 2]


def adam_of_rows(p, grads, lr, maximize, betas=(0.9, 0.999), eps=1e-8):
    """What SparseAdam is, in NumPy."""
    m, v = np.zeros_like(p), np.zeros_like(p)
    for t, g in enumerate(grads, 1):
        rows = np.nonzero((g != 0).any(1))[0]
        g = -g if maximize else g
        m[rows] += (1 - betas[0]) * (g[rows] - m[rows])
        v[rows] += (1 - betas[1]) * (g[rows] ** 2 - v[rows])
        step = lr * np.sqrt(1 - betas[1] ** t) / (1 - betas[0] ** t)
        p[rows] -= step * m[rows] / (np.sqrt(v[rows]) + eps)
    return p


@pytest.mark.parametrize("maximize", [False, True])
def test_sparse_adam(maximize):
    start = dense_array((6, 3), density=1)
    grads = [dense_array((6, 3)) for _ in range(4)]
    p = tn.nn.Parameter(tn.tensor(start))
    optimizer = tn.optim.SparseAdam([p], lr=0.1, maximize=maximize)
    for g in grads:
        p.grad = tn.tensor(g).to_sparse(1)
        optimizer.step()
    np.testing.assert_allclose(
        p.detach().numpy(), adam_of_rows(start.copy(), grads, 0.1, maximize), rtol=1e-12
    )
    p.grad = tn.ones(6, 3, dtype=tn.float64)
    with pytest.raises(RuntimeError, match="dense gradients"):
        optimizer.step()
    with pytest.raises(ValueError, match="dense parameter tensors"):
        tn.optim.SparseAdam([tn.sparse_coo_tensor((2, 2)).requires_grad_()])
    again = tn.optim.SparseAdam([p], lr=0.1)
    again.load_state_dict(optimizer.state_dict())
    assert again.state[p]["step"] == 4


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True},
                                     {"maximize": True}])  # fmt: skip
def test_sgd_with_sparse_gradients(options):
    start = dense_array((6, 3), density=1)
    both = [tn.nn.Parameter(tn.tensor(start)) for _ in range(2)]
    optimizers = [tn.optim.SGD([p], lr=0.1, **options) for p in both]
    for _ in range(3):
        g = tn.tensor(dense_array((6, 3)))
        both[0].grad, both[1].grad = g, g.to_sparse(1)
        for optimizer in optimizers:
            optimizer.step()
    np.testing.assert_allclose(both[1].detach().numpy(), both[0].detach().numpy(), rtol=1e-12)
    with pytest.raises(RuntimeError, match="weight_decay"):
        bad = tn.optim.SGD([both[1]], lr=0.1, weight_decay=0.1)
        bad.step()
    with pytest.raises(RuntimeError, match="does not support sparse gradients"):
        tn.optim.Adam([both[1]]).step()


# ---- Files and comparison ------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS[1:])
def test_files(layout, tmp_path):
    s = as_layout(dense_array((4, 6)), layout)
    kept = {"s": s, "p": tn.nn.Parameter(s), "u": tn.sparse_coo_tensor([[1, 1]], [2.0, 3.0], (4,))}
    tn.save(kept, tmp_path / "a.pt")
    back = tn.load(tmp_path / "a.pt")
    assert back["s"].layout is s.layout and isinstance(back["p"], tn.nn.Parameter)
    assert not back["u"].is_coalesced() and back["u"]._nnz() == 2
    tn.testing.assert_close(back["s"], s)
    tn.testing.assert_close(back["p"].detach(), s)
    torch = pytest.importorskip("torch")
    theirs = torch.load(tmp_path / "a.pt", weights_only=True)
    np.testing.assert_array_equal(theirs["s"].to_dense().numpy(), s.to_dense().numpy())
    assert str(theirs["s"].layout)[6:] == str(s.layout)[6:]
    torch.save(theirs, tmp_path / "b.pt")
    tn.testing.assert_close(tn.load(tmp_path / "b.pt")["s"], s)


def test_files_with_bad_indices(tmp_path):
    s = tn.sparse_coo_tensor([[1], [2]], [5.0], (2, 3))
    for layout, bad in [("sparse_coo", 7), ("sparse_coo", -1), ("sparse_csr", 9)]:
        t = s.to_sparse(layout=getattr(tn, layout))
        index = t._indices() if layout == "sparse_coo" else t.col_indices()
        index.view(-1)[0] = bad
        tn.save(t, tmp_path / "bad.pt")
        with pytest.raises(FileFormatError, match="a sparse tensor"):
            tn.load(tmp_path / "bad.pt")


def test_indices_that_change_are_found_out():
    """Nothing crashes where memory that a sparse tensor looks at is overwritten."""
    for bad in (10**6, -1, 2**62):
        s = as_layout(np.eye(4, 6), "sparse_csr")
        s.col_indices()[1] = bad
        with pytest.raises((RuntimeError, IndexError)):
            s @ tn.ones(6, 40, dtype=tn.float64)
        s = as_layout(np.eye(4, 6), "sparse_csr")
        s.crow_indices()[2] = bad
        with pytest.raises((RuntimeError, IndexError)):
            s @ tn.ones(6, 40, dtype=tn.float64)
        c = as_layout(np.eye(4, 6), "sparse_coo")
        c._indices()[0, 0] = bad
        with pytest.raises((RuntimeError, IndexError)):
            c.to_dense()


def test_comparison():
    s = as_layout(np.eye(4, 6), "sparse_coo")
    tn.testing.assert_close(s, s * (1 + 1e-9))
    with pytest.raises(AssertionError, match="values"):
        tn.testing.assert_close(s, s * 2)
    with pytest.raises(AssertionError, match="number of specified values"):
        tn.testing.assert_close(s, s + as_layout(np.eye(4, 6, k=1), "sparse_coo"))
    with pytest.raises(AssertionError, match="indices"):
        other = np.eye(4, 6, k=1)[:, [5, 1, 2, 3, 4, 0]] + 0.0
        tn.testing.assert_close(s, as_layout(other, "sparse_coo"))
    with pytest.raises(AssertionError, match="layout"):
        tn.testing.assert_close(s, s.to_dense())
    tn.testing.assert_close(s, s.to_dense(), check_layout=False)
    assert tn.equal(s.to_dense(), s.to_sparse_csr().to_dense())
