"""Parts of PyTorch that packages derive theirs from, replace or switch; numbers and messages are
those of PyTorch 2.13."""

from __future__ import annotations

import os
import signal
import time
import weakref
from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon import backends, library, nn
from tenon._program.scans import associative_scan, scan, while_loop
from tenon._torch import _guards, functions
from tenon._torch import _prims_common as prims
from tenon._torch._functorch import vmap as vmap_parts
from tenon.autograd import forward_ad
from tenon.backends import _options
from tenon.overrides import TorchFunctionMode, _mode_enabled
from tenon.utils import _foreach_utils, _pytree, swap_tensors
from tenon.utils.data import DataLoader, IterDataPipe, graph, graph_settings
from tenon.utils.data._utils import pin_memory, signal_handling, worker
from tenon.utils.data.dataloader import _BaseDataLoaderIter, _DatasetKind
from tenon.utils.data.datapipes.iter import IterableWrapper
from tenon.utils.data.datapipes.iter.sharding import SHARDING_PRIORITIES
from tenon.utils.data.datapipes.map import SequenceWrapper

# ---- Pipes in loaders ----------------------------------------------------------------------------


@pytest.fixture
def like_torch():
    tn.set_rng("torch")
    yield
    tn.set_rng("philox")


def lists(loader: Any) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


def test_workers_share_one_order_of_a_pipe(like_torch):
    """Each shuffled by a seed of its own, so that elements came twice and others never."""
    first = [[1, 9], [2, 0], [7, 8], [10, 6], [5, 4], [3]]
    second = [[1, 10], [3, 7], [5, 9], [4, 2], [8, 0], [6]]
    for persistent, after in ((False, 0.1498408), (True, 0.5944212)):
        tn.manual_seed(3)
        pipe = IterableWrapper(range(11)).shuffle().sharding_filter()
        loader = DataLoader(pipe, 2, num_workers=2, persistent_workers=persistent)
        assert lists(loader) == first and lists(loader) == second
        assert tn.rand(1).item() == pytest.approx(after, abs=1e-6)
    plain = DataLoader(pipe, 2, num_workers=2, shuffle=False)
    assert lists(plain) == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9]]


def test_a_pass_seeds_the_pipes_of_its_loader(like_torch):
    tn.manual_seed(3)
    loader = DataLoader(IterableWrapper(range(11)).shuffle().sharding_filter(), 2, shuffle=True)
    assert lists(loader) == [[1, 2], [9, 0], [7, 10], [8, 6], [5, 3], [4]]
    assert lists(loader) == [[7, 2], [8, 1], [3, 5], [10, 6], [9, 4], [0]]
    assert tn.rand(1).item() == pytest.approx(0.5944212, abs=1e-6)
    with pytest.warns(UserWarning, match="does not contain a `Shuffler`"):
        added = DataLoader(IterableWrapper(range(4)), 2, shuffle=True)
    assert lists(added) == [[0, 1], [2, 3]]  # and it is not kept
    assert type(added.dataset).__name__ == "_IterDataPipeSerializationWrapper"
    assert type(DataLoader(SequenceWrapper("ab")).dataset).__name__.startswith("_MapDataPipe")


def test_shares_of_a_pipe():
    pipe = IterableWrapper(range(12)).sharding_filter()
    pipe.apply_sharding(2, 1, SHARDING_PRIORITIES.DISTRIBUTED)
    pipe.apply_sharding(3, 2, sharding_group=SHARDING_PRIORITIES.MULTIPROCESSING)
    assert list(pipe) == [5, 11] and len(pipe) == 2
    with pytest.raises(RuntimeError, match="cannot mix DEFAULT"):
        pipe.apply_sharding(2, 0)
    with pytest.raises(ValueError, match="should be smaller"):
        pipe.apply_sharding(2, 2)
    twice = IterableWrapper(range(4)).sharding_filter().map(str).sharding_filter()
    with pytest.raises(RuntimeError, match="Sharding twice"):
        list(DataLoader(twice, 2))


def test_the_pipes_that_a_pipe_is_made_of(like_torch):
    one, two = IterableWrapper(range(8)).fork(2)
    mixed = one.map(str).zip(two).shuffle().concat(IterableWrapper([1]).shuffle())
    pipes = graph_settings.get_all_graph_pipes(graph.traverse_dps(mixed))
    names = [type(pipe).__name__ for pipe in pipes]
    assert names.count("IterableWrapperIterDataPipe") == 2 and names[0] == "ConcaterIterDataPipe"
    assert names.count("ShufflerIterDataPipe") == 2
    graph_settings.apply_random_seed(mixed, tn.Generator().manual_seed(1))
    assert [b for *_, b in list(mixed)[:-1]] == [7, 4, 2, 6, 0, 1, 5, 3]
    with pytest.raises(RuntimeError, match="Expected `IterDataPipe`"):
        graph.traverse_dps([1])
    with pytest.warns(FutureWarning, match="use `traverse_dps`"):
        assert graph.traverse(two).keys() == {id(two)}


# ---- Loaders of other packages -------------------------------------------------------------------


class Counting(_BaseDataLoaderIter):
    """What torchdata's StatefulDataLoader makes of the base."""

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        self._fetcher = _DatasetKind.create_fetcher(
            self._dataset_kind,
            self._dataset,
            self._auto_collation,
            self._collate_fn,
            self._drop_last,
        )

    def _next_data(self) -> Any:
        return self._fetcher.fetch(self._next_index())


def test_passes_of_ones_own_start_from_the_base():
    loader = DataLoader(list(range(5)), 2)
    run = Counting(loader)
    assert [b.tolist() for b in run] == [[0, 1], [2, 3], [4]] and run._num_yielded == 3
    run._reset(loader)
    assert next(run).tolist() == [0, 1] and run._num_yielded == 1
    assert (run._world_size, run._rank, run._shared_seed, len(run)) == (1, 0, None, 3)
    with pytest.raises(NotImplementedError):
        next(_BaseDataLoaderIter(loader))


@pytest.mark.parametrize(("how", "said"), [(3, "exit code 3"), (None, "killed by signal: Killed")])
def test_workers_that_fail_are_noticed(how, said):
    child = os.fork()
    if child == 0:
        if how is None:
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(how)
    signal_handling._set_worker_pids(1, [child])
    try:
        with pytest.raises(RuntimeError, match=said):
            for _ in range(500):
                signal_handling._error_if_any_worker_fails()
                time.sleep(0.01)
        signal_handling._error_if_any_worker_fails()  # said once
        with pytest.raises(ValueError, match="only once"):
            signal_handling._set_worker_pids(1, [child])
    finally:
        signal_handling._remove_worker_pids(1)
        os.waitpid(child, 0)  # the status is still there
    with pytest.raises(ValueError, match="Cannot find"):
        signal_handling._remove_worker_pids(1)


def test_what_workers_of_other_loaders_say():
    assert worker._IterableDatasetStopIteration(2).worker_id == 2
    assert worker._ResumeIteration() == worker._ResumeIteration(None)
    assert worker.ManagerWatchdog().is_alive()
    assert worker.get_worker_info() is None
    worker._worker_info = worker.WorkerInfo(id=1, num_workers=2, seed=3, dataset=None)
    try:
        assert worker.get_worker_info().id == 1
    finally:
        worker._worker_info = None
    assert callable(pin_memory._pin_memory_loop) and worker.MP_STATUS_CHECK_INTERVAL == 5.0
    assert issubclass(type(IterableWrapper([1])), IterDataPipe)


# ---- vmap with arguments of a package's own ------------------------------------------------------


class Pair:
    """A collection that adds its mapped dimension itself, as a TensorDict does."""

    def __init__(self, a: Any, b: Any) -> None:
        self.a, self.b = a, b


def test_parts_of_vmap_can_be_replaced(monkeypatch):
    x = tn.arange(6.0).reshape(3, 2)
    assert not vmap_parts.are_replaced()

    def inputs(in_dims, args, func):
        (pair,) = args
        assert in_dims == 0
        return pair.a.shape[0], [0, 0], [pair.a, pair.b], None

    def create(dims, values, level, spec):
        assert spec is None
        return (Pair(*(vmap_parts._add_batch_dim(v, d, level) for d, v in zip(dims, values))),)

    monkeypatch.setattr(vmap_parts, "_process_batched_inputs", inputs)
    monkeypatch.setattr(vmap_parts, "_create_batched_inputs", create)
    got = tn.vmap(lambda pair: (pair.a * pair.b).sum())(Pair(x, x))
    assert got.tolist() == [1.0, 13.0, 41.0]
    with pytest.raises(NotImplementedError, match="chunk_size"):
        tn.vmap(lambda pair: pair.a, chunk_size=1)(Pair(x, x))


def test_parts_of_vmap_do_what_it_does():
    x, y = tn.arange(6.0).reshape(2, 3), tn.arange(3.0)
    size, dims, values, spec = vmap_parts._process_batched_inputs((-1, None), (x, y), len)
    assert (size, dims) == (3, [1, None]) and values[0] is x
    assert vmap_parts._create_batched_inputs([None, None], values, 1, spec)[1] is y
    assert vmap_parts._unwrap_batched(y, 0, 1, 2, len).tolist() == [[0, 1, 2], [0, 1, 2]]
    for bad in ((0, 0, 0), (0,)):
        with pytest.raises(ValueError, match="in_dims is not compatible"):
            vmap_parts._process_batched_inputs(bad, (x, y), len)
    with pytest.raises(ValueError, match="out_dims is not compatible"):
        vmap_parts._unwrap_batched([x, y], (0, 0, 0), 1, 2, len)


# ---- Scans ---------------------------------------------------------------------------------------


def test_associative_scans():
    x = tn.arange(1.0, 8.0).reshape(1, 7)
    got = associative_scan(lambda a, b: a * 0.5 + b, x, 1, combine_mode="generic")
    assert got.tolist() == [[1.0, 2.5, 4.25, 6.75, 8.375, 11.875, 12.9375]]
    back = associative_scan(lambda a, b: a * b, x, -1, True, combine_mode="generic")
    assert back.tolist() == [[5040.0, 5040.0, 2520.0, 840.0, 210.0, 42.0, 7.0]]

    def step(p, q):
        return {"a": p["a"] * q["a"], "b": q["a"] * p["b"] + q["b"]}

    x.requires_grad_()
    found = associative_scan(step, {"a": x / 4, "b": x}, 1, combine_mode="generic")
    want = [1.0, 2.5, 4.875, 8.875, 16.09375, 30.140625, 59.74609375]
    assert found["b"].tolist() == [want]
    found["b"][0, -1].backward()
    assert x.grad[0, -1].item() == 1 + 30.140625 / 4
    for wrong, kind, said in (
        ({}, ValueError, "need to be on CUDA"),
        ({"combine_mode": "q"}, ValueError, "either 'pointwise' or 'generic'"),
        ({"combine_mode": "generic", "dim": 4}, IndexError, "Dimension out of range"),
    ):
        with pytest.raises(kind, match=said):
            associative_scan(step, x, **{"dim": 1, **wrong})


def test_scans_and_loops():
    x = tn.arange(1.0, 4.0).reshape(1, 3).requires_grad_()
    carry, out = scan(lambda c, v: (c + v, c * v), tn.zeros(1), x, dim=1, reverse=True)
    assert carry.tolist() == [6.0] and out.tolist() == [[5.0, 6.0, 0.0]]
    out.sum().backward()
    assert x.grad.tolist() == [[5.0, 4.0, 3.0]]
    with pytest.raises(RuntimeError, match="requires init leaves"):
        scan(lambda c, v: (c, v), (), x)
    count, doubled = while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 2), (tn.tensor(0), x))
    assert count.item() == 3 and doubled.tolist() == [[8.0, 16.0, 24.0]]
    with pytest.raises(RuntimeError, match="must return a boolean scalar"):
        while_loop(lambda v: v, lambda v: (v,), (x,))
    with pytest.raises(AssertionError, match="should return a tuple"):
        while_loop(lambda v: True, lambda v: v, (x,))


# ---- Switches and small parts --------------------------------------------------------------------


def test_settings_of_backends_can_be_frozen(monkeypatch):
    monkeypatch.setattr(_options, "frozen", False)
    monkeypatch.setenv("TENON_CUDNN_BENCHMARK", "0")
    assert not backends.flags_frozen()
    with backends.mkldnn.flags(enabled=False, allow_tf32=False):
        assert not backends.mkldnn.enabled and not backends.mkldnn.allow_tf32
    assert backends.mkldnn.enabled and backends.mkldnn.set_flags() == (True, False, True)
    with backends.nnpack.flags(enabled=False):
        assert not backends.nnpack.enabled
    backends.disable_global_flags()
    assert backends.flags_frozen()
    for module, name in (
        (backends.cudnn, "benchmark"),
        (backends.mkldnn, "enabled"),
        (backends.nnpack, "enabled"),
        (backends.opt_einsum, "strategy"),
    ):
        with pytest.raises(RuntimeError, match="after disable_global_flags"):
            setattr(module, name, True)
    with backends.cudnn.flags(benchmark=True):
        assert backends.cudnn.benchmark is True
    with getattr(backends, "__allow_nonbracketed_mutation")():
        backends.cudnn.benchmark = True
    assert backends.cudnn.benchmark is True and backends.flags_frozen()


def test_kernels_for_all_devices_and_for_triton():
    op = library.custom_op("package_parts::scaled", lambda x: x * 2, mutates_args=(),
                           device_types="cuda", schema="(Tensor x) -> Tensor")  # fmt: skip
    with pytest.raises(NotImplementedError, match="not implemented on device 'cpu'"):
        op(tn.ones(1))
    for everywhere in ("default", None, "CompositeExplicitAutograd"):
        op._kernels.pop("", None)
        library.register_kernel(op, everywhere, lambda x: x * 3)
        assert op(tn.ones(1)).item() == 3.0

    @library.triton_op("package_parts::launched", mutates_args=())
    def launched(x: tn.Tensor) -> tn.Tensor:
        return x + 1

    assert tn.ops.package_parts.launched(tn.ones(1)).item() == 2.0
    with pytest.raises(RuntimeError, match="annotated with triton.jit"):
        library.wrap_triton(len)
    with pytest.raises(RuntimeError, match="inside of a fake impl"):
        library.get_ctx()


def test_operators_under_autocast():
    seen = []

    @library.custom_op("package_parts::seen", mutates_args=())
    def op(x: tn.Tensor, y: tn.Tensor, n: tn.Tensor) -> tn.Tensor:
        seen.append((x.dtype, y.dtype, n.dtype, tn.is_autocast_enabled("cpu")))
        return x * 1

    library.register_autocast("package_parts::seen", "cpu", tn.bfloat16)
    args = tn.ones(2, requires_grad=True), tn.ones(2, dtype=tn.float64), tn.tensor(1)
    with tn.autocast("cpu", dtype=tn.bfloat16):
        assert op(*args).dtype == tn.bfloat16
    assert op(*args).dtype == tn.float32
    assert seen == [
        (tn.bfloat16, tn.float64, tn.int64, False),
        (tn.float32, tn.float64, tn.int64, False),
    ]
    with pytest.raises(ValueError, match="does not support autocast"):
        library.register_autocast(op, "nowhere", tn.float16)


def test_tensors_are_swapped():
    a, b = nn.Parameter(tn.ones(2)), tn.arange(3)
    a.name = "a"
    a.grad = tn.full((2,), 5.0)
    view, was = a.detach()[0], (id(a), id(b))
    swap_tensors(a, b)
    assert (id(a), id(b)) == was and type(a) is tn.Tensor and type(b) is nn.Parameter
    assert a.tolist() == [0, 1, 2] and a.dtype == tn.int64 and a.grad is None
    assert b.tolist() == [1.0, 1.0] and b.requires_grad and not a.requires_grad
    assert b.grad.tolist() == [5.0, 5.0] and b.name == "a" and not hasattr(a, "name")
    view.fill_(7.0)
    assert b.tolist() == [7.0, 1.0]
    kept = weakref.ref(b)
    with pytest.raises(RuntimeError, match="Cannot swap t2 because it has weakref"):
        swap_tensors(a, b)
    del kept
    with pytest.raises(RuntimeError, match="Cannot swap t1, which has a history"):
        swap_tensors(b * 2, a)


def test_questions_about_traces_and_modes():
    assert _guards.TracingContext.try_get() is None and _guards.active_fake_mode() is None
    assert _guards.detect_fake_mode([tn.ones(1)]) is None
    with pytest.raises(RuntimeError, match="must be called within an ongoing trace"):
        _guards.TracingContext.get()
    assert not _mode_enabled()
    with TorchFunctionMode():
        assert _mode_enabled()
    assert forward_ad._current_level == -1
    with forward_ad.dual_level():
        assert forward_ad._current_level == 0
    assert forward_ad._current_level == -1
    assert isinstance(tn.ones(1).untyped_storage(), tn.storage._StorageBase)
    assert not isinstance(tn.ones(1).storage(), tn.storage._StorageBase)


def test_private_and_removed_functions():
    names = functions.all_of_them()
    assert names["_shape_as_tensor"](tn.ones(2, 3)).tolist() == [2, 3]
    assert names["_cast_Long"](tn.tensor([1.5])).tolist() == [1]
    crow, col = tn.tensor([0, 2, 3]), tn.tensor([0, 1, 1])
    coo = names["_convert_indices_from_csr_to_coo"]
    assert coo(crow, col).tolist() == [[0, 0, 1], [0, 1, 1]]
    turned = coo(crow, col, out_int32=True, transpose=True)
    assert turned.tolist() == [[0, 1, 1], [0, 0, 1]] and turned.dtype == tn.int32
    csr = names["_convert_indices_from_coo_to_csr"]
    assert csr(tn.tensor([0, 0, 1]), 3).tolist() == [0, 2, 3, 3]
    with pytest.raises(RuntimeError, match="deprecated in favor of `torch.linalg.eigh`"):
        names["symeig"](tn.eye(2))
    with pytest.warns(UserWarning, match="'set_vital' is deprecated"):
        assert names["set_vital"]("a", "b", "c") is None


# ---- Names that packages import ------------------------------------------------------------------


def test_facts_of_dtypes_and_sizes() -> None:
    kinds = prims.ELEMENTWISE_TYPE_PROMOTION_KIND
    half, whole, real = tn.ones(2).half(), tn.ones(2, dtype=tn.int32), tn.tensor(1.0)
    for kind, args, want in (
        (kinds.DEFAULT, (half, 2), (tn.float32, tn.float16)),
        (kinds.NO_OPMATH, (half, real), (tn.float16, tn.float16)),
        (kinds.INT_TO_FLOAT, (whole, 3), (tn.float32, tn.float32)),
        (kinds.BOOL_TO_LONG, (whole > 0,), (tn.int64, tn.int64)),
        (kinds.ALWAYS_BOOL, (whole, real), (tn.float32, tn.bool)),
        (kinds.COMPLEX_TO_FLOAT, (half * 1j,), (tn.complex64, tn.float16)),
    ):
        assert prims.elementwise_dtypes(*args, type_promotion_kind=kind) == want
    assert prims.make_contiguous_strides_for((2, 3, 4)) == (12, 4, 1)
    assert prims.make_contiguous_strides_for((2, 3, 4), False) == (12, 1, 3)
    image = tn.ones(2, 3, 4, 5).to(memory_format=tn.channels_last)
    assert prims.make_channels_last_strides_for(image.shape) == image.stride()
    assert prims.suggest_memory_format(image) is tn.channels_last
    assert prims.canonicalize_dims(3, (-1, 0)) == (2, 0)


def test_lists_of_tensors_are_grouped() -> None:
    a, b = [tn.ones(1), tn.ones(2).double(), tn.ones(3)], [tn.zeros(1), None, tn.zeros(3)]
    got = _foreach_utils._group_tensors_by_device_and_dtype([a, b, []], with_indices=True)
    lists, where = got[a[0].device, tn.float32]
    assert where == [0, 2] and lists[0][1] is a[2] and lists[1][1] is b[2] and lists[2] == []
    assert got[a[0].device, tn.float64][0][1] == [None]


def test_functions_of_gpus_run_where_there_are_none() -> None:
    class Twice(tn.autograd.Function):
        @staticmethod
        @tn.amp.custom_fwd(device_type="cuda")
        def forward(ctx: Any, x: tn.Tensor) -> tn.Tensor:
            return x * 2

        @staticmethod
        @tn.amp.custom_bwd(device_type="cuda")
        def backward(ctx: Any, g: tn.Tensor) -> tn.Tensor:
            return g * 2

    x = tn.ones(2, requires_grad=True)
    Twice.apply(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 2.0]


def test_kernels_before_their_operators() -> None:
    library.impl("early::twice", "cpu", lambda x: x * 2)
    library.define("early::twice", "(Tensor x) -> Tensor")
    assert tn.equal(tn.ops.early.twice(tn.ones(2)), tn.full((2,), 2.0))

    def cast(x: tn.Tensor, to: tn.dtype = tn.float16, by: int | float | bool = 1) -> tn.Tensor:
        return (x * by).to(to)

    text = library.infer_schema(cast, mutates_args=())
    assert text == "(Tensor x, ScalarType to=float16, Scalar by=1) -> Tensor"
    library.define("early::cast", text)
    library.impl("early::cast", "default", cast)
    assert tn.ops.early.cast(tn.ones(1)).dtype is tn.float16


def test_sizes_are_elements_of_tensors() -> None:
    side = tn.tensor([4])
    assert nn.functional.interpolate(tn.ones(1, 1, 2, 2), size=[side, side]).shape[2:] == (4, 4)
    with pytest.raises(TypeError):
        tn.ones(16).reshape([side, tn.tensor([2, 2])])


def test_covariance_from_a_precision_that_is_hard_to_invert() -> None:
    factor = tn.tensor([[1.0, 0.0], [1.0, 1e-3]])
    precision = factor.mT @ factor
    got = tn.distributions.MultivariateNormal(tn.zeros(2), precision_matrix=precision)
    want = np.linalg.cholesky(np.linalg.inv(precision.double().numpy()))
    np.testing.assert_allclose(got._unbroadcasted_scale_tril.numpy(), want, rtol=2e-3)


def test_nodes_of_trees() -> None:
    class Fixed:
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Fixed)

        def __hash__(self) -> int:
            return 1

    entries = nn.Linear(2, 1)._parameters
    assert type(_pytree.tree_map(tn.zeros_like, entries)) is dict
    assert _pytree.tree_structure(entries) == _pytree.tree_structure(dict(entries))
    _pytree.register_constant(Fixed)
    leaves, spec = _pytree.tree_flatten([1, Fixed()])
    assert leaves == [1] and _pytree.tree_unflatten([2], spec) == [2, Fixed()]


def test_steps_that_are_set_later_have_hooks() -> None:
    class Own(tn.optim.Optimizer):
        pass

    Own.step = lambda self: seen.append("step")
    seen: list[str] = []
    optimizer = Own([tn.ones(1)], {})
    optimizer._patch_step_function()
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    optimizer.step()
    assert seen == ["step", "after"]
