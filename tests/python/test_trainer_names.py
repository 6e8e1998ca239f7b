"""Names that packages which train and quantize import, each by what it does; numbers that come
from PyTorch 2.13 say so."""

from __future__ import annotations

import gc
import importlib
from typing import Any

import pytest
import stored
import tenon as tn
from tenon import nn
from tenon._torch import _vmap_internals
from tenon._torch._higher_order_ops.inline_asm_elementwise import inline_asm_elementwise
from tenon._torch._subclasses.fake_tensor import FakeTensorConverter, FakeTensorMode
from tenon.autograd import functional
from tenon.distributed._tensor import device_mesh
from tenon.distributed.checkpoint import api, default_planner, planner
from tenon.distributed.checkpoint import utils as checkpoint_utils
from tenon.distributed.tensor.experimental import register_sharding
from tenon.optim import lbfgs
from tenon.serialization import normalize_storage_type
from tenon.utils import _device
from tenon.utils.data import dataloader, dataset


@pytest.fixture
def group(tmp_path):
    """The name of a group of one process."""
    dist = tn.distributed
    dist.init_process_group("gloo", f"file://{tmp_path}/met", rank=0, world_size=1)
    yield dist.distributed_c10d._get_default_group().group_name
    dist.destroy_process_group()


def test_collectives_are_operators(group):
    ops, x = tn.ops._c10d_functional, tn.arange(4.0).view(2, 2)
    assert ops.all_gather_into_tensor.default is tn.ops._c10d_functional.all_gather_into_tensor
    assert str(ops.all_gather_into_tensor.default._schema) == (
        "_c10d_functional::all_gather_into_tensor(Tensor input, int group_size, str group_name)"
        " -> Tensor"
    )
    for got in (
        ops.wait_tensor(ops.all_gather_into_tensor(x, 1, group)), ops.all_reduce(x, "sum", group),
        ops.reduce_scatter_tensor(x, "avg", 1, group), ops.all_to_all_single(x, [2], [2], group),
        ops.broadcast(x, 0, group), ops._wrap_tensor_autograd(x),
        *ops.all_reduce_coalesced([x, x], "max", group),
        *ops.all_gather_into_tensor_coalesced([x], 1, group),
        *ops.reduce_scatter_tensor_coalesced([x], "sum", 1, group),
        ops.all_gather_into_tensor_out(x, 1, group, out=tn.zeros(2, 2)),
        ops.reduce_scatter_tensor_out(x, "sum", 1, group, out=tn.zeros(2, 2)),
        tn.ops.c10d_functional.all_gather_into_tensor(x, "", [0], 1),
        tn.ops.c10d_functional.all_reduce(x, "sum", "", [0], 1),
        tn.ops.c10d_functional.wait_tensor(x),
    ):  # fmt: skip
        assert got.equal(x)
    with pytest.raises(ValueError, match="group_size is 3, and the group has 1 processes"):
        ops.all_gather_into_tensor(x, 3, group)
    y = x.clone()
    before = y._version
    assert ops.all_reduce_(y, "sum", group) is y and y._version > before
    assert ops.broadcast_(y, 0, group) is y and y.equal(x)
    leaf = tn.ones(2, 2, requires_grad=True)
    (tn.ops._c10d_functional_autograd.all_gather_into_tensor(leaf, 1, group) * x).sum().backward()
    assert leaf.grad.equal(x)


def test_collectives_that_write_return_their_work(group):
    ops, x = tn.ops.c10d, tn.arange(4.0).view(2, 2)
    members, total = tn.distributed.distributed_c10d._get_default_group(), tn.distributed.ReduceOp
    for tensors, work in (
        ops.broadcast_([x], members, 0, 0), ops.allreduce_([x], members, total.SUM, None),
        ops.scatter_([tn.zeros(2, 2)], [[x]], members, 0),
    ):  # fmt: skip
        work.wait()
        assert tensors[0].equal(x)
    for tensor, work in (
        ops._allgather_base_(tn.zeros(2, 2), x, members),
        ops._reduce_scatter_base_(tn.zeros(2, 2), x, members, total.SUM),
    ):
        work.wait()
        assert tensor.equal(x)
    with pytest.raises(NotImplementedError, match="sparse_indices"):
        ops.allreduce_([x], members, total.SUM, x)


def test_the_first_vmap():
    a, b = tn.randn(3, 4), tn.randn(4, 3)
    assert _vmap_internals._vmap(tn.dot, (0, 1))(a, b).allclose((a * b.T).sum(1))
    with pytest.warns(FutureWarning, match="use `torch.vmap` instead"):
        assert _vmap_internals.vmap(tn.sum)(a).allclose(a.sum(1))
    with pytest.raises(NotImplementedError, match="allow_none_pass_through"):
        _vmap_internals._vmap(tn.sum, allow_none_pass_through=True)


def test_devices_decorate():
    assert _device.set_device("meta")(lambda: tn.ones(2))().device == tn.device("meta")
    assert _device.device_decorator("cpu", lambda: tn.ones(2))().device.type == "cpu"


@pytest.mark.parametrize("name", ["hpu", "xla", "mtia", "ipu", "maia"])
def test_devices_that_programs_compare_with(name):
    assert tn.device(name).type == name and tn.device(f"{name}:1").index == 1
    with pytest.raises(RuntimeError, match=f"no plugin serves device '{name}'"):
        tn.zeros(2, device=name)


def test_types_of_python_name_dtypes():
    assert tn.finfo(float) is tn.finfo(tn.float64) and tn.finfo(complex).dtype == "float64"
    assert tn.iinfo(int) == tn.iinfo(tn.int64)
    assert tn.can_cast(int, float) and not tn.can_cast(complex, float)
    for args, keywords, want in (
        ((float,), {}, tn.float64), (("cpu", complex), {}, tn.complex128),
        ((), {"dtype": float}, tn.float64),
    ):  # fmt: skip
        assert nn.Linear(2, 2).to(*args, **keywords).weight.dtype is want
    with pytest.raises(TypeError, match="only accepts floating point or complex"):
        nn.Linear(2, 2).to(int)
    with pytest.raises(TypeError, match="not supported by iinfo"):
        tn.iinfo(bool)
    with pytest.raises(TypeError, match="floating point input type"):
        tn.finfo(int)


def test_names_of_checkpoints():
    assert planner.LoadPlanner is default_planner.LoadPlanner
    assert checkpoint_utils.CheckpointException is api.CheckpointException
    assert device_mesh.DeviceMesh is tn.distributed.device_mesh.DeviceMesh
    for name in ("LoadPlanner", "SavePlanner"):
        with pytest.raises(TypeError, match="abstract"):
            getattr(planner, name)()
    assert normalize_storage_type(tn.FloatStorage) is tn.FloatStorage
    assert dataloader.T_co is dataset.T_co


def test_names_of_quantizers():
    kind = tn.float4_e2m1fn_x2
    assert repr(kind) == "torch.float4_e2m1fn_x2" and kind.is_floating_point
    assert not tn.uint4.is_floating_point
    with pytest.raises(TypeError, match="dtype"):
        tn.zeros(2, dtype=kind)
    with pytest.raises(NotImplementedError, match="inline_asm_elementwise"):
        inline_asm_elementwise(tn.ones(2))

    def rule(x):
        return []

    assert register_sharding([])(rule) is rule
    with pytest.raises(TypeError, match="expected an operator, not int"):
        register_sharding([tn.ops.aten.add.Tensor, 3])


def test_one_stand_in_for_a_tensor():
    mode, made = FakeTensorMode(), FakeTensorConverter()
    x = tn.ones(2, 3).T
    fake = made.from_real_tensor(mode, x)
    assert fake.shape == (3, 2) and fake.stride() == (1, 3)
    assert made.from_real_tensor(mode, x) is fake
    assert made.from_real_tensor(FakeTensorMode(), x) is not fake
    del x
    gc.collect()
    assert len(made._made) == 0


def test_parts_of_jacobians():
    basis = functional._construct_standard_basis_for((tn.ones(2), tn.ones(3, 1)), (2, 3))
    assert tn.cat(basis, 1).equal(tn.eye(5)) and basis[0].shape == (5, 2)
    x = tn.ones(1)
    assert functional._as_tuple(x, "inputs", "f") == (False, (x,))
    assert functional._as_tuple([1, 2]) == (1, 2) and functional._as_tuple(3) == (3,)
    with pytest.raises(TypeError, match="inputs given to f"):
        functional._as_tuple(3, "inputs", "f")
    assert functional._tuple_postprocess(((1,), (2,)), (True, False)) == (1, 2)
    assert functional._tuple_postprocess(((1,), (2,)), (False, True)) == (1,)
    assert functional._tuple_postprocess((5,), False) == 5
    y = x.requires_grad_() * 2
    assert functional._grad_postprocess((y,), True)[0] is y
    assert not functional._grad_postprocess(((y,),), False)[0][0].requires_grad


def test_searches_by_pytorchs_arguments():
    """Numbers of PyTorch's."""

    def rosenbrock(x, t, d):
        y = (x + t * d).detach().requires_grad_()
        f = (1 - y[0]) ** 2 + 100 * (y[1] - y[0] ** 2) ** 2
        return float(f), tn.autograd.grad(f, y)[0]

    x = tn.tensor([-1.0, 1.5])
    f, g = rosenbrock(x, 0, tn.zeros(2))
    for c2, want in ((0.9, WIDE), (0.1, NARROW)):
        found = lbfgs._strong_wolfe(rosenbrock, x, 1.0, -g, f, g, -g.dot(g), c2=c2)
        assert (found[0], float(found[2]), found[3]) == pytest.approx(want, rel=1e-5)
    slopes = tn.tensor(-2.0), tn.tensor(3.0)
    inside = lbfgs._cubic_interpolate(0.0, 1.0, slopes[0], 1.0, 2.0, slopes[1])
    assert float(inside) == pytest.approx(0.27924084663391113)
    assert lbfgs._cubic_interpolate(0.0, 1.0, slopes[0], 1.0, 2.0, 3.0, (0.6, 0.9)) == 0.6


WIDE = (5.171917915344238, 0.001044458243995905, 6)
NARROW = (4.770577430725098, 0.0009324831771664321, 7)


def test_operators_that_python_writes_are_in_aten():
    aten, x = tn.ops.aten, tn.tensor([[4.0, 1.0], [1.0, 3.0]])
    assert aten.linalg_det.default(x) == tn.linalg.det(x)
    assert aten.linalg_eigvalsh(x).equal(tn.linalg.eigvalsh(x))
    assert aten.special_psi(x).equal(tn.special.psi(x))
    assert aten.linalg_multi_dot([x, x]).equal(x @ x) and aten.chain_matmul([x, x]).equal(x @ x)
    assert aten.block_diag([x, x]).equal(tn.block_diag(x, x))
    assert aten.isin(x, tn.tensor([1.0])).tolist() == [[False, True], [True, False]]
    assert aten.fill_diagonal_(x.clone(), 0).tolist() == [[0, 1], [1, 0]]
    assert aten.is_same_size(x, x.T) and not aten.is_same_size(x, x[0])
    assert aten.sym_size.int(x, 1) == 2 and aten.sym_size(x) == (2, 2)
    assert aten.sym_stride.int(x, 0) == 2 and aten.sym_stride(x) == (2, 1)
    assert aten.sym_numel(x) == 4 and aten.sym_storage_offset(x[1]) == 2
    values, inverse, counts = aten.unique_consecutive(tn.tensor([1, 1, 2]), False, True)
    assert values.tolist() == [1, 2] and inverse.shape == (0,) and counts.tolist() == [2, 1]
    for name in ("linalg_Tensor", "linalg_nothing", "load", "linalg_", "fft_"):
        with pytest.raises(AttributeError, match=f"no operator 'aten::{name}'"):
            getattr(aten, name)
    assert not hasattr(tn.cpu, "_is_amx_tile_supported")


def written(lib: Any) -> list[str]:
    util = importlib.import_module(f"{lib.__name__}.autograd.profiler_util")
    sizes = [0, 1023, 1024, -1024, 1536, 1 << 20, (1 << 30) - 1, 3 << 30, -(5 << 40)]
    times = [0.0, 999.9994, 1000.0, 1234567.0, 999999.0]
    shares = [(0, 0), (1, 3), (5, 5), (7.5, 2)]
    return [
        *(util._format_memory(n) for n in sizes),
        *(util._format_time(t) for t in times),
        *(util._format_time_share(*s) for s in shares),
    ]


def test_times_and_sizes_of_profiles_are_written_as_pytorch_does() -> None:
    assert written(tn) == stored.of_torch(written)
    util = importlib.import_module("tenon.autograd.profiler_util")
    with pytest.raises(AssertionError):
        util._format_time_share(1, 0)
    with tn.profiler.profile() as p:
        tn.ones(2) + 1
    assert type(p.key_averages()) is util.EventList
    assert all(type(e) is util.FunctionEvent for e in p.events())
    assert all(type(e) is util.FunctionEventAvg for e in p.key_averages())
