"""Names that packages around PyTorch import, each by what it does; numbers that come from PyTorch
2.13 say so."""

from __future__ import annotations

import copy
import gc
import math
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import tenon as tn
from tenon import library, nn, return_types
from tenon._torch._C_names import DispatchKey, _AutoDispatchBelowAutograd
from tenon._torch._ops import HigherOrderOperator
from tenon._torch._utils import ExceptionWrapper
from tenon.nn import functional as F
from tenon.nn.utils import _named_member_accessor as members
from tenon.testing._comparison import default_tolerances, get_tolerances
from tenon.utils import _contextlib, _pytree
from tenon.utils._python_dispatch import TorchDispatchMode
from tenon.utils.data import DataLoader, dataloader, default_collate
from tenon.utils.data._utils.collate import collate, default_collate_fn_map
from tenon.utils.data._utils.worker import _generate_state
from tenon.utils.weak import TensorWeakRef, WeakIdKeyDictionary, WeakTensorKeyDictionary
from test_run import run

# ---- Results with names --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "name", "fields"),
    [
        (lambda a: a.max(0), "max", ("values", "indices")),
        (lambda a: a.sort(), "sort", ("values", "indices")),
        (lambda a: tn.linalg.svd(a), "linalg_svd", ("U", "S", "Vh")),
        (lambda a: tn.svd(a), "svd", ("U", "S", "V")),
        (lambda a: tn.linalg.qr(a), "linalg_qr", ("Q", "R")),
        (lambda a: tn.linalg.eigh(a), "linalg_eigh", ("eigenvalues", "eigenvectors")),
        (lambda a: tn.linalg.lu(a), "linalg_lu", ("P", "L", "U")),
        (lambda a: tn.linalg.inv_ex(a), "linalg_inv_ex", ("inverse", "info")),
        (lambda a: tn.histogram(a, 3), "histogram", ("hist", "bin_edges")),
        (lambda a: tn.frexp(a), "frexp", ("mantissa", "exponent")),
    ],
)
def test_results_are_named_by_their_operator_and_travel(make, name, fields):
    result = make(tn.eye(2) + 1)
    kind = type(result)
    assert kind is getattr(return_types, name) and kind.__name__ == name
    assert kind.__module__ == "tenon.return_types"
    assert repr(result).startswith(f"tenon.return_types.{name}(\n{fields[0]}=")
    for again in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):
        assert type(again) is kind
        assert all(getattr(again, f).equal(getattr(result, f)) for f in fields)


def test_threads_that_call_first_get_one_type_of_results(tmp_path):
    """Both are in the middle of making it: the second waits in the hook of the first."""
    program = """
import pickle, threading
import tenon as tn
from tenon import return_types
add, both = return_types.add_type, threading.Barrier(2, timeout=20)
def meet(made):
    both.wait()
    return add(made)
return_types.add_type = meet
found = []
threads = [threading.Thread(target=lambda: found.append(tn.ones(3).sort())) for _ in range(2)]
[t.start() for t in threads]
[t.join() for t in threads]
kinds = {type(r) for r in [*found, tn.ones(2).sort(), pickle.loads(pickle.dumps(found[0]))]}
print(kinds == {return_types.sort})
"""
    path = tmp_path / "first.py"
    path.write_text(program)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60)
    assert done.stdout == "True\n", done.stderr


def test_a_type_of_results_is_found_before_its_operator_was_called(tmp_path):
    data = tmp_path / "r"
    data.write_bytes(pickle.dumps({"m": tn.ones(2).topk(1), "s": tn.linalg.svd(tn.eye(2))}))
    program = f"import pickle\nr = pickle.load(open({str(data)!r}, 'rb'))\nprint(r['m'].values)\n"
    assert run(tmp_path, program).stdout == "tensor([1.])\n"
    program = "import torch\nprint(type(torch.eye(2).max(0)), torch.linalg.qr(torch.eye(1)))\n"
    assert run(tmp_path, program).stdout == (
        "<class 'torch.return_types.max'> torch.return_types.linalg_qr(\n"
        "Q=tensor([[1.]]),\nR=tensor([[1.]]))\n"
    )
    with pytest.raises(AttributeError, match="no_such"):
        return_types.no_such  # noqa: B018
    with pytest.raises(AttributeError):
        return_types.add  # noqa: B018 - one result, which has no name


# ---- Loading data --------------------------------------------------------------------------------


class Point:
    def __init__(self, x: float) -> None:
        self.x = x


def test_programs_add_their_types_to_the_table_of_collate():
    with pytest.raises(TypeError, match="Point"):
        default_collate([Point(1.0)])
    default_collate_fn_map[Point] = lambda batch, *, collate_fn_map: tn.tensor([p.x for p in batch])
    try:
        points = [{"p": Point(1.0), "n": i} for i in range(3)]
        batch = next(iter(DataLoader(points, batch_size=3)))
        assert batch["p"].tolist() == [1.0, 1.0, 1.0] and batch["n"].tolist() == [0, 1, 2]
    finally:
        del default_collate_fn_map[Point]
    summed = {tn.Tensor: lambda batch, *, collate_fn_map: sum(batch)}
    found = collate([(tn.ones(2), 1), (tn.ones(2), 2)], collate_fn_map=summed)
    assert found[0].tolist() == [2.0, 2.0] and found[1].tolist() == [1, 2]


def test_seeds_of_numpy_in_workers_are_pytorchs():
    # torch.utils.data._utils.worker._generate_state(2**40 + 7, 3)
    want = [400740237, 3779043709, 3128233089, 477537302]
    assert _generate_state(2**40 + 7, 3) == want


# ---- Keys that may go away -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", [WeakIdKeyDictionary, WeakTensorKeyDictionary])
def test_a_dictionary_by_identity_forgets_what_is_gone(kind):
    a, b = tn.ones(2), tn.ones(2)
    table = kind({a: 1})
    table[b] = 2
    assert len(table) == 2 and table[a] == 1 and table[b] == 2
    assert a in table and tn.ones(2) not in table and 5 not in table
    assert {id(k) for k in table} == {id(a), id(b)} and table.copy()[b] == 2
    del b
    gc.collect()
    assert len(table) == 1 and list(table.values()) == [1] and len(table.keyrefs()) == 1
    del table[a]
    assert not table
    with pytest.raises(KeyError):
        table[a]


def test_a_weak_reference_to_a_tensor():
    a = tn.ones(2)
    ref = TensorWeakRef(a)
    assert ref() is a
    del a
    gc.collect()
    assert ref() is None
    with pytest.raises(TypeError, match="expected a tensor"):
        TensorWeakRef(5)


# ---- Contexts that decorate ----------------------------------------------------------------------


class Counted(_contextlib._DecoratorContextManager):
    inside, entered = 0, 0

    def __enter__(self) -> None:
        Counted.inside += 1
        Counted.entered += 1

    def __exit__(self, *exc: object) -> None:
        Counted.inside -= 1


def test_a_decorated_generator_runs_inside_and_yields_outside():
    seen = []

    @Counted()
    def steps(n: int):
        for i in range(n):
            seen.append(Counted.inside)
            try:
                got = yield i
            except KeyError:
                got = "caught"
            seen.append(got)
        return "end"

    Counted.entered = 0
    running = steps(2)
    assert next(running) == 0 and Counted.inside == 0
    assert running.throw(KeyError()) == 1 and Counted.inside == 0
    with pytest.raises(StopIteration) as stop:
        running.send("x")
    assert stop.value.value == "end" and seen == [1, "caught", 1, "x"] and Counted.entered == 3
    assert Counted()(lambda: Counted.inside)() == 1 and Counted.inside == 0
    with pytest.raises(RuntimeError, match="Cannot decorate classes"):
        Counted()(int)


# ---- Members of modules --------------------------------------------------------------------------


def test_tensors_of_a_module_by_their_paths():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    access = members.NamedMemberAccessor(model)
    old, new = model[0].weight, tn.zeros(3, 2)
    assert access.swap_tensor("0.weight", new) is old and model[0].weight is new
    assert access.get_tensor("1.running_mean") is model[1].running_mean
    access.set_tensor("0.weight", old)
    before, absent = access.swap_tensors_dict({"0.weight": new, "0.extra": new}, allow_missing=True)
    assert before["0.weight"] is old and absent == ["0.extra"] and model[0].extra is new
    with pytest.raises(RuntimeError, match=r"Missing key\(s\): '0.none'"):
        access.swap_tensors_dict({"0.weight": old, "0.none": new})
    assert model[0].weight is new  # all or nothing
    names = [n for n, _ in access.named_tensors()]
    missing, unexpected = access.check_keys([*names[1:], "x"])
    assert missing == [names[0]] and unexpected == ["x"]
    first = model[0]
    assert access.swap_submodule("0", nn.Identity()) is first
    with pytest.raises(KeyError, match="contain"):
        members.set_tensor(model, "a.b", new)


# ---- Trees ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tree", "like", "want"),  # as PyTorch's _broadcast_to_and_flatten answers
    [
        ((0, None), (1, 2), [0, None]),
        (0, (1, [2, 3]), [0, 0, 0]),
        ((0, (1, 2)), (1, [2, 3]), None),
        ({"a": 1}, {"a": [1, 2]}, [1, 1]),
        ([1, 2], (1, 2), None),
        ((1, 2), 5, None),
    ],
)
def test_a_tree_is_repeated_below_its_leaves(tree, like, want):
    assert _pytree._broadcast_to_and_flatten(tree, _pytree.tree_flatten(like)[1]) == want


# ---- Functions -----------------------------------------------------------------------------------


def test_convolution_along_time():
    rng = np.random.default_rng(0)
    x, w, b = rng.normal(size=(7, 2, 3)), rng.normal(size=(3, 3, 4)), rng.normal(size=4)
    padded = np.pad(x, ((1, 1), (0, 0), (0, 0)))
    want = np.stack([np.einsum("kbi,kio->bo", padded[t : t + 3], w) + b for t in range(7)])
    got = tn.conv_tbc(*(tn.tensor(a) for a in (x, w, b)), 1)
    assert got.is_contiguous() and np.allclose(got.numpy(), want, atol=1e-12)
    with pytest.raises(RuntimeError, match="3 dims"):
        tn.conv_tbc(tn.ones(2), tn.ones(3, 3, 3), tn.ones(3))


def test_older_names_of_functions():
    x = tn.rand(1, 2, 4, 4)
    assert F.upsample_nearest(x, scale_factor=2).equal(F.interpolate(x, scale_factor=2))
    want = F.interpolate(x, size=(3, 5), mode="bilinear", align_corners=True)
    assert F.upsample_bilinear(x, (3, 5)).equal(want)
    for d in (1, 2, 3):
        x = tn.rand(1, 2, *[5] * d)
        values, places = getattr(F, f"adaptive_max_pool{d}d_with_indices")(x, 2)
        assert values.equal(x.flatten(2).gather(2, places.flatten(2)).view(values.shape))
    assert tn.max_pool3d(x, 2).equal(F.max_pool3d(x, 2))
    tn.manual_seed(1)
    kept = tn.feature_dropout(tn.ones(4, 50, 3), 0.5, True)
    assert set(kept.unique().tolist()) == {0.0, 2.0} and kept.std(2).sum() == 0
    assert tn.feature_dropout(tn.ones(2, 2), 0.5, False).equal(tn.ones(2, 2))
    model = nn.Linear(2, 2)
    model(tn.ones(2)).sum().backward()
    with pytest.warns(FutureWarning, match="clip_grad_norm_"):
        norm = nn.utils.clip_grad_norm(model.parameters(), 1.0)
    assert norm > 1 and nn.utils.get_total_norm([p.grad for p in model.parameters()]) < 1.001


def test_methods_about_memory_and_loading():
    x = tn.zeros(2, 3, 4).permute(2, 0, 1)
    assert x.dim_order() == (1, 2, 0) and tn.zeros(2, 3).dim_order() == (0, 1)
    with pytest.raises(RuntimeError, match="unique"):
        tn.zeros(1, 1).expand(2, 3).dim_order(ambiguity_check=True)
    p = nn.Parameter(tn.zeros(2))
    other = tn.ones(2)
    with tn.no_grad():
        assert p.module_load(other).tolist() == [1.0, 1.0] == p.tolist()
        assert p.module_load(other, assign=True).data_ptr() == other.data_ptr()
    assert tn.tensor([-2.0]).prelu(tn.tensor([0.5])).item() == -1.0
    assert not (x.is_xla or x.is_ipu or x.is_vulkan)


def test_devices_that_are_not_there_are_none():
    for kind in (tn.xpu, tn.mps, tn.mtia):
        assert kind.is_available() is False and kind.device_count() == 0
        kind.manual_seed(1)
        kind.empty_cache()
    assert not hasattr(tn, "hpu")


def test_older_switches_of_autocast():
    a = tn.ones(2, 2)
    tn.set_autocast_cpu_dtype(tn.bfloat16)
    tn.set_autocast_cpu_enabled(True)
    try:
        assert (a @ a).dtype == tn.bfloat16
    finally:
        tn.set_autocast_cpu_enabled(False)
    assert (a @ a).dtype == tn.float32
    assert tn.autocast_increment_nesting() - 1 == tn.autocast_decrement_nesting()


# ---- Under `tenon run` ---------------------------------------------------------------------------

PROGRAM = """
import torch
from torch._C._functorch import _add_batch_dim, _remove_batch_dim, get_unwrapped, is_batchedtensor
from torch._functorch.vmap import _maybe_remove_batch_dim
from functorch import combine_state_for_ensemble, make_functional, vmap
from torch.multiprocessing.spawn import ProcessRaisedException
import torch.multiprocessing as mp
from torch.utils.data._utils.collate import np_str_obj_array_pattern
from torch._subclasses.fake_tensor import FakeTensor

x = torch.arange(6.0).view(2, 3)
one = _add_batch_dim(x, 1, 1)
assert is_batchedtensor(one) and not is_batchedtensor(x) and one.shape == (2,)
assert get_unwrapped(one).shape == (3, 2) and _remove_batch_dim(one, 1, 3, 1).equal(x)
assert _maybe_remove_batch_dim("f", x, 1, 4, 0).shape == (4, 2, 3)
assert vmap(lambda v: is_batchedtensor(v) and v * 2)(x).equal(x * 2)
models = [torch.nn.Linear(3, 1) for _ in range(4)]
f, params, buffers = combine_state_for_ensemble(models)
got = vmap(f, (0, 0, None))(params, buffers, x)
assert got.allclose(torch.stack([m(x) for m in models])), got
assert callable(mp.spawn) and mp.spawn.ProcessRaisedException is ProcessRaisedException
assert not isinstance(x, FakeTensor) and np_str_obj_array_pattern.search("<U3")
assert torch.ListType.ofInts() == torch.ListType(torch.IntType.get()) != torch.TensorType.get()
assert str(torch.DictType(torch.StringType.get(), torch.OptionalType.ofTensor())) == (
    "Dict[str, Optional[Tensor]]")
assert torch.IntType.get().isSubtypeOf(torch.OptionalType(torch.NumberType.get()))
assert not torch.StringType.get().isSubtypeOf(torch.NumberType.get())
future = torch.Future()
future.set_result(3)
assert future.wait() == 3 and torch.utils._pytree.tree_map(abs, [-1]) == [1]
@torch.jit.interface
class Shape:
    pass
print("well", torch.DeviceObjType)
"""


def test_what_packages_import(tmp_path: Path) -> None:
    out = run(tmp_path, PROGRAM)
    assert out.stdout == "well <class 'torch.DeviceObjType'>\n", out.stderr


def test_a_device_is_made_by_the_name_that_it_has_in_older_programs() -> None:
    cpu = tn.device("cpu")
    assert tn.device(device="cpu") == cpu and tn.device(device=cpu) is cpu
    for odd in ({"device": None}, {"device": "cuda", "index": 1}, {"device": "cpu", "type": ""}):
        with pytest.raises(TypeError):
            tn.device(**odd)
    with pytest.raises(TypeError):
        tn.device("cpu", device="cpu")


def test_the_dictionaries_of_a_module_make_plain_ones() -> None:
    layer = nn.Linear(2, 2)
    for slots in (layer._parameters, layer._buffers, layer._modules):
        made = type(slots)((k, v) for k, v in slots.items())
        assert type(made) is dict and made == dict(slots)
    assert type(type(slots)()) is dict and type(layer._parameters) is not dict


def test_tolerances_of_dtypes() -> None:
    # torch.testing._comparison.get_tolerances
    assert get_tolerances(tn.float64, tn.ones(1), rtol=None, atol=None) == (1.3e-6, 1e-5)
    assert get_tolerances(tn.float16, rtol=0.5, atol=0.0) == (0.5, 0.0)
    assert default_tolerances(tn.int64) == (0.0, 0.0)
    with pytest.raises(ValueError, match="but got no atol"):
        get_tolerances(tn.float16, rtol=0.5, atol=None)
    with pytest.raises(TypeError, match="torch.Tensor or a torch.dtype"):
        default_tolerances("float32")


# ---- Operators that take functions ------------------------------------------


class Twice(HigherOrderOperator):
    def __call__(self, f, x):
        return super().__call__(f, x)


class Plain(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def test_an_operator_that_takes_a_function_goes_by_its_implementations() -> None:
    twice, x = Twice("twice"), tn.zeros(2, requires_grad=True)
    with pytest.raises(TypeError, match="abstract"):
        HigherOrderOperator("x")
    with pytest.raises(NotImplementedError, match=r"twice at dispatch key DispatchKey.AutogradCPU"):
        twice(tn.exp, x)
    twice.py_impl(DispatchKey.CompositeExplicitAutograd)(lambda f, x: f(f(x)))
    with pytest.raises(NotImplementedError, match="AutogradCPU"):  # the tape stands before it
        twice(tn.exp, x)

    @twice.py_autograd_impl
    def recorded(f, x):
        class Apply(tn.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                with _AutoDispatchBelowAutograd():
                    return twice(f, x)

            @staticmethod
            def backward(ctx, g):
                return g * 7

        return Apply.apply(x)

    with pytest.raises(RuntimeError, match="Trying to override"):
        twice.py_impl(DispatchKey.Autograd)(recorded)
    result = twice(tn.exp, x)
    result.sum().backward()
    assert result.tolist() == pytest.approx([math.e] * 2) and x.grad.tolist() == [7, 7]
    assert not twice(tn.exp, tn.zeros(2)).requires_grad and not _AutoDispatchBelowAutograd.inside()
    assert (twice.name(), twice.namespace, twice.cacheable()) == ("twice", "higher_order", False)


def test_modes_and_classes_have_implementations_of_such_operators() -> None:
    op, x = Twice("op", cacheable=True), tn.ones(1)
    op.py_impl(DispatchKey.CPU)(lambda f, x: "cpu")
    op.fallthrough(DispatchKey.AutogradCPU)
    assert op(None, x) == "cpu" and op.cacheable()
    with pytest.raises(NotImplementedError, match="AutogradMeta"):
        op(None, tn.ones(1, device="meta"))
    with pytest.raises(NotImplementedError, match=r"no rule registered.*op and mode"), Plain():
        op(None, x)
    with pytest.raises(NotImplementedError, match="CompositeExplicitAutograd"):
        op(None, 3)
    op.py_impl(Plain)(lambda mode, f, x: type(mode))
    with Plain():
        assert op(None, x) is Plain

    class Seen(Plain):
        supports_higher_order_operators = True

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func is op, len(args)

    with Seen():
        assert op(None, x) == (True, 2)

    class Named(tn.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func is op

    assert op(None, x.as_subclass(Named)) is True


PLACES = """
import pickle
import torch
import torch.nn.intrinsic.modules.fused as fused
from torch.ao.nn.intrinsic.qat.modules.linear_relu import LinearReLU
from torch.compiler import config
from torch.cpu.amp.grad_scaler import GradScaler
from torch.masked.maskedtensor.core import MaskedTensor, is_masked_tensor
from torch.masked.maskedtensor.creation import masked_tensor
from torch.multiprocessing.reductions import reduce_tensor
from torch.nn.quantized.dynamic.modules.rnn import LSTM
from torch.nn.quantized.modules.functional_modules import FloatFunctional
from torch._dynamo.eval_frame import is_dynamo_supported
from torch.backends import cusparselt, kleidiai, xnnpack

assert fused.ConvReLU2d is torch.nn.intrinsic.ConvReLU2d
assert LinearReLU is torch.ao.nn.intrinsic.qat.LinearReLU and LSTM is not torch.nn.LSTM
assert config.recompile_limit == 8 and GradScaler is torch.cpu.amp.GradScaler
two = masked_tensor(torch.ones(2), torch.tensor([True, False]))
assert is_masked_tensor(two) and type(two) is MaskedTensor is torch.masked.MaskedTensor
rebuild, parts = reduce_tensor(torch.arange(3.0))
assert rebuild(*parts).tolist() == [0, 1, 2]
assert FloatFunctional().add(torch.ones(1), 2).item() == 3 and is_dynamo_supported()
assert not (cusparselt.is_available() or kleidiai.is_available() or xnnpack.enabled)
assert cusparselt.version() is None is cusparselt.get_max_alg_id()
assert torch.profiler.itt.is_available() is False
try:
    torch.profiler.itt.range_push("step")
except RuntimeError as err:
    assert "ITT" in str(err)
raised = torch.multiprocessing.ProcessRaisedException
assert pickle.loads(pickle.dumps(raised)) is raised
assert not hasattr(torch.profiler, "no_such") and not hasattr(torch.masked, "no_such")
print("well", raised)
"""


def test_modules_that_stand_elsewhere_here(tmp_path: Path) -> None:
    out = run(tmp_path, PLACES)
    want = "well <class 'torch.multiprocessing.spawn.ProcessRaisedException'>\n"
    assert out.stdout == want, out.stderr


C_NAMES = """
import torch
from tenon._torch import _C_names
from torch._C._distributed_c10d import ProcessGroup, ReduceOp, Store
from torch._tensor import Tensor, _rebuild_from_type_v2

for name in _C_names._ELSEWHERE:
    assert getattr(torch._C, name) is not None, name
x = torch.ones(2, 2)
assert isinstance(x, torch._C._TensorBase) and Tensor is torch.Tensor
try:
    torch._C._linalg.linalg_inv(x)
except torch._C._LinAlgError as err:
    assert "singular" in str(err)
assert torch._C._special.special_erf(x).equal(torch.erf(x))
assert torch._C._fft.fft_fft(x).equal(torch.fft.fft(x))
assert torch._C._VariableFunctions.sum(x) == 4
assert torch._C._infer_size(torch.Size([2, 1]), torch.Size([3])) == (2, 3)
assert ReduceOp is torch.distributed.ReduceOp
try:
    torch._C.no_such_name
except AttributeError as err:
    print("well", err)
"""


def test_names_of_the_extension_module(tmp_path: Path) -> None:
    out = run(tmp_path, C_NAMES)
    assert out.stdout == "well module 'torch._C' has no attribute 'no_such_name'\n", out.stderr


def test_names_of_optimizers_are_there() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from tenon.optim.optimizer import ParamsT, _default_to_fused_or_foreach
    assert ParamsT is not None and _default_to_fused_or_foreach([], False) == (False, False)


@pytest.mark.parametrize(("queries", "keys"), [(3, 5), (5, 3), (4, 4)])
def test_causal_masks_of_both_kinds(queries, keys):
    from tenon.nn.attention.bias import CausalBias, causal_lower_right, causal_upper_left

    q, k = tn.rand(2, queries, 4), tn.rand(2, keys, 4)
    at, to = np.arange(queries)[:, None], np.arange(keys)[None]
    for make, mask in ((causal_upper_left, to <= at),
                       (causal_lower_right, to <= at + keys - queries)):  # fmt: skip
        bias = make(queries, keys)
        assert isinstance(bias, CausalBias) and bias._materialize().tolist() == mask.tolist()
        got = F.scaled_dot_product_attention(q, k, k, attn_mask=bias)
        want = F.scaled_dot_product_attention(q, k, k, attn_mask=tn.tensor(mask))
        assert type(got) is tn.Tensor and got.equal(want) or bool(got.isnan().any())
    with pytest.raises(AssertionError, match="2D"):
        causal_lower_right(1, 2, 3)


# ---- Loaders of other packages -------------------------------------------------------------------


def test_a_loader_is_generic_and_its_fetchers_make_batches() -> None:
    """pykeen annotates with DataLoader[X]; torchdata, fastai and ignite ask for the kinds."""
    kinds = dataloader._DatasetKind
    assert DataLoader[int].__origin__ is DataLoader
    rows = [tn.tensor([float(i)]) for i in range(5)]
    fetcher = kinds.create_fetcher(kinds.Map, rows, True, default_collate, False)
    assert fetcher.fetch([3, 1]).tolist() == [[3.0], [1.0]]
    one = kinds.create_fetcher(kinds.Map, rows, False, lambda x: x, False)
    assert one.fetch(2) is rows[2]
    stream = kinds.create_fetcher(kinds.Iterable, rows, True, default_collate, True)
    assert stream.fetch([None] * 4).shape == (4, 1)
    with pytest.raises(StopIteration):
        stream.fetch([None] * 4)
    assert stream.ended


def test_an_exception_is_raised_again_elsewhere() -> None:
    for kind in (ValueError, KeyError):
        try:
            raise kind("why")
        except kind:
            wrapped = ExceptionWrapper(where="in a thread")
        with pytest.raises(kind, match="Caught .* in a thread(.|\n)*why"):
            wrapped.reraise()


def test_a_form_of_an_operator_is_found_at_the_operator() -> None:
    """bitsandbytes defines `int8_linear_matmul` and `int8_linear_matmul.out`."""
    library.define("forms::twice", "(Tensor x) -> Tensor")
    library.define("forms::twice.out", "(Tensor x, Tensor! out) -> ()")

    def write(x: tn.Tensor, out: tn.Tensor) -> None:
        out.copy_(x * 2)

    library.impl("forms::twice", "cpu", lambda x: x * 2)
    library.impl("forms::twice.out", "cpu", write)
    x, out = tn.ones(2), tn.zeros(2)
    assert tn.ops.forms.twice(x).tolist() == [2, 2]
    tn.ops.forms.twice.out(x, out)
    assert out.tolist() == [2, 2] and library._defined["forms::twice.out"]._written == {"out"}
    with pytest.raises(ValueError, match="namespace::name"):
        library.define("forms::twice.out.more", "(Tensor x) -> Tensor")


def test_gumbel_softmax_draws_in_the_order_of_the_elements() -> None:
    x = tn.zeros(3, 4)
    tn.manual_seed(0)
    plain = F.gumbel_softmax(x)
    tn.manual_seed(0)
    assert F.gumbel_softmax(tn.zeros(4, 3).t()).tolist() == plain.tolist()


def test_modules_that_are_elsewhere_are_attributes_too(tmp_path: Path) -> None:
    code = """
import torch
print(torch.functional.norm is torch.norm, torch._C._has_xpu)
"""
    assert run(tmp_path, code).stdout.split() == ["True", "False"]


@pytest.mark.parametrize("differentiable", [False, True])
def test_steps_record_where_they_are_differentiable(differentiable):
    class Halving(tn.optim.Optimizer):
        @tn.optim.optimizer._use_grad_for_differentiable
        def step(self, closure=None):
            return self.param_groups[0]["params"][0] / 2

    with tn.set_grad_enabled(not differentiable):
        made = Halving([tn.ones(2, requires_grad=True)], {"differentiable": differentiable}).step()
        assert made.requires_grad is differentiable
        assert tn.is_grad_enabled() is not differentiable
