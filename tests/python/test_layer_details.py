"""What layers do at the side of their results: names, children, hooks, given outputs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import stored
import tenon as tn
import tenon.fx
import tenon.nn.functional as F
from tenon import nn
from tenon.nn.utils import parametrizations, prune


def helper(x: tn.Tensor) -> tn.Tensor:
    """A node by itself where a trace meets it."""
    return x.sin() if x.sum() > 0 else x.cos()


tn.fx.wrap("helper")
POOLS = [
    (F.adaptive_max_pool1d, 1), (F.adaptive_max_pool2d, 2), (F.adaptive_max_pool3d, 3),
    (F.adaptive_avg_pool1d, 1), (F.adaptive_avg_pool2d, 2), (F.adaptive_avg_pool3d, 3),
]  # fmt: skip


@pytest.mark.parametrize(("pool", "n"), POOLS)
def test_adaptive_pools_take_their_dimensions_with_a_batch_or_without(
    pool: Callable[..., tn.Tensor], n: int
) -> None:
    x = tn.arange(float(2 * 3**n)).view(2, *[3] * n)
    assert pool(x, [2] * n).shape == pool(x, 2).shape == (2, *[2] * n)
    assert tn.equal(pool(x[None], 2)[0], pool(x, 2))
    for wrong in (x[0, ..., 0] if n > 1 else x[0], x[None, None]):
        with pytest.raises(RuntimeError, match=f"Expected {n + 1}D or {n + 2}D"):
            pool(wrong, 2)
    for size in ([2] * (n + 1), [2] * (n - 1)):
        with pytest.raises(RuntimeError):
            pool(x, size)


def test_max_pools_with_places() -> None:
    x = tn.arange(16.0).view(1, 1, 4, 4).sin()
    for pool, with_places, t in (
        (F.max_pool1d, F.max_pool1d_with_indices, x[0]),
        (F.max_pool2d, F.max_pool2d_with_indices, x),
        (F.max_pool3d, F.max_pool3d_with_indices, x.view(1, 1, 4, 2, 2)),
    ):
        values, places = with_places(t, 2)
        assert tn.equal(values, pool(t, 2))
        numbers = t.flatten(2) if t.dim() > 3 else t
        assert tn.equal(numbers.gather(2, places.flatten(2)).view(values.shape), values)


def test_children_are_those_that_are_there_and_each_once() -> None:
    net = nn.Module()
    net.a = net.b = nn.ReLU()
    net.register_module("c", None)
    net.d = nn.Sequential(nn.Tanh())
    assert [name for name, _ in net.named_children()] == ["a", "d"]
    assert list(net.children()) == [net.a, net.d]
    assert [name for name, _ in net.named_modules()] == ["", "a", "d", "d.0"]


def test_the_dimension_that_weight_norm_remembers() -> None:
    for dim, kept, length in ((None, -1, ()), (0, 0, (3, 1)), (1, 1, (1, 2)), (-1, -1, ())):
        layer = nn.Linear(2, 3)
        weight = layer.weight.detach().clone()
        parametrizations.weight_norm(layer, dim=dim)
        both = layer.parametrizations.weight
        assert both[0].dim == kept and both.original0.shape == length
        np.testing.assert_allclose(layer.weight.detach().numpy(), weight.numpy(), rtol=1e-6)


def test_hooks_that_always_run_do_so_once() -> None:
    calls: list[str] = []

    def failing(*_: Any) -> None:
        raise ValueError("stop")

    layer = nn.ReLU()
    layer.register_forward_hook(lambda *_: calls.append("first"), always_call=True)
    layer.register_forward_hook(failing)
    layer.register_forward_hook(lambda *_: calls.append("never"))
    layer.register_forward_hook(lambda *_: calls.append("last"), always_call=True)
    with pytest.raises(ValueError, match="stop"):
        layer(tn.ones(2))
    assert calls == ["first", "last"]


def test_normalize_writes_where_it_is_told() -> None:
    x = tn.tensor([[3.0, 4.0], [0.0, 0.0]])
    out = tn.empty(0)
    assert F.normalize(x, out=out) is out
    assert out.tolist() == F.normalize(x).tolist()
    np.testing.assert_allclose(out.numpy(), [[0.6, 0.8], [0, 0]], rtol=1e-6)


def test_which_step_a_divergence_names_last() -> None:
    x, t = tn.rand(2, 3).log().requires_grad_(), tn.rand(2, 3)
    names = [F.kl_div(x, t, reduction=how).grad_fn.name() for how in ("batchmean", "sum", "mean")]
    assert names[0] == "DivBackward0" and "DivBackward0" not in names[1:]


def test_a_filter_larger_than_its_image_is_refused_with_both_sizes() -> None:
    """An image with padding, a filter with gaps of its dilation; one that just fits is taken."""
    text = r"per channel: \({}\). Kernel size: \({}\). Kernel size can't be greater than actual"
    for sizes, filters, padding, dilation, image, kernel in (
        ([4], [3], 0, 2, "4", "5"),
        ([4, 7], [5, 2], [0, 1], 1, "4 x 9", "5 x 2"),
        ([3, 4], [2, 3], [1, 0], [1, 2], "5 x 4", "2 x 5"),
        ([2, 6, 3], [5, 1, 2], 1, [1, 1, 2], "4 x 8 x 5", "5 x 1 x 3"),
    ):
        x, w = tn.ones(1, 2, *sizes), tn.ones(3, 2, *filters)
        conv = (F.conv1d, F.conv2d, F.conv3d)[len(sizes) - 1]
        with pytest.raises(RuntimeError, match=text.format(image, kernel)):
            conv(x, w, padding=padding, dilation=dilation)
    assert F.conv1d(tn.ones(1, 2, 5), tn.ones(3, 2, 3), dilation=2).shape == (1, 3, 1)


def test_results_of_another_dtype_say_so_to_other_libraries() -> None:
    x = tn.tensor([[1.5, -2.5], [0.0, 3.0]])
    for t, kind in (
        (x.to(tn.int32), "int32"), (x.double(), "float64"), (x.half(), "float16"),
        (x.argmax(1), "int64"), ((x > 0).to(tn.uint8), "uint8"), (x.to(tn.complex64), "complex64"),
        ((x > 0).long(), "int64"), (x.int() + 1.5, "float32"),
        (tn.zeros_like(x, dtype=tn.int8), "int8"),
        (tn.empty_like(x, dtype=tn.int16).fill_(3), "int16"), (x > 0, "bool"), (x.isnan(), "bool"),
    ):  # fmt: skip
        got = np.from_dlpack(t)
        assert got.dtype == kind and got.tolist() == t.tolist()


def test_an_input_that_is_handed_back_keeps_the_name_of_its_node() -> None:
    y = tn.ones(2, 3, requires_grad=True).exp()
    handed = 0
    for call in (
        lambda: y.contiguous(), lambda: y.float(), lambda: y.to(tn.float32), lambda: y.type_as(y),
        lambda: y.flatten(1), lambda: tn.atleast_1d(y), lambda: tn.atleast_2d(y), lambda: y.real,
        lambda: y.reshape(2, 3), lambda: y.view_as(y), lambda: y.squeeze(), lambda: y.expand(2, 3),
        lambda: F.dropout(y, training=False), lambda: y.sum_to_size(2, 3), lambda: y.resolve_conj(),
        lambda: y.expand_as(y), lambda: y.cpu(), lambda: y.conj(), lambda: y.positive(),
        lambda: F.alpha_dropout(y, training=False), lambda: y.moveaxis(0, 0),
    ):  # fmt: skip
        handed += call() is y
        assert y.grad_fn.name() == "ExpBackward0"
    assert handed > 5


@pytest.mark.parametrize("layout", ["csr", "csc", "bsr", "bsc"])
def test_compressed_tensors_take_their_parts_by_name(layout: str) -> None:
    rows = layout in ("csr", "bsr")
    names = ("crow_indices", "col_indices") if rows else ("ccol_indices", "row_indices")
    values = tn.tensor([1.0, 2.0]) if layout[0] == "c" else tn.tensor([[[1.0]], [[2.0]]])
    make = getattr(tn, f"sparse_{layout}_tensor")
    ends, places = tn.tensor([0, 1, 2]), tn.tensor([1, 0])
    want = tn.tensor([[0.0, 1.0], [2.0, 0.0]])
    want = want if rows else want.t()
    parts = {names[0]: ends, names[1]: places, "values": values, "size": (2, 2)}
    assert tn.equal(make(**parts).to_dense(), want)
    assert tn.equal(make(ends, places, values, (2, 2)).to_dense(), want)
    with pytest.raises(TypeError):
        make(
            **{("ccol_indices" if rows else "crow_indices"): ends}, **dict(list(parts.items())[1:])
        )


def test_a_trace_puts_back_what_it_watched() -> None:
    before = (math.sqrt, math.floor, vars(math).copy(), helper, nn.Module.__call__)

    def traced(x: tn.Tensor) -> Any:
        return helper(x) + 1

    graph = tn.fx.symbolic_trace(traced).graph
    assert any(node.target is helper for node in graph.nodes)
    assert (math.sqrt, math.floor, vars(math).copy(), helper, nn.Module.__call__) == before


@pytest.mark.parametrize("name", ["exponential_", "normal_", "uniform_", "cauchy_", "log_normal_"])
@pytest.mark.parametrize("stream", ["philox", "torch"])
def test_draws_do_not_repeat_and_have_all_bits_of_their_dtype(name: str, stream: str) -> None:
    tn.set_rng(stream)
    try:
        tn.manual_seed(5)
        singles = getattr(tn.empty(40000), name)()
        doubles = getattr(tn.empty(40000, dtype=tn.float64), name)()
    finally:
        tn.set_rng("philox")
    assert len(singles.unique()) > 0.99 * 40000 and len(doubles.unique()) == 40000
    assert (doubles.float().double() != doubles).sum() > 0.99 * 40000


@pytest.mark.parametrize("batch_first", [True, False])
def test_padded_sequences_lie_as_in_pytorch(batch_first):
    """Where a dropout behind them draws its mask in the order of their elements."""
    rnn = nn.utils.rnn
    x = tn.randn(3, 5, 4)
    x = x if batch_first else x.transpose(0, 1)
    for lengths, is_sorted in (([2, 5, 3], False), ([5, 4, 2], True)):
        packed = rnn.pack_padded_sequence(x, lengths, batch_first, enforce_sorted=is_sorted)
        padded, _ = rnn.pad_packed_sequence(packed, batch_first, total_length=7)
        if batch_first and is_sorted:
            assert padded.stride() == (4, 12, 1)
        else:
            assert padded.is_contiguous()
    both = rnn.pad_sequence([tn.ones(5, 4), tn.ones(2, 4)], batch_first)
    assert both.is_contiguous() and both.shape == ((2, 5, 4) if batch_first else (5, 2, 4))


def test_targets_of_other_sizes_are_warned_of() -> None:
    for loss in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss):
        with pytest.warns(UserWarning, match="Using a target size"):
            loss(tn.ones(2, 1), tn.ones(2))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            loss(tn.ones(2), tn.zeros(2))


def test_states_are_put_into_another_order() -> None:
    at, h, c = tn.tensor([2, 0, 1]), tn.arange(6.0).reshape(1, 3, 2), tn.ones(1, 3, 2)
    assert nn.GRU(2, 2).permute_hidden(h, at).tolist() == [[[4, 5], [0, 1], [2, 3]]]
    assert nn.GRU(2, 2).permute_hidden(h, None) is h
    moved = nn.LSTM(2, 2).permute_hidden((h, c), at)
    assert [m.tolist() for m in moved] == [[[[4, 5], [0, 1], [2, 3]]], c.tolist()]


def test_arguments_of_a_recurrent_layer_are_checked_by_themselves() -> None:
    layer, x = nn.RNN(3, 2), tn.ones(4, 5, 3)
    layer.check_forward_args(x, tn.zeros(1, 5, 2), None)
    with pytest.raises(RuntimeError, match="must have 3 dimensions, got 2"):
        layer.check_forward_args(x[0], tn.zeros(1, 5, 2), None)
    with pytest.raises(RuntimeError, match="Expected 3, got 4"):
        layer.check_forward_args(tn.ones(4, 5, 4), tn.zeros(1, 5, 2), None)
    with pytest.raises(RuntimeError, match="Expected hidden size"):
        layer.check_forward_args(x, tn.zeros(1, 4, 2), None)
    with pytest.raises(ValueError, match="does not match weight dtype"):
        layer.check_forward_args(x.double(), tn.zeros(1, 5, 2), None)


def test_statistics_begin_anew() -> None:
    norm = nn.BatchNorm1d(2)
    norm(tn.tensor([[1.0, 2.0], [3.0, 6.0]]))
    assert norm.num_batches_tracked.item() == 1 and norm.running_mean.tolist() != [0, 0]
    norm.reset_running_stats()
    assert norm.num_batches_tracked.item() == 0
    assert norm.running_mean.tolist() == [0, 0] and norm.running_var.tolist() == [1, 1]


def test_a_hook_gets_the_layer_its_arguments_and_the_result() -> None:
    class Scaled(nn.Module):
        def forward(self, x: tn.Tensor, by: float = 1.0) -> tn.Tensor:
            if by < 0:
                raise ValueError("by")
            return x * by

    layer, seen = Scaled(), []
    layer.register_forward_pre_hook(lambda *given: seen.append(given), with_kwargs=True)
    layer.register_forward_hook(
        lambda *given: seen.append(given), with_kwargs=True, always_call=True
    )
    x = tn.ones(1)
    y = layer(x, by=3.0)
    assert seen == [(layer, (x,), {"by": 3.0}), (layer, (x,), {"by": 3.0}, y)]
    seen.clear()
    with pytest.raises(ValueError, match="by"):
        layer(x, by=-1.0)
    assert seen == [(layer, (x,), {"by": -1.0}), (layer, (x,), {"by": -1.0}, None)]


def test_what_prunes_nothing_leaves_a_mask_of_ones() -> None:
    layer = nn.Linear(3, 2)
    before = layer.weight.tolist()
    prune.identity(layer, "weight")
    assert layer.weight.tolist() == before and layer.weight_mask.tolist() == [[1] * 3] * 2
    with pytest.raises(AssertionError, match="has to be pruned"):
        prune.Identity().apply_mask(nn.Linear(1, 1))
    with pytest.raises(RuntimeError, match="lambda must be"):
        F.softshrink(tn.ones(1), -0.1)


def test_layers_that_repeat_are_written_once() -> None:
    def run(lib: Any) -> list[Any]:
        n = lib.nn
        lists = [
            [], [n.ReLU()], [n.Linear(2, 2), n.Linear(2, 2), n.ReLU()],
            [n.ReLU(), n.Linear(2, 2), n.Linear(2, 2), n.Linear(2, 3)],
            [n.Sequential(n.ReLU(), n.Tanh()), n.Sequential(n.ReLU(), n.Tanh())],
        ]  # fmt: skip
        return [repr(n.ModuleList(each)) for each in lists]

    stored.same(run(tn), stored.of_torch(run))


@pytest.mark.parametrize("kind", ["BatchNorm1d", "InstanceNorm1d"])
def test_running_statistics_are_written_in_training_alone(kind: str) -> None:
    """So that backward and graphs may keep them, and memory that nobody may write to serves."""
    norm = getattr(nn, kind)(3, track_running_stats=True).eval()
    x = tn.randn(2, 3, 4, requires_grad=True)
    kept = x * norm.running_mean.view(3, 1) + norm.running_var.view(3, 1)
    versions = [norm.running_mean._version, norm.running_var._version]
    want = norm(x)
    kept.square().sum().backward()
    assert [norm.running_mean._version, norm.running_var._version] == versions
    with tn.no_grad():
        traced = tn.jit.trace(lambda y: norm(y), x)
        for y in (x, x * 2):
            assert traced(y).equal(norm(y))
    fixed = np.zeros(3, np.float32)
    fixed.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        norm.running_mean = tn.from_numpy(fixed)
    assert norm(x).equal(want)
    norm.train()
    before = norm.running_var._version
    norm.running_mean = tn.zeros(3)
    norm(x)
    assert norm.running_mean._version == 1 and norm.running_var._version == before + 1


class Still(nn.TransformerEncoderLayer):
    def _sa_block(self, x, attn_mask, key_padding_mask, is_causal=False):
        return super()._sa_block(x, attn_mask, key_padding_mask, is_causal) * 0 + 1

    def _ff_block(self, x):
        return x


class StillDecoder(nn.TransformerDecoderLayer):
    def _sa_block(self, x, attn_mask, key_padding_mask, is_causal=False):
        return x * 0

    def _mha_block(self, x, mem, attn_mask, key_padding_mask, is_causal=False):
        return super()._mha_block(x, mem, attn_mask, key_padding_mask, is_causal) * 0 + mem

    def _ff_block(self, x):
        return super()._ff_block(x) * 0 + 2 * x


@pytest.mark.parametrize("norm_first", (False, True))
def test_transformer_layers_call_the_blocks_that_a_subclass_brings(norm_first: bool) -> None:
    x, memory = tn.randn(4, 2, 8), tn.randn(4, 2, 8)
    layer = Still(8, 2, 16, norm_first=norm_first).eval()
    decoder = StillDecoder(8, 2, 16, norm_first=norm_first).eval()

    def norm(x: tn.Tensor) -> tn.Tensor:
        return F.layer_norm(x, (8,))

    if norm_first:
        want, after = x + 1 + norm(x + 1), x + memory + 2 * norm(x + memory)
    else:
        want, after = norm(2 * norm(x + 1)), norm(3 * norm(norm(x) + memory))
    tn.testing.assert_close(nn.TransformerEncoder(layer, 1)(x), want)
    tn.testing.assert_close(decoder(x, memory), after)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("kind", ["Constant", "Reflection", "Replication", "Circular", "Zero"])
def test_a_padding_of_one_number_is_for_both_ends_of_each_dimension(kind: str, dims: int) -> None:
    value = (2.0,) if kind == "Constant" else ()
    assert getattr(nn, f"{kind}Pad{dims}d")(1, *value).padding == (1, 1) * dims


def test_what_stands_behind_a_sequence_is_zero_where_an_encoder_infers() -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    net = nn.TransformerEncoder(layer, 1).eval()
    padding = tn.tensor([[False, False, True], [False, False, False]])
    x = tn.arange(24.0).reshape(2, 3, 4).sin()
    with tn.no_grad():
        y = net(x, src_key_padding_mask=padding)
        whole = net(x)
    trained = net(x, src_key_padding_mask=padding)
    assert (y == 0).all(-1).tolist() == padding.tolist()
    assert not (trained == 0).any() and not (whole == 0).any()
    np.testing.assert_allclose(y[~padding], trained[~padding].detach(), rtol=1e-5)


def test_a_lazy_layer_waits_for_one_input() -> None:
    layer = nn.LazyLinear(3)
    assert len(layer._forward_pre_hooks) == 1
    layer(tn.ones(1, 2))
    assert type(layer) is nn.Linear and not layer._forward_pre_hooks
    assert not hasattr(layer, "_infer_hook")


def test_margins_of_one_sample_without_a_batch() -> None:
    x = tn.tensor([0.1, 0.2, 0.4])
    for target in (tn.tensor(1), tn.tensor([1])):
        loss = F.multi_margin_loss(x, target)
        assert loss.item() == pytest.approx((0.9 + 1.2) / 3)
    with pytest.raises(RuntimeError, match=r"Expected target size \[1\], but got \[2\]"):
        F.multi_margin_loss(x, tn.tensor([1, 2]))


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float64", "int64", "complex64"])
def test_a_bias_has_the_dtype_of_the_input(dims: int, kind: str) -> None:
    """As in PyTorch, where transposed ones of one and two dimensions round a real one."""
    x, w = tn.ones(1, 1, *(3,) * dims), tn.ones(1, 1, *(2,) * dims)
    bias = tn.full((1,), 7 / 3).to(getattr(tn, kind))
    with pytest.raises(RuntimeError, match="and bias type .* should be the same"):
        getattr(F, f"conv{dims}d")(x, w, bias)
    transposed = getattr(F, f"conv_transpose{dims}d")
    if dims == 3 or kind == "complex64":
        with pytest.raises(RuntimeError, match="and bias type .* should be the same"):
            transposed(x, w, bias)
    else:
        y = transposed(x, w, bias)
        assert y.dtype == tn.float32 and y.equal(transposed(x, w, bias.float()))


@pytest.mark.parametrize("function", [F.softmax, F.log_softmax, F.softmin])
def test_a_class_that_takes_calls_over_is_asked_with_the_function(function: Callable) -> None:
    class Told(tn.Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func.__name__, types, args[0] is x, (kwargs or {}).get("dim")

    x = tn.ones(2).as_subclass(Told)
    name, types, same, dim = function(x, dim=0)
    assert name == function.__name__ and list(types) == [Told] and same and dim == 0


class Spy(nn.TransformerDecoderLayer):
    """A layer that notes what it is told of causality."""

    def forward(self, tgt: Any, memory: Any, **options: Any) -> Any:
        self.told = (options["tgt_is_causal"], options["memory_is_causal"])
        return super().forward(tgt, memory, **options)


@pytest.mark.parametrize("batch_first", [False, True])
def test_a_mask_of_a_decoder_is_known_by_its_length(batch_first: bool) -> None:
    """Steps are counted where they are: in the first dimension, or behind the batch."""
    net = nn.TransformerDecoder(Spy(4, 2, 8, batch_first=batch_first), 1)

    def told(*shape: int) -> Any:
        net(tn.ones(*shape), tn.ones(*shape), mask)
        return net.layers[0].told

    mask = nn.Transformer.generate_square_subsequent_mask(3)
    whole = (2, 3, 4) if batch_first else (3, 2, 4)
    assert told(*whole) == (True, False) and told(3, 4) == (True, False)
    mask = mask.clone()
    mask[0, 2] = 0.0
    assert told(*whole) == (False, False)
