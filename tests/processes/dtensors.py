"""DTensor: every layout of the inputs of many computations, results and gradients against plain
tensors. Runs in two or four processes (a mesh of 2 x 2); `test_sharding.py` starts it."""

import copy
import io
import itertools
import pickle
import sys
import warnings

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from expected import expect
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

dist.init_process_group(sys.argv[1])
RANK, SIZE = dist.get_rank(), dist.get_world_size()
MESH = init_device_mesh("cpu", (SIZE,) if SIZE < 4 else (2, 2))


def numbers(*shape: int) -> torch.Tensor:
    values = np.random.default_rng(sum(shape) + 7 * len(shape)).standard_normal(shape)
    return torch.from_numpy(values)


def layouts(ndim: int) -> list[tuple]:
    one = [Replicate(), *(Shard(d) for d in range(ndim))]
    if MESH.ndim == 1:
        return [(p,) for p in one]
    pairs = list(itertools.product(one, one))
    twice = [(p, p) for p in one[1:]]
    return pairs[::2] if ndim < 2 else list(dict.fromkeys([*pairs[ndim % 3 :: 4], *twice]))


def close(got: torch.Tensor, want: torch.Tensor, what: str) -> None:
    assert tuple(got.shape) == tuple(want.shape), (what, got.shape, want.shape)
    np.testing.assert_allclose(
        got.detach().numpy(), want.detach().numpy(), 1e-9, 1e-11, err_msg=what
    )


def compare(what: str, fn, *shapes: tuple[int, ...]) -> None:
    """fn of DTensors in every layout is fn of the plain tensors, and so are its gradients."""
    plain = [numbers(*s).requires_grad_() for s in shapes]
    want = fn(*plain)
    weights = torch.linspace(1.0, 2.0, want.numel(), dtype=torch.float64).view(want.shape)
    (want * weights).sum().backward()
    for some in itertools.product(*(layouts(len(s)) for s in shapes)):
        text = f"{what} of {some}"
        given = [
            distribute_tensor(p.detach(), MESH, q).requires_grad_() for p, q in zip(plain, some)
        ]
        got = fn(*given)
        assert isinstance(got, DTensor), text
        close(got.full_tensor(), want, text)
        factor = distribute_tensor(weights, MESH, [Replicate()] * MESH.ndim)
        (got * factor).sum().backward()
        for p, g in zip(plain, given):
            assert g.grad.placements == g.placements
            close(g.grad.full_tensor(), p.grad, f"gradient of {text}")


def check_elementwise() -> None:
    compare("add", lambda a, b: a + b * 2, (4, 5), (4, 5))
    compare("broadcast", lambda a, b: (a - b) / (b * b + 1), (3, 4, 5), (4, 1))
    compare("chain", lambda a: F.gelu(torch.tanh(1 - a) * 3).pow(2), (5, 3))
    compare("where", lambda a, b: torch.where(a > 0, a, b), (4, 3), (3,))
    compare("dtype", lambda a: a.float().double() * 2, (4,))


def check_products() -> None:
    compare("matmul", lambda a, b: a @ b, (5, 4), (4, 6))
    compare("batch", lambda a, b: torch.matmul(a, b), (4, 5, 2), (2, 3))
    compare("linear", lambda x, w, b: F.linear(x, w, b), (4, 6), (8, 6), (8,))
    compare("addmm", lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), (3,), (4, 5), (5, 3))
    compare("sum of a product", lambda a, b: (a @ b) + (a @ b), (4, 4), (4, 3))
    if SIZE < 4:
        compare("bmm", lambda a, b: torch.bmm(a, b), (4, 3, 2), (4, 2, 5))
        compare("einsum", lambda a, b: torch.einsum("ij,kj->ik", a, b), (4, 3), (5, 3))


def check_reductions() -> None:
    compare("sum", lambda a: a.sum(), (5, 4))
    compare("sum 0", lambda a: a.sum(0), (5, 4))
    compare("mean", lambda a: a.mean(1, keepdim=True), (4, 5))
    compare("mean of all", lambda a: (a * a).mean(), (3, 5))
    compare("norm", lambda a: torch.linalg.vector_norm(a), (5, 4))
    compare("norm 3", lambda a: a.norm(3), (5, 4))
    compare("amax", lambda a: a.amax(0), (5, 4))
    compare("var", lambda a: a.var(0), (5, 4))
    compare("max", lambda a: a.max(1)[0], (4, 5))
    compare("logsumexp", lambda a: a.logsumexp(1), (4, 5))
    compare("cumsum", lambda a: a.cumsum(0), (4, 5))


def check_shapes() -> None:
    compare("view", lambda a: a.view(2, 2, 6), (4, 6))
    compare("heads", lambda a: a.view(3, 4, 2, 3).transpose(1, 2), (3, 4, 6))
    compare("merge", lambda a: a.reshape(3, -1), (3, 4, 2))
    compare("uneven", lambda a: a.view(6, 5), (2, 3, 5))
    compare("flatten", lambda a: a.flatten(1), (2, 4, 3))
    compare("transposed", lambda a: a.t() * 2, (4, 3))
    compare("permute", lambda a: a.permute(2, 0, 1), (4, 3, 2))
    compare("unsqueeze", lambda a: a.unsqueeze(1).expand(4, 3, 5) * 1, (4, 5))
    compare("squeeze", lambda a: a.squeeze(1), (4, 1, 3))
    compare(
        "chunk", lambda a: torch.cat([c * (i + 1) for i, c in enumerate(a.chunk(2, 1))]), (4, 6)
    )
    compare("split", lambda a: a.split([1, 3])[1], (4, 6))
    compare("stack", lambda a, b: torch.stack([a, b], 1), (4, 3), (4, 3))
    compare("index", lambda a: a[1:3, None, 0], (4, 3))


def loss(x: torch.Tensor) -> torch.Tensor:
    target = torch.tensor([1, 0, 2, 1])
    return F.cross_entropy(x, distribute_tensor(target, MESH) if isinstance(x, DTensor) else target)


def check_along_dimensions() -> None:
    compare("softmax", lambda a: a.softmax(-1), (4, 6))
    compare("layer_norm", lambda a, w, b: F.layer_norm(a, (6,), w, b), (4, 6), (6,), (6,))
    compare("rms_norm", lambda a, w: F.rms_norm(a, (6,), w), (4, 6), (6,))
    index = torch.tensor([[0, 3, 5], [2, 6, 0]])
    for where in layouts(2):
        fixed = distribute_tensor(index, MESH, where)
        plain = numbers(7, 4).requires_grad_()
        want = F.embedding(index, plain)
        (want * want).sum().backward()
        for q in layouts(2):
            table = distribute_tensor(plain.detach(), MESH, q).requires_grad_()
            got = F.embedding(fixed, table)
            close(got.full_tensor(), want, f"embedding {where} {q}")
            (got * got).sum().backward()
            close(table.grad.full_tensor(), plain.grad, f"gradient of embedding {where} {q}")
    if SIZE < 4:
        compare("attention",
                lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
                *[(2, 4, 3, 2)] * 3)  # fmt: skip
        compare("conv", lambda x, w: F.conv1d(x, w), (4, 2, 5), (3, 2, 2))
        compare("cross_entropy", loss, (4, 3))
        compare("mse_loss", F.mse_loss, (4, 3), (4, 3))
        few = torch.tensor([-100, 2, 1, 1])
        for kind in ("mean", "sum"):
            compare(f"samples that count, {kind}", lambda a, kind=kind: F.cross_entropy(
                a, distribute_tensor(few, MESH) if isinstance(a, DTensor) else few,
                reduction=kind), (4, 3))  # fmt: skip


def check_pieces() -> None:
    compare("columns", lambda a: a[:, 1:3] * 2, (5, 4))
    compare("a column", lambda a: a[:, -1] * a[..., 0], (4, 3))
    compare("a new one", lambda a: a[None, :, None] + a[1], (4, 3))
    compare("every other", lambda a: a[::2, :, 1:], (4, 3, 2))
    compare("narrow", lambda a: a.narrow(1, 1, 2) + a.select(0, 1)[1:3], (4, 5))
    compare("unbind", lambda a: sum(p * (i + 1) for i, p in enumerate(a.unbind(1))), (4, 3))
    compare("tensor_split", lambda a: a.tensor_split(3, 1)[0] - a.tensor_split(2)[1][:, :2], (2, 5))
    compare("hsplit", lambda a: a.hsplit(2)[1] * a.vsplit(2)[0][:1, :2], (4, 4))
    compare("repeat", lambda a: a.repeat(2, 1, 3), (4, 3))
    compare("tile", lambda a: a.tile(2) + a.tile((1, 2)), (4, 3))
    compare("joins", lambda a, b: torch.hstack([a, b]) * torch.vstack([a, b])[1], (4, 1), (4, 1))
    compare("movedim", lambda a: a.movedim(0, -1) * a.moveaxis((0, 1), (2, 0)).mT, (3, 3, 3))
    compare("expand", lambda a, b: a.expand_as(b) * b.broadcast_to(2, 4, 3), (1, 3), (4, 3))
    compare("flips", lambda a: a.fliplr() - a.flipud() * 2, (4, 3))
    compare("pad", lambda a: F.pad(a, (1, 2)) * F.pad(a, (2, 1, 0, 0), value=3.0), (4, 3))
    compare("roll", lambda a: a.roll(1, 1) * a.roll((1, 2), (0, 1)), (4, 3))
    compare("cummax", lambda a: a.cummax(1)[0] * a.cummin(0).values, (4, 3))
    compare("kthvalue", lambda a: a.kthvalue(2, 1)[0] + a.median(1).values, (4, 3))
    compare("mode", lambda a: a.mode(0, True)[0] * a.argsort(1), (4, 3))
    compare("norms", lambda a: a.norm(dim=1) + torch.linalg.vector_norm(a, 3, 1), (4, 3))
    compare("matrix_norm", torch.linalg.matrix_norm, (4, 3, 2))
    compare("cosine", lambda a, b: F.cosine_similarity(a, b, 0), (4, 3), (4, 3))
    index = torch.tensor([[0, 2], [1, 0], [2, 2], [0, 1]])
    for where in layouts(2):
        i = distribute_tensor(index, MESH, where)
        for dim in (0, 1):
            plain = numbers(4, 3)
            for q in layouts(2):
                x = distribute_tensor(plain, MESH, q)
                text = f"of {q}, {where}, {dim}"
                close(x.gather(dim, i).full_tensor(), plain.gather(dim, index), f"gather {text}")
                close(x.scatter(dim, i, 7.0).full_tensor(), plain.scatter(dim, index, 7.0), text)
        close(F.one_hot(i, 4).full_tensor(), F.one_hot(index, 4), f"one_hot {where}")
    picked = torch.tensor([2, 0])
    one = distribute_tensor(picked, MESH, [Replicate()] * MESH.ndim)
    for q in layouts(2):
        x = distribute_tensor(numbers(4, 3), MESH, q)
        for dim in (0, 1):
            want = numbers(4, 3).index_select(dim, picked)
            close(x.index_select(dim, one).full_tensor(), want, f"index_select {q} {dim}")


def check_letters() -> None:
    compare("vectors", lambda a, v: a @ v, (4, 3), (3,))
    compare("rows", lambda v, a: v @ a, (4,), (4, 3))
    compare("dot", lambda v, w: torch.dot(v, w) + v @ w, (4,), (4,))
    compare("batches", lambda a, v: torch.matmul(a, v), (2, 4, 3), (3,))
    for equation, shapes in {
        "ij,kj->ik": ((4, 3), (2, 3)), "ij,jk": ((4, 3), (3, 2)),
        "bij,bjk->bik": ((2, 3, 2), (2, 2, 3)), "ii->i": ((3, 3),),
        "...ij,jk->...ik": ((2, 3, 2), (2, 4)), "bij->bji": ((2, 3, 4),), "bij->b": ((2, 3, 4),),
        "ij,ij->": ((4, 3), (4, 3)), "bqhd,bkhd->bhqk": ((2, 3, 2, 4),) * 2,
        "i,j->ij": ((4,), (2,)),
        "ab,bc,cd->ad": ((2, 3), (3, 4), (4, 2)), "abc,abd->cd": ((2, 3, 4),) * 2,
        "ij,kj": ((4, 3), (2, 3)), "i,i": ((4,), (4,)), "a...b,b->...": ((2, 3, 4), (4,)),
    }.items():  # fmt: skip
        if SIZE < 4:
            compare(equation, lambda *t, e=equation: torch.einsum(e, *t), *shapes)
    compare("tensordot", lambda a, b: torch.tensordot(a, b, 1), (4, 3), (3, 2))
    compare("dims", lambda a, b: torch.tensordot(a, b, ([0, 2], [1, 0])), (2, 3, 4), (4, 2))


def check_averages() -> None:
    """Terms of an average, and what is computed with them."""
    compare("mean of two", lambda a: a.mean(0) + a.mean(0) * 2, (4, 3))
    compare("with what is whole", lambda a, b: a.mean(0) * b + b, (4, 3), (3,))
    compare("divided", lambda a, b: -(a.mean() + 1) / b.sum(), (4, 2), (3,))
    compare("squared", lambda a: a.mean(0).pow(2).mean(), (4, 2))
    compare("a loss", lambda a, b: F.smooth_l1_loss(a, b) + F.l1_loss(a, b, reduction="sum"),
            (4, 3), (4, 3))  # fmt: skip
    compare("halves", lambda a, b: F.mse_loss(a, b).sqrt(), (2, 3), (2, 3))
    compare("cut twice", lambda a: a.mean(0) + a.mean(), (6, 2))
    leaf = torch.ones(3, dtype=torch.float64, requires_grad=True)
    mean = distribute_tensor(numbers(4, 3), MESH, [Shard(0)] * MESH.ndim).requires_grad_().mean()
    assert all(p.is_partial("avg") for p in mean.placements)
    terms = DTensor.from_local(leaf, MESH, [Partial("avg")] * MESH.ndim).full_tensor()
    (terms * 3).sum().backward()  # as PyTorch's: each term counts once
    assert leaf.grad.tolist() == [3.0] * 3


def check_lies() -> None:
    """Where a dimension that is cut is needed whole, results are, as PyTorch's; what is cut stays
    so (`test_meshes.py`)."""

    def cut(*shape: int) -> DTensor:
        return distribute_tensor(numbers(*shape), MESH, [Shard(0)])

    e, o, j = cut(6, 4), cut(5, 4), distribute_tensor(torch.tensor([[0, 1]] * 6), MESH, [Shard(0)])
    for got in (o.mean(0), o[1:3], o[0], e.repeat(2, 1), e.roll(1, 0), F.pad(e, (0, 0, 1, 1)),
                e.std(0), e.argmax(0), F.cross_entropy(e, j[:, 0])):  # fmt: skip
        assert got.placements == (Replicate(),), got
    assert e.gather(0, j).placements == (Shard(0),)
    assert str(e.device_mesh) == f"DeviceMesh(({SIZE},), 'cpu', stride=(1,))"


def check_in_place() -> None:
    for q in layouts(2):
        d = distribute_tensor(numbers(5, 4), MESH, q)
        other = distribute_tensor(numbers(5, 4) * 2, MESH)
        d.mul_(3).add_(other)
        d[0, 1] = 7.0
        want = numbers(5, 4) * 3 + numbers(5, 4) * 2
        want[0, 1] = 7.0
        assert d.placements == q
        close(d.full_tensor(), want, f"in place {q}")
        torch.manual_seed(3)
        d.normal_()
        torch.manual_seed(3)
        close(d.full_tensor(), torch.empty(5, 4, dtype=torch.float64).normal_(), "normal_")
        torch.manual_seed(4)
        dropped = F.dropout(d, 0.4)
        torch.manual_seed(4)
        close(dropped.full_tensor(), F.dropout(d.full_tensor(), 0.4), "dropout")
        assert torch.equal(torch.dropout(d, 0.4, train=False).full_tensor(), d.full_tensor())
        assert (torch.dropout(d, 1.0, train=True).full_tensor() == 0).all()


def check_written() -> None:
    """In-place forms of what has a rule write to parts as they lie."""
    index = torch.tensor([[0, 2, 1], [3, 1, 0]])
    forms = {
        "cumsum_": lambda x, i: x.cumsum_(1), "cumprod_": lambda x, i: x.cumprod_(0),
        "scatter_": lambda x, i: x.scatter_(0, i, 7.0), "tril_": lambda x, i: x.tril_(),
        "scatter_add_": lambda x, i: x.scatter_add_(0, i, x[:2] * 1),
        "eq_": lambda x, i: x.eq_(x), "index_fill_": lambda x, i: x.index_fill_(0, i[0, :2], 2.0),
    }  # fmt: skip
    for (name, form), q in itertools.product(forms.items(), layouts(2)):
        want, d = numbers(4, 3), distribute_tensor(numbers(4, 3), MESH, q)
        form(want, index)
        assert form(d, distribute_tensor(index, MESH)) is d and d.placements == q
        close(d.full_tensor(), want, f"{name} of {q}")
    for q, o in itertools.product(layouts(2), layouts(2)):
        d, out = (
            distribute_tensor(numbers(4, 3), MESH, q),
            distribute_tensor(numbers(4, 3), MESH, o),
        )
        assert torch.add(d, 3, out=out) is out and out.placements == o
        close(out.full_tensor(), numbers(4, 3) + 3, f"add of {q} into {o}")
    most = torch.zeros(4).double(), torch.zeros(4, dtype=torch.int64)
    most = tuple(distribute_tensor(t, MESH, [Shard(0)] * MESH.ndim) for t in most)
    got = torch.max(d, 1, out=most)
    assert got.values is most[0] and got.indices is most[1]
    for have, want in zip(most, numbers(4, 3).max(1)):
        close(have.full_tensor(), want, "max into two tensors")
    expect(RuntimeError, "a DTensor cannot be resized", lambda: torch.add(d, 1, out=most[0]))
    turned = {
        "squeeze_": lambda x: x.squeeze_(), "unsqueeze_": lambda x: x.unsqueeze_(-1),
        "transpose_": lambda x: x.transpose_(0, -1), "squeeze_(1)": lambda x: x.squeeze_(1),
    }  # fmt: skip
    for name, form in turned.items():
        want = form(numbers(3, 1, 2))
        for dim in (0, 2):
            d = distribute_tensor(numbers(3, 1, 2), MESH, [Shard(dim)] * MESH.ndim)
            close(form(d).full_tensor(), want, f"{name} of {dim}")
        cut = distribute_tensor(numbers(3, 1, 2), MESH, [Shard(1)] * MESH.ndim)
        if name.startswith("squeeze_"):
            expect(RuntimeError, "dimension that is cut", lambda f=form, d=cut: f(d))
    one = distribute_tensor(torch.tensor(2.0), MESH)
    assert one.squeeze_(0).transpose_(0, 0).full_tensor() == 2
    weight = distribute_tensor(numbers(4, 3), MESH, [Shard(0)] * MESH.ndim).requires_grad_()
    torch.manual_seed(2)
    torch.nn.init.xavier_uniform_(weight)
    torch.manual_seed(2)
    want = torch.nn.init.xavier_uniform_(torch.empty(4, 3, dtype=torch.float64))
    close(weight.full_tensor(), want, "xavier_uniform_")
    torch.nn.init.constant_(weight, 0.5)
    assert weight.is_leaf and (weight.full_tensor() == 0.5).all()


def check_terms() -> None:
    """Terms of a sum are added before what is not linear."""
    terms = numbers(4, 3)
    for op, whole in (("sum", terms * SIZE), ("avg", terms)):
        d = DTensor.from_local(terms.clone(), MESH, [Partial(op)] * MESH.ndim)
        for p in (2, 1, 3, 0.5, float("inf"), "fro"):
            close(d.norm(p).full_tensor(), whole.norm(p), f"norm {p} of {op}")
        close(torch.ones_like(d).full_tensor(), torch.ones_like(whole), f"ones_like of {op}")
        close(torch.full_like(d, 3.0).full_tensor(), whole * 0 + 3, f"full_like of {op}")
        for kind in ("long", "bool", "short", "byte"):
            given = d if kind != "byte" else d.abs()
            want = whole if kind != "byte" else whole.abs()
            close(getattr(given, kind)().full_tensor(), getattr(want, kind)(), f"{kind} of {op}")
        for moved, plain in (
            (torch.cat([d, d]), torch.cat([whole, whole])), (d.split(3)[1], whole.split(3)[1]),
            (torch.stack([d, d], 1), torch.stack([whole, whole], 1)), (d.flip(0), whole.flip(0)),
            (d.chunk(2, 1)[0], whole.chunk(2, 1)[0]),
        ):  # fmt: skip
            assert moved.placements == d.placements  # nothing is exchanged
            close(moved.full_tensor(), plain, f"moved terms of {op}")
        close(torch.cat([d, distribute_tensor(terms, MESH)]).full_tensor(),
              torch.cat([whole, terms]), f"terms of {op} beside what is whole")  # fmt: skip
        close(d.to(torch.int32).full_tensor(), whole.to(torch.int32), f"to of {op}")
        close(d.sum(0, dtype=torch.int64).full_tensor(), whole.sum(0, dtype=torch.int64), op)
    for size, p in itertools.product((1, 4), (0.5, 1, 2, -2.0)):
        plain = (numbers(size) + 9).requires_grad_() if p < 0 else torch.zeros(
            size, dtype=torch.float64, requires_grad=True)  # fmt: skip
        x = distribute_tensor(plain.detach(), MESH, [Shard(0)] * MESH.ndim).requires_grad_()
        torch.linalg.vector_norm(plain, p).backward()
        torch.linalg.vector_norm(x, p).backward()
        close(x.grad.full_tensor(), plain.grad, f"gradient of a norm {p} of {size}")


def check_functions() -> None:
    """Functions of Python, which make tensors for themselves; numbers without dimensions."""
    square = numbers(4, 4) @ numbers(4, 4).T + 5 * torch.eye(4).double()
    image, one = numbers(2, 4, 6), torch.tensor(3.0).double()
    made = {
        "cholesky_inverse": (torch.cholesky_inverse, square), "lu": (torch.linalg.lu, square),
        "matrix_power": (lambda x: torch.linalg.matrix_power(x, 0), square),
        "adaptive_max_pool1d": (lambda x: F.adaptive_max_pool1d(x, 3), image),
        "interpolate": (lambda x: F.interpolate(x, scale_factor=0.6), image),
        "unique": (lambda x: x.round().unique(dim=1), image),
        "softmin": (lambda x: F.softmin(x, 1, dtype=torch.float64), image),
        "broadcast_tensors": (lambda x: torch.broadcast_tensors(x, x[:1]), image),
        "grouped": (lambda x: F.conv2d(x, torch.ones_like(x)[:, None, :3, :3], groups=2), image),
        **{f: (lambda x, f=f: getattr(torch, f)(x, 0), one)
           for f in ("softmax", "cumsum", "logcumsumexp", "argsort", "sort", "squeeze")},
        "topk": (lambda x: x.topk(1), one), "turned": (lambda x: x.transpose(0, -1), one),
        "gather": (lambda x: x.gather(0, (x * 0).long()), one),
    }  # fmt: skip
    for (name, (fn, plain)), q in itertools.product(made.items(), [*layouts(3), None]):
        if plain.ndim < 3:
            q = None if q is None else tuple(
                p if isinstance(p, Shard) and p.dim < plain.ndim else Replicate() for p in q
            )  # fmt: skip
        d = DTensor.from_local(plain / SIZE, MESH, [Partial()] * MESH.ndim) if q is None else (
            distribute_tensor(plain, MESH, q))  # fmt: skip
        want, got = fn(plain), fn(d)
        several = isinstance(want, (tuple, list))
        assert not several or type(got) is type(want), name
        for w, g in zip(want, got) if several else [(want, got)]:
            assert isinstance(g, DTensor), name
            close(g.full_tensor(), w, f"{name} of {q}")
    whole = distribute_tensor(torch.arange(8).view(2, 2, 2), MESH, [Shard(0)] * MESH.ndim)
    want = torch.baddbmm(*[torch.arange(8).view(2, 2, 2)] * 3, beta=0.2, alpha=0.6)
    close(torch.baddbmm(whole, whole, whole, beta=0.2, alpha=0.6).full_tensor(), want, "baddbmm")
    assert whole.count_nonzero(0, 1).full_tensor().tolist() == [3, 4]
    expect(TypeError, "must be bool", lambda: whole.unique(1))
    for dim in (5, -4):
        expect(IndexError, "", lambda d=dim: whole.flatten(d))
        expect(IndexError, "", lambda d=dim: whole.unsqueeze(2 * d))
        expect(IndexError, "", lambda d=dim: whole.squeeze(d))
    expect(RuntimeError, "got mixed", lambda: F.cosine_embedding_loss(whole, numbers(2, 2), one))


def check_rules_of_programs() -> None:
    """register_sharding, and what is exchanged then."""
    from torch.distributed.tensor.debug import CommDebugMode
    from torch.distributed.tensor.experimental import register_sharding

    c10d = torch.ops.c10d_functional
    calls = []

    @torch.library.custom_op("ours::rowwise", mutates_args=())
    def rowwise(x: torch.Tensor, y: torch.Tensor, times: float) -> torch.Tensor:
        calls.append(tuple(x.shape))
        return x.cumsum(1) * times + y

    @register_sharding(torch.ops.ours.rowwise.default)
    def layouts_of_rowwise(x, y, times):
        assert times == 2.0 and tuple(x.shape) == (8, 3)
        whole = ([Replicate()], [Replicate(), Replicate(), None])
        return [whole, ([Shard(0)], [Shard(0), Shard(0), None])]

    for p, q in itertools.product(layouts(2), repeat=2):
        x, y = distribute_tensor(numbers(8, 3), MESH, p), distribute_tensor(numbers(8, 3), MESH, q)
        with CommDebugMode() as comm:
            got = torch.ops.ours.rowwise(x, y, 2.0)
        close(got.full_tensor(), numbers(8, 3).cumsum(1) * 2 + numbers(8, 3), f"rule of {p}, {q}")
        if p == q == (Shard(0),) * MESH.ndim:
            assert got.placements == p and calls[-1] != (8, 3)
            assert not comm.get_comm_counts(), comm.get_comm_counts()
    close(rowwise(numbers(8, 3), numbers(8, 3), 2.0), got.full_tensor(), "of plain tensors")

    @register_sharding(torch.ops.aten.trunc.default)
    def layouts_of_trunc(x):
        return [([Shard(1)], [Shard(1)])]

    cut = distribute_tensor(numbers(8, 4), MESH, [Shard(0)] * MESH.ndim).trunc()
    assert cut.placements == (Shard(1),) * MESH.ndim
    close(cut.full_tensor(), numbers(8, 4).trunc(), "trunc")

    @torch.library.custom_op("ours::doubled", mutates_args=("x",))
    def doubled(x: torch.Tensor) -> None:
        x.mul_(2)

    register = register_sharding(torch.ops.ours.doubled.default)
    expect(NotImplementedError, "writes to its arguments", lambda: register(layouts_of_trunc))
    cut = distribute_tensor(numbers(8, 3), MESH, [Shard(0)] * MESH.ndim)
    with CommDebugMode() as comm:
        cut.full_tensor()
        torch.distributed.all_reduce(torch.ones(1))
        DTensor.from_local(numbers(8, 3), MESH, [Partial()] * MESH.ndim).full_tensor()
    counts = comm.get_comm_counts()
    assert counts[c10d.all_gather_into_tensor] == MESH.ndim
    assert counts[c10d.all_reduce] == MESH.ndim + 1 and counts[c10d.reduce_scatter_tensor] == 0
    writing = torch.ops.c10d  # PyTorch's names of what a program calls itself
    assert counts[writing._allgather_base_] == MESH.ndim and counts[writing.broadcast_] == 0
    assert counts[writing.allreduce_] == MESH.ndim + 1 and counts["another"] == 0
    before = comm.get_total_counts()
    cut.full_tensor()
    assert comm.get_total_counts() == before == 2 * MESH.ndim + 1


def check_norms_of_lists() -> None:
    """The norm of many gradients takes one exchange for each way in which they are cut."""
    from torch.distributed.tensor.debug import CommDebugMode

    cut = [Shard(0)] * MESH.ndim
    several = [numbers(n, 3) + n for n in (1, 4, 6, 7)]
    for order in (1.0, 2.0, float("inf")):
        parts = [distribute_tensor(t, MESH, cut) for t in several]
        with CommDebugMode() as comm:
            got = torch.nn.utils.get_total_norm(parts, order)
        want = torch.nn.utils.get_total_norm(several, order)
        close(got.full_tensor(), want, f"norm {order}")
        assert comm.get_total_counts() == MESH.ndim, comm.get_comm_counts()
        mixed = [*parts[:2], distribute_tensor(several[2], MESH, [Replicate()] * MESH.ndim),
                 several[3]]  # fmt: skip
        close(torch.nn.utils.get_total_norm(mixed, order).full_tensor(), want, f"mixed {order}")
        other = distribute_tensor(several[1], MESH, [Shard(1)] * MESH.ndim)
        share = 2 if RANK == 0 else 0
        terms = DTensor.from_local(several[0] * share / 2, MESH, [Partial()] * MESH.ndim)
        lists = [terms, other, *parts[2:]]
        close(torch.nn.utils.get_total_norm(lists, order).full_tensor(), want, f"terms {order}")


def check_layouts() -> None:
    whole = numbers(5, 7)
    for p, q in itertools.product(layouts(2), reversed(layouts(2))):
        d = distribute_tensor(whole, MESH, p)
        moved = d.redistribute(placements=q)
        assert moved.placements == q and moved.shape == (5, 7)
        close(moved.full_tensor(), whole, f"{p} to {q}")
        want = distribute_tensor(whole, MESH, q).to_local()
        close(moved.to_local(), want, f"part of {p} to {q}")
    for dim, size in itertools.product((0, 1), (1, 2, 3, 5)):
        parts, padding = Shard(dim)._split_tensor(whole, size)
        assert {p.shape[dim] for p in parts} == {-(-whole.shape[dim] // size)}
        pieces, none = Shard(dim)._split_tensor(whole, size, with_padding=False, contiguous=False)
        close(torch.cat(pieces, dim), whole, "parts")
        assert none == [] and all(p._base is not None or p.numel() == 0 for p in pieces)
        for part, piece, rows in zip(parts, pieces, padding, strict=True):
            close(part.narrow(dim, 0, part.shape[dim] - rows), piece, "a padded part")
            assert not part.narrow(dim, part.shape[dim] - rows, rows).any()
    leaf = torch.full((3, 2), RANK + 1.0, dtype=torch.float64, requires_grad=True)
    terms = DTensor.from_local(leaf, MESH, [Partial()] * MESH.ndim)
    total = terms.redistribute(placements=[Shard(0), *[Replicate()] * (MESH.ndim - 1)])
    close(total.full_tensor(), torch.full((3, 2), SIZE * (SIZE + 1) / 2.0).double(), "sum of terms")
    (total * total).sum().backward()
    close(leaf.grad, torch.full((3, 2), SIZE * (SIZE + 1.0)).double(), "gradient of a term")
    mean = DTensor.from_local(leaf.detach(), MESH, [Partial("avg")] * MESH.ndim).full_tensor()
    close(mean, torch.full((3, 2), (SIZE + 1) / 2.0).double(), "average")
    # What a program computes with its part, and says of the gradient.
    x = distribute_tensor(torch.ones(4).double(), MESH).requires_grad_()
    (x.to_local(grad_placements=[Partial()] * MESH.ndim) * (RANK + 1)).sum().backward()
    close(x.grad.to_local(), torch.full((4,), SIZE * (SIZE + 1) / 2.0).double(), "grad_placements")


def check_gradients_that_are_asked_for() -> None:
    """autograd.grad() answers with DTensors, and takes gradients in any layout."""
    plain, weights = numbers(4, 6).requires_grad_(), numbers(4, 6) + 2
    (first,) = torch.autograd.grad((plain**3 * weights).sum(), plain, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), plain)
    for own, other in itertools.product(layouts(2), layouts(2)):
        text = f"{own}, {other}"
        x = distribute_tensor(plain.detach(), MESH, own).requires_grad_()
        given = distribute_tensor(weights, MESH, other)
        (got,) = torch.autograd.grad(x**3, x, given, create_graph=True)
        assert isinstance(got, DTensor) and got.placements == own, text
        close(got.full_tensor(), first, text)
        (got,) = torch.autograd.grad(got.square().sum(), x)
        close(got.full_tensor(), second, text)
        (x**3).backward(given)
        torch.autograd.backward([x**3], [given])
        close(x.grad.full_tensor(), 2 * first, text)


def check_new_tensors_like_others() -> None:
    """They lie as the tensor; random ones have the numbers of one process."""
    makers = {
        "rand_like": torch.rand_like,
        "randn_like": lambda t: torch.randn_like(t, dtype=torch.float32),
        "randint_like": lambda t: torch.randint_like(t, 3, 90),
        "new_zeros": lambda t: t.new_zeros(5, 6),
        "new_ones": lambda t: t.new_ones((5, 6), dtype=torch.int64),
        "new_full": lambda t: t.new_full((5, 6), 2.5),
        "zeros_like": torch.zeros_like,
    }
    for layout in layouts(2):
        x = distribute_tensor(numbers(5, 6), MESH, layout)
        for name, make in makers.items():
            torch.manual_seed(3)
            want = make(numbers(5, 6))
            torch.manual_seed(3)
            got = make(x)
            assert got.placements == layout and got.dtype == want.dtype, (name, layout)
            assert got.to_local().shape == x.to_local().shape, (name, layout)
            close(got.full_tensor(), want, f"{name} of {layout}")
        assert torch.rand_like(x, requires_grad=True).is_leaf
        assert x.new_empty(5, 6).to_local().shape == x.to_local().shape
        assert x.new_zeros(3).placements == (Replicate(),) * MESH.ndim
    terms = DTensor.from_local(numbers(4, 2), MESH, [Partial()] * MESH.ndim)
    assert torch.rand_like(terms).placements == (Replicate(),) * MESH.ndim


def check_sources() -> None:
    """Numbers are those of the first process, unless nobody's are asked for."""
    own = torch.full((4, 2), RANK + 1.0)
    first = distribute_tensor(own, MESH, [Shard(0)] * MESH.ndim)
    assert first.full_tensor().tolist() == [[1.0, 1.0]] * 4 and own[0, 0] == RANK + 1
    each = distribute_tensor(own, MESH, [Shard(0)] * MESH.ndim, src_data_rank=None)
    assert each.to_local().unique().tolist() == [RANK + 1.0]
    checked = DTensor.from_local(own.clone(), MESH, [Replicate()] * MESH.ndim, run_check=True)
    assert checked.to_local().unique().tolist() == [1.0]


def check_files() -> None:
    """A file gives back what lay in it, without being trusted; a mesh finds its groups again."""
    names = tuple("ab"[: MESH.ndim])
    named = init_device_mesh("cpu", MESH.shape, mesh_dim_names=names)
    for layout in ([Shard(1)] * MESH.ndim, [Replicate()] * MESH.ndim, [Partial("avg")] * MESH.ndim):
        d = DTensor.from_local(numbers(3, 2) + RANK, named, layout)
        want = d.full_tensor()
        file = io.BytesIO()
        torch.save({"d": d, "p": torch.nn.Parameter(d), "m": d.detach()}, file)
        file.seek(0)
        got = torch.load(file)
        assert got["d"].placements == tuple(layout) and got["d"].device_mesh == named
        assert got["d"].shape == d.shape and got["d"].device_mesh.mesh_dim_names == names
        assert isinstance(got["p"], torch.nn.Parameter) and got["p"].requires_grad
        assert not isinstance(got["m"], torch.nn.Parameter) and not got["m"].requires_grad
        close(got["d"].full_tensor(), want, f"a file's {layout}")
        close(got["p"].to_local(), d.to_local(), f"a file's parameter {layout}")
    mesh = pickle.loads(pickle.dumps(named))
    assert mesh == named and mesh.get_coordinate() == named.get_coordinate()
    assert [dist.get_world_size(g) for g in mesh.get_all_groups()] == list(MESH.shape)


def check_gradients_given() -> None:
    """What is replicated gets the whole gradient, or its share of a sum where that is asked for."""
    everywhere, terms = [Replicate()] * MESH.ndim, [Partial()] * MESH.ndim
    for lies, each in ((None, 6.0 * SIZE), (everywhere, 6.0 * SIZE), (terms, 6.0)):
        x = torch.ones(3, dtype=torch.float64, requires_grad=True)
        d = DTensor.from_local(x, MESH, everywhere, grad_placements=lies)
        grad = DTensor.from_local(torch.full((3,), 3.0, dtype=torch.float64), MESH, terms)
        (d * 2).backward(grad)
        assert x.grad.tolist() == [each] * 3, lies
    whole = torch.arange(2.0 * SIZE, dtype=torch.float64, requires_grad=True)
    d = distribute_tensor(whole.detach(), MESH, everywhere).requires_grad_()
    (d.to_local(grad_placements=terms) * (RANK + 1)).sum().backward()
    assert d.grad.to_local().unique().tolist() == [SIZE * (SIZE + 1) / 2]


def check_strides() -> None:
    """Those of the whole, in the order in which a part's dimensions lie."""
    for shape, order in (((4, 8, 8), (1, 2, 0)), ((5, 4, 2), (0, 1, 2)), ((4, 2, 3), (2, 0, 1))):
        whole = numbers(*shape).permute(order)
        for dim in range(3):
            d = distribute_tensor(whole, MESH, [Replicate()] * MESH.ndim)
            assert d.stride() == numbers(*whole.shape).stride()  # a copy, packed
            rows = 2 + whole.shape[dim] // SIZE
            part = whole.narrow(dim, 0, 1).repeat_interleave(rows, dim)
            part = part.permute([order.index(i) for i in range(3)]).contiguous().permute(order)
            at = DTensor.from_local(part, MESH, [Shard(dim)] + [Replicate()] * (MESH.ndim - 1))
            like = torch.empty([at.shape[order.index(i)] for i in range(3)]).permute(order)
            assert at.shape == like.shape and at.stride() == like.stride(), (shape, order, dim)
            assert at.stride(-1) == like.stride(-1)


def check_outside() -> None:
    """A mesh of the first process alone: the others have no part."""
    one = DeviceMesh("cpu", [0])
    d = DTensor.from_local(torch.ones(3, 2), one, [Shard(0)])
    assert d.shape == (3, 2)
    assert (d + 1).to_local().shape == ((3, 2) if RANK == 0 else (0,))
    assert (d + 1).shape == (3, 2)


def check_no_numbers() -> None:
    """Tensors of the meta device are cut without a message; modules convert what goes in."""
    cut = distribute_tensor(torch.empty(4, 6, device="meta"), MESH, [Shard(0)] * MESH.ndim)
    assert cut.is_meta and cut.to_local().shape == (4 // SIZE, 6) and cut.shape == (4, 6)
    model = torch.nn.Linear(3, 2, device="meta", dtype=torch.float64)
    made = torch.distributed.tensor.distribute_module(model, MESH)
    assert made.weight.is_meta and isinstance(made.weight, DTensor)

    plain = torch.nn.Linear(3, 2, dtype=torch.float64)
    want = plain(torch.ones(1, 3, dtype=torch.float64) * 2)
    whole = [Replicate()] * MESH.ndim
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        run = torch.distributed.tensor.distribute_module(
            copy.deepcopy(plain),
            MESH,
            None,
            lambda inputs, mesh: (DTensor.from_local(inputs[0] * 2, mesh, whole),),
            lambda outputs, mesh: outputs.to_local(),
        )
    assert [w.category for w in told] == [FutureWarning] * 2
    got = run(torch.ones(1, 3, dtype=torch.float64))
    assert not isinstance(got, DTensor)
    first = distribute_tensor(plain.weight.detach(), MESH).to_local()
    bias = distribute_tensor(plain.bias.detach(), MESH).to_local()
    close(got, F.linear(torch.full((1, 3), 2.0, dtype=torch.float64), first, bias), "a module")
    assert got.shape == want.shape
    for name in ("input_fn", "output_fn"):
        expect(
            ValueError,
            f"{name} should take in 3 arguments, but got 1",
            lambda name=name: torch.distributed.tensor.distribute_module(
                copy.deepcopy(plain), MESH, **{name: lambda one: one}
            ),
        )


def check_mistakes() -> None:
    d = distribute_tensor(torch.ones(4, 2), MESH, [Shard(0)] * MESH.ndim)

    expect(RuntimeError, "got mixed torch.Tensor and DTensor", lambda: d + torch.ones(4, 2))
    expect(
        IndexError,
        "the tensor has 2 dimensions",
        lambda: d.redistribute(placements=[Shard(2)] * MESH.ndim),
    )
    expect(
        ValueError,
        "must have the same length",
        lambda: distribute_tensor(torch.ones(2), MESH, [Shard(0)] * 3),
    )
    expect(RuntimeError, "to_local() or full_tensor()", lambda: d.numpy())
    expect(
        ValueError,
        "this rank's part",
        lambda: DTensor.from_local(torch.ones(2), MESH, [Shard(0)] * MESH.ndim, shape=(40,)),
    )
    expect(
        RuntimeError, "got a DTensor", lambda: DTensor.from_local(d, MESH, [Shard(0)] * MESH.ndim)
    )
    expect(
        RuntimeError,
        "both shape and stride",
        lambda: DTensor.from_local(torch.ones(2), MESH, [Shard(0)] * MESH.ndim, stride=(1,)),
    )
    expect(
        IndexError,
        "out of the table's 4 rows",
        lambda: F.embedding(distribute_tensor(torch.tensor([4]), MESH), d),
    )


for name, check in list(globals().items()):
    if name.startswith("check_") and name[6:].startswith(tuple(sys.argv[2:]) or ""):
        check()
dist.destroy_process_group()
print("ok\n", end="")
