"""What processes, meshes and laid out tensors answer in a group of one, beside PyTorch."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import stored
import tenon as tn
from refusals import part

Call = Callable[[Any], Any]


@contextmanager
def group_of_one(lib: Any) -> Iterator[None]:
    dist = part(lib, "distributed")
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/f", rank=0, world_size=1)
        yield
        dist.destroy_process_group()


@pytest.fixture(scope="module", autouse=True)
def alone() -> Iterator[None]:
    with ExitStack() as stack:
        for lib in [tn] if stored.torch is None else [tn, stored.torch]:
            stack.enter_context(group_of_one(lib))
        yield


def x(lib: Any, *shape: int) -> Any:
    size = lib.Size(shape).numel()
    return (lib.arange(size, dtype=lib.float64) * 1.7).sin().reshape(shape) * 3


def dist(lib: Any) -> Any:
    return part(lib, "distributed")


def world(lib: Any) -> Any:
    return dist(lib).group.WORLD


def mesh(lib: Any, *sizes: int, **given: Any) -> Any:
    return part(lib, "distributed", "device_mesh").init_device_mesh("cpu", sizes or (1,), **given)


def square(lib: Any) -> Any:
    return mesh(lib, 1, 1, 1, mesh_dim_names=("a", "b", "c"))


def placed(lib: Any, value: Any, *placements: str, sizes: tuple[int, ...] = ()) -> Any:
    """A tensor of which this process has all, laid out by "S0", "S1", "P" and "R"."""
    t = part(lib, "distributed", "tensor")
    made = [t.Replicate() if p == "R" else t.Partial() if p == "P" else t.Shard(int(p[1:]))
            for p in placements]  # fmt: skip
    return t.DTensor.from_local(value, mesh(lib, *(sizes or (1,) * len(made))), made)


def letters(value: Any) -> Any:
    """The tensor and how it lies."""
    if isinstance(value, (tuple, list)):
        return [letters(v) for v in value]
    if not hasattr(value, "placements"):
        return value
    names = ["R" if p.is_replicate() else "P" if p.is_partial() else f"S{p.dim}"
             for p in value.placements]  # fmt: skip
    return [names, list(value.shape), value.to_local()]


def whole(value: Any) -> Any:
    return value.full_tensor()


def meshed(m: Any) -> Any:
    """What a mesh says of itself."""
    return [m.device_type, m.ndim, list(m.shape), m.mesh_dim_names, m.size(), m.mesh.tolist(),
            m.get_coordinate(), m.get_rank(), m.size(m.ndim - 1)]  # fmt: skip


def plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if value is None or isinstance(value, (bool, int, float)) or hasattr(value, "detach"):
        return value
    return str(value).replace("torch.", "tenon.")


def answer(call: Call, lib: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return plain(call(lib))
        except Exception as err:
            return f"{type(err).__name__} raised"


def gradient(f: Call, value: Any) -> Any:
    value = value.detach().requires_grad_()
    f(value).square().sum().backward()
    return value.grad


GROUPS: dict[str, Call] = {
    "facts": lambda t: [
        dist(t).get_backend(), dist(t).get_rank(), dist(t).get_world_size(),
        dist(t).is_initialized(), dist(t).get_process_group_ranks(world(t)),
        dist(t).get_group_rank(world(t), 0), dist(t).get_global_rank(world(t), 0),
        dist(t).get_node_local_rank(3), world(t).rank(), world(t).size(), world(t).name(),
    ],
    "engines": lambda t: [
        dist(t).get_backend_config(), dist(t).get_backend_config(world(t)),
        dist(t).get_backend_config(dist(t).new_group([0], backend="gloo")),
        dist(t).get_backend(dist(t).new_group([0], backend="gloo")),
    ],
    "names of engines": lambda t: [
        dist(t).Backend(n) for n in ("GLOO", "Nccl", "mpi", "gloo", "ucc")
    ],
    "engines of kinds": lambda t: [
        dist(t).Backend.default_device_backend_map["cpu"],
        dist(t).Backend.default_device_backend_map["cuda"],
    ],
    "engine of a number": lambda t: dist(t).Backend(3),
    "what there is": lambda t: [dist(t).is_available(), dist(t).is_gloo_available(),
                                dist(t).is_torchelastic_launched()],
    "kinds of reductions": lambda t: sorted(
        n for n in dir(dist(t).ReduceOp) if n.isupper()),
    "equal reductions": lambda t: [
        [getattr(dist(t).ReduceOp, a) == getattr(dist(t).ReduceOp, b) for b in ("SUM", "AVG")]
        for a in ("SUM", "AVG", "MAX")],
    "reduced": lambda t: [
        (v := x(t, 3), dist(t).all_reduce(v, op=getattr(dist(t).ReduceOp, op)))[0]
        for op in ("SUM", "PRODUCT", "MIN", "MAX")],
    "gathered": lambda t: (
        p := [t.zeros(2, dtype=t.float64)], dist(t).all_gather(p, x(t, 2)), p[0])[2],
    "gathered into": lambda t: (
        p := t.zeros(2, dtype=t.float64), dist(t).all_gather_into_tensor(p, x(t, 2)), p)[2],
    "scattered": lambda t: (
        p := t.zeros(2, dtype=t.float64), dist(t).scatter(p, [x(t, 2)]), p)[2],
    "objects": lambda t: (p := [None], dist(t).all_gather_object(p, {"a": 1}), p)[2],
    "objects sent": lambda t: (p := [3, "a"], dist(t).broadcast_object_list(p), p)[2],
    "objects scattered": lambda t: (
        p := [None], dist(t).scatter_object_list(p, [(1, 2)]), p)[2],
    "to all": lambda t: (
        p := t.zeros(4, dtype=t.float64), dist(t).all_to_all_single(p, x(t, 4)), p)[2],
    "done at once": lambda t: [
        (w := dist(t).all_reduce(x(t, 2), async_op=True), w.wait(), w.is_completed())[1:]],
    "gradients": lambda t: [
        gradient(f, x(t, 3)) for f in (
            lambda v: part(t, "distributed", "nn").all_reduce(v),
            lambda v: part(t, "distributed", "nn").broadcast(v, 0),
            lambda v: part(t, "distributed", "nn").reduce(v, 0),
            lambda v: part(t, "distributed", "nn").all_gather(v)[0],
            lambda v: part(t, "distributed", "nn").gather(v, 0)[0],
            lambda v: part(t, "distributed", "nn").scatter([v], 0),
            lambda v: part(t, "distributed", "nn").all_to_all([t.zeros_like(v)], [v])[0],
            lambda v: part(t, "distributed", "nn").all_to_all_single(t.zeros_like(v), v),
            lambda v: part(t, "distributed", "nn").reduce_scatter(t.zeros_like(v), [v]),
        )],
    "exchanges as functions": lambda t: [
        (f := part(t, "distributed", "_functional_collectives"),
         f.all_reduce(x(t, 4), "sum", world(t)) + 0, f.broadcast(x(t, 4), 0, world(t)) + 0,
         f.all_gather_tensor(x(t, 4), 0, world(t)) + 0,
         f.reduce_scatter_tensor(x(t, 4), "sum", 0, world(t)) + 0,
         f.all_to_all_single(x(t, 4), [4], [4], world(t)) + 0,
         f.permute_tensor(x(t, 4), [0], world(t)) + 0)[1:]],
    "stores": lambda t: [
        (s := dist(t).HashStore(), s.set("a", "b"), s.get("a"), s.add("n", 3), s.add("n", -1),
         s.check(["a"]), s.check(["c"]), s.num_keys(), s.delete_key("a"), s.delete_key("a"),
         s.num_keys(), s.compare_set("k", "", "v"), s.compare_set("k", "x", "w"),
         s.compare_set("k", "v", "w"))[2:]],
    "stores with a prefix": lambda t: [
        (s := dist(t).HashStore(), p := dist(t).PrefixStore("q", s), p.set("a", "b"),
         p.get("a"), s.get("q/a"), p.underlying_store is s)[3:]],
    "options of an engine": lambda t: [
        (o := dist(t).ProcessGroupGloo._Options(), o._timeout.total_seconds(),
         o.global_ranks_in_group, o.group_name)[1:]],
}  # fmt: skip

MESHES: dict[str, Call] = {
    "of one": lambda t: meshed(mesh(t)),
    "of three": lambda t: meshed(square(t)),
    "by a name": lambda t: [meshed(square(t)[n]) for n in "abc"],
    "by names": lambda t: [meshed(square(t)[n]) for n in (("a", "b"), ("a", "c"), ("b", "c"))],
    "by names in another order": lambda t: meshed(square(t)["b", "a"]),
    "by a name that is none": lambda t: square(t)["d"],
    "without names": lambda t: mesh(t, 1, 1)["a"],
    "made flat": lambda t: meshed(square(t)["a", "b"]._flatten()),
    "made flat with a name": lambda t: meshed(square(t)._flatten("abc")),
    "ranks along": lambda t: [[square(t).get_local_rank(d) for d in (0, 1, 2, "a", "c")],
                              mesh(t).get_local_rank()],
    "rank along none": lambda t: square(t).get_local_rank(),
    "groups along": lambda t: [
        [dist(t).get_process_group_ranks(g) for g in square(t).get_all_groups()],
        dist(t).get_process_group_ranks(square(t).get_group("b"))],
    "equal": lambda t: [mesh(t) == mesh(t), mesh(t) == mesh(t, 1, 1), mesh(t) == 3,
                        square(t) == square(t), hash(mesh(t)) == hash(mesh(t))],
    "of a group": lambda t: meshed(
        part(t, "distributed", "device_mesh").DeviceMesh.from_group(world(t), "cpu")),
    "of two groups": lambda t: meshed(
        part(t, "distributed", "device_mesh").DeviceMesh.from_group(
            [world(t), world(t)], "cpu", mesh=t.tensor([[0]]), mesh_dim_names=("a", "b"))),
    "of a list": lambda t: meshed(part(t, "distributed", "device_mesh").DeviceMesh("cpu", [0])),
    "of more than there are": lambda t: mesh(t, 2),
    "of two names": lambda t: mesh(t, 1, mesh_dim_names=("a", "b")),
    "of one name twice": lambda t: mesh(t, 1, 1, mesh_dim_names=("a", "a")),
    "of a device with a number": lambda t: part(
        t, "distributed", "device_mesh").init_device_mesh("cpu:0", (1,)),
    "entered": lambda t: [
        (m := mesh(t), r := part(t, "distributed", "device_mesh")._mesh_resources,
         m.__enter__(), r.get_current_mesh() == m, m.__exit__(None, None, None))[3]],
}  # fmt: skip


def parallel(lib: Any) -> Any:
    return part(lib, "distributed", "tensor", "experimental", "_context_parallel", "_load_balancer")


LAYOUTS: dict[str, Call] = {
    "what placements say": lambda t: [
        [p.is_shard(), p.is_shard(1), p.is_replicate(), p.is_partial(), repr(p), str(p)]
        for m in [part(t, "distributed", "tensor")]
        for p in (m.Shard(0), m.Shard(1), m.Replicate(), m.Partial(), m.Partial("avg"))],
    "equal placements": lambda t: [
        [a == b for a in ps for b in ps]
        for m in [part(t, "distributed", "tensor")]
        for ps in [(m.Shard(0), m.Shard(1), m.Replicate(), m.Partial(), m.Partial("avg"))]],
    "data that is read": lambda t: letters(placed(t, x(t, 2, 3), "S1").data),
    "made": lambda t: [
        letters(getattr(part(t, "distributed", "tensor"), n)(
            2, 3, device_mesh=mesh(t), placements=[part(t, "distributed", "tensor").Shard(1)]))
        for n in ("ones", "zeros")],
    "laid otherwise": lambda t: [
        letters(placed(t, x(t, 2, 3), a).redistribute(
            mesh(t), placed(t, x(t, 2, 3), b).placements))
        for a in ("S0", "S1", "R", "P") for b in ("S0", "S1", "R")],
    "order of a balancer": lambda t: [
        parallel(t)._HeadTailLoadBalancer(8, n, "cpu")._generate_indices(r).long()
        for n in (1, 2, 4) for r in (False, True)],
    "order of documents": lambda t: [
        parallel(t)._PerDocumentHeadTailLoadBalancer(docs, n, "cpu")._generate_indices(r).long()
        for docs in ([[8, 16]], [[8, 8], [16, 0]], [[4, 12], [12, 4]])
        for n in (1, 2) for r in (False, True)],
}  # fmt: skip

OPERATORS: dict[str, Call] = {
    "sum": lambda v: v.sum(), "sum of 0": lambda v: v.sum(0), "sum of -1": lambda v: v.sum(-1),
    "mean": lambda v: v.mean(), "max": lambda v: v.max(), "amax": lambda v: v.amax(1),
    "t": lambda v: v.t(), "transpose": lambda v: v.transpose(0, 1),
    "permute": lambda v: v.permute(1, 0), "unsqueeze": lambda v: v.unsqueeze(0),
    "unsqueeze -1": lambda v: v.unsqueeze(-1), "view": lambda v: v.view(4, 2, 3),
    "flatten": lambda v: v.flatten(), "neg": lambda v: -v, "times": lambda v: v * 2,
    "plus": lambda v: v + v, "plus one": lambda v: v + 1, "exp": lambda v: v.exp(),
    "clone": lambda v: v.clone(), "detach": lambda v: v.detach(), "softmax": lambda v: v.softmax(1),
    "cumsum": lambda v: v.cumsum(0), "select": lambda v: v.select(0, 1),
    "narrow": lambda v: v.narrow(1, 1, 3), "slice": lambda v: v[:, 1:3],
    "split": lambda v: v.split(2), "split 1": lambda v: v.split(3, 1),
    "chunk": lambda v: v.chunk(2, 1),
    "sort": lambda v: v.sort(1), "tril": lambda v: v.tril(), "zeros_like": lambda v: v * 0,
    "expand": lambda v: v.unsqueeze(0).expand(3, 4, 6), "to": lambda v: v.float(),
    "mm": lambda v: v @ v.t(), "where": lambda v: v.where(v > 0, v),
    "pow": lambda v: v**2, "clamp": lambda v: v.clamp(-1, 1), "topk": lambda v: v.topk(2, 1),
    "masked_fill": lambda v: v.masked_fill(v > 0, 1.0), "relu": lambda v: v.relu(),
    "var": lambda v: v.var(1), "argmax": lambda v: v.argmax(1), "flip": lambda v: v.flip(0),
    "roll": lambda v: v.roll(1, 0), "index_select": lambda v: v[1], "norm": lambda v: v.norm(),
}  # fmt: skip

PAIRS: dict[str, Callable[..., Any]] = {
    "add": lambda t, a, b: a + b, "mul": lambda t, a, b: a * b, "mm": lambda t, a, b: a @ b.t(),
    "cat": lambda t, a, b: t.cat([a, b]), "cat 1": lambda t, a, b: t.cat([a, b], 1),
    "stack": lambda t, a, b: t.stack([a, b]), "stack 1": lambda t, a, b: t.stack([a, b], 1),
    "where": lambda t, a, b: t.where(a > 0, a, b), "add_": lambda t, a, b: a.clone().add_(b),
    "linear": lambda t, a, b: t.nn.functional.linear(a, b),
}  # fmt: skip
# What lies as one choice of several; what it is has to be the same.
FREE = {"mean", "flatten", "clone", "mm", "roll", "norm", "linear", "cat", "cat 1", "stack",
        "stack 1", "add", "mul", "add_"}  # fmt: skip
CASES = {f"{room}: {name}": call
         for room, calls in (("groups", GROUPS), ("meshes", MESHES), ("layouts", LAYOUTS))
         for name, call in calls.items()}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_as_pytorch(name: str) -> None:
    call = CASES[name]
    stored.same(answer(call, tn), stored.of_torch(lambda lib: answer(call, lib)))


@pytest.mark.parametrize("name", OPERATORS)
def test_layouts_of_results(name: str) -> None:
    f, shown = OPERATORS[name], whole if name in FREE else letters

    def ask(lib: Any) -> list[Any]:
        return [answer(lambda t, p=p: shown(f(placed(t, x(t, 4, 6), p))), lib)
                for p in ("R", "S0", "S1", "P")]  # fmt: skip

    stored.same(ask(tn), stored.of_torch(ask))


@pytest.mark.parametrize("name", PAIRS)
def test_layouts_of_pairs(name: str) -> None:
    f, shown = PAIRS[name], whole if name in FREE else letters

    def ask(lib: Any) -> list[Any]:
        return [answer(lambda t, p=p, q=q: shown(
                    f(t, placed(t, x(t, 4, 6), p), placed(t, x(t, 4, 6), q))), lib)
                for p in ("R", "S0", "S1", "P") for q in ("R", "S0", "S1", "P")]  # fmt: skip

    stored.same(ask(tn), stored.of_torch(ask))
