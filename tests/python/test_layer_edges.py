"""Layers where their numbers differ by dimension, in older spellings, with warnings and hooks."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import stored
import tenon as tn
import tenon.nn.functional as F
from tenon import nn
from tenon.nn.modules import _calls

SIZES = [((2, 3, 4), (1, 2, 3), (1, 0, 2)), ((3, 1, 2), (2, 1, 1), (0, 0, 1)),
         ((1, 4, 3), (1, 3, 2), (0, 2, 1))]  # fmt: skip


def windows(x: np.ndarray, kernel: Any, stride: Any) -> Iterator[np.ndarray]:
    """The windows of a padded volume, in the order of a result's elements."""
    counts = [(n - k) // s + 1 for n, k, s in zip(x.shape, kernel, stride, strict=True)]
    for at in itertools.product(*map(range, counts)):
        yield x[tuple(slice(i * s, i * s + k) for i, k, s in zip(at, kernel, stride, strict=True))]


@pytest.mark.parametrize(("kernel", "stride", "padding"), SIZES)
def test_pools_of_volumes_take_each_dimension_by_itself(
    kernel: Any, stride: Any, padding: Any
) -> None:
    x = np.random.default_rng(3).standard_normal((6, 7, 8))
    volume = tn.tensor(x)[None, None]
    pairs = [(p, p) for p in padding]
    padded = np.pad(x, pairs)
    inside = np.pad(np.ones_like(x), pairs)
    sums = np.array([w.sum() for w in windows(padded, kernel, stride)])
    counts = np.array([w.sum() for w in windows(inside, kernel, stride)])
    least = np.pad(x, pairs, constant_values=-np.inf)
    most = np.array([w.max() for w in windows(least, kernel, stride)])
    powers = np.array([(w**2).sum() for w in windows(x, kernel, stride)])
    rest = (kernel, stride, padding)
    for got, want in (
        (F.avg_pool3d(volume, *rest), sums / np.prod(kernel)),
        (F.avg_pool3d(volume, *rest, count_include_pad=False), sums / counts),
        (F.avg_pool3d(volume, *rest, divisor_override=5), sums / 5),
        (F.max_pool3d(volume, *rest), most),
        (F.lp_pool3d(volume, 2.0, kernel, stride), np.sqrt(powers)),
    ):
        np.testing.assert_allclose(got.numpy().ravel(), want, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ["MaxPool", "AvgPool", "MaxUnpool"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_a_stride_is_the_given_one_or_the_size_of_the_window(name: str, dims: int) -> None:
    kind = getattr(nn, f"{name}{dims}d")
    shape = (1, 1) + (9,) * dims
    if name == "MaxUnpool":
        pool = getattr(nn, f"MaxPool{dims}d")(3, 2, return_indices=True)
        assert kind(3, stride=2)(*pool(tn.rand(shape))).shape == shape
        pool = getattr(nn, f"MaxPool{dims}d")(3, return_indices=True)
        assert kind(3)(*pool(tn.rand(shape))).shape == shape
        return
    assert kind(3, stride=2)(tn.rand(shape)).shape == (1, 1) + (4,) * dims
    assert kind(3)(tn.rand(shape)).shape == (1, 1) + (3,) * dims


X, Y = tn.tensor([[0.5, -1.0], [2.0, 0.25]]), tn.tensor([[0.25, 0.5], [0.75, 1.0]])
SIGN, CLASS = tn.tensor([1.0, -1.0]), tn.tensor([1, 0])
LOSSES: dict[str, tuple[Any, ...]] = {
    "binary_cross_entropy": (Y, Y), "binary_cross_entropy_with_logits": (X, Y),
    "cosine_embedding_loss": (X, Y, SIGN), "cross_entropy": (X, CLASS),
    "hinge_embedding_loss": (X, SIGN), "kl_div": (X, Y), "l1_loss": (X, Y),
    "margin_ranking_loss": (SIGN, SIGN * 2, SIGN), "mse_loss": (X, Y),
    "multi_margin_loss": (X, CLASS), "multilabel_margin_loss": (X, tn.tensor([[1, -1], [0, 1]])),
    "multilabel_soft_margin_loss": (X, Y), "nll_loss": (X, CLASS), "poisson_nll_loss": (X, Y),
    "smooth_l1_loss": (X, Y), "soft_margin_loss": (X, SIGN[:, None].expand(2, 2)),
    "triplet_margin_loss": (X, Y, -X),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_older_words_for_reductions(name: str) -> None:
    """size_average and reduce say which reduction, and outdo `reduction`."""
    loss, args = getattr(F, name), LOSSES[name]
    each = {kind: loss(*args, reduction=kind) for kind in ("none", "sum", "mean")}
    assert each["none"].dim() and not each["sum"].equal(each["mean"])
    for options, kind in (
        ({"reduce": False}, "none"),
        ({"size_average": False}, "sum"),
        ({"size_average": True}, "mean"),
        ({"reduce": True}, "mean"),
        ({"size_average": False, "reduce": True}, "sum"),
        ({"size_average": False, "reduce": False}, "none"),
    ):
        other = "sum" if kind == "mean" else "mean"
        with pytest.warns(UserWarning, match=f"reduction='{kind}'"):
            assert loss(*args, reduction=other, **options).equal(each[kind]), options


@pytest.mark.parametrize(("call", "text"), [
    (lambda: nn.Softmax()(X), "Implicit dimension choice for softmax"),
    (lambda: nn.LogSoftmax()(X), "Implicit dimension choice for log_softmax"),
    (lambda: nn.Softmin()(X), "Implicit dimension choice for softmin"),
    (lambda: F.softmax(X), "Implicit dimension choice for softmax"),
    (lambda: F.log_softmax(X), "Implicit dimension choice for log_softmax"),
    (lambda: F.softmin(X), "Implicit dimension choice for softmin"),
    (lambda: F.upsample_nearest(X[None, None], 3), "upsample_nearest"),
    (lambda: F.upsample_bilinear(X[None, None], 3), "upsample_bilinear"),
    (lambda: F.upsample(X[None, None], 3), "upsample"),
    (lambda: F.dropout2d(X), "dropout2d: Received a 2-D input"),
    (lambda: F.dropout2d(X[None]), "dropout2d: Received a 3D input"),
    (lambda: F.dropout3d(X[None]), "dropout3d: Received a 3-D input"),
])  # fmt: skip
def test_warnings_point_at_the_line_that_calls(call: Callable[[], Any], text: str) -> None:
    with pytest.warns(match=text) as told:
        call()
    assert [w.filename for w in told] == [__file__] * len(told)


@pytest.mark.parametrize(("options", "shapes"), [
    ({"kdim": 3}, [(4, 4), (4, 3), (4, 4)]), ({"vdim": 3}, [(4, 4), (4, 4), (4, 3)]),
    ({"kdim": 5, "vdim": 3}, [(4, 4), (4, 5), (4, 3)]),
])  # fmt: skip
def test_attention_to_other_widths_has_a_weight_for_each(options: Any, shapes: Any) -> None:
    layer = nn.MultiheadAttention(4, 2, **options)
    own = (layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight)
    assert [tuple(w.shape) for w in own] == shapes and layer.in_proj_weight is None
    q = tn.rand(2, 1, 4)
    k, v = tn.rand(3, 1, options.get("kdim", 4)), tn.rand(3, 1, options.get("vdim", 4))
    assert layer(q, k, v)[0].shape == (2, 1, 4)


def test_the_sizes_that_a_transposed_convolution_may_give() -> None:
    layer = nn.ConvTranspose2d(1, 1, (2, 3), (3, 2), (0, 1), dilation=(1, 3))
    x = tn.rand(1, 1, 4, 5)
    low, high = (11, 13), (13, 14)
    for size in (low, high, (1, 1, 12, 14)):
        assert layer(x, output_size=size).shape[2:] == size[-2:]
    for size in ((10, 13), (14, 13), (11, 12), (11, 15)):
        with pytest.raises(ValueError, match=r"from \[11, 13\] to \[13, 14\]"):
            layer(x, output_size=size)


def test_hooks_of_one_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    def hook(*args: Any) -> None:
        return None

    net = nn.Linear(1, 1)
    net.register_state_dict_post_hook(hook)
    with pytest.raises(RuntimeError, match="previously registered via"):
        net._register_state_dict_hook(hook)
    every = nn.modules.module
    for first, second in (
        (every.register_module_backward_hook, every.register_module_full_backward_hook),
        (every.register_module_full_backward_hook, every.register_module_backward_hook),
    ):
        monkeypatch.setattr(_calls, "_global_is_full_backward_hook", None)
        handle = first(hook)
        try:
            with pytest.raises(RuntimeError, match="Cannot use both regular"):
                second(hook)
        finally:
            handle.remove()


def test_an_old_backward_hook_of_a_result_by_name() -> None:
    class Named(nn.Module):
        def forward(self, x: tn.Tensor) -> dict[str, Any]:
            return {"count": 3, "y": x * 2}

    seen: list[Any] = []
    net = Named()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net.register_backward_hook(lambda m, given, got: seen.append((type(m), got[0].item())))
        net(tn.ones(1, requires_grad=True))["y"].sum().backward()
    assert seen == [(Named, 1.0)]


def test_sequences_of_any_kind() -> None:
    rnn, parts = nn.utils.rnn, [tn.tensor([1.0, 2.0]), tn.tensor([3.0])]
    assert rnn.pad_sequence(iter(parts), batch_first=True).tolist() == [[1, 2], [3, 0]]
    batch = tn.tensor([[1.0, 0.0], [2.0, 3.0]])
    for lengths in ([1, 2], (1, 2), tn.tensor([1, 2]), tn.tensor([1, 2], dtype=tn.int32),
                    np.array([1, 2])):  # fmt: skip
        packed = rnn.pack_padded_sequence(batch, lengths, True, enforce_sorted=False)
        assert packed.data.tolist() == [2, 1, 3] and packed.batch_sizes.tolist() == [2, 1]
        assert packed.sorted_indices.tolist() == [1, 0]
        again, sizes = rnn.pad_packed_sequence(packed, batch_first=True)
        assert again.equal(batch) and sizes.tolist() == [1, 2]


def test_parametrized_or_not_any_more() -> None:
    class Pair(nn.Module):
        def forward(self, x: tn.Tensor) -> tn.Tensor:
            return tn.cat([x, x])

    tools = nn.utils.parametrize
    net = nn.Linear(2, 3)
    assert not tools.is_parametrized(net) and not tools.is_parametrized(net, "weight")
    tools.register_parametrization(net, "weight", Pair(), unsafe=True)
    assert tools.is_parametrized(net) and tools.is_parametrized(net, "weight")
    assert not tools.is_parametrized(net, "bias")
    original = net.parametrizations.weight.original
    tools.remove_parametrizations(net, "weight")
    assert not tools.is_parametrized(net) and net.weight.shape == (6, 2)
    assert isinstance(net.weight, nn.Parameter) and net.weight is not original
    tools.register_parametrization(net, "bias", nn.ReLU())
    original = net.parametrizations.bias.original
    assert tools.remove_parametrizations(net, "bias").bias is original


def test_counters_of_batches_are_missing_in_old_files_alone() -> None:
    """Version 1 of a norm's state had none; so has a state that says no version."""
    norm = nn.BatchNorm1d(2)
    norm(tn.ones(3, 2))
    state = nn.BatchNorm1d(2).state_dict()
    del state["num_batches_tracked"]
    with pytest.raises(RuntimeError, match="Missing key.*num_batches_tracked"):
        norm.load_state_dict(state)
    state._metadata[""]["version"] = 1
    norm.load_state_dict(state)
    assert norm.num_batches_tracked.item() == 1 and norm.running_mean.tolist() == [0, 0]
    norm.load_state_dict(dict(state))
    late = nn.BatchNorm1d(2, device="meta")
    late.load_state_dict(state, assign=True)
    assert late.num_batches_tracked.item() == 0
    with pytest.raises(RuntimeError, match="Unexpected key"):
        nn.BatchNorm1d(2, track_running_stats=False).load_state_dict(state)


def test_masks_of_attention_are_merged() -> None:
    def look(lib: Any) -> list[Any]:
        layer, query = lib.nn.MultiheadAttention(4, 2), lib.zeros(3, 2, 4)
        rows = lib.arange(4.0).reshape(2, 2)
        each = lib.arange(24.0).reshape(6, 2, 2)
        padding = lib.arange(6.0).reshape(3, 2) * 100
        return [
            list(layer.merge_masks(mask, pad, query))
            for mask in (None, rows, each) for pad in (None, padding)
        ]  # fmt: skip

    stored.same(look(tn), stored.of_torch(look))


def test_an_empty_batch_is_not_packed() -> None:
    with pytest.raises(RuntimeError, match="Cannot pack empty tensors"):
        tn.nn.utils.rnn.pack_padded_sequence(tn.ones(3, 0, 1), tn.ones(0, dtype=tn.int64))


def test_hooks_are_found_by_their_names() -> None:
    """Where PyTorch has them; a handle knows the dictionaries that it is in."""
    from tenon.nn.modules import module

    register = module.register_module_forward_hook
    handle = register(lambda m, args, kwargs, out: None, with_kwargs=True, always_call=True)
    kept = [module._global_forward_hooks, module._global_forward_hooks_with_kwargs,
            module._global_forward_hooks_always_called]  # fmt: skip
    assert [list(hooks) for hooks in kept] == [[handle.id]] * 3
    assert handle.hooks_dict_ref() is kept[0]
    assert {id(ref()) for ref in handle.extra_dict_ref} > {id(kept[1]), id(kept[2])}
    handle.remove()
    before = module.register_module_forward_pre_hook(lambda m, args: None)
    backward = module.register_module_full_backward_pre_hook(lambda m, out: None)
    assert before.hooks_dict_ref() is module._global_forward_pre_hooks
    assert backward.hooks_dict_ref() is module._global_backward_pre_hooks
    before.remove()
    backward.remove()
    assert not any(map(len, (*kept, module._global_forward_pre_hooks)))


def test_a_buffer_takes_no_attributes_place() -> None:
    net = nn.Module()
    net.size = 5
    with pytest.raises(KeyError, match="attribute 'size' already exists"):
        net.size = nn.Buffer(tn.ones(1))
    assert net.size == 5 and not net._buffers
    net.kept = nn.Buffer(tn.ones(1))
    net.kept = nn.Buffer(tn.zeros(2), persistent=False)
    assert net.kept.shape == (2,) and not net.state_dict()


X = tn.ones(2, 2)
REFUSED: dict[str, Callable[[], Any]] = {
    "eps must be non-negative, got: -1": lambda: F.cosine_similarity(X, X, eps=-1),
    "log_probs tensor must not be empty": lambda: F.ctc_loss(
        tn.zeros(0, 1, 4), *[tn.zeros(1, dtype=tn.int64)] * 3
    ),
    "tensor must not be empty": lambda: nn.CTCLoss()(
        tn.zeros(4, 0, 4), *[tn.zeros(0, dtype=tn.int64)] * 3
    ),
    r"in range \[0, 3.40282e\+38\] .* found -1": lambda: F.softshrink(X, -1.0),
    "float32, but found inf": lambda: F.softshrink(X, np.inf),
    "float16, but found 1e\\+06": lambda: F.softshrink(X.half(), 1e6),
    "found nan": lambda: F.softshrink(X, np.nan),
    "lower bound must be finite, got -inf": lambda: F.rrelu(X, -np.inf, 1.0),
    "upper bound must be finite, got nan": lambda: F.rrelu(X, 0.0, np.nan),
}


@pytest.mark.parametrize("words", REFUSED)
def test_numbers_that_mean_nothing_are_refused(words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        REFUSED[words]()


@pytest.mark.parametrize("ratio", [(0.5,) * 3, (0.5,)])
def test_ratios_of_a_fractional_pool_are_as_many_as_its_dimensions(ratio: Any) -> None:
    with pytest.raises(ValueError, match="fractional_max_pool2d requires output_ratio to either"):
        F.fractional_max_pool2d(tn.ones(1, 1, 8, 8), 2, output_ratio=ratio)


def test_margins_of_a_single_number() -> None:
    x = tn.tensor(0.3, requires_grad=True)
    for reduction in ("mean", "none", "sum"):
        for loss in (F.multi_margin_loss, F.multilabel_margin_loss):
            got = loss(x, tn.tensor(0), reduction=reduction)
            assert got.shape == () and got.item() == 0.0
    got.backward()
    assert x.grad.item() == 0.0


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("dtype", "kept"),
    [(tn.float64, tn.float32), (tn.float32, tn.float64), (tn.float32, tn.float16)],
)
def test_instance_norm_keeps_statistics_of_another_dtype(
    dtype: tn.dtype, kept: tn.dtype, weighted: bool
) -> None:
    x = tn.arange(48, dtype=dtype).reshape(2, 3, 8) ** 1.5
    scale = tn.tensor([1.0, 2.0, 3.0], dtype=dtype) if weighted else None
    own, other = [[tn.zeros(3, dtype=d), tn.ones(3, dtype=d)] for d in (dtype, kept)]
    want = F.instance_norm(x, *own, scale, scale, momentum=0.25)
    got = F.instance_norm(x, *other, scale, scale, momentum=0.25)
    assert got.dtype is dtype and tn.equal(got, want)
    for a, b in zip(other, own, strict=True):
        assert a.dtype is kept and tn.equal(a, b.to(kept))
    same = [s.to(dtype) for s in other]
    want, got = (
        F.instance_norm(x, *pair, scale, scale, use_input_stats=False) for pair in (same, other)
    )
    assert tn.equal(got, want)


@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr", "to_sparse_csc"])
@pytest.mark.parametrize("shape", [(4,), (2, 3, 4), (1, 1, 2, 4), (0, 4)])
def test_linear_of_any_rank_by_a_sparse_weight(shape: tuple[int, ...], layout: str) -> None:
    weight = tn.tensor([[1.0, 0.0, 2.0, 0.0], [0.0, 0.0, 0.0, 3.0]])
    x, bias = tn.arange(float(np.prod(shape))).reshape(shape), tn.tensor([0.5, 1.0])
    one, two = x.clone().requires_grad_(), x.clone().requires_grad_()
    got = F.linear(one, getattr(weight, layout)(), bias)
    want = F.linear(two, weight, bias)
    assert got.shape == want.shape and tn.equal(got, want)
    got.sum().backward()
    want.sum().backward()
    assert tn.equal(one.grad, two.grad)
