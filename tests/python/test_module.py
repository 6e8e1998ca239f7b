"""Modules against PyTorch: texts, names of the state, initial weights, results and gradients.

Every case is a function of a library, which builds modules from an expression under the same stream
of random numbers; without PyTorch its stored answers stand in.
"""

from __future__ import annotations

import copy
import pickle
import warnings
from collections import OrderedDict

import numpy as np
import pytest
import stored
import tenon
from tenon import nn

pytestmark = pytest.mark.usefixtures("torch_stream")


def made(lib, text: str):
    """The value of an expression in `nn` from a fixed seed."""
    lib.manual_seed(7)
    return eval(text, {"nn": lib.nn, "lib": lib, "OrderedDict": OrderedDict})


def described(module) -> dict:
    """The text and the state of a module."""
    state = module.state_dict()
    return {
        "text": repr(module).replace("torch.", "tenon."),
        "state": {name: v.detach().clone() for name, v in state.items()},
        "metadata": [[k, v] for k, v in state._metadata.items()],
        "buffers": [n for n, _ in module.named_buffers()],
    }


def inputs(*shapes, whole: int | None = None):
    rng = np.random.default_rng(3)
    for shape in shapes:
        if whole is not None:
            x = rng.integers(0, whole, shape)
        else:
            x = rng.standard_normal(shape).astype(np.float32)
        yield x


LAYERS = [
    ("nn.Linear(5, 3)", (4, 5)),
    ("nn.Linear(5, 3, bias=False)", (2, 4, 5)),
    ("nn.Conv1d(4, 6, 3, padding=1, groups=2)", (2, 4, 9)),
    ("nn.Conv2d(3, 8, 3)", (2, 3, 8, 7)),
    ("nn.Conv2d(4, 8, (3, 2), stride=2, padding=(1, 0), dilation=1, bias=False)", (2, 4, 9, 8)),
    ("nn.Conv2d(4, 4, 3, padding='same', padding_mode='reflect')", (2, 4, 6, 6)),
    ("nn.Conv2d(4, 4, 3, padding=1, padding_mode='circular')", (2, 4, 6, 6)),
    ("nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1)", (2, 4, 5, 5)),
    ("nn.BatchNorm1d(5)", (6, 5)),
    ("nn.BatchNorm2d(3, momentum=None)", (4, 3, 5, 5)),
    ("nn.BatchNorm2d(3, affine=False, track_running_stats=False)", (4, 3, 5, 5)),
    ("nn.InstanceNorm2d(3, affine=True, track_running_stats=True)", (4, 3, 5, 5)),
    ("nn.InstanceNorm1d(3)", (4, 3, 5)),
    ("nn.LayerNorm(6)", (3, 6)),
    ("nn.LayerNorm((4, 6), bias=False)", (3, 4, 6)),
    ("nn.LayerNorm(6, elementwise_affine=False)", (3, 6)),
    ("nn.GroupNorm(2, 6)", (3, 6, 4)),
    ("nn.RMSNorm(6)", (3, 6)),
    ("nn.LocalResponseNorm(3)", (2, 5, 4, 4)),
    ("nn.ReLU()", (3, 4)),
    ("nn.ReLU(inplace=True)", None),
    ("nn.ReLU6()", (3, 4)),
    ("nn.GELU()", (3, 4)),
    ("nn.GELU(approximate='tanh')", (3, 4)),
    ("nn.SiLU()", (3, 4)),
    ("nn.Mish()", (3, 4)),
    ("nn.ELU(0.7)", (3, 4)),
    ("nn.CELU(0.7)", (3, 4)),
    ("nn.SELU()", (3, 4)),
    ("nn.LeakyReLU(0.2)", (3, 4)),
    ("nn.PReLU()", (3, 4)),
    ("nn.PReLU(4)", (3, 4)),
    ("nn.Hardtanh(-0.5, 0.7)", (3, 4)),
    ("nn.Hardswish()", (3, 4)),
    ("nn.Hardsigmoid()", (3, 4)),
    ("nn.Hardshrink()", (3, 4)),
    ("nn.Softshrink()", (3, 4)),
    ("nn.Softplus(2.0)", (3, 4)),
    ("nn.Softsign()", (3, 4)),
    ("nn.Tanhshrink()", (3, 4)),
    ("nn.LogSigmoid()", (3, 4)),
    ("nn.Threshold(0.1, -3.0)", (3, 4)),
    ("nn.Sigmoid()", (3, 4)),
    ("nn.Tanh()", (3, 4)),
    ("nn.GLU()", (3, 4)),
    ("nn.Softmax(dim=1)", (3, 4)),
    ("nn.LogSoftmax(dim=-1)", (3, 4)),
    ("nn.Softmin(dim=0)", (3, 4)),
    ("nn.MaxPool1d(2)", (2, 3, 8)),
    ("nn.MaxPool2d(2)", (2, 3, 8, 8)),
    ("nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True)", (2, 3, 8, 8)),
    ("nn.AvgPool1d(2)", (2, 3, 8)),
    ("nn.AvgPool2d(3, 2, 1)", (2, 3, 8, 8)),
    ("nn.AdaptiveAvgPool1d(3)", (2, 3, 8)),
    ("nn.AdaptiveAvgPool2d((2, None))", (2, 3, 8, 8)),
    ("nn.AdaptiveAvgPool2d(1)", (2, 3, 8, 8)),
    ("nn.AdaptiveMaxPool2d(2)", (2, 3, 8, 8)),
    ("nn.MaxPool3d(3, stride=2, padding=1, ceil_mode=True)", (2, 3, 6, 7, 8)),
    ("nn.MaxPool3d((2, 1, 2), dilation=(1, 1, 2), return_indices=True)", (2, 3, 6, 7, 8)),
    ("nn.AvgPool3d(3, 2, 1, count_include_pad=False, ceil_mode=True)", (2, 3, 6, 7, 8)),
    ("nn.AvgPool3d(2, divisor_override=5)", (3, 6, 7, 8)),
    ("nn.AdaptiveAvgPool3d((2, None, 3))", (2, 3, 6, 7, 8)),
    ("nn.AdaptiveMaxPool3d(2)", (2, 3, 6, 7, 8)),
    ("nn.LPPool1d(2, 3)", (2, 3, 8)),
    ("nn.LPPool2d(2, 2, 1)", (2, 3, 8, 8)),
    ("nn.LPPool3d(4, 2)", (2, 3, 6, 7, 8)),
    ("nn.ConvTranspose3d(3, 4, 2, 2, groups=1)", (2, 3, 3, 4, 3)),
    ("nn.ChannelShuffle(2)", (2, 4, 3, 3)),
    ("nn.Fold((6, 7), (2, 3), padding=1, stride=2, dilation=2)", (2, 12, 9)),
    ("nn.RReLU()", (4, 6)),
    ("nn.FeatureAlphaDropout(0.3)", (4, 6, 3)),
    ("nn.Upsample(scale_factor=2, mode='bicubic')", (2, 3, 4, 5)),
    ("nn.Upsample(size=(9, 3), mode='bicubic', align_corners=True)", (2, 3, 4, 5)),
    ("nn.Upsample(size=(3, 7, 8), mode='trilinear')", (2, 3, 4, 5, 4)),
    ("nn.Upsample(scale_factor=1.6, mode='nearest-exact')", (2, 3, 4, 5)),
    ("nn.Upsample(scale_factor=2)", (2, 3, 4, 5, 4)),
    ("nn.EmbeddingBag(10, 3, max_norm=1.0, mode='max', padding_idx=2)", None),
    ("nn.TripletMarginWithDistanceLoss()", None),
    ("nn.ZeroPad2d((1, 2, 0, 1))", (2, 3, 4, 4)),
    ("nn.ConstantPad1d(2, 3.5)", (2, 3, 4)),
    ("nn.ReflectionPad2d(1)", (2, 3, 4, 4)),
    ("nn.ReplicationPad1d(2)", (2, 3, 4)),
    ("nn.Flatten()", (2, 3, 4)),
    ("nn.Unflatten(1, (2, 3))", (4, 6)),
    ("nn.PixelShuffle(2)", (2, 8, 3, 4)),
    ("nn.PixelUnshuffle(2)", (2, 3, 4, 6)),
    ("nn.Upsample(scale_factor=2)", (2, 3, 4, 5)),
    ("nn.Upsample(size=(7, 9), mode='bilinear')", (2, 3, 4, 5)),
    ("nn.UpsamplingBilinear2d(scale_factor=2)", (2, 3, 4, 5)),
    ("nn.Unfold((2, 3), padding=1, stride=2)", (2, 3, 5, 6)),
    ("nn.Identity()", (2, 3)),
    ("nn.Dropout(0.0)", (3, 4)),
    ("nn.Dropout(0.4)", (30, 40)),
    ("nn.Dropout2d(0.4)", (4, 6, 3, 3)),
    ("nn.Bilinear(3, 4, 5)", None),
    ("nn.CosineSimilarity()", None),
    ("nn.Embedding(10, 3, padding_idx=2, max_norm=1.0)", None),
    ("nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Sequential(nn.Linear(8, 2)))", (4, 5)),
    ("nn.Sequential(OrderedDict(a=nn.Linear(5, 8), b=nn.ReLU()))", (4, 5)),
    ("nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 3)])", None),
    ("nn.ModuleList()", None),
    ("nn.ModuleDict({'x': nn.Linear(2, 2), 'y': nn.ModuleList([nn.ReLU()])})", None),
    ("nn.ParameterList([nn.Parameter(lib.ones(2, 3)), nn.Parameter(lib.ones(2))])", None),
    ("nn.ParameterDict({'a': nn.Parameter(lib.ones(2, 3))})", None),
    ("nn.MultiheadAttention(8, 2, bias=False)", None),
    ("nn.MultiheadAttention(8, 2, kdim=6, vdim=4, add_bias_kv=True)", None),
    ("nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)", (5, 3, 8)),
    (
        "nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True)",
        (3, 5, 8),
    ),
    ("nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0), 2)", (5, 3, 8)),
    ("nn.Transformer(8, 2, 1, 1, 16, 0.0)", None),
    ("nn.RNN(3, 4, nonlinearity='relu')", (5, 2, 3)),
    ("nn.LSTM(3, 4, 2, bidirectional=True)", (5, 2, 3)),
    ("nn.LSTM(3, 4, proj_size=2, batch_first=True)", (2, 5, 3)),
    ("nn.GRU(3, 4, 2, bias=False)", (5, 2, 3)),
    ("nn.RNNCell(3, 4)", (2, 3)),
    ("nn.LSTMCell(3, 4)", (2, 3)),
    ("nn.GRUCell(3, 4)", (2, 3)),
    ("nn.CrossEntropyLoss(label_smoothing=0.1)", None),
    ("nn.BCEWithLogitsLoss()", None),
    ("nn.MSELoss()", None),
]


def first(result):
    while isinstance(result, tuple):
        result = result[0]
    return result


@pytest.mark.parametrize("text, shape", LAYERS, ids=[text for text, _ in LAYERS])
def test_layer(text, shape):
    def run(lib):
        module = made(lib, text)
        found = {"module": described(module)}
        for x in inputs(shape) if shape else ():
            lib.manual_seed(11)
            t = lib.from_numpy(x.copy()).requires_grad_()
            y = first(module(t))
            (y * y).sum().backward()
            grads = {name: p.grad for name, p in module.named_parameters()}
            module.eval()
            found |= {"y": y, "grad": t.grad, "eval": first(module(t)), "grads": grads}
        return found

    mine, theirs = run(tenon), stored.of_torch(run)
    stored.same(mine.pop("module"), theirs.pop("module"), 0, 0)
    stored.same(mine.pop("grads", {}), theirs.pop("grads", {}), 2e-4, 5e-5)
    stored.same(mine, theirs, 2e-4, 2e-5)


@pytest.mark.parametrize(
    "text",
    [
        "nn.ReLU(True)",
        "nn.ReLU6(True)",
        "nn.LeakyReLU(0.2, True)",
        "nn.ELU(inplace=True)",
        "nn.CELU(inplace=True)",
        "nn.SELU(True)",
        "nn.SiLU(True)",
        "nn.Mish(True)",
        "nn.Hardswish(True)",
        "nn.Hardtanh(inplace=True)",
        "nn.Threshold(0.1, 2.0, True)",
        "nn.Dropout(0.5, True)",
    ],
)
def test_inplace_activations(text):
    (x,) = inputs((4, 6))

    def run(lib):
        module = made(lib, text)
        lib.manual_seed(3)
        t = lib.from_numpy(x.copy()).requires_grad_()
        hidden = t * 2
        y = module(hidden)
        assert y is hidden
        (y * 3).sum().backward()
        return [repr(module), y, t.grad]

    stored.same(run(tenon), stored.of_torch(run), 1e-5, 1e-6)


LOSSES = [
    ("nn.MSELoss()", "float"),
    ("nn.L1Loss(reduction='sum')", "float"),
    ("nn.SmoothL1Loss(beta=0.3)", "float"),
    ("nn.HuberLoss(delta=0.4)", "float"),
    ("nn.CrossEntropyLoss()", "class"),
    ("nn.CrossEntropyLoss(ignore_index=1, reduction='none')", "class"),
    ("nn.CrossEntropyLoss(weight=lib.tensor([0.2, 1.0, 0.5]), label_smoothing=0.2)", "class"),
    ("nn.CrossEntropyLoss()", "share"),
    ("nn.NLLLoss()", "class"),
    ("nn.BCEWithLogitsLoss(pos_weight=lib.tensor([0.5, 2.0, 1.0]))", "share"),
    ("nn.KLDivLoss(reduction='batchmean')", "share"),
    ("nn.PoissonNLLLoss()", "share"),
    ("nn.SoftMarginLoss()", "sign"),
    ("nn.HingeEmbeddingLoss()", "sign"),
    ("nn.MultiLabelSoftMarginLoss()", "share"),
    ("nn.MultiMarginLoss()", "class"),
    ("nn.MultiLabelMarginLoss()", "labels"),
]


@pytest.mark.parametrize("text, kind", LOSSES, ids=[text for text, _ in LOSSES])
def test_loss(text, kind):
    rng = np.random.default_rng(5)
    x = rng.standard_normal((6, 3)).astype(np.float32)
    if kind == "float":
        target = rng.standard_normal((6, 3)).astype(np.float32)
    elif kind == "class":
        target = rng.integers(0, 3, 6)
    elif kind == "labels":
        target = np.array([[0, -1, 1], [2, 1, -1], [-1, 0, 0], [1, 2, 0], [2, -1, 0], [0, 2, -1]])
    elif kind == "sign":
        target = np.where(rng.random((6, 3)) < 0.5, -1, 1).astype(np.float32)
    else:
        target = rng.random((6, 3)).astype(np.float32)
        target /= target.sum(1, keepdims=True)

    def run(lib):
        t = lib.from_numpy(x.copy()).requires_grad_()
        y = made(lib, text)(t, lib.from_numpy(target.copy()))
        y.sum().backward()
        return [y, t.grad]

    stored.same(run(tenon), stored.of_torch(run), 1e-5, 1e-6)


LAZY = [
    ("nn.LazyLinear(4)", (3, 5)),
    ("nn.LazyConv1d(4, 2, bias=False)", (2, 3, 6)),
    ("nn.LazyConv2d(6, (2, 3), 2, 1, groups=3)", (2, 3, 5, 6)),
    ("nn.LazyConvTranspose2d(4, 3, 2, 1, 1)", (2, 3, 4, 4)),
    ("nn.LazyBatchNorm2d(momentum=0.2)", (2, 3, 4, 4)),
    ("nn.LazyInstanceNorm1d(affine=True)", (2, 3, 4)),
]


@pytest.mark.parametrize("text, shape", LAZY, ids=[text for text, _ in LAZY])
def test_lazy_layer(text, shape):
    (x,) = inputs(shape)

    def run(lib):
        module = made(lib, text)
        before, held = repr(module), list(module.parameters())
        lib.manual_seed(11)
        y = module(lib.from_numpy(x))
        assert all(a is b for a, b in zip(held, module.parameters()))
        state = None if list(module.buffers()) else described(module)
        return [before, repr(module), y, state]

    mine, theirs = run(tenon), stored.of_torch(run)
    stored.same(mine.pop(), theirs.pop(), 0, 0)
    stored.same(mine, theirs, 1e-5, 1e-6)


def test_results_name_pytorchs_nodes():
    x = tenon.ones(1, 1, 4, 4, requires_grad=True)
    assert nn.Linear(4, 2)(x[0, 0]).grad_fn.name() == "AddmmBackward0"
    assert nn.Conv2d(1, 1, 2)(x).grad_fn.name() == "ConvolutionBackward0"
    assert nn.MaxPool2d(2)(x).grad_fn.name() == "MaxPool2DWithIndicesBackward0"


def test_lazy_layer_takes_its_shape_from_a_file():
    ordinary, lazy = nn.Linear(5, 4), nn.LazyLinear(4)
    lazy.load_state_dict(ordinary.state_dict())
    assert tenon.equal(lazy.weight, ordinary.weight)
    assert copy.deepcopy(nn.LazyLinear(2)).has_uninitialized_params()


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bag(mode):
    table = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)
    index, starts = np.array([1, 2, 4, 5, 4, 3, 2, 7]), np.array([0, 3, 3, 6])

    def run(lib):
        bag = lib.nn.EmbeddingBag.from_pretrained(
            lib.from_numpy(table.copy()), freeze=False, mode=mode, padding_idx=4
        )
        one = bag(lib.from_numpy(index), lib.from_numpy(starts))
        two = bag(lib.from_numpy(index.reshape(2, 4)))
        ((one * one).sum() + two.sum()).backward()
        return [one, two, bag.weight.grad]

    stored.same(run(tenon), stored.of_torch(run), 1e-5, 1e-6)


@pytest.mark.parametrize("need", [True, False])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_attention(need, causal, padded):
    x = np.random.default_rng(1).standard_normal((3, 5, 8)).astype(np.float32)
    hidden = np.zeros((3, 5), bool)
    hidden[:, 4] = True

    def run(lib):
        lib.manual_seed(2)
        layer = lib.nn.MultiheadAttention(8, 2, batch_first=True)
        t = lib.from_numpy(x)
        mask = lib.nn.Transformer.generate_square_subsequent_mask(5) if causal else None
        y, w = layer(
            t,
            t,
            t,
            attn_mask=mask,
            key_padding_mask=lib.from_numpy(hidden) if padded else None,
            need_weights=need,
            is_causal=causal,
        )
        return [y, w]

    stored.same(run(tenon), stored.of_torch(run), 1e-4, 1e-6)


def test_packed_lstm():
    x = np.random.default_rng(1).standard_normal((3, 5, 4)).astype(np.float32)

    def run(lib):
        lib.manual_seed(2)
        rnn = lib.nn.utils.rnn
        layer = lib.nn.LSTM(4, 3, 2, bidirectional=True, batch_first=True)
        packed = rnn.pack_padded_sequence(
            lib.from_numpy(x), lib.tensor([2, 5, 3]), batch_first=True, enforce_sorted=False
        )
        out, (h, c) = layer(packed)
        y, lengths = rnn.pad_packed_sequence(out, batch_first=True)
        return [y, lengths, h, c]

    stored.same(run(tenon), stored.of_torch(run), 1e-4, 1e-6)


# ---- What a module is ----------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.again = self.fc
        self.scale = nn.Parameter(tenon.ones(2))
        self.register_buffer("count", tenon.zeros(1))
        self.register_buffer("scratch", tenon.zeros(1), persistent=False)
        self.nothing = None

    def forward(self, x):
        return self.fc(x) * self.scale


def test_registration_and_names():
    net = Net()
    assert [n for n, _ in net.named_parameters()] == ["scale", "fc.weight", "fc.bias"]
    assert len([n for n, _ in net.named_parameters(remove_duplicate=False)]) == 5
    assert list(net.state_dict()) == [
        "scale",
        "count",
        "fc.weight",
        "fc.bias",
        "again.weight",
        "again.bias",
    ]
    assert [n for n, _ in net.named_buffers()] == ["count", "scratch"]
    assert [n for n, _ in net.named_modules()] == ["", "fc"]
    assert net.get_parameter("fc.weight") is net.fc.weight
    assert net.get_submodule("fc") is net.fc
    assert net.fc.weight is net.fc._parameters["weight"]
    net.fc._parameters["weight"] = nn.Parameter(tenon.zeros(2, 3))
    assert float(net.fc.weight.sum()) == 0.0
    del net.scale
    assert not hasattr(net, "scale")
    net.scale = tenon.ones(2)
    assert "scale" not in net._parameters
    with pytest.raises(TypeError, match="cannot assign '.*' as parameter 'weight'"):
        net.fc.weight = tenon.ones(2, 3)
    with pytest.raises(KeyError, match="attribute 'forward' already exists"):
        net.register_parameter("forward", nn.Parameter(tenon.ones(1)))
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'missing'"):
        net.missing
    with pytest.raises(AttributeError, match="before Module.__init__"):

        class Early(nn.Module):
            def __init__(self):
                self.x = nn.Linear(1, 1)

        Early()


def test_copies():
    net = Net()
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert list(twin.state_dict()) == list(net.state_dict())
        assert twin.fc is twin.again
        assert twin.fc.weight is twin.fc._parameters["weight"]
        assert twin.fc.weight is not net.fc.weight
        twin.fc._parameters["weight"] = None
        assert twin.fc.weight is None and net.fc.weight is not None
    seen = copy.copy(net)
    assert seen.scale is net.scale


def test_modules_are_freed_by_their_last_reference():
    import gc
    import weakref

    gc.disable()
    try:
        net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        alive = weakref.ref(net)
        inner = weakref.ref(net[0])
        del net
        assert alive() is None and inner() is None
    finally:
        gc.enable()


def error_text(lib, fn) -> str:
    try:
        fn(lib)
    except Exception as error:
        return f"{type(error).__name__}: {error}".replace("torch.", "tenon.")
    return "no error"


def wrong_shapes(lib):
    a, b = lib.nn.Linear(2, 3), lib.nn.Linear(3, 3)
    a.load_state_dict(b.state_dict())


def missing_and_more(lib):
    state = lib.nn.Linear(2, 3).state_dict()
    state["extra"] = state.pop("bias")
    lib.nn.Sequential(lib.nn.Linear(2, 3)).load_state_dict({"0.weight": state["weight"], "1.x": 2})


def not_a_dict(lib):
    lib.nn.Linear(2, 3).load_state_dict([1])


def no_forward(lib):
    class Empty(lib.nn.Module):
        pass

    Empty()(1)


def int_dtype(lib):
    lib.nn.Linear(2, 3).to(lib.int32)


def bad_child(lib):
    lib.nn.Sequential(lib.nn.ReLU(), 3)


def dotted(lib):
    lib.nn.Module().register_buffer("a.b", None)


def conv_groups(lib):
    lib.nn.Conv2d(3, 4, 3, groups=2)


def module_args(lib):
    lib.nn.Module(3)


@pytest.mark.parametrize(
    "fn",
    [
        wrong_shapes,
        missing_and_more,
        not_a_dict,
        no_forward,
        int_dtype,
        bad_child,
        dotted,
        conv_groups,
        module_args,
    ],
)
def test_errors_read_like_pytorch(fn):
    assert error_text(tenon, fn) == stored.of_torch(lambda torch: error_text(torch, fn))


def test_load_state_dict():
    a, b = Net(), Net()
    answer = a.load_state_dict(b.state_dict())
    assert repr(answer) == "<All keys matched successfully>"
    assert tenon.equal(a.fc.weight, b.fc.weight)
    kept = a.fc.weight
    state = b.state_dict()
    del state["scale"]
    answer = a.load_state_dict(state, strict=False)
    assert answer.missing_keys == ["scale"]
    assert a.fc.weight is kept
    a.load_state_dict(b.state_dict(), assign=True)
    assert a.fc.weight is not kept and isinstance(a.fc.weight, nn.Parameter)


def test_state_dict_hooks():
    net = Net()
    seen = []
    handles = [
        net.register_state_dict_pre_hook(lambda m, prefix, keep: seen.append(("pre", prefix))),
        net.register_state_dict_post_hook(lambda m, d, prefix, meta: seen.append(("post", prefix))),
        net.register_load_state_dict_pre_hook(lambda m, d, *rest: seen.append(("load", m is net))),
        net.register_load_state_dict_post_hook(lambda m, keys: seen.append(("loaded", m is net))),
    ]
    net.load_state_dict(net.state_dict())
    assert seen == [("pre", ""), ("post", ""), ("load", True), ("loaded", True)]
    for handle in handles:
        handle.remove()
    net.load_state_dict(net.state_dict())
    assert len(seen) == 4


def test_forward_hooks():
    net = nn.Linear(2, 2)
    order = []
    net.register_forward_pre_hook(lambda m, args: order.append("pre1"))
    net.register_forward_pre_hook(
        lambda m, args, kwargs: order.append("pre0"), prepend=True, with_kwargs=True
    )
    net.register_forward_hook(lambda m, args, out: out * 0)
    last = net.register_forward_hook(lambda m, args, out: order.append(float(out.sum())))
    x = tenon.ones(1, 2)
    assert float(net(x).sum()) == 0.0
    assert order == ["pre0", "pre1", 0.0]
    last.remove()
    net(x)
    assert order[3:] == ["pre0", "pre1"]

    class Fails(nn.Module):
        def forward(self, x):
            raise ValueError("no")

    module = Fails()
    module.register_forward_hook(lambda m, args, out: order.append("always"), always_call=True)
    module.register_forward_hook(lambda m, args, out: order.append("never"))
    with pytest.raises(ValueError):
        module(x)
    assert order[-1] == "always"


def test_global_forward_hook():
    seen = []
    handle = nn.modules.module.register_module_forward_hook(
        lambda m, args, out: seen.append(type(m).__name__)
    )
    net = nn.Sequential(nn.ReLU(), nn.Tanh())
    net(tenon.ones(1))
    handle.remove()
    net(tenon.ones(1))
    assert seen == ["ReLU", "Tanh", "Sequential"]


def test_backward_hooks():
    def run(lib):
        lib.manual_seed(0)
        seen = []
        net = lib.nn.Linear(2, 2)
        net.register_full_backward_pre_hook(lambda m, gout: (gout[0] * 2,))
        net.register_full_backward_hook(
            lambda m, gin, gout, seen=seen: seen.append([gin[0], gout[0]])
        )
        net.register_full_backward_hook(lambda m, gin, gout: (gin[0] * 3,))
        x = lib.ones(1, 2).requires_grad_()
        net(x).sum().backward()
        return [*seen[0], x.grad, net.weight.grad]

    stored.same(run(tenon), stored.of_torch(run), 1e-6)


def test_dtype_and_modes():
    net = Net()
    kept = net.fc.weight
    assert net.double() is net
    assert net.fc.weight is kept and net.fc.weight.dtype == tenon.float64
    assert net.count.dtype == tenon.float64
    net.to(tenon.float32).eval()
    assert not net.fc.training
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())
    net.requires_grad_()
    net(tenon.ones(1, 3)).sum().backward()
    net.zero_grad()
    assert net.fc.weight.grad is None
    net.apply(lambda m: m.train())
    assert net.training


def test_buffer_class():
    net = nn.Module()
    net.b = nn.Buffer(tenon.ones(2), persistent=False)
    net.c = nn.Buffer(tenon.ones(2))
    assert list(net._buffers) == ["b", "c"] and list(net.state_dict()) == ["c"]


INITS = [
    "uniform_(t, -1, 2)",
    "normal_(t, 1, 2)",
    "trunc_normal_(t, std=0.5, a=-1, b=1)",
    "constant_(t, 3)",
    "eye_(t)",
    "xavier_uniform_(t, 1.5)",
    "xavier_normal_(t)",
    "kaiming_uniform_(t, 0.2, 'fan_out')",
    "kaiming_normal_(t, nonlinearity='relu')",
    "sparse_(t, 0.3)",
    "orthogonal_(t)",
]


@pytest.mark.parametrize("text", INITS)
def test_init(text):
    def run(lib):
        lib.manual_seed(4)
        t = lib.empty(8, 5)
        eval("init." + text, {"init": lib.nn.init, "t": t})
        return t

    stored.same(run(tenon), stored.of_torch(run), 1e-5, 1e-6)


def test_gradients_of_no_parameters():
    for given, warned in ([], 0), ((p for p in ()), 1):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            assert nn.utils.clip_grad_norm_(given, 1.0).item() == 0
        assert len(seen) == warned and all("empty generator" in str(w.message) for w in seen)


def test_clip_and_vector():
    def run(lib):
        lib.manual_seed(4)
        net = lib.nn.Linear(4, 3)
        net(lib.ones(2, 4)).pow(2).sum().backward()
        total = lib.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        lib.nn.utils.clip_grad_value_(net.parameters(), 0.1)
        vec = lib.nn.utils.parameters_to_vector(net.parameters())
        lib.nn.utils.vector_to_parameters(vec * 2, net.parameters())
        return [total, net.weight.grad, net.bias]

    stored.same(run(tenon), stored.of_torch(run), 1e-5)


# ---- Classes with a __getattr__ of their own -----------------------------------------------------


class Asked(nn.Module):
    """Notes which names it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.weight = nn.Parameter(tenon.ones(2))
        self.register_buffer("mean", tenon.zeros(2))
        self.inner = nn.Linear(2, 3)

    def __getattr__(self, name: str):
        found = super().__getattr__(name)
        self.asked.append(name)
        return found


def test_a_getattr_of_ones_own_is_asked_at_each_reading():
    module = Asked()
    module.asked.clear()
    for name in ("weight", "mean", "inner", "weight"):
        getattr(module, name)
    assert module.asked == ["weight", "mean", "inner", "weight"]
    module.weight = nn.Parameter(tenon.full((2,), 3.0))
    assert module.weight.tolist() == [3.0, 3.0]
    assert list(module.state_dict()) == ["weight", "mean", "inner.weight", "inner.bias"]
    del module.weight
    with pytest.raises(AttributeError, match="'Asked' object has no attribute 'weight'"):
        module.weight  # noqa: B018
    assert not hasattr(module, "weight")
    again = copy.deepcopy(module)
    assert again.mean is not module.mean and again.asked[-1] == "mean"


def test_a_getattr_of_ones_own_comes_and_goes_with_the_class():
    class Upper(nn.Linear):
        def __getattr__(self, name: str):
            found = super().__getattr__(name)
            return found * 2 if name == "weight" else found

    module = nn.Linear(1, 1)
    weight = module.weight.item()
    module.__class__ = Upper
    assert module.weight.item() == 2 * weight
    module.weight = nn.Parameter(tenon.full((1, 1), 5.0))
    assert module.weight.item() == 10.0
    module.__class__ = nn.Linear
    assert module.weight.item() == 5.0 and vars(module)["weight"] is module.weight


LAZY_REFUSALS = {
    "numel": lambda w: w.numel(),
    "dim": lambda w: w.dim(),
    "len": len,
    "add": lambda w: w + 1,
    "sum": lambda w: tenon.sum(w),
    "view": lambda w: w.view(-1),
    "index": lambda w: w[0],
    "init": nn.init.zeros_,
    "detach": lambda w: w.detach(),
}


@pytest.mark.parametrize("use", LAZY_REFUSALS)
@pytest.mark.parametrize("layer", ["nn.LazyLinear(3)", "nn.LazyBatchNorm1d()"])
def test_a_parameter_without_a_shape_answers_nothing(layer, use):
    weight = eval(layer).weight
    with pytest.raises(ValueError, match="uninitialized parameter"):
        LAZY_REFUSALS[use](weight)


def test_a_parameter_without_a_shape_is_converted():
    weight = nn.LazyLinear(3).double().weight
    assert weight.dtype is tenon.float64 and weight.to("cpu").dtype is tenon.float64
    assert weight.is_floating_point() and weight.requires_grad and weight.is_leaf
    with pytest.raises(ValueError, match="uninitialized parameter"):
        sum(p.numel() for p in nn.LazyLinear(3).parameters())


def test_a_module_that_is_made_anew():
    """As by a class with two modules as bases: parameters, buffers and children are none."""
    net = nn.Linear(2, 2)
    net.plain, net.child = 3, nn.ReLU()
    net.register_buffer("kept", tenon.ones(1))
    nn.Module.__init__(net)
    assert net.plain == 3 and list(net.state_dict()) == []
    assert not any(hasattr(net, name) for name in ("weight", "child", "kept"))
    net.add_module("child", nn.Tanh())
    net.register_buffer("weight", tenon.ones(1))
    assert list(net._modules) == ["child"] and list(net._buffers) == ["weight"]
