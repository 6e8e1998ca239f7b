"""Sparse tensors and the values that they were made of."""

from __future__ import annotations

import pytest
import tenon as tn
from tenon._torch.functions import all_of_them

LAYOUTS = ["csr", "csc", "bsr", "bsc"]


def compressed(x: tn.Tensor, layout: str, dense_dim: int = 0) -> tn.Tensor:
    blocks = {} if layout in ("csr", "csc") else {"blocksize": (2, 3)}
    return getattr(x, f"to_sparse_{layout}")(dense_dim=dense_dim, **blocks)


def indices_of(x: tn.Tensor) -> tuple[tn.Tensor, tn.Tensor]:
    if x.layout in (tn.sparse_csr, tn.sparse_bsr):
        return x.crow_indices(), x.col_indices()
    return x.ccol_indices(), x.row_indices()


def test_gradients_reach_the_values_a_tensor_was_made_of():
    places, values = tn.tensor([[0, 1, 1], [2, 0, 2]]), tn.tensor([3.0, 4.0, 5.0])
    values.requires_grad_()
    dense = tn.arange(6.0).view(3, 2)
    tn.spmm(tn.sparse_coo_tensor(places, values * 2, (2, 3)), dense).sum().backward()
    assert values.grad.tolist() == [18.0, 2.0, 18.0]
    made = tn.sparse_coo_tensor(places, values, (2, 3), dtype=tn.float64)
    assert made.requires_grad and made.dtype == tn.float64


def test_without_dimensions():
    x = tn.tensor(3.0).to_sparse()
    assert (x * 2).to_dense() == 6 and (x + x).to_dense() == 6
    with pytest.raises(NotImplementedError, match="sparse_coo"):
        tn.where(tn.tensor(True), x, x)


def test_many_dimensions_in_front():
    """The temporaries of one call grow with the dimensions."""
    crow, col = tn.tensor([0, 2, 4]), tn.tensor([0, 1, 0, 1])
    for front in ((2, 3, 4), (1,) * 16):
        values = tn.arange(4.0).expand(*front, 4)
        x = tn.sparse_csr_tensor(
            crow.expand(*front, 3), col.expand(*front, 4), values, (*front, 2, 2)
        )
        assert tn.equal(x.to_dense(), values.reshape(*front, 2, 2))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_slices_of_batches_and_of_dense_dimensions(layout: str):
    dense = tn.arange(1.0, 2 * 3 * 4 * 6 * 2 + 1).view(2, 3, 4, 6, 2)
    x = compressed(dense, layout, 1)
    for dim, at in [(0, 1), (1, -1), (-1, 0)]:
        for part in (x.select(dim, at), tn.select_copy(x, dim, at)):
            assert part.layout is x.layout and tn.equal(part.to_dense(), dense.select(dim, at))
    assert tn.equal(x[1, 2].to_dense(), dense[1, 2])
    with pytest.raises(RuntimeError, match="selecting sparse dimensions is not supported"):
        x.select(2, 0)
    values = x.values().clone().requires_grad_()
    x = tn.sparse_compressed_tensor(*indices_of(x), values, x.shape, layout=x.layout)
    x[1].to_dense().sum().backward()
    assert values.grad[1].eq(1).all() and values.grad[0].eq(0).all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_compressed_indices_keep_their_dtype(layout: str):
    dense = tn.eye(6)[:4] + tn.eye(6).roll(3, 1)[:4]
    x = compressed(dense, layout)
    index, plain = (i.int() for i in indices_of(x))
    x = tn.sparse_compressed_tensor(index, plain, x.values(), x.shape, layout=x.layout)
    for to in LAYOUTS:
        y = compressed(x, to)
        assert [i.dtype for i in indices_of(y)] == [tn.int32] * 2
        assert tn.equal(y.to_dense(), dense)
    assert [i.dtype for i in indices_of(x + x)] == [tn.int32] * 2
    assert x.to_sparse().coalesce().indices().dtype is tn.int64


def test_to_sparse_of_no_sparse_layout():
    dense = tn.eye(2)
    assert dense.to_sparse(layout=tn.strided) is dense
    for x in (dense.to_sparse(), dense.to_sparse_csr()):
        assert tn.equal(x.to_sparse(layout=tn.strided), dense)
        with pytest.raises(RuntimeError, match="takes no"):
            x.to_sparse(layout=tn.strided, dense_dim=0)


def test_infinities_of_a_sign():
    dense = tn.tensor([[0, tn.inf, -tn.inf], [1, 0, tn.nan]])
    for x in (dense.to_sparse(), dense.to_sparse_csr(), dense.to_sparse_csc()):
        for fn in (tn.isposinf, tn.isneginf):
            assert fn(x).layout is x.layout and tn.equal(fn(x).to_dense(), fn(dense))
        assert tn.positive(x) is x


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_reach_the_values_of_compressed_tensors(layout: str):
    x = compressed(tn.arange(1.0, 25.0).view(4, 6), layout)
    for make in (
        lambda *args: tn.sparse_compressed_tensor(*args, (4, 6), layout=x.layout),
        lambda *args: getattr(tn, f"sparse_{layout}_tensor")(*args, (4, 6)),
    ):
        values = x.values().clone().requires_grad_()
        made = make(*indices_of(x), values * 3)
        (made.to_dense() * tn.arange(24.0).view(4, 6)).sum().backward()
        weights = compressed(tn.arange(24.0).view(4, 6), layout)
        assert tn.equal(values.grad, 3 * (weights + x * 0).values())


def test_arguments_are_checked_by_name():
    checks, t = all_of_them(), tn.tensor
    good = (t([0, 1, 2]), t([0, 1]), tn.ones(2), (2, 2))
    bad = (t([0, 1, 3]), *good[1:])
    for layout in LAYOUTS[:2]:
        check = checks[f"_validate_sparse_{layout}_tensor_args"]
        check(*good)
        with pytest.raises(RuntimeError, match="is not satisfied"):
            check(*bad)
    whole = checks["_validate_sparse_compressed_tensor_args"]
    whole(*good, tn.sparse_csc)
    with pytest.raises(RuntimeError, match="is not satisfied"):
        whole(*bad, layout=tn.sparse_csr)
    check = checks["_validate_sparse_coo_tensor_args"]
    check(t([[1, 0]]), tn.ones(2), (2,))
    with pytest.raises(RuntimeError, match="is_coalesced"):
        check(t([[1, 0]]), tn.ones(2), (2,), True)
    with pytest.raises(RuntimeError, match="found index 5"):
        check(t([[1, 5]]), tn.ones(2), size=(2,))


# ---- Joined, multiplied and made like others -----------------------------------------------------


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_tensors_with_dense_dimensions_are_joined_along_any(dim):
    def parts(full: tn.Tensor, sparse_dim: int) -> list[tn.Tensor]:
        halves = [full.narrow(dim, 0, 1), full.narrow(dim, 1, full.shape[dim] - 1)]
        return [h.to_sparse(sparse_dim) for h in halves]

    full = tn.tensor([[[1.0, 0, 2], [0, 0, 0], [3, 4, 0]], [[0, 0, 0], [5, 0, 6], [0, 0, 0]]])
    for sparse_dim in (1, 2):
        joined = tn.cat(parts(full, sparse_dim), dim)
        assert joined.sparse_dim() == sparse_dim
        assert tn.equal(joined.to_dense(), full)


def test_gradients_pass_a_join_along_a_dense_dimension():
    places, weight = tn.tensor([[0, 2]]), tn.arange(12.0).view(3, 4)
    one = tn.ones(2, 1, requires_grad=True)
    two = tn.ones(2, 3, requires_grad=True)
    made = [tn.sparse_coo_tensor(places, v, (3, v.shape[1])) for v in (one, two)]
    (tn.cat(made, 1).to_dense() * weight).sum().backward()
    assert one.grad.tolist() == [[0.0], [8.0]]
    assert two.grad.tolist() == [[1.0, 2.0, 3.0], [9.0, 10.0, 11.0]]


@pytest.mark.parametrize("layout", ["coo", *LAYOUTS])
def test_addmv_takes_a_sparse_matrix(layout):
    matrix = tn.tensor([[0.0, 2, 0, 1, 0, 3], [0, 0, 0, 4, 5, 0]])
    sparse = matrix.to_sparse() if layout == "coo" else compressed(matrix, layout)
    vector, start = tn.arange(6.0), tn.tensor([10.0, 20.0], requires_grad=True)
    vector.requires_grad_()
    got = tn.addmv(start, sparse, vector, beta=2, alpha=3)
    assert got.tolist() == [20 + 3 * (2 + 3 + 15), 40 + 3 * (12 + 20)]
    got.sum().backward()
    assert start.grad.tolist() == [2.0, 2.0]
    assert vector.grad.tolist() == (3 * matrix.sum(0)).tolist()
    out = tn.full((2,), tn.nan)
    tn.addmv(out, sparse, tn.arange(6.0), beta=0, out=out)
    assert out.tolist() == [20.0, 32.0]
    with pytest.raises(RuntimeError, match="expanded size"):
        tn.addmv(tn.ones(2, 2), sparse, tn.ones(6))
    with pytest.raises(RuntimeError, match="expanded size"):
        tn.addmm(tn.ones(2, 2, 3), sparse, tn.ones(6, 3))
    with pytest.raises(NotImplementedError, match="not the vectors"):
        tn.addmv(tn.ones(2), matrix, tn.ones(6).to_sparse())


@pytest.mark.parametrize("name", ["zeros_like", "ones_like", "empty_like", "rand_like"])
@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_a_tensor_like_a_sparse_one_is_strided_where_that_is_asked_for(name, layout):
    x = getattr(tn.eye(3, dtype=tn.float64), f"to_sparse_{layout}")()
    make = getattr(tn, name)
    for made in (make(x, layout=tn.strided), make(input=x, layout=tn.strided)):
        assert made.layout is tn.strided and made.shape == x.shape and made.dtype == tn.float64
    made = make(x, layout=tn.strided, dtype=tn.float32, requires_grad=True)
    assert made.dtype == tn.float32 and made.requires_grad
    assert make(tn.ones(2), layout=tn.strided).layout is tn.strided
    assert tn.full_like(x, 3, layout=tn.strided).tolist() == [[3.0] * 3] * 3
    assert x.new_ones((2,), layout=tn.strided).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_random_numbers_at_the_places_of_another(layout):
    x = compressed(tn.eye(6), layout)
    for make in (tn.rand_like, tn.randn_like):
        tn.manual_seed(3)
        made = make(x)
        tn.manual_seed(3)
        assert tn.equal(made.values(), make(x.values()))
        assert made.layout is x.layout and tn.equal(indices_of(made)[1], indices_of(x)[1])
    with pytest.raises(NotImplementedError, match="randn_like.*sparse_coo"):
        tn.randn_like(tn.eye(3).to_sparse())


def test_copies_and_data_of_another_layout_are_refused():
    strided, coo, csr = tn.eye(4), tn.eye(4).to_sparse(), tn.eye(4).to_sparse_csr()
    csc = tn.eye(4).to_sparse_csc()
    with pytest.raises(RuntimeError, match="different layouts.*is SparseCsr and.*is SparseCsc"):
        csr.copy_(csc)
    with pytest.raises(RuntimeError, match="expected sparse compressed tensor layout but got Spar"):
        coo.copy_(csr)
    with pytest.raises(RuntimeError, match="between dense and sparse Tensors is not implemented"):
        strided.copy_(coo)
    for to, value in ((strided, coo), (coo, strided), (csr, coo), (strided, csr)):
        with pytest.raises(RuntimeError, match="have incompatible tensor type"):
            to.data = value
    coo.data = tn.ones(2, 2).to_sparse()
    csr.data = csc
    assert coo.shape == (2, 2) and csr.layout is tn.sparse_csc


def test_the_number_in_a_sparse_tensor_of_one_element():
    twice = tn.sparse_coo_tensor([[0, 0]], [1.5, 2.0], (1,))
    assert twice.item() == 3.5 and float(twice) == 3.5 and bool(twice)
    assert not tn.sparse_coo_tensor([[0, 0]], [1.0, -1.0], (1,))
    assert tn.sparse_coo_tensor((1,)).item() == 0 and not tn.sparse_coo_tensor((1,)).is_nonzero()
    assert tn.tensor(3, dtype=tn.int8).to_sparse().item() == 3
    assert tn.tensor([[True]]).to_sparse_csr().item() is True
    leaf = tn.tensor([2.0], requires_grad=True)
    assert tn.sparse_coo_tensor([[0]], leaf, (1,)).item() == 2
    with pytest.raises(RuntimeError, match="more than one value"):
        bool(tn.eye(2)[0].to_sparse())


def test_a_product_with_a_sparse_number():
    x = tn.tensor([[0.0, 2.0], [3.0, 0.0]])
    number = tn.tensor(4.0, requires_grad=True)
    for a in (x.to_sparse(), x.to_sparse_csr()):
        number.grad = None
        for r in (a * number.to_sparse(), number.to_sparse() * a):
            assert r.layout is a.layout and tn.equal(r.to_dense(), x * 4)
            r.sum().backward()
        assert number.grad.to_dense().item() == 10
    assert (x.to_sparse() * tn.sparse_coo_tensor(())).to_dense().count_nonzero() == 0


@pytest.mark.parametrize("make", [tn.Tensor.new_zeros, tn.Tensor.new_empty])
def test_new_sparse_tensors_have_no_elements(make):
    coo = tn.eye(3, dtype=tn.float64).to_sparse()
    made = make(coo, (2, 3, 4))
    assert made.layout is tn.sparse_coo and made.dtype == tn.float64 and made.shape == (2, 3, 4)
    assert made._nnz() == 0 and made.is_coalesced() and made.sparse_dim() == 3
    for layout in ("csr", "csc"):
        x = compressed(tn.eye(3), layout)
        made = make(x, (2, 3, 4), dtype=tn.int32)
        assert made.layout is x.layout and made.dtype == tn.int32 and made.shape == (2, 3, 4)
        assert tn.equal(made.to_dense(), tn.zeros(2, 3, 4, dtype=tn.int32))
        assert made.values().shape == (2, 0)
        assert indices_of(made)[0].shape == (2, 4 if layout == "csr" else 5)
        with pytest.raises(RuntimeError, match=r"sizes \[3\] alone"):
            make(x, (3,))
    with pytest.raises(RuntimeError, match="sparse_bsr.*alone"):
        make(compressed(tn.eye(6), "bsr"), (6, 6))
    for sizes in ((2, -1), (-1, 2)):
        for x in (coo, compressed(tn.eye(3), "csr"), compressed(tn.eye(3), "csc")):
            with pytest.raises(RuntimeError):
                make(x, sizes)


def test_the_old_constructor_keeps_the_layout():
    x = tn.eye(3, dtype=tn.float64).to_sparse()
    assert x.new().layout is tn.sparse_coo and x.new().shape == (0,)
    assert x.new(2, 3).shape == x.new(tn.Size((2, 3))).shape == (2, 3)
    made = x.new(tn.tensor([[0], [1]]), tn.tensor([5.0]), tn.Size((2, 4)))
    assert made.to_dense()[0, 1] == 5 and made.shape == (2, 4)
    with pytest.raises(TypeError, match="only accepts sizes"):
        x.new([1, 2])
    with pytest.raises(RuntimeError, match="sparse_csr"):
        x.to_sparse_csr().new()


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_a_memory_format_is_one_of_strided_tensors(layout):
    x = getattr(tn.eye(3), f"to_sparse_{layout}")()
    for make in (tn.empty_like, tn.zeros_like):
        with pytest.raises(RuntimeError, match="only supported by strided tensors"):
            make(x, memory_format=tn.contiguous_format)
        made = make(x, layout=tn.strided, memory_format=tn.contiguous_format)
        assert made.layout is tn.strided


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_that_a_tensor_has_may_be_named(layout):
    x = compressed(tn.eye(6), layout)
    for make in (tn.zeros_like, tn.empty_like):
        for made in (make(x, layout=x.layout), make(input=x, layout=x.layout)):
            assert made.layout is x.layout and made.shape == x.shape and made._nnz() == 0
    assert tn.equal(tn.ones_like(x, layout=x.layout).values(), tn.ones_like(x.values()))


def test_sizes_that_are_too_large_together() -> None:
    """Sizes that no number holds are refused before anything is made of them."""
    long = tn.sparse_coo_tensor(tn.tensor([[0]]), tn.tensor([1.0]), (2**60,))
    wide = tn.sparse_coo_tensor(tn.zeros(1, 0, dtype=tn.int64), tn.zeros(0, 2**62), (0, 2**62))
    for joined, dim in (([long] * 8, 0), ([wide] * 2, 1)):
        with pytest.raises(ValueError, match="cat: the result is too large"):
            tn.cat(joined, dim)
    assert tn.cat([long] * 3).shape == (3 * 2**60,)
    for layout, size in ((tn.sparse_csr, (2**63 - 1, 2)), (tn.sparse_csc, (2, 2**63 - 1))):
        with pytest.raises(ValueError, match="larger than the address space"):
            tn.eye(3).to_sparse(layout=layout).new_zeros(size)


def test_what_has_the_layout_already_is_itself() -> None:
    x = tn.arange(16.0).reshape(4, 4)
    rows, blocks = x.to_sparse_csr(), x.to_sparse_bsr((2, 2))
    assert rows.to_sparse_csr().values().data_ptr() == rows.values().data_ptr()
    assert blocks.to_sparse_bsr((2, 2)).values().data_ptr() == blocks.values().data_ptr()
    cut = blocks.to_sparse_bsr((1, 2))
    assert cut.values().shape[1:] == (1, 2) and cut.to_dense().equal(x)


def test_sizes_are_found_where_none_is_given() -> None:
    begins, at, values = [0, 1, 3], [0, 3, 1], tn.tensor([1.0, 2.0, 3.0])
    assert tn.sparse_csr_tensor(begins, at, values).shape == (2, 4)
    assert tn.sparse_csc_tensor(begins, at, values).shape == (4, 2)
    blocks = values[:, None, None].expand(3, 2, 3).contiguous()
    assert tn.sparse_bsr_tensor(begins, at, blocks).shape == (4, 12)
    assert tn.sparse_bsc_tensor(begins, at, blocks).shape == (8, 6)
    assert tn.sparse_csr_tensor([0, 0], [], tn.ones(0)).shape == (1, 0)
    deep = tn.sparse_csr_tensor([begins] * 2, [at] * 2, tn.ones(2, 3, 5))
    assert deep.shape == (2, 2, 4, 5)
