"""What layers, hooks, scalers, optimizers, losses, grids of quantization and loaders refuse, each
with the words that only this check says, and with PyTorch's class of error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from refusals import check_beside, part, private

Call = Callable[[Any], Any]


# ---- Steps ---------------------------------------------------------------------------------------


def stepped(lib: Any) -> tuple[Any, Any]:
    """A scaler and an optimizer that has stepped with it."""
    w = lib.nn.Parameter(lib.ones(2))
    scaler, optimizer = lib.amp.GradScaler("cpu"), lib.optim.SGD([w], 0.1)
    scaler.scale(w.sum()).backward()
    scaler.step(optimizer)
    return scaler, optimizer


def unscaled_late(lib: Any) -> None:
    scaler, optimizer = stepped(lib)
    scaler.unscale_(optimizer)


def half_gradients(lib: Any) -> None:
    w = lib.nn.Parameter(lib.ones(2, dtype=lib.float16))
    w.grad = lib.ones(2, dtype=lib.float16)
    scaler = lib.amp.GradScaler("cpu")
    scaler.scale(lib.ones(1))
    scaler.unscale_(lib.optim.SGD([w], 0.1))


def optimizer(lib: Any, *names: str) -> Any:
    """With a group of parameters for each name; an empty name is none."""
    made = [lib.nn.Parameter(lib.ones(2)) for _ in names]
    groups = [{"params": [(n, p)] if n else [p]} for n, p in zip(names, made, strict=True)]
    return lib.optim.SGD(groups, 0.1)


def some_names(lib: Any) -> None:
    a, b = lib.nn.Parameter(lib.ones(2)), lib.nn.Parameter(lib.ones(2))
    lib.optim.SGD([("a", a), b], 0.1)


def schedules(lib: Any) -> Any:
    return lib.optim.lr_scheduler


STEPS: dict[str, tuple[str, Call]] = {
    "unscaled behind the step": ("unscale_() is being called after step().", unscaled_late),
    "closure with a scaler": (
        "Closure use is not currently supported if GradScaler is enabled.",
        lambda t: t.amp.GradScaler("cpu").step(optimizer(t, ""), closure=lambda: None),
    ),
    "scaler from nothing": (
        "The source state dict is empty",
        lambda t: t.amp.GradScaler("cpu").load_state_dict({}),
    ),
    "half gradients": ("Attempting to unscale FP16 gradients.", half_gradients),
    "some names": ("Some param names are missing", some_names),
    "group without names": (
        "cannot add param group without names to the optimizer with names",
        lambda t: optimizer(t, "a", ""),
    ),
    "group with names": (
        "cannot add param group with names to the optimizer without names",
        lambda t: optimizer(t, "", "a"),
    ),
    "functions of groups": (
        "Expected 1 lr_lambdas, but got 2",
        lambda t: schedules(t).LambdaLR(optimizer(t, ""), [abs, abs]),
    ),
    "factors of groups": (
        "Expected 2 lr_lambdas, but got 1",
        lambda t: schedules(t).MultiplicativeLR(optimizer(t, "", ""), [abs]),
    ),
    "bounds of groups": (
        "expected 1 min_lrs, got 2",
        lambda t: schedules(t).ReduceLROnPlateau(optimizer(t, ""), min_lr=[0.1, 0.2]),
    ),
}


# ---- Hooks and layers ----------------------------------------------------------------------------


def answered(lib: Any, before: bool, answer: Any) -> None:
    """A backward pass through a layer whose hook answers something else."""
    layer = lib.nn.Linear(2, 2)
    if before:
        layer.register_full_backward_pre_hook(lambda m, g: answer)
    else:
        layer.register_full_backward_hook(lambda m, i, o: answer)
    layer(lib.ones(1, 2, requires_grad=True)).sum().backward()


def both_kinds(lib: Any) -> None:
    layer = lib.nn.Linear(2, 2)
    layer.register_full_backward_hook(lambda m, i, o: None)
    layer.register_backward_hook(lambda m, i, o: None)


def hook_of_states(lib: Any) -> None:
    layer = lib.nn.Linear(2, 2)
    layer.register_state_dict_post_hook(lambda m, s, p, _: s)
    layer.state_dict()


def other_state(lib: Any, rows: int) -> None:
    layer = lib.nn.Linear(2, 2)
    layer.load_state_dict({"weight": lib.ones(rows, 2), "other": lib.ones(1)})


def unknown_kind(lib: Any) -> None:
    prune = part(lib, "nn", "utils", "prune")

    class Whole(prune.BasePruningMethod):
        PRUNING_TYPE = "by mood"

        def compute_mask(self, t: Any, default_mask: Any) -> Any:
            return default_mask

    layer = lib.nn.Linear(2, 2)
    Whole.apply(layer, "weight")
    Whole.apply(layer, "weight")


def mask_of_another_shape(lib: Any) -> None:
    prune = part(lib, "nn", "utils", "prune")
    prune.CustomFromMask(lib.ones(2)).compute_mask(lib.ones(3), lib.ones(3))


def losses(lib: Any, *shapes: tuple[int, ...], **given: Any) -> Any:
    """linear_cross_entropy of an input, a weight and a target of those shapes."""
    x, w, y = (lib.ones(*s) for s in shapes)
    y = y if given.pop("parts", False) else y.long()
    return lib.nn.functional.linear_cross_entropy(x, w, y, **given)


def groups(lib: Any, *shapes: tuple[int, ...], **given: Any) -> Any:
    return lib.nn.functional.grouped_mm(*(lib.ones(*s) for s in shapes), **given)


def blocks(lib: Any) -> None:
    one = lib.ones(1, 1, 1)
    part(lib, "nn", "attention", "flex_attention").BlockMask(
        (1, 1), one[0], one, one[0], None, None, None, None, None
    )


LAYERS: dict[str, tuple[str, Call]] = {
    "one gradient of outputs too many": (
        "invalid number of grad_output, got 2, but expected 1",
        lambda t: answered(t, True, (t.ones(1, 2),) * 2),
    ),
    "one gradient of inputs too many": (
        "invalid number of grad_input, got 2, but expected 1",
        lambda t: answered(t, False, (t.ones(1, 2),) * 2),
    ),
    "hooks of both kinds": ("Cannot use both regular backward hooks and full", both_kinds),
    "hook that answers": ("state_dict post-hook must return None", hook_of_states),
    "missing weights": ('Missing key(s) in state_dict: "bias"', lambda t: other_state(t, 2)),
    "other weights": ('Unexpected key(s) in state_dict: "other"', lambda t: other_state(t, 2)),
    "weights of another shape": ("size mismatch for weight", lambda t: other_state(t, 3)),
    "function without forward rule": (
        "You must implement the jvp function",
        lambda t: t.autograd.Function.jvp(None),
    ),
    "pairs of no pair": (
        "ModuleDict update sequence element #0 should be Iterable; is int",
        lambda t: t.nn.ModuleDict([3]),
    ),
    "pairs of three": (
        "ModuleDict update sequence element #0 has length 3; 2 is required",
        lambda t: t.nn.ModuleDict([("a", 1, 2)]),
    ),
    "last of no parameters": ("dictionary is empty", lambda t: t.nn.ParameterDict().popitem()),
    "transposed with reflection": (
        'Only "zeros" padding mode is supported for ConvTranspose2d',
        lambda t: t.nn.ConvTranspose2d(1, 1, 3, padding_mode="reflect"),
    ),
    "buffer with a dot": (
        'buffer name can\\\'t contain "."',
        lambda t: t.nn.Module().register_buffer("a.b", None),
    ),
    "parameter with a dot": (
        'parameter name can\\\'t contain "."',
        lambda t: t.nn.Module().register_parameter("a.b", None),
    ),
    "module with a dot": (
        'module name can\\\'t contain ".", got: a.b',
        lambda t: t.nn.Module().add_module("a.b", None),
    ),
    "mode of a recurrence": (
        "Unrecognized RNN mode: GRUMPY",
        lambda t: t.nn.RNNBase("GRUMPY", 2, 3),
    ),
    "kind of pruning": ("Unrecognized PRUNING_TYPE", unknown_kind),
    "mask of pruning": ("must match", mask_of_another_shape),
    "loss of other features": (
        "last dimensions (in_features), got 3 and 2",
        lambda t: losses(t, (4, 3), (5, 2), (4,)),
    ),
    "loss with another bias": (
        "expected linear_bias shape (5,), got (4,)",
        lambda t: losses(t, (4, 3), (5, 3), (4,), linear_bias=t.ones(4)),
    ),
    "loss at positions without a batch": (
        "requires batched input, (N, 3), got unbatched input with shape (3,)",
        lambda t: losses(t, (3,), (5, 2, 3), (2,)),
    ),
    "loss of shares that are ignored": (
        "ignore_index cannot be specified when target contains probabilities",
        lambda t: losses(t, (4, 3), (5, 3), (4, 5), parts=True, ignore_index=1),
    ),
    "loss of a cube": (
        "expected input with dimensionality 1 or 2, got 3",
        lambda t: losses(t, (2, 4, 3), (5, 3), (4,)),
    ),
    "loss of a vector": (
        "expected linear_weight with dimensionality at least 2, got 1",
        lambda t: losses(t, (4, 3), (3,), (4,)),
    ),
    "groups that do not meet": (
        "contraction dimension of mat_a and mat_b must match",
        lambda t: groups(t, (2, 3, 8), (2, 16, 8)),
    ),
    "groups of a vector": ("have to be 2 or 3 dimensional", lambda t: groups(t, (8,), (2, 16, 8))),
    "groups without ends": (
        "Have to provide offsets if there is a 2d matrix",
        lambda t: groups(t, (4, 8), (2, 8, 16)),
    ),
    "pooled to two lengths": (
        "output_size must",
        lambda t: t.nn.functional.adaptive_max_pool3d(t.ones(1, 4, 4, 4), (2, 2)),
    ),
    "half of a mask's blocks": (
        "full_kv_num_blocks and full_kv_indices must be both provided or omitted",
        blocks,
    ),
    "names of a functional call": (
        'tensor name can\\\'t contain "."',
        lambda t: part(t, "nn", "utils", "_named_member_accessor").set_tensor(
            t.nn.Linear(1, 1), "a.b", t.ones(1)
        ),
    ),
}


# ---- Gradients -----------------------------------------------------------------------------------


def unsteady(lib: Any) -> None:
    count = iter(range(100))

    class Drifts(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * (2 + 1e-9 * next(count))

    x = lib.ones(1, dtype=lib.float64, requires_grad=True)
    lib.autograd.gradcheck(Drifts.apply, (x,))


def shifted(lib: Any) -> None:
    class Shifts(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2 + 1e-9

    x = lib.ones(1, dtype=lib.float64, requires_grad=True)
    lib.autograd.gradcheck(Shifts.apply, (x,))


def two_gradients(lib: Any) -> None:
    x = lib.ones(1, requires_grad=True)
    lib.autograd.backward((x * 2).sum(), lib.ones(()), grad_variables=lib.ones(()))


def batches(lib: Any, *shapes: tuple[int, ...]) -> None:
    x = lib.ones(2, requires_grad=True)
    grads = [lib.ones(s) for s in shapes]
    lib.autograd.grad(
        [x.sum() * 2, x.sum()] if () in shapes else [x * 2, x * 3], x, grads, is_grads_batched=True
    )


def hook_of_another_dtype(lib: Any, leaf: bool) -> None:
    x = lib.ones(2, requires_grad=True)
    y = x * 2
    (x if leaf else y).register_hook(lambda g: g.double())
    y.sum().backward()


def dirty_that_stays(lib: Any, both: bool) -> None:
    class Writes(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.mark_dirty(x)
            return (x.mul_(2) * 1, x * 3) if both else x.mul_(2) * 1

        @staticmethod
        def backward(ctx: Any, *g: Any) -> Any:
            return g[0]

    Writes.apply(lib.ones(2, requires_grad=True).clone())


def whole_numbers_as_data(lib: Any) -> None:
    lib.ones(2, requires_grad=True).data = lib.ones(2, dtype=lib.int64)


GRADIENTS: dict[str, tuple[str, Call]] = {
    "hook that changes the dtype": (
        "has changed the type of value",
        lambda t: hook_of_another_dtype(t, False),
    ),
    "hook of a leaf that changes the dtype": (
        "has changed the type of value",
        lambda t: hook_of_another_dtype(t, True),
    ),
    "dirty and not returned": (
        "marked as dirty during the forward method were not returned",
        lambda t: dirty_that_stays(t, False),
    ),
    "dirty and not among several": (
        "marked as dirty during the forward method were not returned",
        lambda t: dirty_that_stays(t, True),
    ),
    "whole numbers as data": ("data set to a tensor that requires", whole_numbers_as_data),
    "strict in vectors": (
        "are not supported together",
        lambda t: t.autograd.functional.jacobian(t.sin, t.ones(2), strict=True, vectorize=True),
    ),
    "backward that drifts": ("Backward is not reentrant", unsteady),
    "backward with a constant": ("backward not multiplied by grad_output", shifted),
    "gradients given twice": ("Please only use `grad_tensors`.", two_gradients),
    "gradients of two batches": ("of one size, got [3, 4]", lambda t: batches(t, (3, 2), (4, 2))),
    "batch of a number": ("maps dimension 0", lambda t: batches(t, (), ())),
    "value that is no tensor": (
        "Expected f(*args) to return a Tensor",
        lambda t: part(t, "func").grad_and_value(lambda x: 3.0)(t.ones(2)),
    ),
    "checkpoint with a keyword": (
        "Unexpected keyword arguments: other",
        lambda t: part(t, "utils", "checkpoint").checkpoint(
            t.sin, t.ones(1, requires_grad=True), use_reentrant=True, other=1
        ),
    ),
    "parts with a keyword": (
        "Unexpected keyword arguments: other",
        lambda t: part(t, "utils", "checkpoint").checkpoint_sequential(
            [t.sin], 1, t.ones(1), use_reentrant=True, other=1
        ),
    ),
}


# ---- Grids and data ------------------------------------------------------------------------------


def watcher(lib: Any, **given: Any) -> Any:
    return part(lib, "ao", "quantization").MinMaxObserver.with_args(**given)


def overfull(lib: Any, fork: bool) -> None:
    pipe = lib.utils.data.datapipes.iter.IterableWrapper(range(9))
    one, _ = (
        pipe.fork(2, buffer_size=3) if fork
        else pipe.demux(2, lambda n: int(n < 8), buffer_size=3)
    )  # fmt: skip
    list(one)


class Short(list):
    def __getitems__(self, at: list[int]) -> list[int]:
        return at[:1]


def ungiven(lib: Any) -> None:
    x = lib.ones(2, requires_grad=True)
    lib.autograd.grad([x * 2], [x], is_grads_batched=True)


def both_hooks(lib: Any) -> None:
    module = lib.nn.Linear(2, 2)
    module.register_backward_hook(print)
    module.register_full_backward_hook(print)


GRIDS_AND_DATA: dict[str, tuple[str, Call]] = {
    "grid of half floats": (
        "expected",
        lambda t: t.quantize_per_tensor(t.ones(2), 0.1, 0, t.float16),
    ),
    "grid below the first axis": (
        "axis",
        lambda t: t.quantize_per_channel(t.ones(2), t.ones(2), t.zeros(2), 3, t.qint8),
    ),
    "forward of functions": (
        "not intended to use the 'forward'",
        lambda t: part(t, "ao", "nn", "quantized").FloatFunctional()(t.ones(1)),
    ),
    "fork runs over": (
        "ForkerIterDataPipe buffer overflow, buffer size 3 is insufficient",
        lambda t: overfull(t, True),
    ),
    "demultiplexer runs over": (
        "DemultiplexerIterDataPipe buffer overflow, buffer size 3 is insufficient",
        lambda t: overfull(t, False),
    ),
    "stack of short answers": (
        "output size mismatch. Expected 2, got 1",
        lambda t: part(t, "utils", "data").StackDataset(Short([1, 2, 3])).__getitems__([0, 1]),
    ),
    "start method of loaders": (
        "should specify a valid start method in",
        lambda t: part(t, "utils", "data").DataLoader(
            [1], num_workers=1, multiprocessing_context="by hand"
        ),
    ),
    "process that is none of ours": (
        "Cannot find worker information for _BaseDataLoaderIter with id 3",
        lambda t: part(t, "utils", "data", "_utils", "signal_handling")._remove_worker_pids(3),
    ),
    "share outside of workers": (
        "Worker info is None",
        lambda t: part(t, "utils", "data", "dataloader")._sharding_worker_init_fn(None, 1, 0, 0),
    ),
    "diagonal outside": (
        "provided is outside [-2, 1]",
        lambda t: part(t, "distributions", "utils").tril_matrix_to_vec(t.ones(2, 2), 5),
    ),
    "constraints of other lengths": (
        "1 constraints have 2 lengths",
        lambda t: part(t, "distributions", "constraints").cat(
            [t.distributions.constraints.real], 0, [1, 2]
        ),
    ),
    "transform of a dependent constraint": (
        "Cannot transform",
        lambda t: t.distributions.transform_to(t.distributions.constraints.dependent),
    ),
    "expanded without a way": ("must also define a custom .expand() method", lambda t: own(t)),
    "normalized in a sparse layout": (
        "masked normalize expects strided",
        lambda t: t.masked.normalize(t.eye(2).to_sparse(), 2.0, 1),
    ),
    "groups with a bias": (
        "Bias not supported yet",
        lambda t: t.nn.functional.grouped_mm(*[t.ones(1, 8, 8).bfloat16()] * 2, bias=t.ones(1, 8)),
    ),
    "share of no time": (
        "a part of 0 us, got 1.0 us",
        lambda t: part(t, "autograd", "profiler_util")._format_time_share(1.0, 0),
    ),
    "units that are not sharded": (
        "FSDPModule but got",
        lambda t: part(t, "distributed", "fsdp").FSDPModule.set_modules_to_forward_prefetch(
            None, [t.nn.Linear(1, 1)]
        ),
    ),
    "kept under no such name": (
        "the node saves nothing named 'other'",
        lambda t: t.ones(1, requires_grad=True).exp().grad_fn._saved_other,
    ),
    "batch of no gradients": ("is_grads_batched needs grad_outputs", ungiven),
    "backward hooks of both kinds": ("regular backward hooks and full", both_hooks),
    "masked in a sparse layout": (
        "expects strided",
        lambda t: t.masked.median(t.eye(2).to_sparse(), 0),
    ),
    "inverse of a number": (
        "A must have dimensions",
        lambda t: t.linalg.tensorinv(t.tensor(2.0), ind=1),
    ),
    "function of a buffer": (
        "`model` has buffers",
        lambda t: private(t, "_functorch", "make_functional").make_functional(t.nn.BatchNorm1d(2)),
    ),
    "future twice": ("set", lambda t: twice(t)),
}


def own(lib: Any) -> None:
    class Ours(lib.distributions.Normal):
        def __init__(self) -> None:
            super().__init__(0.0, 1.0)

    Ours().expand((2,))


def twice(lib: Any) -> None:
    future = part(lib, "futures").Future()
    future.set_result(1)
    future.set_result(2)


ALL = STEPS | LAYERS | GRADIENTS | GRIDS_AND_DATA


@pytest.mark.parametrize("name", ALL)
def test_refused_with_words_and_pytorchs_class(name: str) -> None:
    check_beside(*ALL[name])


# ---- Samplers, loaders and checkpoints -----------------------------------------------------------


def data(lib: Any) -> Any:
    return part(lib, "utils", "data")


def changed_loader(lib: Any) -> None:
    data(lib).DataLoader([1, 2]).batch_size = 2


def checkpointed(lib: Any, **options: Any) -> Any:
    x = lib.ones(2, requires_grad=True)
    return part(lib, "utils", "checkpoint").checkpoint(lambda v: v * 2, x, **options)


def contexts(lib: Any, policy: Any) -> Any:
    return part(lib, "utils", "checkpoint").create_selective_checkpoint_contexts(policy)


LOADERS: dict[str, tuple[str, Call]] = {
    "drawn again or not": (
        "replacement should be a boolean value, but got replacement=1",
        lambda t: data(t).RandomSampler([1], replacement=1),
    ),
    "no samples": (
        "num_samples should be a positive integer value, but got num_samples=0",
        lambda t: data(t).RandomSampler([1], num_samples=0),
    ),
    "half a sample": (
        "num_samples should be a positive integer value, but got num_samples=0.5",
        lambda t: data(t).RandomSampler([1], num_samples=0.5),
    ),
    "drawn again by weight or not": (
        "replacement should be a boolean value, but got replacement=1",
        lambda t: data(t).WeightedRandomSampler([1.0], 1, replacement=1),
    ),
    "samples that are a truth": (
        "num_samples should be a positive integer value, but got num_samples=True",
        lambda t: data(t).WeightedRandomSampler([1.0], True),
    ),
    "batches of a truth": (
        "batch_size should be a positive integer value, but got batch_size=True",
        lambda t: data(t).BatchSampler([1], True, False),
    ),
    "the rest or not": (
        "drop_last should be a boolean value, but got drop_last=1",
        lambda t: data(t).BatchSampler([1], 1, 1),
    ),
    "prefetched below none": (
        "prefetch_factor option should be non-negative",
        lambda t: data(t).DataLoader([1], num_workers=1, prefetch_factor=-1),
    ),
    "time below none": (
        "timeout option should be non-negative",
        lambda t: data(t).DataLoader([1], timeout=-1),
    ),
    "workers below none": (
        "num_workers option should be non-negative",
        lambda t: data(t).DataLoader([1], num_workers=-1),
    ),
    "workers that stay of none": (
        "persistent_workers option needs num_workers > 0",
        lambda t: data(t).DataLoader([1], persistent_workers=True),
    ),
    "a loader that is changed": (
        "batch_size attribute should not be set after DataLoader is initialized", changed_loader),
    "a check of determinism": (
        "determinism_check should be one of ['default', 'none'], but got often",
        lambda t: checkpointed(t, use_reentrant=False, determinism_check="often"),
    ),
    "names in a reentrant checkpoint": (
        "Unexpected keyword arguments: by",
        lambda t: checkpointed(t, use_reentrant=True, by=2),
    ),
    "contexts in a reentrant checkpoint": (
        "only supported when use_reentrant=False",
        lambda t: checkpointed(t, use_reentrant=True, debug=True),
    ),
    "a policy that is a number": (
        "policy_fn_or_list must be either a function or a list of ops",
        lambda t: contexts(t, 3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOADERS)
def test_loaders_and_checkpoints_refuse(name: str) -> None:
    check_beside(*LOADERS[name])
