"""Meshes and tensors of one process, which need no engine."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator

import pytest
import tenon as tn
from tenon import distributed as dist
from tenon.distributed import tensor as dt
from tenon.distributed.device_mesh import DeviceMesh, init_device_mesh
from tenon.distributed.tensor import _api
from tenon.distributed.tensor.placement_types import _StridedShard
from tenon.io.errors import FileFormatError


@pytest.fixture
def mesh(monkeypatch: pytest.MonkeyPatch) -> Iterator[DeviceMesh]:
    """What begins a group of the only process if there is none."""
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1")):
        monkeypatch.setenv(name, value)
    assert not dist.is_initialized()
    made = init_device_mesh("cpu", (1, 1), mesh_dim_names=("rows", "columns"))
    assert dist.is_initialized()
    yield made
    dist.destroy_process_group()


def test_meshes(mesh: DeviceMesh) -> None:
    assert (mesh.ndim, mesh.size(), tuple(mesh.shape)) == (2, 1, (1, 1))
    assert mesh.get_coordinate() == (0, 0) and mesh["rows"].ndim == 1
    with pytest.raises(RuntimeError, match="not be bigger than default world size 1, but found 6"):
        init_device_mesh("cpu", (2, 3))
    with pytest.raises(RuntimeError, match=r"a mesh of \(0,\) has no ranks"):
        init_device_mesh("cpu", (0,))


def test_tensors_that_are_made(mesh: DeviceMesh) -> None:
    where = {"device_mesh": mesh, "placements": [dt.Shard(0), dt.Replicate()]}
    for made, shape, number in (
        (dt.zeros(4, 3, **where), (4, 3), 0), (dt.ones((4, 3), **where), (4, 3), 1),
        (dt.zeros(5, **where), (5,), 0), (dt.empty([2], **where), (2,), None),
        (dt.full((2, 2), 7.0, **where), (2, 2), 7), (dt.full((3,), 0.0, **where), (3,), 0),
        (dt.full((3,), fill_value=0.0, **where), (3,), 0),
        (dt.full((3,), fill_value=2, dtype=tn.int64, device_mesh=mesh), (3,), 2),
    ):  # fmt: skip
        assert isinstance(made, dt.DTensor) and tuple(made.shape) == shape
        assert number is None or (made.to_local() == number).all()
    for size in (((3,),), ((3,), 1.0, 2.0)):
        with pytest.raises(TypeError, match="takes a size and a fill_value"):
            dt.full(*size, **where)
    tn.manual_seed(3)
    drawn = dt.rand(2, 3, **where)
    tn.manual_seed(3)
    assert tn.equal(drawn.to_local(), tn.rand(2, 3)) and not drawn.requires_grad
    assert dt.randn(2, requires_grad=True, **where).requires_grad


# What stands at the ends of a rule: the last dimension, one that is counted from the end, none.
ENDS = {
    "flatten(-1)": lambda x: x.flatten(-1), "flatten(0, -2)": lambda x: x.flatten(0, -2),
    "flatten(1, 1)": lambda x: x.flatten(1, 1), "row.flatten": lambda x: x[0, 0].flatten(-1),
    "number.flatten": lambda x: x.sum().flatten(), "unflatten": lambda x: x.unflatten(-1, (2, -1)),
    "unflatten(0)": lambda x: x.unflatten(0, (1, 3)), "view": lambda x: x.view(6, 4),
    "reshape": lambda x: x.reshape(3, -1), "transpose": lambda x: x.transpose(0, -1),
    "permute": lambda x: x.permute(2, 0, -2), "t": lambda x: x[0].t(),
    "unsqueeze(-1)": lambda x: x.unsqueeze(-1), "unsqueeze(3)": lambda x: x.unsqueeze(3),
    "unsqueeze(-4)": lambda x: x.unsqueeze(-4), "squeeze": lambda x: x[:, :1].squeeze(),
    "squeeze(-2)": lambda x: x[:, :1].squeeze(-2), "squeeze(0)": lambda x: x.squeeze(0),
    "expand": lambda x: x[:, :1].expand(3, 5, -1), "split": lambda x: x.split([1, 3], -1)[1],
    "chunk": lambda x: x.chunk(3, 2)[1], "tensor_split": lambda x: x.tensor_split([1, 2], 0)[1],
    "cat": lambda x: tn.cat([x, x * 2], -1), "stack(-1)": lambda x: tn.stack([x, -x], -1),
    "stack(3)": lambda x: tn.stack([x, -x], 3), "softmax": lambda x: x.softmax(-3),
    "cumsum": lambda x: x.cumsum(2), "flip": lambda x: x.flip(0, -1),
    "sort": lambda x: x.sort(-1, descending=True)[0], "topk": lambda x: x.topk(2, 0)[1],
    "layer_norm": lambda x: tn.nn.functional.layer_norm(x, (2, 4)),
    "matmul": lambda x: x @ x.transpose(1, 2), "sum": lambda x: x.sum((0, -1), keepdim=True),
    "sum()": lambda x: x.sum(), "mean": lambda x: x.mean(-2), "mean()": lambda x: x.mean(),
    "amax": lambda x: x.amax((1, 2)), "max": lambda x: x.max(-1)[1], "min": lambda x: x.min(),
    "argmax": lambda x: x.argmax(1), "var": lambda x: x.var(0), "any": lambda x: (x > 1).any(2),
    "columns": lambda x: x[:, :, 1:3], "last": lambda x: x[..., -1],
    "first": lambda x: x[0, ..., :2],
    "new": lambda x: x[None, :, None], "every": lambda x: x[::2, 1], "whole": lambda x: x[0:3, -9:],
    "backwards": lambda x: x[:, 0, -2:], "mask": lambda x: x[x > 0], "list": lambda x: x[[2, 0]],
    "unbind(-1)": lambda x: x.unbind(-1)[3], "unbind(0)": lambda x: x.unbind()[1],
    "tensor_split(-1)": lambda x: x.tensor_split(3, -1)[2], "hsplit": lambda x: x.hsplit(2)[1],
    "vsplit": lambda x: x.vsplit([1])[1], "repeat": lambda x: x.repeat(1, 2, 1),
    "repeat more": lambda x: x.repeat((2, 1, 1, 3)), "tile": lambda x: x.tile(2),
    "tile more": lambda x: x.tile((2, 1, 1, 2)), "hstack": lambda x: tn.hstack([x, x * 2]),
    "vstack": lambda x: tn.vstack([x, -x]), "dstack": lambda x: tn.dstack([x, x]),
    "flat stacks": lambda x: tn.hstack([x[0, 0], x[0, 1]]), "movedim": lambda x: x.movedim(0, -1),
    "moveaxis": lambda x: x.moveaxis((0, -1), (1, 0)), "select": lambda x: x.select(-1, -2),
    "narrow": lambda x: x.narrow(-1, 1, 3), "expand_as": lambda x: x[:, :1].expand_as(x),
    "broadcast_to": lambda x: x.broadcast_to(2, 3, 2, 4),
    "flips": lambda x: x.fliplr() + x.flipud(),
    "cummax": lambda x: x.cummax(-1)[1], "cummin": lambda x: x.cummin(0)[0],
    "argsort": lambda x: x.argsort(), "argsort(0)": lambda x: x.argsort(0, descending=True),
    "roll": lambda x: x.roll((1, -1), (0, -1)), "roll all": lambda x: x.roll(3),
    "pad": lambda x: tn.nn.functional.pad(x, (1, 0, 0, 2)),
    "pad first": lambda x: tn.nn.functional.pad(x, (0, 0, 0, 0, 1, 1), value=2.0),
    "kthvalue": lambda x: x.kthvalue(2)[0],
    "kthvalue(0)": lambda x: x.kthvalue(1, 0, True)[0], "median": lambda x: x.median(1)[0],
    "median()": lambda x: x.median(), "nanmedian": lambda x: x.nanmedian(-1, True)[0],
    "mode": lambda x: x.mode()[0], "norm(dim)": lambda x: x.norm(dim=(0, -1)),
    "vector_norm": lambda x: tn.linalg.vector_norm(x, 3, -1, True),
    "matrix_norm": lambda x: tn.linalg.matrix_norm(x), "matrix_norm(0, 1)": lambda x: (
        tn.linalg.matrix_norm(x, "fro", (0, 1))),
    "cosine": lambda x: tn.nn.functional.cosine_similarity(x, x * x, -1),
    "one_hot": lambda x: tn.nn.functional.one_hot((x + 4).long(), 12),
    "one_hot of all": lambda x: tn.nn.functional.one_hot((x + 4).long()),
    "gather": lambda x: x.gather(-1, x.argsort(-1)[..., :2]),
    "take_along_dim": lambda x: x.take_along_dim(x.argsort(0), 0),
    "scatter": lambda x: x.scatter(1, x.argsort(1), 5.0),
    "scatter_add": lambda x: x.scatter_add(2, x.argsort(2), x), "vector": lambda x: x @ x[0, 0],
    "rows": lambda x: x[:, 0].mv(x[0, 1]), "vectors": lambda x: tn.dot(x[0, 0], x[1, 1]),
    "left": lambda x: x[0, :, 0] @ x, "einsum": lambda x: tn.einsum("abc,dbc->ad", x, x),
    "letters": lambda x: tn.einsum("abc,abc->b", x, x), "trace": lambda x: tn.einsum(
        "aab->ab", x[:2]), "dots": lambda x: tn.einsum("a...,b...->...ab", x, x),
    "three": lambda x: tn.einsum("abc,bd,dc->a", x, x[0, :, :2], x[1, :2]),
    "tensordot": lambda x: tn.tensordot(x, x, ([0, -1], [0, 2])), "mse": lambda x: (
        tn.nn.functional.mse_loss(x, x * 2)), "l1": lambda x: tn.nn.functional.l1_loss(
        x, x * 2, reduction="sum"), "huber": lambda x: tn.nn.functional.huber_loss(
        x, -x, reduction="none"), "cross_entropy": lambda x: tn.nn.functional.cross_entropy(
        x, x.argmax(1)), "smoothed": lambda x: tn.nn.functional.cross_entropy(
        x, x.argmax(1), label_smoothing=0.1), "count": lambda x: x.count_nonzero(),
    "count(0)": lambda x: x.count_nonzero(0), "max()": lambda x: x.max() - x.amin((0, 2)),
    "complex": lambda x: tn.complex(x, -x),
    "bucketize": lambda x: tn.bucketize(x, x[0, 0].sort()[0]),
    "row": lambda x: x + x[0, 0], "column": lambda x: x * x[:, :1, :1], "number": lambda x: 2 - x,
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_rules_at_their_ends(mesh: DeviceMesh, name: str) -> None:
    plain = (tn.arange(24.0) * 7 % 11 - 4).reshape(3, 2, 4)
    want = ENDS[name](plain)
    for placements in ([dt.Shard(0), dt.Replicate()], [dt.Replicate(), dt.Shard(2)]):
        x = dt.DTensor.from_local(plain, mesh, placements)
        got = ENDS[name](x)
        assert isinstance(got, dt.DTensor) and got.shape == want.shape
        tn.testing.assert_close(got.full_tensor(), want)
    whole = dt.DTensor.from_local(plain, mesh)
    assert [p.is_replicate() for p in whole.placements] == [True, True]


# How results lie, as PyTorch says, of e (6, 4), o (5, 4) and c (6, 3, 4), cut in dimension 0, and
# d (3, 6, 4), cut in dimension 1. r (4, 4), v (4) and i (2) are whole; j (6, 2) and t (6) are cut.
LIES = {
    "e.mean()": "avg", "e.mean(0)": "avg", "e.mean(1)": 0, "e.max()": "max", "o.amin(0)": "min",
    "e.mean() * 2": "avg", "e.mean() + 1": "avg", "e.mean(0) + v": "avg", "e.sum(0) * v": "sum",
    "torch.count_nonzero(e)": "sum", "torch.count_nonzero(d, 0)": 0, "o[:, 1:3]": 0, "o[..., 1]": 0,
    "o[None]": 1, "o[:, None, -1]": 0, "c[:, 1:, 0]": 0, "d[0]": 0, "d[:, :, 0]": 1, "d[0:2]": 1,
    "d[-1, :, None]": 0, "e[0:6, ::2]": 0, "e.narrow(1, 0, 2)": 0, "d.select(0, -1)": 0,
    "e.gather(1, j)": 0, "e.take_along_dim(j, 1)": 0, "e.scatter(1, j, 0.0)": 0,
    "e.scatter_add(-1, j, e[:, :2])": 0, "e.index_select(-1, i)": 0, "e.repeat(1, 2)": 0,
    "e.repeat(2, 1, 3)": 1, "e.tile(2)": 0, "e.unbind(1)[0]": 0, "e.unbind(-1)[3]": 0,
    "d.unbind()[1]": 0, "e.tensor_split(3, 1)[1]": 0, "e.hsplit(2)[0]": 0, "d.vsplit(3)[1]": 1,
    "e.split(3, 1)[1]": 0, "e.roll(1, 1)": 0, "d.roll((1, 2), (0, -1))": 1, "e.mv(v)": 0,
    "v @ e.t()": 0, "e @ v": 0, "e.t() @ e[:, 0]": "sum", "c @ v": 0, "v @ d.mT": 1,
    "F.pad(d, (1, 0))": 1, "F.pad(d, (1, 0, 0, 0, 1, 1))": 1, "F.pad(e, (2, 1), value=3.0)": 0,
    "c.movedim(0, 2)": 2, "c.moveaxis((0, 1), (1, 0))": 1, "c.permute(1, 2, 0)": 2, "c.mT": 0,
    "torch.einsum('ij,ij->', e, e)": "sum", "torch.einsum('bij,jk->bik', c, r)": 0,
    "torch.einsum('bij,bkj->bik', c, c)": 0, "torch.einsum('bij->jb', c)": 1,
    "torch.einsum('...ij,jk', c, r)": 0, "torch.einsum('ij,jk,kl', e, r, r)": 0,
    "torch.einsum('ij,ik->jk', e, e)": "sum", "torch.einsum('bi,bi->bi', e, e)": 0,
    "torch.einsum('b,i->bi', e[:, 0], v)": 0, "torch.tensordot(e, r, 1)": 0,
    "torch.hstack([e, e])": 0, "torch.column_stack([e, e])": 0, "torch.vstack([d, d])": 1,
    "torch.dstack([c, c])": 0, "torch.stack([e, e], 0)": 1, "torch.cat([e, e], 1)": 0,
    "e.expand_as(e)": 0, "e.broadcast_to(2, 6, 4)": 1, "torch.broadcast_tensors(e, e)[1]": 0,
    "e.fliplr()": 0, "d.flipud()": 1, "e.cummax(1)[0]": 0, "d.cummin(0)[1]": 1, "e.argsort()": 0,
    "d.argsort(0)": 1, "e.kthvalue(1, 1)[1]": 0, "e.kthvalue(2)[0]": 0,
    "d.kthvalue(1, 0, True)[0]": 1, "e.median(1)[0]": 0, "d.nanmedian(0)[1]": 0,
    "e.mode()[0]": 0, "e.norm(dim=1)": 0,
    "d.norm(dim=(0, -1))": 0, "torch.linalg.vector_norm(d, 3, 0, True)": 1,
    "torch.linalg.matrix_norm(c)": 0, "F.cosine_similarity(e, e * e)": 0, "F.one_hot(t, 4)": 0,
    "F.cosine_similarity(d, d.abs(), 0)": 0, "torch.bucketize(e, v)": 0, "torch.complex(e, e)": 0,
    "torch.polar(e, e)": 0, "F.mse_loss(e, e * 2)": "avg",
    "F.l1_loss(e, -e, reduction='sum')": "sum",
    "F.huber_loss(e, -e)": "avg", "F.huber_loss(e, -e, 'none')": 0,
    "F.binary_cross_entropy_with_logits(e, e.sigmoid(), reduction='sum')": "sum",
    "F.cross_entropy(e, t, reduction='none')": 0, "F.nll_loss(e, t, reduction='none')": 0,
}  # fmt: skip


def numbers(*shape: int) -> tn.Tensor:
    return (tn.arange(math.prod(shape), dtype=tn.float64) * 7 % 11 / 4 - 1.1).reshape(shape)


def of_two_ranks() -> DeviceMesh:
    """What rank 0 of two has, without another: an exchange is an error."""
    mesh = DeviceMesh.__new__(DeviceMesh)
    mesh.device_type, mesh.mesh, mesh.mesh_dim_names = "cpu", tn.tensor([0, 1]), None
    mesh._coordinate, mesh._groups, mesh._root = (0,), [object()], None
    return mesh


@pytest.mark.parametrize("text", LIES)
def test_what_is_cut_stays_cut(text: str) -> None:
    two = of_two_ranks()
    whole = {
        "e": (numbers(6, 4), 0), "o": (numbers(5, 4), 0), "c": (numbers(6, 3, 4), 0),
        "d": (numbers(3, 6, 4), 1), "r": (numbers(4, 4), None),
        "v": (tn.arange(4.0).double(), None),
        "i": (tn.tensor([0, 2]), None), "t": (tn.tensor([0, 1, 2, 3, 0, 1]), 0),
        "j": (tn.tensor([[0, 1], [2, 3], [1, 0]] * 2), 0),
    }  # fmt: skip

    def part(x: tn.Tensor, dim: int | None, rank: int = 0) -> tn.Tensor:
        return x if dim is None else x.chunk(2, dim)[rank].clone()

    def cut(x: tn.Tensor, dim: int | None) -> dt.DTensor:
        place = dt.Replicate() if dim is None else dt.Shard(dim)
        return dt.DTensor.from_local(part(x, dim), two, [place], shape=x.shape)

    def run(given: dict[str, tn.Tensor]) -> tn.Tensor:
        return eval(text, {"torch": tn, "F": tn.nn.functional}, given)

    want = run({n: x for n, (x, _) in whole.items()})
    got = run({n: cut(x, dim) for n, (x, dim) in whole.items()})
    assert isinstance(got, dt.DTensor) and got.shape == want.shape
    if isinstance(LIES[text], int):
        assert got.placements == (dt.Shard(LIES[text]),)
        mine = part(want, LIES[text])
    else:
        assert got.placements == (dt.Partial(LIES[text]),)
        mine = run({n: part(x, dim) for n, (x, dim) in whole.items()})
        other = run({n: part(x, dim, 1) for n, (x, dim) in whole.items()})
        both = {"avg": (mine + other) / 2, "sum": mine + other, "max": tn.maximum(mine, other),
                "min": tn.minimum(mine, other)}[LIES[text]]  # fmt: skip
        tn.testing.assert_close(both, want)
    tn.testing.assert_close(got.to_local(), mine)


WRONG = (
    "e.movedim(0, 5)", "e.movedim((0, 0), (0, 1))", "e.movedim((0, 1), (1, 1))",
    "e.movedim((0, 1), 0)", "e.select(7, 0)", "e.select(1, 9)", "e.select(0.5, 0)",
    "e.narrow(1, 3, 9)", "e.narrow(1, 0.5, 1)", "e.narrow(4, 0, 1)", "e.unbind(5)",
    "e.tensor_split(2, 7)", "e.repeat(2)", "e.repeat(2.5, 1)", "e.roll(1, 9)", "e.roll((1, 2), 0)",
    "e[1, 2, 3]", "e[9]", "e[..., ..., 0, 0]", "F.pad(e, (1,))", "F.pad(e, (1,) * 6)",
    "e.cummax(4)", "e.argsort(9)", "e.index_select(3, i)", "e.gather(5, j)",
    "e.scatter(0.5, j, 1.0)",
    "e.gather(1, j[0])", "e.kthvalue(9, 1)", "e.median(4)", "e.norm(dim=7)", "e.norm(dim=(0, 0.5))",
    "F.cosine_similarity(e, e, 5)", "F.cosine_similarity(e, v[:3])", "e @ v[:3]", "v @ e",
    "v.dot(i)",
    "torch.einsum('ij,jk', e)", "torch.einsum('ij,jk', e, e)", "torch.einsum('ijk', e)",
    "torch.einsum('ij->ik', e)", "torch.einsum('ij->ii', e)", "torch.tensordot(e, e, 1)",
    "torch.tensordot(e, e, ([0], [0, 1]))", "F.mse_loss(e, e, reduction='most')",
    "F.cross_entropy(e, i)", "F.cross_entropy(e, t, reduction='most')", "torch.hstack([e, v])",
    "e.expand_as(v)", "e.broadcast_to(4)", "v.fliplr()", "e.mean(5)", "e.amax(3)",
)  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_wrong_calls_are_those_of_plain_tensors(mesh: DeviceMesh, text: str) -> None:
    plain = {
        "e": numbers(6, 4), "v": numbers(4), "i": tn.tensor([0, 2]),
        "t": tn.tensor([0, 1, 2, 3, 0, 1]), "j": tn.tensor([[0, 1], [2, 3], [1, 0]] * 2),
    }  # fmt: skip
    cut = {
        n: dt.distribute_tensor(x, mesh, [dt.Shard(0), dt.Replicate()]) for n, x in plain.items()
    }
    names = {"torch": tn, "F": tn.nn.functional}
    with pytest.raises((RuntimeError, TypeError, ValueError, IndexError)) as alone:
        eval(text, names, plain)
    with pytest.raises(alone.type):
        eval(text, names, cut)


def test_functions_of_parts(mesh: DeviceMesh) -> None:
    from tenon.distributed.tensor.experimental import local_map

    cut, whole = [dt.Shard(0), dt.Replicate()], [dt.Replicate()] * 2
    x = dt.distribute_tensor(numbers(4, 3), mesh, cut).requires_grad_()

    def both(a: tn.Tensor, pair: tuple[tn.Tensor, int]) -> tuple[tn.Tensor, int]:
        assert type(a) is tn.Tensor
        return a * pair[1] + pair[0], pair[1]

    call = local_map(both, (cut, None), (cut, cut, None))
    got, times = call(x, (x, 3))
    assert got.placements == tuple(cut) and times == 3
    tn.testing.assert_close(got.full_tensor(), numbers(4, 3) * 4)
    got.sum().backward()
    assert (x.grad.full_tensor() == 4).all()
    plain = numbers(2, 2)
    assert type(call(plain, (plain, 2))[0]) is tn.Tensor  # no DTensor goes in

    @local_map(out_placements=whole, in_placements=(whole,), redistribute_inputs=True)
    def total(a: tn.Tensor) -> tn.Tensor:
        return a.sum(0)

    assert total(x).placements == tuple(whole)
    for wrong, kind, text in (
        (
            lambda: local_map(both, (cut, None), (whole, cut, None))(x, (x, 3)),
            ValueError,
            "lies as",
        ),
        (
            lambda: local_map(both, (cut, None), (None, cut, None))(x, (x, 3)),
            AssertionError,
            "None",
        ),
        (lambda: local_map(both, (cut, None), (cut,))(x, (x, 3)), AssertionError, "1 entries"),
        (lambda: local_map(both, cut)(x, (x, 3)), AssertionError, "one PlacementType"),
        (lambda: local_map(both, (cut, cut))(x, (x, 3)), AssertionError, "Non-tensor output"),
    ):
        with pytest.raises(kind, match=text):
            wrong()


def test_optimizers_that_step_in_backward() -> None:
    from tenon.distributed import optim

    def layers() -> tn.nn.Module:
        tn.manual_seed(0)
        return tn.nn.Sequential(tn.nn.Linear(3, 4), tn.nn.Tanh(), tn.nn.Linear(4, 2))

    ours, plain, x = layers(), layers(), tn.rand(5, 3)
    options = {"lr": 0.1, "momentum": 0.9}
    optim._apply_optimizer_in_backward(tn.optim.SGD, ours.parameters(), options)
    optim._apply_optimizer_in_backward(tn.optim.SGD, [ours[2].bias], {"lr": 0.5})
    assert len(optim._get_in_backward_optimizers(ours)) == 5
    steps = tn.optim.SGD(plain.parameters(), **options), tn.optim.SGD([plain[2].bias], lr=0.5)
    for _ in range(3):
        ours(x).pow(2).sum().backward()
        plain(x).pow(2).sum().backward()
        for optimizer in steps:
            optimizer.step()
        for optimizer in steps:
            optimizer.zero_grad()
        for p, q in zip(ours.parameters(), plain.parameters(), strict=True):
            assert p.grad is None
            tn.testing.assert_close(p, q)
    alone = layers()
    optim._apply_optimizer_in_backward(tn.optim.SGD, alone.parameters(), options, False)
    alone(x).sum().backward()
    assert all(p.grad is not None for p in alone.parameters())


def test_a_module_is_distributed_once(mesh: DeviceMesh) -> None:
    layer = dt.distribute_module(tn.nn.Linear(2, 2), mesh)
    assert isinstance(layer.weight, dt.DTensor)
    with pytest.raises(RuntimeError, match="only be called once on a module"):
        dt.distribute_module(layer, mesh)


def saved(**given: object) -> io.BytesIO:
    """A file of a DTensor whose description says something else."""
    parts = {
        "device_type": "cpu", "ranks": (0, 1), "sizes": (2,), "names": ("a",), "place": (0,),
        "placements": (("shard", 0),), "shape": (4, 3),
    }  # fmt: skip
    parts.update({k: v for k, v in given.items() if k in parts})
    local = given.get("local", tn.ones(2, 3))

    class Said:
        def __reduce__(self) -> object:
            return _api._rebuild, (local, tuple(parts.values()), True, given.get("cls", False))

    file = io.BytesIO()
    tn.save({"d": Said()}, file)
    file.seek(0)
    return file


def test_a_file_without_its_processes() -> None:
    """A part is read anywhere; what needs the others says that they are not there."""
    read = tn.load(saved())["d"]
    assert read.to_local().tolist() == [[1.0] * 3] * 2 and read.shape == (4, 3)
    assert read.placements == (dt.Shard(0),) and read.requires_grad
    assert read.device_mesh.mesh_dim_names == ("a",) and read.device_mesh.shape == (2,)
    with pytest.raises(RuntimeError, match="this process has no groups of its ranks"):
        read.full_tensor()
    for text, place in (
        (("strided", 1, 2), _StridedShard(1, split_factor=2)), (("partial", "max"),
        dt.Partial("max")), (("replicate",), dt.Replicate()),
    ):  # fmt: skip
        assert tn.load(saved(placements=(text,)))["d"].placements == (place,)


def test_data_that_is_set_is_laid_out_as_it_comes(mesh: DeviceMesh) -> None:
    part = dt.distribute_tensor(tn.ones(4), mesh["rows"], [dt.Replicate()])
    part.data = dt.distribute_tensor(tn.zeros(2, 3), mesh["rows"], [dt.Shard(1)])
    assert part.placements == (dt.Shard(1),) and part.shape == (2, 3)
    assert part.full_tensor().tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize(
    "lie",
    [
        {"device_type": 3}, {"ranks": (0,)}, {"ranks": (0, 0)}, {"ranks": (-1, 0)}, {"ranks": 5},
        {"ranks": (), "sizes": ()}, {"sizes": (3,)}, {"sizes": (2.0,)}, {"names": ("a", "b")},
        {"names": (1,)}, {"names": 7}, {"place": (2,)}, {"place": (0, 0)}, {"place": (-1,)},
        {"placements": ()}, {"placements": (("shard", 2),)}, {"placements": (("shard", "x"),)},
        {"placements": (("shard",),)}, {"placements": (("replicate", 1),)},
        {"placements": (("partial", "mad"),)}, {"placements": (("strided", 0),)},
        {"placements": (("run", "code"),)}, {"placements": (3,)}, {"placements": None},
        {"shape": (4, -3)}, {"shape": (4,)}, {"shape": None}, {"local": [1.0]}, {"local": None},
    ],
)  # fmt: skip
def test_what_a_file_says_of_a_mesh_is_looked_at(lie: dict[str, object]) -> None:
    with pytest.raises(FileFormatError, match="_rebuild"):
        tn.load(saved(**lie))
