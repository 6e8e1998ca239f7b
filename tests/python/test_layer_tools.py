"""Layers that are rare, and what is done to layers, beside PyTorch: results, gradients, states."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import stored
import tenon

pytestmark = pytest.mark.usefixtures("torch_stream")


def values(lib, *shape, low=-2.0, high=2.0, grad=False):
    """Numbers without a pattern that depend on the shape alone."""
    rng = np.random.default_rng(len(shape) + 7 * sum(shape))
    return lib.from_numpy(rng.uniform(low, high, shape)).requires_grad_(grad)


def seen(lib, module, *args, **kwargs):
    """The result of a call and all gradients of its first tensor."""
    args = [a.detach().requires_grad_() if a.is_floating_point() else a for a in args]
    result = module(*args, **kwargs)
    out = result if isinstance(result, lib.Tensor) else result[0]
    (out * lib.cos(out.detach())).sum().backward()
    grads = {n: p.grad for n, p in module.named_parameters()}
    return [result, [a.grad for a in args if a.requires_grad], grads]


LAYERS = {
    "AdaptiveLogSoftmaxWithLoss(6, 12, [3, 7], div_value=2.0)": [(5, 6), "classes"],
    "AdaptiveLogSoftmaxWithLoss(6, 12, [3, 7, 9], head_bias=True)": [(5, 6), "classes"],
    "LocalResponseNorm(3, 0.5, 0.6, 2.0)": [(2, 4, 3, 3)],
    "Softmax2d()": [(2, 3, 2, 2)],
    "AdaptiveMaxPool1d(3, return_indices=True)": [(2, 3, 7)],
    "AdaptiveMaxPool2d((3, None), return_indices=True)": [(2, 3, 7, 5)],
    "AdaptiveMaxPool3d(2, return_indices=True)": [(1, 2, 4, 5, 3)],
    "MaxPool3d(2, 1, 1, return_indices=True)": [(1, 2, 4, 5, 3)],
    "UpsamplingNearest2d(scale_factor=2)": [(1, 2, 3, 3)],
    "UpsamplingBilinear2d((5, 7))": [(1, 2, 3, 3)],
    "Upsample((5, 4), mode='bicubic')": [(1, 2, 3, 3)],
    "Conv3d(2, 3, 2, padding=1, padding_mode='circular')": [(1, 2, 3, 4, 3)],
    "Conv3d(2, 4, (2, 1, 2), stride=2, groups=2)": [(1, 2, 3, 4, 3)],
    "BatchNorm3d(2, momentum=None)": [(2, 2, 3, 1, 2)],
    "TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True)": [(2, 3, 8), (2, 5, 8)],
    "TransformerDecoderLayer(8, 2, 16, 0.0, 'gelu', norm_first=True)": [(3, 2, 8), (5, 2, 8)],
    "TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, 0.0), 2, nn.LayerNorm(8))": [
        (3, 2, 8), (5, 2, 8)],
    "Transformer(8, 2, 1, 1, 16, 0.0)": [(3, 2, 8), (5, 2, 8)],
    "Transformer(8, 2, 1, 2, 16, 0.0, batch_first=True, norm_first=True, bias=False)": [
        (2, 3, 8), (2, 5, 8)],
    "utils.spectral_norm(nn.Linear(4, 3))": [(2, 4)],
    "utils.spectral_norm(nn.ConvTranspose2d(3, 2, 2), n_power_iterations=3)": [(1, 3, 2, 2)],
    "utils.parametrizations.spectral_norm(nn.Conv2d(3, 2, 2), 'weight', 2, 1e-6, 1)": [
        (1, 3, 4, 4)],
    "utils.weight_norm(nn.Linear(4, 3))": [(2, 4)],
    "utils.weight_norm(nn.Linear(4, 3), dim=1)": [(2, 4)],
    "utils.weight_norm(nn.Linear(4, 3), 'weight', None)": [(2, 4)],
    "utils.parametrizations.weight_norm(nn.Linear(4, 3), dim=None)": [(2, 4)],
    "utils.parametrizations.weight_norm(nn.Linear(4, 3), dim=1)": [(2, 4)],
    "utils.parametrizations.orthogonal(nn.Linear(4, 4))": [(2, 4)],
    "utils.parametrizations.orthogonal(nn.Linear(4, 3), orthogonal_map='householder')": [(2, 4)],
    "utils.parametrizations.orthogonal(nn.Linear(3, 4), orthogonal_map='cayley')": [(2, 3)],
    "Bilinear(2, 3, 4)": [(5, 2), (5, 3)],
    "CosineSimilarity(1)": [(5, 3), (5, 3)],
    "PairwiseDistance(1.5, keepdim=True)": [(5, 3), (5, 3)],
    "GaussianNLLLoss(full=True, eps=0.5, reduction='none')": [(4, 3), (4, 3), "positive"],
    "TripletMarginLoss(0.7, 1.5, 1e-3, True, reduction='sum')": [(4, 3), (4, 3), (4, 3, 0)],
    "TripletMarginWithDistanceLoss(distance_function=nn.PairwiseDistance(1), swap=True)": [
        (4, 3), (4, 3), (4, 3, 0)],
    "MultiMarginLoss(2, 0.5, lib.tensor([0.5, 1.0, 2.0]).double())": [(5, 3), "classes"],
    "CTCLoss(2, 'sum', True)": [(6, 2, 4), "labels", "times", "lengths"],
}  # fmt: skip


def argument(lib, kind):
    if kind == "classes":
        return lib.tensor([0, 2, 1, 2, 0])
    if kind == "labels":
        return lib.tensor([[1, 3, 1], [0, 1, 3]])
    if kind == "times":
        return lib.tensor([6, 5])
    if kind == "lengths":
        return lib.tensor([3, 2])
    if kind == "positive":
        return values(lib, 4, 3, low=0.1)
    if kind[-1] == 0:  # other numbers of the same shape
        return values(lib, *kind[:-1], low=-1.0).flip(0)
    return values(lib, *kind)


def made(lib, text):
    lib.manual_seed(7)
    names = {"nn": lib.nn, "utils": lib.nn.utils, "lib": lib}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = eval(text if text.startswith(("nn.", "utils.")) else "nn." + text, names)
    return module.double()


@pytest.mark.parametrize("text", LAYERS)
def test_layer(text):
    def run(lib):
        module = made(lib, text)
        args = [argument(lib, kind) for kind in LAYERS[text]]
        state = [[n, v.detach().clone()] for n, v in module.state_dict().items()]
        first = seen(lib, module, *args)
        module.zero_grad()
        again = seen(lib, module.eval(), *args)
        return [repr(module).replace("torch.", "tenon."), state, first, again]

    # Orthogonal weights were made in float32.
    near = 1e-4 if "orthogonal" in text else 1e-6
    stored.same(run(tenon), stored.of_torch(run), near, near / 100)


def test_normalization_over_maps():
    """PyTorch's values; its gradient is not theirs, so that finite differences judge."""

    def run(lib):
        module = lib.nn.CrossMapLRN2d(3, 0.5, 0.6, 2.0)
        return [module(values(lib, 2, 4, 3, 3)), repr(module)]

    stored.same(run(tenon), stored.of_torch(run), 1e-9, 1e-12)
    layer = tenon.nn.CrossMapLRN2d(3, 0.5, 0.6, 2.0)
    assert tenon.autograd.gradcheck(layer, (values(tenon, 1, 4, 2, 1, grad=True),))
    with pytest.raises(ValueError, match="Expected input to be 4D, got 3D"):
        layer(tenon.ones(1, 2, 3))


def test_adaptive_softmax_predicts():
    def run(lib):
        module = made(lib, "AdaptiveLogSoftmaxWithLoss(6, 12, [3, 7], div_value=2.0)")
        x = values(lib, 5, 6)
        return [module.log_prob(x), module.predict(x), module.log_prob(x).exp().sum(1)]

    stored.same(run(tenon), stored.of_torch(run), 1e-6, 1e-8)


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("options", [{"output_size": 2}, {"output_ratio": 0.6}])
def test_fractional_pooling(dims, options):
    def run(lib):
        samples = values(lib, 1, 2, dims, low=0.0, high=1.0)
        kind = getattr(lib.nn, f"FractionalMaxPool{dims}d")
        module = kind(2, **options, return_indices=True, _random_samples=samples)
        x = values(lib, 1, 2, *[5, 6, 4][:dims], grad=True)
        y, index = module(x)
        (y * y).sum().backward()
        alone = kind(2, **options, _random_samples=samples)(x)
        return [y, index, x.grad, alone, repr(module)]

    stored.same(run(tenon), stored.of_torch(run))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_unpooling(dims):
    def run(lib):
        size = [6, 4, 8][:dims]
        pool = getattr(lib.nn, f"MaxPool{dims}d")(2, 2, return_indices=True)
        back = getattr(lib.nn, f"MaxUnpool{dims}d")(2, 2)
        x = values(lib, 2, 3, *size, grad=True)
        y, index = pool(x)
        plain, sized = back(y, index), back(y, index, output_size=(2, 3, *size))
        (sized**2).sum().backward()
        short = getattr(lib.nn.functional, f"max_unpool{dims}d")(y, index, 2, 2, 0, size)
        return [plain, sized, x.grad, short, repr(back)]

    stored.same(run(tenon), stored.of_torch(run))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_gradients_of_convolutions_alone(dims):
    def run(lib):
        size, options = [7, 6, 5][:dims], {"stride": 2, "padding": 1, "dilation": 1, "groups": 2}
        x, w = values(lib, 2, 4, *size), values(lib, 6, 2, *[3] * dims)
        out = getattr(lib.nn.functional, f"conv{dims}d")(x, w, **options)
        g, tool = lib.cos(out), lib.nn.grad
        return [
            getattr(tool, f"conv{dims}d_input")(x.shape, w, g, **options),
            getattr(tool, f"conv{dims}d_weight")(x, w.shape, g, **options),
        ]

    stored.same(run(tenon), stored.of_torch(run), 1e-9, 1e-12)


@pytest.mark.parametrize("kind", ["Conv1d", "Conv2d", "ConvTranspose2d", "Linear"])
@pytest.mark.parametrize("plain", [False, True])
def test_fusing_a_norm(kind, plain):
    """The fused layer gives what the two gave; a layer that trains is refused."""
    dims = int(kind[-2]) if kind != "Linear" else 0
    layer = getattr(tenon.nn, kind)(4, 3, *[2] * bool(dims), bias=not plain).double().eval()
    norm = (getattr(tenon.nn, f"BatchNorm{max(dims, 1)}d")(3, affine=not plain)).double().eval()
    norm.running_mean.copy_(values(tenon, 3))
    norm.running_var.copy_(values(tenon, 3, low=0.5))
    if not plain:
        norm.weight.data.copy_(values(tenon, 3))
        norm.bias.data.copy_(values(tenon, 3) + 1)
    fusion = tenon.nn.utils.fusion
    if kind == "Linear":
        fuse = fusion.fuse_linear_bn_eval
    elif "Transpose" in kind:
        fuse = lambda a, b: fusion.fuse_conv_bn_eval(a, b, transpose=True)  # noqa: E731
    else:
        fuse = fusion.fuse_conv_bn_eval
    x = values(tenon, 2, 4, *[5] * dims)
    fused = fuse(layer, norm)
    np.testing.assert_allclose(
        fused(x).detach().numpy(), norm(layer(x)).detach().numpy(), 1e-10, 1e-12
    )
    assert fused is not layer and fused.weight.requires_grad and isinstance(fused, type(layer))
    with pytest.raises(AssertionError, match="Fusion only for eval"):
        fuse(layer.train(), norm)


def test_names_in_modules():
    def run(lib):
        net = lib.nn.Sequential(lib.nn.BatchNorm1d(2), lib.nn.Sequential(lib.nn.Linear(2, 1)))
        found = [net.get_buffer("0.running_mean"), list(net.get_parameter("1.0.weight").shape)]
        net.set_submodule("1.0", lib.nn.Tanh())
        net.set_submodule("1.extra", lib.nn.ReLU())
        net.register_module("late", lib.nn.ELU())
        found += [repr(net), "weight" in dir(net[0]), "running_var" in dir(net[0]), "0" in dir(net)]
        for call in (
            lambda: net.get_buffer("0.weight"),
            lambda: net.get_buffer("0.none"),
            lambda: net.get_buffer("5.none"),
            lambda: net.get_parameter("0.running_mean"),
            lambda: net.set_submodule("", lib.nn.ReLU()),
            lambda: net.set_submodule("0.weight.x", lib.nn.ReLU()),
            lambda: net.set_submodule("0", lib.ones(1)),
            lambda: net.set_submodule("9.a", lib.nn.ReLU()),
            lambda: net.register_module("a.b", lib.nn.ReLU()),
            lambda: net.register_module("forward", lib.nn.ReLU()),
        ):
            try:
                found.append(str(call())[:10])
            except Exception as err:
                found.append([type(err).__name__, str(err).replace("torch.", "tenon.")[:30]])
        return found

    stored.same(run(tenon), stored.of_torch(run))


def test_extra_state():
    def run(lib):
        class Counted(lib.nn.Linear):
            count = 3

            def get_extra_state(self):
                return {"count": self.count}

            def set_extra_state(self, state):
                self.count = state["count"] + 10

        net = lib.nn.Sequential(Counted(1, 1))
        state = net.state_dict()
        found = [
            list(state),
            state["0._extra_state"],
            str(net.load_state_dict(state)),
            net[0].count,
        ]
        del state["0._extra_state"]
        found.append(str(net.load_state_dict(state, strict=False)))
        plain = lib.nn.Sequential(lib.nn.Linear(1, 1))
        found.append(str(plain.load_state_dict(net.state_dict(), strict=False)))
        return found

    stored.same(run(tenon), stored.of_torch(run))


def test_rnn_tools():
    def run(lib):
        tool = lib.nn.utils.rnn
        parts = [values(lib, n, 2) for n in (3, 1, 2)]
        found = []
        for side in ("left", "right"):
            for first in (False, True):
                found.append(tool.pad_sequence(parts, first, 0.5, side))
        for enforce in (False, True):
            ordered = sorted(parts, key=len, reverse=True) if enforce else parts
            packed = tool.pack_sequence(ordered, enforce)
            found += [
                list(packed),
                tool.unpack_sequence(packed),
                packed.is_cuda,
                packed.is_pinned(),
            ]
            half = packed.to(lib.float32)
            found += [half.data, half.batch_sizes]
            kinds = ("double", "float", "half", "long", "int", "short", "char", "byte", "cpu")
            found += [getattr(packed, name)().data for name in kinds]
            found += [packed.to("cpu") is packed, half is packed, packed.to(lib.float64) is packed]
        padded, lengths = tool.pad_packed_sequence(packed, True, -1.0, 5)
        found += [padded, lengths, tool.unpad_sequence(padded, lengths, True)]
        found.append(tool.invert_permutation(lib.tensor([2, 0, 1])))
        for call in (
            lambda: tool.pack_sequence(parts),
            lambda: tool.pad_packed_sequence(packed, total_length=2),
            lambda: tool.pack_padded_sequence(padded, lengths[:2], True),
            lambda: tool.pack_padded_sequence(padded, lib.tensor([3, 0, 1]), True),
            lambda: tool.pad_sequence(parts, padding_side="top"),
        ):
            try:
                found.append(str(call())[:9])
            except Exception as err:
                found.append(type(err).__name__)
        return found

    stored.same(run(tenon), stored.of_torch(run))


def test_backward_hooks_of_arguments_without_a_gradient():
    def run(lib):
        class Parts(lib.nn.Module):
            def forward(self, a, b, *more):
                whole = b.sum() if b.is_floating_point() else 0
                return a * 2 + whole, a.detach(), (a * 0).long(), a * 3

        net, path = Parts(), []

        def note(module, grad_in, grad_out):
            for grads in (grad_in, grad_out):
                path.append(
                    [None if g is None else [str(g.dtype).split(".")[1], g.tolist()] for g in grads]
                )

        net.register_full_backward_hook(note)
        x, plain = lib.ones(2, requires_grad=True), lib.ones(2)
        for args in (
            (x, plain), (x, lib.ones(2, dtype=lib.int64)), (x, plain, lib.ones(3) > 0, "word"),
            (plain, lib.ones(2, requires_grad=True)),
        ):  # fmt: skip
            out = net(*args)
            path.append([t.requires_grad for t in out])
            out[0].sum().backward()
        return path

    stored.same(run(tenon), stored.of_torch(run))


def test_attention_over_no_samples_and_no_steps():
    def run(lib):
        path = []
        for options in ({}, {"add_bias_kv": True, "add_zero_attn": True}, {"kdim": 3, "vdim": 4}):
            net = lib.nn.MultiheadAttention(6, 3, batch_first=True, **options)
            for lead in ((0, 2), (2, 0), (0, 0), (0,)):
                width = (options.get("kdim", 6), options.get("vdim", 6))
                args = [lib.ones(*lead, w) for w in (6, *width)]
                for weights in (True, False):
                    out = net(*args, need_weights=weights)
                    path.append([None if t is None else list(t.shape) for t in out])
        layer = lib.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        path.append([list(layer(lib.ones(*s, 4)).shape) for s in ((0, 2), (2, 0), (0,))])
        return path

    stored.same(run(tenon), stored.of_torch(run))


def test_old_backward_hooks():
    def run(lib):
        net, path = lib.nn.Linear(2, 1).double(), []
        net.weight.data.copy_(lib.tensor([[1.0, 2.0]]))

        def hook(name):
            def note(module, grad_in, grad_out):
                path.append([name, [None if g is None else list(g.shape) for g in grad_out]])

            return note

        x = values(lib, 3, 2, grad=True)
        handle = net.register_full_backward_hook(hook("full"))
        everywhere = lib.nn.modules.module.register_module_full_backward_hook(hook("all"))
        net(x).sum().backward()
        handle.remove()
        everywhere.remove()
        for first, second in (("backward", "full_backward"), ("full_backward", "backward")):
            net = copy.deepcopy(net)
            net._is_full_backward_hook = None
            older = getattr(net, f"register_{first}_hook")(hook("older"))
            net(x).sum().backward()
            try:
                getattr(net, f"register_{second}_hook")(hook("both"))
            except RuntimeError as err:
                path.append(str(err)[:30])
            older.remove()
            net(x).sum().backward()
        return path

    stored.same(run(tenon), stored.of_torch(run))


def test_functional_call_under_its_older_name():
    def run(lib):
        net = lib.nn.Sequential(lib.nn.Linear(2, 2), lib.nn.BatchNorm1d(2)).double()
        other = {"0.weight": values(lib, 2, 2), "0.bias": values(lib, 2)}
        x = values(lib, 3, 2)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            out = lib.nn.utils.stateless.functional_call(net, other, (x,))
        return [out, len(told), told[0].category.__name__, told[0].filename == __file__]

    stored.same(run(tenon), stored.of_torch(run), 1e-9, 1e-12)


class Counting(tenon.nn.Module):
    """Its buffer is another one after each call; one weight has two names."""

    def __init__(self):
        super().__init__()
        self.w = self.v = tenon.nn.Parameter(tenon.ones(2))
        self.register_buffer("b", tenon.zeros(2))
        self.plain = tenon.full((2,), 5.0)
        self.sub = tenon.nn.Linear(2, 2)

    def forward(self, x):
        self.b = self.b + 1
        return x * self.w + self.v + self.b + self.plain


# The tensors by their numbers -> the result, and what stands in the dictionary afterwards.
CALLED_WITH = [
    ({"w": 2.0}, 10.0, {"w": 2.0}),
    ({"b": 7.0}, 15.0, {"b": 8.0}),
    ({"plain": 7.0}, 10.0, {"plain": 7.0}),
    ({"absent": 1.0, "sub.absent": 2.0}, 8.0, {"absent": 1.0, "sub.absent": 2.0}),
    ({"b": 7.0, "w": 1.0, "v": 1.0}, None, "multiple values for keys \\['v', 'w'\\]"),
    ({"nosub.w": 1.0}, None, "no attribute `nosub`"),
    ({"sub": 1.0}, None, "attribute `sub`: Linear"),
    ({"w": 3}, None, "3 is not an instance"),
]


@pytest.mark.parametrize(("given", "result", "after"), CALLED_WITH)
def test_tensors_of_a_functional_call(given, result, after):
    net = Counting()
    tensors = {n: tenon.full((2,), v) if type(v) is float else v for n, v in given.items()}
    if result is None:
        with pytest.raises((ValueError, AttributeError, TypeError), match=after):
            tenon.func.functional_call(net, tensors, tenon.ones(2))
    else:
        assert tenon.func.functional_call(net, tensors, tenon.ones(2)).tolist() == [result] * 2
        assert {name: t[0].item() for name, t in tensors.items()} == after
    assert net.w is net.v and net.w.tolist() == [1, 1] and net.plain.tolist() == [5, 5]
    assert net.b.tolist() == ([0, 0] if "b" in given or result is None else [1, 1])
    assert not hasattr(net, "absent") and not hasattr(net.sub, "absent")


def test_tied_tensors_of_a_functional_call():
    net, x = Counting(), tenon.ones(2)
    w, v = tenon.full((2,), 2.0), tenon.full((2,), 3.0)
    assert tenon.func.functional_call(net, {"w": w, "v": w}, x).tolist() == [10, 10]
    both = {"w": w, "v": v}
    assert tenon.func.functional_call(net, both, x, tie_weights=False).tolist() == [12, 12]
    with pytest.raises(RuntimeError, match="Unexpected key.*'no'.\n.*Missing key.*'b', 'sub.bias'"):
        tenon.func.functional_call(net, {"w": w, "no": v}, x, strict=True)


def test_a_module_within_which_tensors_stand():
    net = Counting()
    weight = tenon.full((2,), 2.0)
    for stacked in (False, True):
        with tenon.nn.utils.stateless._reparametrize_module(
            net, {"w": weight}, tie_weights=True, strict=False, stack_weights=stacked
        ):
            assert net.w is weight and net.v is weight
        assert net.w is net.v and net.w.tolist() == [1, 1]


def test_skip_init():
    layer = tenon.nn.utils.skip_init(tenon.nn.Linear, 3, 2, dtype=tenon.float64)
    assert layer.weight.shape == (2, 3) and layer.weight.dtype == tenon.float64
    with pytest.raises(RuntimeError, match="must support a 'device' arg"):
        tenon.nn.utils.skip_init(tenon.nn.ReLU)


@pytest.mark.parametrize("make", ["spectral_norm", "weight_norm"])
def test_old_norms_are_removed(make):
    tools = tenon.nn.utils
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layer = getattr(tools, make)(tenon.nn.Linear(4, 3))
        layer(tenon.ones(1, 4))
        want = layer.eval()(tenon.ones(1, 4)).tolist()
        names = [n for n, _ in layer.named_parameters()]
        assert "weight" not in names and any("weight_" in n for n in names)
        getattr(tools, "remove_" + make)(layer)
    assert sorted(n for n, _ in layer.named_parameters()) == ["bias", "weight"]
    np.testing.assert_allclose(layer(tenon.ones(1, 4)).tolist(), want, 1e-6)
    with pytest.raises(ValueError, match=f"{make} of 'weight' not found"):
        getattr(tools, "remove_" + make)(layer)


def test_a_table_of_embeddings_from_numbers():
    def run(lib):
        table = values(lib, 5, 3)
        fixed = lib.nn.Embedding.from_pretrained(table, padding_idx=1, max_norm=1.5)
        free = lib.nn.Embedding.from_pretrained(
            table.clone(), freeze=False, scale_grad_by_freq=True
        )
        index = lib.tensor([0, 1, 4, 4])
        free(index).sum().backward()
        found = [
            fixed(index),
            fixed.weight.requires_grad,
            repr(fixed),
            free.weight.grad,
            repr(free),
        ]
        try:
            lib.nn.Embedding.from_pretrained(lib.ones(3))
        except AssertionError as err:
            found.append(str(err)[:40])
        return found

    stored.same(run(tenon), stored.of_torch(run))


def test_batch_norm_of_several_processes_alone():
    """With one process it is a batch norm; containers are converted whole."""
    net = tenon.nn.Sequential(tenon.nn.BatchNorm1d(3), tenon.nn.Sequential(tenon.nn.BatchNorm2d(2)))
    net[0].running_mean.fill_(4.0)
    whole = tenon.nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(net))
    assert [type(m).__name__ for m in whole.modules()][1::2] == ["SyncBatchNorm", "SyncBatchNorm"]
    assert whole[0].running_mean.tolist() == [4.0] * 3
    x = values(tenon, 6, 3).float()
    one, two = net[0], whole[0]
    for _ in range(2):
        np.testing.assert_allclose(two(x).tolist(), one(x).tolist(), 1e-6)
    assert two.running_var.tolist() == one.running_var.tolist()
    np.testing.assert_allclose(two.eval()(x).tolist(), one.eval()(x).tolist(), 1e-6)
    with pytest.raises(ValueError, match=r"expected at least 2D input \(got 1D input\)"):
        two(tenon.ones(3))


def test_the_older_weight_norm_says_that_it_is_old() -> None:
    with pytest.warns(FutureWarning, match="in favor of"):
        tenon.nn.utils.weight_norm(tenon.nn.Linear(2, 2))


def test_packing_refuses_lengths_beyond_the_steps():
    rows = tenon.ones(2, 1, 3)
    for length in (3, 2**40):
        with pytest.raises(RuntimeError, match="pack_padded_sequence.*'lengths'"):
            tenon.nn.utils.rnn.pack_padded_sequence(rows, tenon.tensor([length]))
