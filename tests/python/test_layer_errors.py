"""What layers and their tools refuse, and what hooks everywhere see, beside PyTorch."""

from __future__ import annotations

import importlib
import math
import sys
import time
import warnings

import numpy as np
import pytest
import stored
import tenon

WRONG = """
nn.BatchNorm1d(2)(x(2))
nn.BatchNorm1d(2)(x(2, 2, 2, 2))
nn.BatchNorm2d(2)(x(2, 2, 2))
nn.BatchNorm3d(2)(x(2, 2, 2, 2))
nn.InstanceNorm1d(2)(x(2))
nn.InstanceNorm2d(2)(x(2, 2))
nn.InstanceNorm3d(2)(x(2, 2, 2))
nn.AdaptiveLogSoftmaxWithLoss(4, 6, [3, 2])
nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2, 2])
nn.AdaptiveLogSoftmaxWithLoss(4, 6, [6])
nn.AdaptiveLogSoftmaxWithLoss(4, 6, [0, 2])
nn.AdaptiveLogSoftmaxWithLoss(4, 6, [1.5])
nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2])(x(3, 4), lib.tensor([0, 1]))
nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2])(x(3, 4), lib.tensor([0, 1, 6]))
nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2])(x(3, 4), lib.tensor([0, 1, -1]))
nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2])(x(2, 2), lib.tensor(1))
nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2])(x(2, 4), lib.tensor([[1]]))
nn.MultiMarginLoss(3)
nn.MultiMarginLoss(1, weight=x(2, 2))
nn.TripletMarginLoss(margin=-1)
nn.TripletMarginWithDistanceLoss(margin=-1)
nn.FractionalMaxPool2d(2)
nn.FractionalMaxPool2d(2, 2, 0.5)
nn.FractionalMaxPool2d(2, output_ratio=1.5)
nn.FractionalMaxPool2d(2, output_ratio=(0.5, 0.0))
nn.FractionalMaxPool3d(2)
nn.FractionalMaxPool3d(2, output_ratio=-1)
nn.Embedding(3, 2, padding_idx=3)
nn.Embedding(3, 2, padding_idx=-4)
nn.Embedding(3, 2, _weight=x(2, 2))
nn.EmbeddingBag(3, 2, padding_idx=3)
nn.EmbeddingBag(3, 2, _weight=x(2, 2))
nn.EmbeddingBag.from_pretrained(x(3))
nn.TransformerEncoderLayer(4, 2, activation='tanh')
nn.Transformer(4, 2)(x(2, 1, 4), x(2, 2, 4))
nn.Transformer(4, 2)(x(2, 1, 3), x(2, 1, 3))
nn.RNN(2, 3, nonlinearity='sin')
nn.LSTM(2, 3, proj_size=3)
nn.GRU(2, 3, proj_size=1)
nn.LSTM(2, 3, dropout=1.5)
nn.LSTM(2, 0)
nn.LSTM(2, 3, 0)
nn.LSTM(2, 3, dropout='a')
nn.GRU(2, 3)(x(4, 2, 5))
nn.GRU(2, 3)(x(4))
nn.GRU(2, 3)(x(4, 2, 2), x(2, 2, 3))
nn.GRU(2, 3)(x(4, 2), x(1, 1, 3))
nn.RNN(2, 3)(x(4, 1, 2), x(1, 3))
nn.LSTM(2, 3)(x(4, 2, 2), (x(1, 2, 3), x(1, 2, 4)))
nn.LSTM(2, 3)(x(4, 2), (x(1, 1, 3), x(1, 1, 3)))
nn.RNNCell(2, 3)(x(4, 5))
nn.RNNCell(2, 3)(x(4, 2), x(3, 3))
nn.RNNCell(2, 3)(x(4, 2), x(4, 2))
nn.RNNCell(2, 3)(x(1, 1, 1))
nn.RNNCell(2, 3, nonlinearity='sin')(x(2))
nn.LSTMCell(2, 3)(x(1, 1, 1))
nn.LSTMCell(2, 3)(x(2), (x(1, 3), x(3)))
nn.GRUCell(2, 3)(x(1, 1, 1))
nn.GroupNorm(3, 4)
nn.MultiheadAttention(5, 2)
nn.MultiheadAttention(0, 2)
nn.Conv2d(3, 4, 3, groups=2)
nn.Conv2d(4, 3, 3, groups=2)
nn.Conv2d(4, 4, 3, groups=0)
nn.Conv2d(4, 4, 3, padding='full')
nn.Conv2d(4, 4, 3, padding='same', stride=2)
nn.Conv2d(4, 4, 3, padding_mode='mirror')
nn.ConvTranspose2d(4, 4, 3, padding_mode='reflect')
nn.Dropout(1.5)
nn.Dropout(-0.1)
nn.PReLU(3)(x(2, 2))
nn.Softmax2d()(x(2))
nn.Unflatten(1, 5)
nn.Unflatten(1, (2, 'b'))
nn.Hardtanh(2, 1)
nn.Fold((4, 4), 2)(x(1, 5, 9))
nn.LocalResponseNorm(2)(x(3, 2))
nn.CosineEmbeddingLoss()(x(2, 2), x(2, 2), x(2, 2))
nn.CosineEmbeddingLoss()(x(2, 2), x(2, 2), lib.tensor(1))
nn.CosineEmbeddingLoss()(x(2), x(2), x(1))
nn.CosineEmbeddingLoss()(x(2, 2, 2), x(2, 2, 2), x(2))
nn.MarginRankingLoss()(x(3), x(3), x(3, 1))
nn.MarginRankingLoss()(x(3), x(3, 3), x(3))
nn.TripletMarginLoss()(x(2, 2), x(2), x(2, 2))
nn.TripletMarginLoss()(x(2, 2), x(2, 2), x(2))
nn.BCELoss()(x(2), x(3))
nn.NLLLoss()(x(2, 3), lib.tensor([0, 1, 2]))
nn.CrossEntropyLoss(label_smoothing=2.0)(x(2, 3), lib.tensor([0, 1]))
nn.HuberLoss(delta=0.0)(x(2), x(2))
nn.SmoothL1Loss(beta=-1.0)(x(2), x(2))
nn.GaussianNLLLoss()(x(2), x(2), -x(2))
nn.GaussianNLLLoss(eps=-1.0)(x(2), x(2), x(2))
nn.GaussianNLLLoss()(x(2, 3), x(2, 3), x(3, 2))
nn.L1Loss(reduction='max')(x(2), x(2))
utils.spectral_norm(nn.Linear(2, 2), n_power_iterations=0)
utils.spectral_norm(utils.spectral_norm(nn.Linear(2, 2)))
utils.weight_norm(utils.weight_norm(nn.Linear(2, 2)))
utils.remove_spectral_norm(nn.Linear(2, 2))
utils.remove_weight_norm(nn.Linear(2, 2))
utils.parametrizations.spectral_norm(nn.Linear(2, 2), n_power_iterations=0)
utils.parametrizations.spectral_norm(nn.Linear(2, 2), 'none')
utils.parametrizations.orthogonal(nn.Linear(2, 2), 'bias')
utils.parametrizations.orthogonal(nn.Linear(2, 2), orthogonal_map='qr')
utils.parametrizations.orthogonal(nn.Linear(2, 2), 'none')
utils.parametrize.register_parametrization(nn.Linear(2, 2), 'none', nn.ReLU())
utils.parametrize.remove_parametrizations(nn.Linear(2, 2), 'weight')
utils.clip_grad_norm_([p(math.inf)], 1.0, error_if_nonfinite=True)
utils.clip_grad_norm_([p(math.nan)], 1.0, error_if_nonfinite=True)
utils.fuse_linear_bn_eval(nn.Linear(2, 3).eval(), nn.BatchNorm1d(2).eval())
utils.fuse_conv_bn_eval(nn.Conv1d(2, 3, 1), nn.BatchNorm1d(3).eval())
utils.skip_init(int)
utils.prune.l1_unstructured(nn.Linear(2, 2), 'weight', 1.5)
utils.prune.l1_unstructured(nn.Linear(2, 2), 'weight', 9)
utils.prune.l1_unstructured(nn.Linear(2, 2), 'weight', 'a')
utils.prune.l1_unstructured(nn.Linear(2, 2), 'weight', 2, x(3))
utils.prune.ln_structured(nn.Linear(2, 2), 'bias', 1, 2, 0)
utils.prune.random_structured(nn.Linear(2, 2), 'weight', 1, 2)
utils.prune.custom_from_mask(nn.Linear(2, 2), 'weight', x(3, 3))
utils.prune.remove(nn.Linear(2, 2), 'weight')
utils.prune.global_unstructured([(nn.Linear(2, 2), 'weight')], nn.ReLU, amount=1)
utils.prune.global_unstructured(7, utils.prune.L1Unstructured, amount=1)
utils.prune.PruningContainer(7)
utils.rnn.pad_sequence(7)
utils.rnn.pack_padded_sequence(x(2, 3, 1), lib.tensor([[3]]))
utils.vector_to_parameters([1.0], nn.Linear(1, 1).parameters())
utils.fuse_conv_bn_eval(nn.Conv1d(2, 3, 1), nn.BatchNorm1d(3))
utils.parametrize.remove_parametrizations(nn.ReLU(), 'weight')
utils.rnn.pack_padded_sequence(x(2, 2, 1), [1, 2])
utils.rnn.pack_padded_sequence(x(2, 2, 1), [2, 0])
utils.rnn.pad_sequence([])
utils.rnn.pad_sequence([x(2)], padding_side='top')
nn.RNN(2, 3)(x(4, 2, 2).double())
nn.RNN(2, 3, proj_size=1)
nn.RNN(2, 3).check_input(x(2, 2, 2), lib.tensor([1]))
nn.RNN(2, 3).check_input(x(2, 2), None)
nn.RNN(2, 3)(x(2))
nn.ConvTranspose2d(1, 1, 3, 2, 1, dilation=2)(x(1, 1, 4, 4), output_size=(20, 20))
nn.ConvTranspose2d(1, 1, (2, 3), (3, 2), (0, 1))(x(1, 1, 4, 5), output_size=(14, 9))
nn.ConvTranspose2d(1, 1, 3)(x(1, 1, 4, 4), output_size=(20,))
nn.Linear(2, 2).__setattr__('weight', 3)
nn.Linear(2, 2).__setattr__('weight', x(2, 2))
nn.Sequential(nn.ReLU()).__setattr__('0', 3)
nn.BatchNorm1d(2).__setattr__('running_mean', 3)
nn.functional.binary_cross_entropy_with_logits(x(2), x(3))
nn.functional.triplet_margin_loss(x(2), x(2), x(2), margin=0)
""".strip().split("\n")
# What says it in other words or another order, and a part of them.
OWN_WORDS = {
    "nn.LSTM(2, 3, proj_size=3)": "proj_size should be a positive integer smaller than hidden_s",
    "nn.LSTMCell(2, 3)(x(2), (x(1, 3), x(3)))":
        "lstm_cell: Expected hidden0 to have 1 dimensions, got 2",
    "nn.Conv2d(4, 4, 3, padding='full')": "Invalid padding string 'full', should be one of {'",
    "nn.Conv2d(4, 4, 3, padding_mode='mirror')": "but got padding_mode='mirror'",
    "nn.Unflatten(1, 5)": "unflattened_size must be tuple of ints, but found type int",
    "nn.Hardtanh(2, 1)": "max_val must be larger than min_val, but got 1 and 2",
    "nn.LocalResponseNorm(2)(x(3, 2))":
        "Expected 3D or higher dimensionality input (got 2 dimensions",
    "nn.MarginRankingLoss()(x(3), x(3), x(3, 1))":
        "margin_ranking_loss : All input tensors should have same dim",
    "nn.MarginRankingLoss()(x(3), x(3, 3), x(3))":
        "margin_ranking_loss : All input tensors should have same dim",
    "utils.fuse_linear_bn_eval(nn.Linear(2, 3).eval(), nn.BatchNorm1d(2).eval())":
        "To fuse, linear.out_features == bn.num_features or bn.num_fe",
    "utils.prune.l1_unstructured(nn.Linear(2, 2), 'weight', 'a')":
        "Invalid type of amount: a. Must be int or float.",
    "utils.prune.l1_unstructured(nn.Linear(2, 2), 'weight', 2, x(3))":
        "importance_scores should have the same shape as parameter we",
    "utils.prune.global_unstructured([(nn.Linear(2, 2), 'weight')], nn.ReLU, amount=1)":
        "_Inplace.__init__() got an unexpected keyword argument 'amou",
    "utils.rnn.pack_padded_sequence(x(2, 3, 1), lib.tensor([[3]]))":
        "Expected `len(lengths)` to be equal to batch_size, but got 1",
    "utils.vector_to_parameters([1.0], nn.Linear(1, 1).parameters())":
        "expected a Tensor, but got: list",
    "utils.rnn.pad_sequence([x(2)], padding_side='top')":
        "padding_side should be 'left' or 'right', but got top",
    "nn.RNN(2, 3)(x(2))": "RNN: Expected input to be 2D or 3D, got 1D instead",
    "nn.ConvTranspose2d(1, 1, 3, 2, 1, dilation=2)(x(1, 1, 4, 4), output_size=(20, 20))":
        "valid sizes range from [9, 9] to [10, 10] (for an input of [",
    "nn.ConvTranspose2d(1, 1, (2, 3), (3, 2), (0, 1))(x(1, 1, 4, 5), output_size=(14, 9))":
        "valid sizes range from [11, 9] to [13, 10] (for an input of ",
    "nn.BatchNorm1d(2).__setattr__('running_mean', 3)":
        "cannot assign 'int' as buffer 'running_mean' (tenon.nn.param",
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_refused_as_by_pytorch(text):
    def error(lib):
        def numbers(*shape):
            return lib.ones(*shape)

        def with_grad(value):
            param = lib.nn.Parameter(lib.zeros(1))
            param.grad = lib.full((1,), value)
            return param

        names = {"nn": lib.nn, "utils": lib.nn.utils, "lib": lib, "x": numbers, "p": with_grad}
        names["math"] = math
        importlib.import_module(f"{lib.__name__}.nn.utils.prune")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                eval(text, names)
            except Exception as err:
                return [type(err).__name__, str(err).replace("torch.", "tenon.")]
        return ["no error", ""]

    mine, theirs = error(tenon), stored.of_torch(error)
    assert mine[0] == theirs[0], f"{mine} {theirs}"
    if text in OWN_WORDS:
        assert OWN_WORDS[text] in mine[1], f"{mine} {theirs}"
    else:
        assert mine[1] == theirs[1], f"{mine} {theirs}"


def test_clipping():
    def run(lib):
        def params(dtype=None):
            made = [lib.nn.Parameter(lib.zeros(n, dtype=dtype)) for n in (2, 3, 1)]
            for i, p in enumerate(made[:2]):
                p.grad = lib.arange(1.0, 1 + p.numel(), dtype=dtype) * (i + 1)
            return made

        tool, found = lib.nn.utils, []
        for kind in (1.0, 2.0, 3, math.inf, -math.inf, 0.0, 2, "inf"):
            group = params(lib.float64)
            total = tool.clip_grad_norm_(group, 1.5, kind)
            found.append([total, *(p.grad for p in group)])
        group = params()
        found.append(tool.get_total_norm([p.grad for p in group[:2]], 2.0))
        tool.clip_grads_with_norm_(group, 0.5, lib.tensor(4.0))
        found.append([p.grad for p in group])
        tool.clip_grad_value_(group, 0.2)
        found.append([p.grad for p in group])
        tool.clip_grad_value_(group[1], "0.1")
        found.append([group[1].grad, tool.clip_grad_norm_(group[1], 0.1)])
        found.append(
            [group[1].grad, tool.clip_grad_norm_([group[2]], 0.1), tool.get_total_norm([])]
        )
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found.append(
                [tool.clip_grad_norm(group, 0.01), len(told), told[0].filename == __file__]
            )
        return found

    stored.same(run(tenon), stored.of_torch(run), 1e-6, 1e-9)


def test_hooks_on_all_modules():
    def run(lib):
        every, path = lib.nn.modules.module, []
        net = lib.nn.Linear(2, 1).double()
        net.weight.data.fill_(2.0)
        net.bias.data.zero_()

        class Named(lib.nn.Module):
            def forward(self, x, extra=0.0):
                if extra is None:
                    raise ValueError("asked for")
                return {"y": net(x) + extra}

        layer, x = Named(), lib.ones(1, 2, dtype=lib.float64)
        held = [
            every.register_module_forward_pre_hook(lambda m, a: path.append(type(m).__name__)),
            every.register_module_forward_hook(
                lambda m, a, k, y: path.append(sorted(k)), with_kwargs=True),
            every.register_module_forward_hook(
                lambda m, a, y: path.append(len(a)), always_call=True),
        ]  # fmt: skip
        layer(x, extra=1.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                layer(x, extra=None)
            except ValueError as err:
                path.append(str(err))
        for handle in held:
            handle.remove()
        layer(x)
        changed = [
            net.register_forward_pre_hook(lambda m, a: a[0] * 3),
            net.register_forward_pre_hook(lambda m, a, k: ((a[0] + 1,), k), with_kwargs=True),
            net.register_forward_hook(lambda m, a, y: y * 10),
        ]
        path.append(net(x))
        for handle in changed:
            handle.remove()
        wrong = net.register_forward_pre_hook(lambda m, a, k: a, with_kwargs=True)
        try:
            net(x)
        except RuntimeError as err:
            path.append(str(err)[:40])
        wrong.remove()
        path.append(net(x))
        return path

    stored.same(run(tenon), stored.of_torch(run))


def test_an_always_called_hook_that_fails_is_told():
    net = tenon.nn.Linear(1, 1)

    def fails(*_):
        raise ValueError("inside the hook")

    net.register_forward_hook(fails, always_call=True)
    with pytest.warns(UserWarning, match="always_call=True.*silenced.*inside the hook") as told:
        with pytest.raises(RuntimeError):
            net(tenon.ones(1, 7))
    assert len(told) == 1
    with pytest.raises(ValueError, match="inside the hook"):
        net(tenon.ones(1, 1))


def test_members_by_name():
    def run(lib):
        kind = importlib.import_module(f"{lib.__name__}.nn.utils._named_member_accessor")
        net = lib.nn.Sequential(lib.nn.Linear(2, 1), lib.nn.BatchNorm1d(1))
        net.plain = 7
        at = kind.NamedMemberAccessor(net)
        found = [sorted(n for n, _ in at.named_tensors()), sorted(n for n, _ in at.named_modules())]
        found.append([list(at.get_tensor("0.weight").shape), type(at.get_submodule("1")).__name__])
        at.set_tensor("0.bias", lib.full((1,), 5.0))
        found.append(at.get_tensor("0.bias"))
        old = at.swap_tensor("1.running_mean", lib.full((1,), 3.0))
        at.swap_tensor("0.fresh", lib.ones(2), True)
        found += [old, net[1].running_mean, net[0].fresh]
        at.set_tensor("0.later", lib.ones(3))
        found.append(net[0].later)
        swapped = at.swap_tensors_dict({"0.bias": lib.zeros(1), "0.none": lib.ones(1)}, True)
        found += [swapped[0]["0.bias"], list(swapped[1])]
        found.append(at.check_keys(["1.weight", "x.y"])[1])
        for call in (
            lambda: at.get_tensor("0.none"),
            lambda: at.get_tensor("plain"),
            lambda: at.get_tensor("5.weight"),
            lambda: at.swap_tensor("plain", lib.ones(1)),
            lambda: at.swap_tensor("missing", lib.ones(1)),
            lambda: at.swap_submodule("7", net[0]),
            lambda: kind.swap_tensor(net, "0.weight", lib.ones(1)),
            lambda: kind.swap_tensor(net, "", lib.ones(1)),
            lambda: kind.swap_tensor(7, "a", lib.ones(1)),
            lambda: kind.set_tensor(net, "a.b", lib.ones(1)),
            lambda: kind.swap_submodule(net, "a.b", net[0]),
            lambda: at.swap_tensors_dict({"0.absent": lib.ones(1)}),
        ):
            try:
                found.append(str(call())[:10])
            except Exception as err:
                found.append(type(err).__name__)
        found.append([type(at.swap_submodule("0", net[1])).__name__, type(net[0]).__name__])
        return found

    stored.same(run(tenon), stored.of_torch(run))


def test_the_tables_of_a_module_are_dictionaries():
    """What is put into them or taken out of them is an attribute, or is none, at once."""
    net = tenon.nn.BatchNorm1d(2)
    for table, make in (
        ("_buffers", tenon.ones),
        ("_parameters", lambda n: tenon.nn.Parameter(tenon.ones(n))),
    ):
        slots = getattr(net, table)
        slots["first"] = make(1)
        slots.update(second=make(2))
        slots |= {"third": make(3)}
        assert slots.setdefault("fourth", make(4)).shape == (4,)
        assert slots.setdefault("fourth", make(9)).shape == (4,)
        for i, name in enumerate(("first", "second", "third", "fourth")):
            assert getattr(net, name).shape == (i + 1,)
        assert slots.popitem()[0] == "fourth" and slots.pop("third").shape == (3,)
        assert slots.pop("third", None) is None
        with pytest.raises(KeyError):
            slots.pop("third")
        del slots["second"]
        for name in ("second", "third", "fourth"):
            assert not hasattr(net, name)
        del net.first
        assert "first" not in slots
    net._modules.update(inner=tenon.nn.ReLU())
    assert isinstance(net.inner, tenon.nn.ReLU)
    net._modules.clear()
    assert not hasattr(net, "inner")


def test_linear_cross_entropy():
    """The layer is a linear one and the loss behind it."""
    x = tenon.from_numpy(np.random.default_rng(0).standard_normal((5, 3)))
    target = tenon.tensor([0, 3, 1, 1, 2])
    for options in ({}, {"bias": True}, {"reduction": "sum", "label_smoothing": 0.1}):
        loss = tenon.nn.LinearCrossEntropyLoss(3, 4, dtype=tenon.float64, **options)
        rest = {k: v for k, v in options.items() if k != "bias"}
        logits = tenon.nn.functional.linear(x, loss.linear.weight, loss.linear.bias)
        want = tenon.nn.functional.cross_entropy(logits, target, **rest)
        assert loss(x, target).item() == pytest.approx(want.item(), rel=1e-12)
        assert (loss.linear.bias is not None) == ("bias" in options)


@pytest.mark.parametrize("name", ["max_pool3d", "avg_pool3d"])
def test_sizes_of_volumes(name):
    """One size is for all dimensions, also in a list; two say nothing about the third."""
    pool, x = getattr(tenon.nn.functional, name), tenon.rand(1, 2, 4, 4, 4)
    assert tenon.equal(pool(x, [2]), pool(x, 2)) and tenon.equal(pool(x, 2, []), pool(x, 2))
    assert tenon.equal(pool(x, (2,), (1,), (1,)), pool(x, 2, 1, 1))
    for sizes in ([2, 2], [2, 3], [1, 1, 1, 1], []):
        with pytest.raises(RuntimeError, match=f"{name}: kernel_size must .*three ints"):
            pool(x, sizes)
        with pytest.raises(RuntimeError, match=f"{name}: padding must .*three ints"):
            pool(x, 2, 2, sizes)
        if sizes:
            with pytest.raises(RuntimeError, match=f"{name}: stride must .*three ints"):
                pool(x, 2, sizes)


def test_sizes_of_unpooling():
    F = tenon.nn.functional
    for n in (1, 2, 3):
        y, places = getattr(F, f"max_pool{n}d")(tenon.rand(1, 2, *[4] * n), 2, return_indices=True)
        with pytest.raises(RuntimeError, match="kernel_size must be an int"):
            getattr(F, f"max_unpool{n}d")(y, places, [2] * (n + 1))


def test_layers_too_deep_for_the_stack():
    """It is raised at once: no layer on the way looks for the one that the error came from."""
    layer = tenon.nn.Identity()
    for _ in range(sys.getrecursionlimit() + 100):
        layer = tenon.nn.Sequential(layer)
    before = time.process_time()
    with pytest.raises(RecursionError) as caught:
        layer(tenon.ones(2))
    assert time.process_time() - before < 2
    assert not getattr(caught.value, "__notes__", [])
