"""Every operation of a process group, on each dtype, against what NumPy computes of all ranks'
inputs. Runs in several processes; `test_exchanges.py` starts it."""

import copy
import pickle
import sys
import time
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from expected import expect

DEVICE = sys.argv[2] if len(sys.argv) > 2 else "cpu"  # of all tensors
torch.set_default_device(DEVICE)
dist.init_process_group(sys.argv[1], timeout=timedelta(seconds=60))
RANK, SIZE = dist.get_rank(), dist.get_world_size()
RANKS = range(SIZE)
DTYPES = {
    "bool": np.bool_, "uint8": np.uint8, "int8": np.int8, "int16": np.int16, "int32": np.int32,
    "int64": np.int64, "float16": np.float16, "float32": np.float32, "float64": np.float64,
    "complex64": np.complex64,
}  # fmt: skip


def given(rank: int, dtype: str, shape: tuple[int, ...] = (5, 3)) -> np.ndarray:
    """What a rank puts in: any rank can compute it."""
    numbers = np.random.default_rng(100 + rank).integers(0, 4, shape)
    return numbers.astype(DTYPES[dtype])


def tensor(rank: int, dtype: str, shape: tuple[int, ...] = (5, 3)) -> torch.Tensor:
    return torch.from_numpy(given(rank, dtype, shape)).to(DEVICE)


def same(got: torch.Tensor, want: np.ndarray) -> None:
    have = got.cpu().numpy()
    np.testing.assert_array_equal(have, want.astype(have.dtype))


def check_reductions() -> None:
    functions = {"SUM": np.sum, "PRODUCT": np.prod, "MIN": np.min, "MAX": np.max}
    for dtype in DTYPES:
        everyone = np.stack([given(r, dtype) for r in RANKS])
        for name, function in functions.items():
            if dtype == "complex64" and name != "SUM":
                continue
            op = getattr(dist.ReduceOp, name)
            want = function(everyone.astype(object) if dtype == "bool" else everyone, axis=0)
            t = tensor(RANK, dtype)
            dist.all_reduce(t, op)
            same(t, np.asarray(want))
            t = tensor(RANK, dtype)
            dist.reduce(t, SIZE - 1, op)
            same(t, np.asarray(want) if RANK == SIZE - 1 else given(RANK, dtype))
    mean = torch.full((2,), float(RANK))
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    same(mean, np.full(2, (SIZE - 1) / 2))
    bits = torch.tensor([1 << RANK, 7])
    dist.all_reduce(bits, dist.ReduceOp.BOR)
    same(bits, np.array([(1 << SIZE) - 1, 7]))
    half = torch.full((1,), 1.0, dtype=torch.bfloat16)
    half += RANK * 256  # a sum in bfloat16 would lose the ones
    dist.all_reduce(half)
    assert half.item() == float(
        torch.tensor(
            sum(1.0 + 256 * r if r == 0 else 256.0 * r for r in RANKS), dtype=torch.bfloat16
        )
    ), half
    strided = torch.zeros(3, 4).t()
    strided += RANK
    dist.all_reduce(strided)
    same(strided, np.full((4, 3), sum(RANKS)))
    # The parameters of a model are changed without a word from autograd.
    leaf = torch.nn.Parameter(torch.ones(2))
    dist.all_reduce(leaf)
    same(leaf.detach(), np.full(2, SIZE))


def check_sparse_sums() -> None:
    """Of different numbers of elements, some at the same places; one rank may have none."""
    places = [[0, 2], [], [2, 2, 1]][RANK]
    values = torch.tensor([[n + 1.0, RANK] for n in range(len(places))]).reshape(-1, 2)
    given = torch.sparse_coo_tensor(torch.tensor([places], dtype=torch.int64), values, (4, 2))
    dist.all_reduce(given)
    assert given.is_sparse and given.shape == (4, 2)
    same(given.to_dense(), np.array([[1.0, 0], [3, 2], [2 + 1 + 2, 4], [0, 0]]))
    expect(RuntimeError, "sparse", lambda: dist.all_reduce(given, dist.ReduceOp.MAX))


def check_sparse_gradients() -> None:
    """DistributedDataParallel of an embedding: averages of the rows that any rank has used."""
    ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Embedding(5, 2, sparse=True))
    for step in range(2):
        ddp.zero_grad()
        rows = torch.tensor([RANK, 3])
        (ddp(rows) * torch.tensor([[1.0 + RANK], [step + 1.0]])).sum().backward()
        grad = ddp.module.weight.grad
        assert grad.is_sparse and grad.sparse_dim() == 1
        assert grad.coalesce().indices().tolist() == [[0, 1, 2, 3]]
        want = np.array([1 / 3, 2 / 3, 1.0, step + 1.0, 0.0])
        same(grad.to_dense(), np.stack([want, want], 1))


def check_movements() -> None:
    for dtype in DTYPES:
        t = tensor(RANK, dtype)
        dist.broadcast(t, 1)
        same(t, given(1, dtype))
        mine = tensor(RANK, dtype)
        places = [torch.zeros_like(mine) for _ in RANKS]
        dist.all_gather(places, mine)
        for r in RANKS:
            same(places[r], given(r, dtype))
        flat = torch.zeros(5 * SIZE, 3, dtype=mine.dtype)
        dist.all_gather_into_tensor(flat, mine)
        same(flat, np.concatenate([given(r, dtype) for r in RANKS]))
        whole = tensor(RANK, dtype, (2 * SIZE, 3))
        out = torch.zeros_like(whole)
        dist.all_to_all_single(out, whole)
        parts = [given(r, dtype, (2 * SIZE, 3))[2 * RANK : 2 * RANK + 2] for r in RANKS]
        same(out, np.concatenate(parts))
    uneven = [torch.zeros(r + 1) for r in RANKS]
    dist.all_gather(uneven, torch.full((RANK + 1,), float(RANK)))
    assert [t.tolist() for t in uneven] == [[float(r)] * (r + 1) for r in RANKS]
    places = [torch.zeros(2) for _ in RANKS] if RANK == 1 else None
    dist.gather(torch.full((2,), float(RANK)), places, dst=1)
    assert RANK != 1 or [t[0].item() for t in places] == [float(r) for r in RANKS]
    t = torch.zeros(2)
    dist.scatter(t, [torch.full((2,), 10.0 + r) for r in RANKS] if RANK == 2 else None, src=2)
    same(t, np.full(2, 10.0 + RANK))
    sizes = [r + 1 for r in RANKS]
    out = torch.zeros((RANK + 1) * SIZE)
    dist.all_to_all_single(out, torch.arange(sum(sizes)) * 1.0, [RANK + 1] * SIZE, sizes)
    at = sum(sizes[:RANK])
    same(out, np.tile(np.arange(at, at + RANK + 1), SIZE))
    dist.all_reduce(torch.zeros(0))
    dist.broadcast(torch.zeros(0, 3), 0)


def check_scattered_sums() -> None:
    whole = [tensor(r, "float32", (2 * SIZE,)) for r in RANKS]
    total = np.sum([w.cpu().numpy() for w in whole], axis=0)
    part = torch.zeros(2)
    dist.reduce_scatter_tensor(part, whole[RANK])
    same(part, total[2 * RANK : 2 * RANK + 2])
    part = torch.zeros(2)
    dist.reduce_scatter(part, list(whole[RANK].split(2)))
    same(part, total[2 * RANK : 2 * RANK + 2])


def check_messages() -> None:
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    got = torch.zeros(4)
    ops = [dist.P2POp(dist.isend, torch.full((4,), float(RANK)), right)]
    ops.append(dist.P2POp(dist.irecv, got, left))
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    same(got, np.full(4, left))
    if RANK == 0:  # tags tell messages apart, whatever their order
        dist.isend(torch.tensor([1.0]), 1, tag=5)
        dist.send(torch.tensor([2.0]), 1, tag=6)
    elif RANK == 1:
        first, second = torch.zeros(1), torch.zeros(1)
        dist.recv(second, 0, tag=6)
        assert dist.recv(first, 0, tag=5) == 0
        assert (first.item(), second.item()) == (1.0, 2.0)


def check_asynchronous() -> None:
    tensors = [torch.full((1000,), float(RANK + i)) for i in range(20)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    for i, (work, t) in enumerate(zip(works, tensors)):
        assert work.wait()
        same(t, np.full(1000, sum(RANKS) + i * SIZE))
        deadline = time.monotonic() + 30  # on a device it is the stream that has waited
        while DEVICE != "cpu" and not work.is_completed() and time.monotonic() < deadline:
            time.sleep(0.001)
        assert work.is_completed() and work.is_success()
    future = dist.all_reduce(torch.ones(1), async_op=True).get_future()
    assert future.then(lambda f: f.value()[0].item() + 1).wait() == SIZE + 1


def check_objects() -> None:
    places = [None] * SIZE
    dist.all_gather_object(places, {"rank": RANK, "text": "x" * RANK})
    assert places == [{"rank": r, "text": "x" * r} for r in RANKS]
    shared = ["a", {"b": 2}] if RANK == 1 else [None, None]
    dist.broadcast_object_list(shared, src=1)
    assert shared == ["a", {"b": 2}]
    mine = [None]
    dist.scatter_object_list(mine, [("part", r) for r in RANKS] if RANK == 0 else None, src=0)
    assert mine == [("part", RANK)]
    everyone = [None] * SIZE if RANK == 0 else None
    dist.gather_object(RANK * 2, everyone)
    assert RANK != 0 or everyone == [2 * r for r in RANKS]


def check_groups() -> None:
    pair = dist.new_group([0, 2])
    if RANK in (0, 2):
        t = torch.tensor([float(RANK)])
        dist.all_reduce(t, group=pair)
        assert t.item() == 2.0 and dist.get_world_size(pair) == 2
        assert dist.get_global_rank(pair, 1) == 2 and dist.get_group_rank(pair, 2) == 1
        dist.broadcast(t.fill_(RANK), 2, group=pair)
        assert t.item() == 2.0
    else:
        assert pair == dist.GroupMember.NON_GROUP_MEMBER and dist.get_rank(pair) == -1
        dist.all_reduce(torch.ones(1), group=pair)
        dist.destroy_process_group(pair)  # left already
    expect(ValueError, "Rank 1 has appeared in both",
           lambda: dist.new_subgroups_by_enumeration([[0, 1], [1]]))  # fmt: skip
    expect(ValueError, "Invalid backend: 'none'", lambda: dist.new_group([0, 2], backend="none"))
    dist.barrier()
    dist.monitored_barrier(timeout=timedelta(seconds=30))


def check_operations_are_not_copied() -> None:
    work = dist.all_reduce(torch.ones(3), async_op=True)
    expect(TypeError, "cannot be copied", lambda: copy.deepcopy(work))
    work.wait()


def check_differentiable() -> None:
    import torch.distributed.nn as dnn

    x = torch.full((2,), RANK + 1.0, requires_grad=True)
    (dnn.all_reduce(x * x) * (RANK + 1)).sum().backward()
    same(x.grad, np.full(2, sum(r + 1 for r in RANKS) * 2 * (RANK + 1.0)))
    x = torch.full((2,), RANK + 1.0, requires_grad=True)
    gathered = dnn.all_gather(x)
    sum((i + 1) * t.sum() for i, t in enumerate(gathered)).backward()
    same(x.grad, np.full(2, SIZE * (RANK + 1.0)))


def check_methods_of_a_group() -> None:
    world = dist.group.WORLD
    t = torch.ones(2)
    world.allreduce([t]).wait()
    same(t, np.full(2, SIZE))
    t = torch.full((2,), float(RANK))
    world.allreduce(t, dist.ReduceOp.MAX).wait()
    same(t, np.full(2, SIZE - 1))
    t.fill_(RANK)
    world.broadcast([t], 1).wait()
    same(t, np.ones(2))
    world.barrier().wait()
    parts = [torch.zeros(2) for _ in RANKS]
    world.allgather([parts], [torch.full((2,), float(RANK))]).wait()
    same(torch.stack(parts), np.array([[r, r] for r in RANKS]))
    world.reduce_scatter([t], [[torch.full((2,), float(r)) for r in RANKS]]).wait()
    same(t, np.full(2, RANK * SIZE))
    sent = world.send([torch.full((2,), float(RANK))], (RANK + 1) % SIZE, 3)
    world.recv([t], (RANK - 1) % SIZE, 3).wait()
    sent.wait()
    same(t, np.full(2, (RANK - 1) % SIZE))
    first, second = torch.ones(2), torch.full((3,), float(RANK))
    with dist._coalescing_manager(async_ops=True) as together:
        dist.all_reduce(first)
        dist.all_reduce(second)
    together.wait()
    same(first, np.full(2, SIZE))
    same(second, np.full(3, sum(RANKS)))
    assert dist.get_backend_config().startswith(sys.argv[1] if ":" in sys.argv[1] else "cpu:")


def check_groups_of_one() -> None:
    """Whoever is alone in a group gets what it gave."""
    alone = [dist.new_group([r]) for r in RANKS][RANK]
    mine = torch.arange(3.0) + RANK + 5

    def got(run) -> None:
        t = torch.zeros(3)
        run(t)
        same(t, mine.cpu().numpy())

    got(lambda t: dist.all_to_all_single(t, mine, group=alone))
    got(lambda t: dist.all_to_all([t], [mine], group=alone))
    got(lambda t: dist.gather(mine, [t], dst=RANK, group=alone))
    got(lambda t: dist.scatter(t, [mine], src=RANK, group=alone))
    got(lambda t: dist.all_gather([t], mine, group=alone))
    got(lambda t: dist.reduce_scatter(t, [mine], group=alone))
    dist.all_to_all_single(torch.zeros(0), torch.zeros(0), group=alone)


def check_meshes() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.distributed.tensor import _collective_utils as along

    mesh = init_device_mesh(DEVICE, (SIZE, 1), mesh_dim_names=("rows", "columns"))
    assert mesh.get_coordinate() == (RANK, 0)
    assert mesh["columns"]._flatten("alone").size() == 1
    copied = pickle.loads(pickle.dumps(mesh))
    assert copied == mesh
    assert dist.get_process_group_ranks(copied.get_group("rows")) == list(RANKS)
    cut = distribute_tensor(torch.arange(7.0), mesh["rows"], [Shard(0)])
    same(pickle.loads(pickle.dumps(cut)).full_tensor(), np.arange(7.0))
    few = dist.device_mesh.DeviceMesh(DEVICE, [0, 2])
    t = torch.ones(1)
    dist.all_reduce(t, group=few.get_group())  # nothing, outside
    assert t.item() == (1 if RANK == 1 else 2) and few.get_local_rank() == (0, -1, 1)[RANK]
    small = init_device_mesh(DEVICE, (2,))
    assert small.get_coordinate() == ((RANK,) if RANK < 2 else None) and small.size() == 2
    pair = dist.new_group([1, 2])
    if RANK:
        by_group = dist.DeviceMesh.from_group(pair, DEVICE, mesh_dim_names=("pair",))
        assert by_group.mesh.tolist() == [1, 2] and by_group.get_local_rank("pair") == RANK - 1
        expect(ValueError, "Invalid mesh [0, 1] for ProcessGroup with ranks [1, 2]",
               lambda: dist.DeviceMesh.from_group(pair, DEVICE, [0, 1]))  # fmt: skip
        expect(ValueError, "several groups need mesh",
               lambda: dist.DeviceMesh.from_group([pair], DEVICE))  # fmt: skip
        expect(ValueError, "but got mesh [[1, 2]] and 1 ProcessGroups",
               lambda: dist.DeviceMesh.from_group([pair], DEVICE, [[1, 2]]))  # fmt: skip
    whole = dist.DeviceMesh.from_group([dist.group.WORLD], DEVICE, list(RANKS))
    got = distribute_tensor(torch.arange(4.0), whole, [Shard(0)]).full_tensor()
    same(got, np.arange(4.0))
    expect(RuntimeError, "must be in the mesh once", lambda: dist.DeviceMesh(DEVICE, [0, 1, 1]))
    expect(RuntimeError, "without mesh_dim_names", lambda: small["rows"])
    expect(RuntimeError, "Each mesh_dim_name must be unique",
           lambda: init_device_mesh(DEVICE, (1, 2), mesh_dim_names=("a", "a")))  # fmt: skip
    bare = dist.DeviceMesh(DEVICE, list(RANKS), _init_backend=False)
    expect(RuntimeError, "process groups not initialized!", bare.get_group)
    row = mesh["rows"]
    assert row._get_root_mesh() is mesh and mesh._get_root_mesh() is mesh
    assert row._get_root_mesh_dim() == 0 and mesh._get_root_mesh_dim() is None
    assert mesh._get_mesh_dim_by_name("columns") == 1
    assert row._dim_group_names == mesh._dim_group_names[:1] == [row.get_group().group_name]
    part = torch.zeros(2, 2)
    parts = [torch.full((2, 2), r + 1.0) for r in RANKS]
    along.mesh_scatter(part, parts, mesh, 0, group_src=1)
    assert part.tolist() == [[RANK + 1.0] * 2] * 2
    along.mesh_broadcast(part, mesh, 0, group_src=1)
    assert part.tolist() == [[2.0] * 2] * 2
    padded = along.pad_tensor(part, 0, 1)
    assert padded.tolist() == [[2.0] * 2, [2.0] * 2, [0.0] * 2]
    assert along.unpad_tensor(padded, 0, 1).tolist() == part.tolist()
    assert along.pad_tensor(part, 1, 1).shape == (2, 3)
    assert along.unpad_tensor(part, 1, 0) is along.pad_tensor(part, -1, 0) is part
    sizes = [t.shape for t in along.fill_empty_tensor_to_shards([part], 1, 2)]
    assert sizes == [(2, 2), (2, 0), (2, 0)]
    flat = mesh._flatten()
    assert flat.mesh_dim_names == ("rows_columns",) and flat.get_local_rank() == RANK
    t = torch.ones(1)
    dist.all_reduce(t, group=flat.get_group())
    assert t.item() == SIZE

    assert mesh["rows_columns"] is flat and mesh._flatten() is flat
    expect(ValueError, "there already", lambda: mesh["columns"]._flatten("rows_columns"))
    both = dist.DeviceMesh._concatenate([mesh["columns"], mesh["rows"]])
    assert both.mesh_dim_names == ("columns", "rows") and both.shape == (1, SIZE)
    expect(ValueError, "of one mesh", lambda: dist.DeviceMesh._concatenate([mesh["rows"], small]))
    cut = mesh["rows"]._unflatten("rows", (1, SIZE), ("outer", "inner"))
    assert cut.mesh_dim_names == ("outer", "inner") and cut.get_coordinate() == (0, RANK)
    t = torch.full((1,), RANK + 1.0)
    dist.all_reduce(t, group=cut.get_group("outer"))
    dist.all_reduce(t, group=cut.get_group("inner"))
    assert t.item() == SIZE * (SIZE + 1) / 2
    expect(ValueError, "are not the", lambda: mesh._unflatten(0, (SIZE, 2), ("a", "b")))
    with mesh as entered:
        assert entered is mesh and distribute_tensor(torch.ones(2)).device_mesh is mesh
    assert distribute_tensor(torch.ones(2)).device_mesh.ndim == 1


def check_divided_groups() -> None:
    own = dist.split_group(split_ranks=[list(RANKS)[1:], [0]])
    t = torch.ones(1)
    dist.all_reduce(t, group=own)
    assert t.item() == (1 if RANK == 0 else SIZE - 1) and own.bound_device_id is None
    again = dist.split_group(own, [[own.size() - 1]])
    last = dist.get_process_group_ranks(own)[-1] == RANK
    assert (dist.get_process_group_ranks(again) == [RANK]) if last else (
        again is dist.GroupMember.NON_GROUP_MEMBER)  # fmt: skip
    for wrong in ([[0, SIZE]], [[0], [0]], []):
        expect(ValueError, "split_group", lambda w=wrong: dist.split_group(split_ranks=w))


def check_functional_lists() -> None:
    import torch.distributed._functional_collectives as funcol

    ours, sizes = [torch.full((n,), RANK + 1.0) for n in (SIZE, 2 * SIZE)], (SIZE, 2 * SIZE)
    each = [np.concatenate([np.full(n, r + 1.0) for r in RANKS]) for n in sizes]
    for got, want in zip(funcol.all_gather_into_tensor_coalesced(ours, dist.group.WORLD), each):
        same(got, want)
    total = SIZE * (SIZE + 1) / 2
    for got, n in zip(funcol.reduce_scatter_tensor_coalesced(
            ours, "sum", [0, 0], dist.group.WORLD), (1, 2)):  # fmt: skip
        same(got, np.full(n, total))
    got, peer = torch.empty(1), (RANK + 1) % SIZE
    work = dist.P2POp(dist.isend, torch.full((1,), 1.0 * RANK), group_peer=peer)
    assert work.peer == peer
    come = dist.P2POp(dist.irecv, got, group_peer=(RANK - 1) % SIZE)
    for w in dist.batch_isend_irecv([work, come]):
        w.wait()
    assert got.item() == (RANK - 1) % SIZE


def check_default_device() -> None:
    """A program's default device is where its tensors are made, not what lies between."""
    with torch.device("meta"):
        mine = torch.full((RANK + 1,), float(RANK), device="cpu")
        everyone = [torch.empty(r + 1, device="cpu") for r in RANKS]
        dist.all_gather(everyone, mine)
        for r in RANKS:
            same(everyone[r], np.full(r + 1, r))
        dist.all_gather(even := [torch.empty(1, device="cpu") for _ in RANKS], mine[:1])
        assert [t.item() for t in even] == list(RANKS)
        parts = [torch.full((2,), 10.0 * RANK + r, device="cpu") for r in RANKS]
        got = torch.empty(2, device="cpu")
        dist.reduce_scatter(got, parts)
        same(got, np.full(2, sum(10 * r + RANK for r in RANKS)))
        swapped = [torch.empty(2, device="cpu") for _ in RANKS]
        dist.all_to_all(swapped, parts)
        assert [t[1].item() for t in swapped] == [10 * r + RANK for r in RANKS]
        dist.scatter(got, parts if RANK == 1 else None, src=1)
        same(got, np.full(2, 10 + RANK))
        into = swapped if RANK == 0 else None
        dist.gather(got, into, dst=0)
        assert into is None or [t[0].item() for t in into] == [10 + r for r in RANKS]


def check_default_store() -> None:
    if sys.argv[1] == "mpi":
        return  # whose processes meet elsewhere
    store = dist.distributed_c10d._get_default_store()
    store.set(f"from {RANK}", str(RANK))
    assert [store.get(f"from {r}") for r in RANKS] == [str(r).encode() for r in RANKS]
    dist.barrier()


def check_mistakes() -> None:
    """What ranks call in contradiction is an error on all of them, and nothing is lost by it."""
    one = torch.ones(3)
    different = "called different operations"
    expect(RuntimeError, different, lambda: dist.all_reduce(torch.ones(3 + (RANK == 1))))
    expect(
        RuntimeError,
        "product",
        lambda: dist.all_reduce(
            one.clone(), dist.ReduceOp.PRODUCT if RANK == 1 else dist.ReduceOp.SUM
        ),
    )
    expect(RuntimeError, "root 1", lambda: dist.broadcast(one.clone(), 1 if RANK == 1 else 0))
    expect(RuntimeError, "float64", lambda: dist.all_reduce(one.double() if RANK == 1 else one))
    expect(RuntimeError, "barrier", lambda: dist.barrier() if RANK == 1 else dist.broadcast(one, 0))
    expect(ValueError, "7", lambda: dist.broadcast(one, 7))
    expect(TypeError, "torch.Tensor", lambda: dist.all_reduce([1.0]))
    expect(RuntimeError, "cannot use", lambda: dist.all_reduce(one, dist.ReduceOp.BAND))
    expect(TypeError, "such as ReduceOp.SUM", lambda: dist.all_reduce(one, op="sum"))
    few = [None] * (SIZE - 1)
    expect(ValueError, "2 places for the objects of 3", lambda: dist.all_gather_object(few, 1))
    expect(ValueError, "2 places for the objects of 3",
           lambda: dist.gather_object(1, few, dst=RANK))  # fmt: skip
    assert few == [None] * (SIZE - 1)
    t = torch.ones(1)
    dist.all_reduce(t)
    assert t.item() == SIZE


for name, check in list(globals().items()):
    if name.startswith("check_"):
        check()
dist.destroy_process_group()
if sys.argv[1] == "gloo":  # a second group after the first
    dist.init_process_group("gloo")
    dist.barrier()
    dist.destroy_process_group()
print("ok\n", end="")
