"""What modules, optimizers and functions written in Python refuse, each with the words that only
this check says. Classes and most words are PyTorch 2.13's."""

from __future__ import annotations

from typing import Any

import pytest
import tenon as tn
import tenon.nn.functional as F
from refusals import Refusal, by_name, check
from tenon import nn, optim
from tenon.nn.attention.bias import causal_lower_right, causal_upper_left
from tenon.nn.utils import parametrizations, prune, rnn

f = tn.tensor([[0.5, -1.25, 2.0], [3.0, -0.5, 1.5], [-2.5, 0.25, 1.0]])
v, n0, cube = f[0], tn.tensor(1.5), tn.ones(2, 3, 4)
i = tn.tensor([[3, 1, 2], [4, 1, 5], [9, 2, 6]])
at = tn.tensor([2, 0, 1])
leaf = nn.Parameter(tn.ones(3))
R, V, X, T, K = RuntimeError, ValueError, IndexError, TypeError, KeyError
A, N, M = AssertionError, NotImplementedError, AttributeError


def attention(**given: Any) -> Any:
    """Two heads of width 2 over a batch of two, with a key and a value that are biases."""
    bias = tn.ones(1, 1, 4)
    x, given = tn.ones(3, 2, 4), {"bias_k": bias, "bias_v": bias, **given}
    return F.multi_head_attention_forward(
        x, x, x, 4, 2, tn.ones(12, 4), None, given.pop("bias_k"), given.pop("bias_v"), False, 0.0,
        tn.eye(4), None, **given,
    )  # fmt: skip


def sgd(**given: Any) -> optim.Optimizer:
    return optim.SGD([nn.Parameter(tn.ones(2))], lr=0.1, **given)


def bare() -> Any:
    """A module whose __init__ has not called Module's."""

    class Bare(nn.Module):
        def __init__(self) -> None:
            pass

    return Bare()


def set_on(module: Any, name: str, value: Any) -> None:
    setattr(module, name, value)


def deep() -> nn.Module:
    net = nn.Sequential(nn.Linear(2, 2))
    net.note = 3
    return net


def weak_search() -> None:
    x = nn.Parameter(tn.ones(2))
    stepper = optim.LBFGS([x], line_search_fn="weak")

    def closure() -> tn.Tensor:
        stepper.zero_grad()
        loss = x.square().sum()
        loss.backward()
        return loss

    stepper.step(closure)


LINE = nn.Linear(2, 2)
STATES = [
    (nn.RNNCell, cube),
    (nn.GRUCell, cube),
    (nn.LSTMCell, (f, cube)),
    (nn.LSTMCell, (cube, f)),
]
FUNCTIONS: list[Refusal] = [
    (T, "iinfo() requires an integer input type", lambda: tn.iinfo(tn.float32)),
    (T, '"bool" is not supported by iinfo', lambda: tn.iinfo(tn.bool)),
    (R, "expected spacing to be unspecified, a scalar, or a list of 2 entries",
     lambda: tn.gradient(f, spacing=[1.0, 2.0, 3.0])),
    (V, "is not within the valid range [0, 52)", lambda: tn.einsum(f, [0, 52], [0])),
    (R, "tensordot expects dims >= 0, but got dims=-1", lambda: tn.tensordot(f, f, -1)),
    (R, "tensordot expects dims < ndim_a or ndim_b, but got dims=3", lambda: tn.tensordot(f, f, 3)),
    (R, "tensor_split expected tensor_indices_or_sections to have dtype of long",
     lambda: tn.tensor_split(f, v)),
    (R, "dimensions must larger than 1", lambda: v.clone().fill_diagonal_(1)),
    (R, "all dimensions of input must be of equal length", lambda: cube.clone().fill_diagonal_(1)),
    (R, "Unsupported input type encountered for isin()", lambda: tn.isin(f > 0, f > 0)),
    (R, "block_diag: Input tensors must have 2 or fewer dimensions",
     lambda: tn.block_diag(f, cube)),
    (A, "lobpcg: A must be square", lambda: tn.lobpcg(f[:2])),
    (V, "must be non-negative integer", lambda: tn.pca_lowrank(f, 2, niter=-1)),
    (R, "x must be a one-dimensional tensor", lambda: tn.vander(f)),
    (R, "N must be non-negative", lambda: tn.vander(v, -1)),
    (T, "must be a bool or a list of memory formats", lambda: f.dim_order(ambiguity_check=3)),
    (R, "Input must have 3 dims: time, batch, in_channel", lambda: tn.conv_tbc(f, cube, v)),
    (T, "debug_mode must be str or int", lambda: tn.set_deterministic_debug_mode(1.5)),
    (R, "set_float32_matmul_precision expects a str", lambda: tn.set_float32_matmul_precision(3)),
    (R, "histogramdd(): expected 3 sequences of bin edges or bins",
     lambda: tn.histogramdd(f, [2, 2])),
    (R, "'size' must be an non-negative integer", lambda: tn.nonzero_static(f, size=-1)),
    (R, "unsupported reduction given! median", lambda: tn.segment_reduce(v, "median", lengths=at)),
    (R, "lengths contains negative value!",
     lambda: tn.segment_reduce(v, "sum", lengths=tn.tensor([4, -1]))),
    (R, "Expected all rows of lengths along axis to sum to",
     lambda: tn.segment_reduce(v, "sum", lengths=tn.tensor([1, 1]))),
    (R, "stft align_to_window should only be set when center = false",
     lambda: tn.stft(tn.ones(9), 4, return_complex=True, align_to_window=True)),
    (R, "stft requires the return_complex parameter be given for real inputs",
     lambda: tn.stft(tn.ones(9), 4)),
    (V, "invalid type: 'torch.NoTensor'", lambda: f.type("torch.NoTensor")),
    (V, "Supported range of dimensionality for SobolEngine is [1, 21201]",
     lambda: tn.quasirandom.SobolEngine(0)),
    (V, "require n to be a power of 2",
     lambda: tn.quasirandom.SobolEngine(2).fast_forward(1).draw_base2(2)),
    (V, "requires non-negative window length, got M=-1", lambda: tn.signal.windows.cosine(-1)),
    (T, "Coefficients must be a list/tuple", lambda: tn.signal.windows.general_cosine(4, a=3.0)),
    (V, "Center must be None for symmetric windows",
     lambda: tn.signal.windows.exponential(4, center=1.0)),
    (V, "Expected `device_type` of type `str`", lambda: tn.amp.autocast(3)),
]  # fmt: skip
MATRICES: list[Refusal] = [
    (R, "must have length 3. Got 2 and 2", lambda: tn.linalg.cross(f[:, :2], f[:, :2])),
    (R, "linalg.matrix_norm: dim must be a 2-tuple", lambda: tn.linalg.matrix_norm(f, "fro", (0,))),
    (R, "linalg.matrix_norm: Order abc not supported", lambda: tn.linalg.matrix_norm(f, "abc")),
    (R, "If dim is not specified but ord is, the input must be 1D or 2D. Got 3D",
     lambda: tn.linalg.norm(cube, 2)),
    (R, "If dim is specified, it must be of length 1 or 2. Got",
     lambda: tn.linalg.norm(cube, 2, (0, 1, 2))),
    (R, "Expected UPLO argument to be 'L' or 'U', but got", lambda: tn.linalg.eigh(f, "X")),
    (R, "LU without pivoting is not implemented on the CPU",
     lambda: tn.linalg.lu_factor(f, pivot=False)),
    (R, "Incompatible shapes of A and B for the equation AX = B",
     lambda: tn.linalg.lu_solve(*tn.linalg.lu_factor(f), tn.ones(2, 3))),
    (R, "pivots should be a Tensor of scalar type torch.int32",
     lambda: tn.linalg.lu_solve(f, at, f)),
    (R, "prod(self.shape[ind:]) == prod(self.shape[:ind])", lambda: tn.linalg.tensorinv(f[:2], 1)),
    (R, "prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim])",
     lambda: tn.linalg.tensorsolve(f[:2], tn.ones(2))),
    (R, "parameter `driver` should be one of (gels, gelsy, gelsd, gelss)",
     lambda: tn.linalg.lstsq(f, f, driver="abc")),
    (R, "multi_dot(): tensor 1 must be 2D but got 3D", lambda: tn.linalg.multi_dot([f, cube, f])),
]  # fmt: skip
CALLS: list[Refusal] = [
    (A, "query should be unbatched 2D or batched 3D tensor but received 4-D query tensor",
     lambda: F.multi_head_attention_forward(
         cube[None], cube, cube, 4, 2, *[None] * 4, False, 0.0, f, None)),
    (R, "Need attn_mask if specifying the is_causal hint",
     lambda: nn.MultiheadAttention(4, 2)(cube, cube, cube, is_causal=True)),
    (A, "embed_dim must be divisible by num_heads", lambda: nn.MultiheadAttention(4, 3)),
    (V, "expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: 'linear'",
     lambda: F.grid_sample(tn.ones(1, 1, 3, 3), tn.ones(1, 2, 2, 2), mode="linear")),
    (V, "expected padding_mode to be 'zeros', 'border', or 'reflection', but got: 'same'",
     lambda: F.grid_sample(tn.ones(1, 1, 3, 3), tn.ones(1, 2, 2, 2), padding_mode="same")),
    (N, "affine_grid only supports 4D and 5D sizes",
     lambda: F.affine_grid(tn.ones(1, 2, 3), [1, 2, 3])),
    (V, "Expected non-zero, positive output size. Got",
     lambda: F.affine_grid(tn.ones(1, 2, 3), [1, 2, 0, 3])),
    (V, "must be the same as input size (", lambda: F.binary_cross_entropy_with_logits(v, v[:2])),
    (V, "var has negative entry/entries", lambda: F.gaussian_nll_loss(v, v, v)),
    (V, "var has negative entry/entries", lambda: F.gaussian_nll_loss(v, v, -1.0)),
    (V, "var is of incorrect size", lambda: F.gaussian_nll_loss(f, f, tn.ones(2))),
    (V, "only p == 1 and p == 2 supported", lambda: F.multi_margin_loss(f, at, p=3)),
    (V, "only p == 1 and p == 2 supported", lambda: nn.MultiMarginLoss(p=3)),
    (V, "MultiMarginLoss: expected weight to be None or 1D tensor, got 2D instead",
     lambda: nn.MultiMarginLoss(weight=f)),
    (V, "requires specifying either an output_size or an output_ratio",
     lambda: F.fractional_max_pool2d(tn.ones(1, 1, 3, 3), 2)),
    (V, "requires specifying either an output size, or a pooling ratio",
     lambda: nn.FractionalMaxPool2d(2)),
    (R, "Expected size of input's dimension 1 to be divisible by the product of kernel_size",
     lambda: F.fold(tn.ones(1, 5, 4), (3, 3), (2, 2))),
    (R, "Expected 2D or 3D (batch mode) tensor for input", lambda: F.fold(v, (3, 3), (2, 2))),
    (R, "Found an invalid max index",
     lambda: F.max_unpool1d(tn.ones(1, 1, 2), tn.tensor([[[0, 9]]]), 2)),
    (V, "only one of size or scale_factor should be defined",
     lambda: F.interpolate(cube, size=2, scale_factor=2)),
    (V, "either size or scale_factor should be defined", lambda: F.interpolate(cube)),
    (R, "Halving dimension must be even, but dimension 1 is size 3", lambda: F.glu(f, 1)),
    (V, "offsets has to be a 1D Tensor but got None", lambda: F.embedding_bag(at, f)),
    (V, "if input is 2D, then offsets has to be None", lambda: F.embedding_bag(i % 3, f, at[1:2])),
    (V, "offsets has to be a 1D Tensor", lambda: F.embedding_bag(at, f, i)),
    (R, "offsets[0] has to be 0", lambda: F.embedding_bag(at, f, tn.tensor([1, 2]))),
    *((R, "Expected 2D or 3D (batch mode) tensor with possibly 0 batch size",
       lambda mode=mode, size=size: F.pad(tn.ones(size), (1, 1), mode=mode))
      for mode in ("reflect", "replicate") for size in ((0, 3), (2, 0), (2, 0, 3), (0, 3, 0))),
    (R, "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size",
     lambda: F.pad(tn.ones(1, 0, 3, 3), (1, 1, 1, 1), mode="reflect")),
    *((R, f"Expected target size [{n}], but got {list(shape)}. Input has shape {list(x.shape)}.",
       lambda x=x, shape=shape: F.multi_margin_loss(x, tn.zeros(shape, dtype=tn.int64)))
      for x, n, shape in ((tn.ones(5, 4), 5, (3,)), (tn.ones(5, 4), 5, ()), (tn.ones(4), 1, (2,)),
                          (tn.ones(4, 4), 4, (2, 2)))),
    *((kind, words, lambda size=size, to=to, loss=loss:
       loss(tn.zeros(size), tn.zeros(to, dtype=tn.int64)))
      for size, to, kind, words in (
          ((1, 5), (), V, "Expected input batch_size (1) to match target batch_size (0)."),
          ((3, 5, 2), (), V, "Expected input batch_size (3) to match target batch_size (0)."),
          ((0, 5), (), R, "Expected target size [0], got []"),
          ((5,), (1, 1), R, "0D or 1D target tensor expected, multi-target not supported"),
          ((3, 5, 2), (3,), R, "Expected target size [3, 2], got [3]"),
          ((3, 5, 2), (3, 3), R, "Expected target size [3, 2], got [3, 3]"),
          ((3, 5, 2, 2, 2), (3, 2, 2), R, "Expected target size [3, 2, 2, 2], got [3, 2, 2]"),
          ((3, 5, 2, 2), (3, 2), R, "only batches of spatial targets supported (3D tensors) but"
           " got targets of dimension: 2"),
          ((3, 5, 2, 4), (3, 4, 2), R,
           "size mismatch (got input: [3, 5, 2, 4] , target: [3, 4, 2]"))
      for loss in (F.nll_loss, F.cross_entropy)),
    *((R, "Expected floating point type for target with class probabilities, got Long",
       lambda size=size: F.cross_entropy(tn.ones(size), tn.zeros(size, dtype=tn.int64)))
      for size in ((2, 3), (2, 3, 2))),
    (R, "0D or 1D target tensor expected, multi-target not supported",
     lambda: F.cross_entropy(tn.ones(3, 5), tn.ones(3, 4, dtype=tn.int64))),
    (V, "For 1D input, 1D target must have size 1, but got target size: 3",
     lambda: F.nll_loss(v, at)),
    *((R, "Expected non-empty vector or matrix with optional 0-dim batch size, but got: [2, 0]",
       lambda loss=loss: loss(tn.ones(2, 0), tn.ones(2, 0, dtype=tn.int64)))
      for loss in (F.multi_margin_loss, F.multilabel_margin_loss)),
    (R, "offsets[-1] can not be greater than input's length 2 but got offsets[-1] of 5",
     lambda: F.embedding_bag(at[:2], f, tn.tensor([0, 5]))),
    (R, "number of offset should be at least 1",
     lambda: F.embedding_bag(at, f, at[:0], include_last_offset=True)),
    *((R, f"Expected idx >= 0 && idx < num_embeddings but found idx to be {n}",
       lambda n=n, mode=mode, pad=pad: F.embedding_bag(
           tn.tensor([[0, n]]), f, mode=mode, padding_idx=pad))
      for n in (-1, 7) for mode in ("sum", "mean", "max") for pad in (None, 1)),
    *((R, f"padding_idx must be within the number of embeddings, -3 through 2, but got {n}",
       lambda n=n: F.embedding_bag(at[None], f, padding_idx=n)) for n in (3, -4)),
    (R, "expected per_sample_weights to have the same type as weight",
     lambda: F.embedding_bag(at[None], f, mode="sum",
                             per_sample_weights=tn.ones(1, len(at), dtype=tn.float64))),
    (V, "max mode does not support sparse weights",
     lambda: F.embedding_bag(at[None], f, mode="max", sparse=True)),
    (V, "max mode does not support scaling the gradient by the frequency",
     lambda: F.embedding_bag(at[None], f, mode="max", scale_grad_by_freq=True)),
    (R, "Cannot pack empty tensors", lambda: rnn.pack_padded_sequence(tn.ones(0, 0), [])),
    (R, "Expected 2D or 3D input, but received a 4D input", lambda: F.dropout1d(cube[None])),
    (R, "input_lengths must be integral", lambda: F.ctc_loss(
        tn.zeros(4, 1, 2), tn.tensor([[1]]), tn.tensor([4.0]), tn.tensor([1]))),
    (R, "target_lengths must be integral", lambda: F.ctc_loss(
        tn.zeros(4, 1, 2), tn.tensor([[1]]), tn.tensor([4]), tn.tensor([1.0]))),
    (A, "bias cannot be added to static key", lambda: attention(static_k=tn.ones(4, 3, 2))),
    (A, "bias cannot be added to static value", lambda: attention(static_v=tn.ones(4, 3, 2))),
    (A, "bias_k is set but bias_v is None", lambda: attention(bias_v=None)),
    (A, "expecting static_k.size(0) of 4, but got 3",
     lambda: attention(bias_k=None, bias_v=None, static_k=tn.ones(3, 3, 2))),
    (A, "expecting static_v.size(2) of 2, but got 1",
     lambda: attention(bias_k=None, bias_v=None, static_v=tn.ones(4, 3, 1))),
    (R, "Can't share memory on an uninitialized parameter",
     lambda: nn.LazyLinear(2).share_memory()),
    (V, "mode has to be one of sum, mean or max",
     lambda: F.embedding_bag(at, f, at[1:2], mode="min")),
    (A, "Padding_idx must be within num_embeddings", lambda: F.embedding(at, f, padding_idx=3)),
    (A, "Padding_idx must be within num_embeddings", lambda: F.embedding(at, f, padding_idx=-4)),
    (A, "Padding_idx must be within num_embeddings", lambda: nn.Embedding(3, 2, padding_idx=3)),
    (A, "padding_idx must be within num_embeddings", lambda: nn.EmbeddingBag(3, 2, padding_idx=-4)),
    (A, "lower_right only supports 2D tensors", lambda: causal_lower_right(2, 3, 4)),
    (A, "upper_left only supports 2D tensors", lambda: causal_upper_left(2)),
    (R, "set_extra_state() must be overridden", lambda: nn.ReLU().set_extra_state(3)),
    (T, "cannot be used as a key as it is not a string (type is 'int')",
     lambda: nn.ParameterDict({"a": leaf})[0]),
    (T, "cannot be used as a key as it is not a string (type is 'int')",
     lambda: nn.ParameterDict().setdefault(3, leaf)),
    (A, "Embeddings parameter is expected to be 2-dimensional",
     lambda: nn.Embedding.from_pretrained(v)),
    (A, "Embeddings parameter is expected to be 2-dimensional",
     lambda: nn.EmbeddingBag.from_pretrained(v)),
    (V, "Mode fan not supported, please use one of ['fan_in', 'fan_out']",
     lambda: nn.init.kaiming_normal_(f.clone(), mode="fan")),
    (A, "max_val must be larger than min_val", lambda: nn.Hardtanh(1.0, 1.0)),
    (V, "cutoffs should be a sequence of length larger than 0",
     lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 5, [])),
    (R, "Target values should be in [0, 4], but values in range [7, 7] were found",
     lambda: nn.AdaptiveLogSoftmaxWithLoss(3, 5, [2])(f, tn.tensor([7, 7, 7]))),
    (V, "padding_mode must be one of", lambda: nn.Conv1d(1, 1, 1, padding_mode="mirror")),
    (V, "Invalid padding string 'full', should be one of",
     lambda: nn.Conv1d(1, 1, 1, padding="full")),
    (V, "padding='same' is not supported for strided convolutions",
     lambda: nn.Conv1d(1, 1, 1, stride=2, padding="same")),
    (V, "in1_features must be > 0, but got 0", lambda: nn.Bilinear(0, 1, 1)),
    (V, "num_channels (3) must be divisible by num_groups (2)", lambda: nn.GroupNorm(2, 3)),
    (V, "proj_size should be a positive integer smaller than hidden_size",
     lambda: nn.LSTM(2, 3, proj_size=3)),
    (V, "proj_size should be a positive integer", lambda: nn.LSTM(2, 3, proj_size=-1)),
    (V, "Unknown nonlinearity 'gelu'. Select from 'tanh' or 'relu'",
     lambda: nn.RNN(2, 3, nonlinearity="gelu")),
    (R, "Unknown nonlinearity: gelu", lambda: nn.RNNCell(3, 3, nonlinearity="gelu")(v)),
    *[(V, f"{cell.__name__}: Expected hidden to be 1D or 2D, got 3D instead",
       lambda cell=cell, state=state: cell(3, 3)(f, state)) for cell, state in STATES],
    *[(V, f"{cell.__name__}: Expected input to be 1D or 2D, got 3D instead",
       lambda cell=cell: cell(4, 3)(cube)) for cell, _ in STATES],
    (R, "activation should be relu/gelu, not tanh",
     lambda: nn.TransformerEncoderLayer(4, 2, activation="tanh")),
]  # fmt: skip
MODULES: list[Refusal] = [
    (N, 'Module [Module] is missing the required "forward" function', lambda: nn.Module()(f)),
    (T, "buffer name should be a string. Got int", lambda: nn.Module().register_buffer(3, f)),
    (K, 'buffer name can', lambda: nn.Module().register_buffer("a.b", f)),
    (K, 'parameter name can', lambda: nn.Module().register_parameter("a.b", leaf)),
    (K, 'module name can', lambda: nn.Module().add_module("a.b", nn.ReLU())),
    (K, 'be empty string ""', lambda: nn.Module().add_module("", nn.ReLU())),
    (K, 'be empty string ""', lambda: nn.Module().register_buffer("", f)),
    (M, "cannot assign buffer before Module.__init__() call",
     lambda: bare().register_buffer("b", f)),
    (M, "cannot assign parameter before Module.__init__() call",
     lambda: bare().register_parameter("p", leaf)),
    (M, "cannot assign parameters before Module.__init__() call",
     lambda: set_on(bare(), "p", leaf)),
    (M, "cannot assign module before Module.__init__() call",
     lambda: set_on(bare(), "m", nn.ReLU())),
    (T, "int is not a Module subclass", lambda: nn.Module().add_module("m", 3)),
    (M, "has no attribute `nope`", lambda: deep().get_submodule("0.nope")),
    (M, "`note` is not an nn.Module", lambda: deep().get_submodule("note")),
    (V, "Cannot set the submodule without a target name!",
     lambda: deep().set_submodule("", nn.ReLU())),
    (V, "`module` is not an nn.Module, found", lambda: deep().set_submodule("0", 3)),
    (M, "has no attribute `nope`", lambda: deep().set_submodule("nope.a", nn.ReLU())),
    (M, "`note` is not an nn.Module", lambda: deep().set_submodule("note.a", nn.ReLU())),
    (M, "has no attribute `nope`", lambda: deep().get_parameter("0.nope")),
    (M, "`in_features` is not an nn.Parameter", lambda: deep().get_parameter("0.in_features")),
    (M, "has no attribute `nope`", lambda: deep().get_buffer("0.nope")),
    (M, "`weight` is not a buffer", lambda: deep().get_buffer("0.weight")),
    (V, "training mode is expected to be boolean", lambda: nn.ReLU().train("yes")),
    (T, "Expected state_dict to be dict-like, got", lambda: nn.ReLU().load_state_dict([1])),
    (T, "unsupported operand type(s) for *", lambda: nn.Sequential(nn.ReLU()) * "a"),
    (V, "Non-positive multiplication factor 0", lambda: nn.Sequential(nn.ReLU()) * 0),
    (X, "out of range", lambda: nn.Sequential(nn.ReLU()).insert(3, nn.ReLU())),
    (V, "Expected n_power_iterations to be positive, but got n_power_iterations=0",
     lambda: nn.utils.spectral_norm(nn.Linear(2, 2), n_power_iterations=0)),
    (V, "Expected n_power_iterations to be positive, but got n_power_iterations=0",
     lambda: parametrizations.spectral_norm(nn.Linear(2, 2), n_power_iterations=0)),
    (V, "has no parameter or buffer with name 'nope'",
     lambda: parametrizations.spectral_norm(nn.Linear(2, 2), "nope")),
    (V, "has no parameter or buffer with name 'nope'",
     lambda: parametrizations.orthogonal(nn.Linear(2, 2), "nope")),
    (V, 'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: qr',
     lambda: parametrizations.orthogonal(nn.Linear(2, 2), orthogonal_map="qr")),
    (T, "expected a Tensor, but got", lambda: nn.utils.vector_to_parameters([1.0], [leaf])),
    (A, "To fuse, linear.out_features == bn.num_features or bn.num_features == 1",
     lambda: nn.utils.fuse_linear_bn_eval(nn.Linear(2, 3).eval(), nn.BatchNorm1d(2).eval())),
    (T, "parameters is not an Iterable",
     lambda: prune.global_unstructured(3, prune.L1Unstructured, amount=1)),
    (T, "importance_scores must be of type dict",
     lambda: prune.global_unstructured([(LINE, "weight")], prune.L1Unstructured, [1], amount=1)),
    (T, 'Only "unstructured" PRUNING_TYPE supported',
     lambda: prune.global_unstructured([(LINE, "weight")], prune.RandomStructured, amount=1)),
    (T, "is not a BasePruningMethod subclass",
     lambda: prune.PruningContainer().add_pruning_method(3)),
    (R, "padding_side should be 'left' or 'right', but got up",
     lambda: rnn.pad_sequence([v], padding_side="up")),
    (R, "pad_sequence: Expected iterable for input sequences, but got arg of type",
     lambda: rnn.pad_sequence(3)),
    (R, "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True",
     lambda: rnn.pack_padded_sequence(cube, [1, 2, 2])),
]  # fmt: skip
OPTIMIZERS: list[Refusal] = [
    (T, "is not an Optimizer", lambda: optim.lr_scheduler.StepLR(3, 1)),
    (T, "is not an Optimizer", lambda: optim.lr_scheduler.OneCycleLR(3, 1.0, 3)),
    (T, "is not an Optimizer", lambda: optim.lr_scheduler.CyclicLR(3, 0.1, 1.0)),
    (T, "is not an Optimizer", lambda: optim.lr_scheduler.ReduceLROnPlateau(3)),
    (K, "param 'initial_lr' is not specified in param_groups[0]",
     lambda: optim.lr_scheduler.StepLR(sgd(), 1, last_epoch=2)),
    (V, "optimizer must support momentum or beta1 with `cycle_momentum` option enabled",
     lambda: optim.lr_scheduler.CyclicLR(optim.Adagrad([leaf]), 0.1, 1.0)),
    (V, "optimizer must support momentum or beta1 with `cycle_momentum` option enabled",
     lambda: optim.lr_scheduler.OneCycleLR(optim.Adagrad([leaf]), 1.0, 3)),
    (V, "anneal_strategy must be one of 'cos' or 'linear', instead got log",
     lambda: optim.lr_scheduler.OneCycleLR(sgd(momentum=0.1), 1.0, 3, anneal_strategy="log")),
    (V, "You must define either total_steps OR (epochs AND steps_per_epoch)",
     lambda: optim.lr_scheduler.OneCycleLR(sgd(momentum=0.1), 1.0, epochs=3)),
    (V, "mode is invalid and scale_fn is None",
     lambda: optim.lr_scheduler.CyclicLR(sgd(momentum=0.1), 0.1, 1.0, mode="square")),
    (V, "mode up is unknown!", lambda: optim.lr_scheduler.ReduceLROnPlateau(sgd(), mode="up")),
    (V, "threshold mode both is unknown!",
     lambda: optim.lr_scheduler.ReduceLROnPlateau(sgd(), threshold_mode="both")),
    (V, "Expected positive integer T_0, but got 0",
     lambda: optim.lr_scheduler.CosineAnnealingWarmRestarts(sgd(), 0)),
    (V, "Expected integer T_mult >= 1, but got 0",
     lambda: optim.lr_scheduler.CosineAnnealingWarmRestarts(sgd(), 1, 0)),
    (V, "Expected float or int eta_min, but got a",
     lambda: optim.lr_scheduler.CosineAnnealingWarmRestarts(sgd(), 1, 1, "a")),
    (V, "Expected non-negative epoch, but got -1",
     lambda: optim.lr_scheduler.CosineAnnealingWarmRestarts(sgd(), 1).step(-1)),
    (V, "Tensor lr must be 1-element", lambda: optim.Adafactor([leaf], lr=tn.ones(2))),
    (V, "Tensor lr must be 1-element", lambda: optim.SparseAdam([leaf], lr=tn.ones(2))),
    (V, "Tensor lr must be 1-element",
     lambda: optim.Muon([nn.Parameter(tn.ones(2, 2))], lr=tn.ones(2))),
    (V, "lr as a Tensor is not supported for capturable=False and foreach=True",
     lambda: optim.Adam([leaf], lr=n0, foreach=True)),
    (R, "`fused` and `foreach` cannot be `True` together",
     lambda: optim.Adam([leaf], fused=True, foreach=True)),
    (V, "betas must be either both floats or both Tensors",
     lambda: optim.Adam([leaf], betas=(0.9, tn.tensor(0.99)))),
    (V, "Nesterov momentum requires a momentum and zero dampening", lambda: sgd(nesterov=True)),
    (V, "Nesterov momentum requires a momentum and zero dampening",
     lambda: sgd(nesterov=True, momentum=0.1, dampening=0.1)),
    (V, "LBFGS doesn't support per-parameter options (parameter groups)",
     lambda: optim.LBFGS([{"params": [leaf]}, {"params": [nn.Parameter(tn.ones(1))]}])),
    (R, "only 'strong_wolfe' is supported",
     lambda: weak_search()),
    (T, "param_group must be a dict, but got", lambda: sgd().add_param_group([leaf])),
    (T, "optimizer parameters need to be organized in ordered collections",
     lambda: sgd().add_param_group({"params": {leaf}})),
    (V, "can't optimize a non-leaf Tensor", lambda: optim.SGD([leaf * 2], lr=0.1)),
    (A, "Only one of avg_fn and multi_avg_fn should be provided",
     lambda: optim.swa_utils.AveragedModel(nn.ReLU(), avg_fn=print, multi_avg_fn=print)),
    (V, "anneal_strategy must be one of 'cos' or 'linear', instead got log",
     lambda: optim.swa_utils.SWALR(sgd(), 0.1, anneal_strategy="log")),
    (V, "anneal_epochs must be equal or greater than 0, got -1",
     lambda: optim.swa_utils.SWALR(sgd(), 0.1, anneal_epochs=-1)),
]  # fmt: skip
TAPE: list[Refusal] = [
    (R, "`inputs` argument to `backward()` cannot be empty",
     lambda: tn.autograd.backward(leaf.sum(), inputs=[])),
    (V, "Expected allow_unused to be True or not passed when materialize_grads=True",
     lambda: tn.autograd.grad(leaf.sum(), leaf, allow_unused=False, materialize_grads=True)),
    (R, "no level exists, make sure to enter_dual_level() first",
     lambda: tn.autograd.forward_ad.make_dual(v, v)),
    (R, "Output 0 of the user-provided function is independent of input 0. This is not allowed",
     lambda: tn.autograd.functional.jacobian(lambda x: leaf * 2, v, strict=True)),
    (R, "The jacobian of the user-provided function with respect to input 0 is independent of the",
     lambda: tn.autograd.functional.hessian(lambda x: x.sum(), v, strict=True)),
    (R, "The jacobian of the user-provided function with respect to input 0 is independent of the",
     lambda: tn.autograd.functional.hvp(lambda x: x.sum(), v, v, strict=True)),
    (R, "The output of the user-provided function is independent of input 1. This is not allowed",
     lambda: tn.autograd.functional.vjp(lambda x, y: x.sum(), (v, v), strict=True)),
    (R, "The jacobian of the user-provided function is independent of input 1. This is not allowed",
     lambda: tn.autograd.functional.vhp(lambda x, y: (x * x + y * leaf.sum()).sum(), (v, v),
                                        (v, v), strict=True)),
    (T, "The inputs given to jvp must be either a Tensor or a tuple of Tensors but the given value",
     lambda: tn.autograd.functional.jvp(tn.sin, 1)),
    (T, "The outputs of the user-provided function given to hessian must be either a Tensor",
     lambda: tn.autograd.functional.hessian(lambda x: 1, v)),
    (T, "The v given to hvp must be either a Tensor or a tuple of Tensors but the value at index 1",
     lambda: tn.autograd.functional.hvp(lambda x: x.sum(), v, (v, 1))),
    (R, "The given v should contain a single Tensor.",
     lambda: tn.autograd.functional.vjp(tn.sin, v, (v, v))),
    (R, "v has invalid size: should be",
     lambda: tn.autograd.functional.vjp(tn.sin, v, tn.ones(7))),
    (R, "stack_module_state: Expected parameters from each model to have the same .requires_grad",
     lambda: tn.func.stack_module_state([tn.nn.Linear(2, 2),
                                         tn.nn.Linear(2, 2).requires_grad_(False)])),
    (A, 'Expected strategy to be "forward-mode" or "reverse-mode"',
     lambda: tn.autograd.functional.jacobian(tn.sin, v, vectorize=True, strategy="both")),
    (V, "Expects mode to be one of ('all', 'any') but got some",
     lambda: tn.autograd.graph.register_multi_grad_hook([leaf], print, mode="some")),
    (V, "Expected op in `op_list` to be an OpOverload but got: 2 of type",
     lambda: tn.utils.checkpoint.create_selective_checkpoint_contexts([2])),
    (V, "update the OpOverloadPacket to a specific OpOverload",
     lambda: tn.utils.checkpoint.create_selective_checkpoint_contexts([tn.ops.aten.sin])),
    (R, "output of function f should be a tuple: (output, aux) if has_aux is True",
     lambda: tn.func.grad(lambda x: x.sum(), has_aux=True)(v)),
    (R, "argnum must be int or Tuple, got",
     lambda: tn.func.grad(lambda x: x.sum(), argnums="a")(v)),
    (R, "argnums must be non-empty", lambda: tn.func.grad(lambda x: x.sum(), argnums=())(v)),
    (R, "Got argnum=1, but only 1 positional inputs were passed",
     lambda: tn.func.grad(lambda x: x.sum(), argnums=1)(v)),
    (R, "Expected primals to be a tuple", lambda: tn.func.jvp(tn.sin, v, v)),
    (R, "Expected tangents to be a tuple", lambda: tn.func.jvp(tn.sin, (v,), v)),
    (R, "to contain at least one Tensor", lambda: tn.func.jvp(tn.sin, (), ())),
    (R, "to have the same python structure", lambda: tn.func.jvp(tn.sin, (v,), (v, v))),
    (R, "to only contain Tensors", lambda: tn.func.jvp(tn.sin, (v,), (1,))),
    (R, "Expected f to be a function that has non-empty output",
     lambda: tn.func.vjp(lambda x: None, v)),
    (R, "expected f(*primals) to return only tensors", lambda: tn.func.vjp(lambda x: 1, v)),
    (R, "argnum must be int, got", lambda: tn.func.grad(lambda x: x.sum(), argnums=(1.5,))(v)),
    (R, "All outputs of f must be floating-point or complex Tensors, got Tensor with dtype",
     lambda: tn.func.vjp(lambda x: (x > 0), v)),
    (R, "It looks like you're calling .item() on a Tensor", lambda: tn.vmap(lambda x: x.item())(v)),
    (V, "chunk_size should be None or greater than 0. (got 0)",
     lambda: tn.vmap(tn.sin, chunk_size=0)(v)),
    (R, "Valid options for argument `remove` are: 'mutations' and 'mutations_and_views'",
     lambda: tn.func.functionalize(tn.sin, remove="all")(v)),
    (R, "Expected all models to be of the same class",
     lambda: tn.func.stack_module_state([nn.ReLU(), nn.Linear(1, 1)])),
    (V, "Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts",
     lambda: tn.func.functional_call(nn.Linear(1, 1), 3, v)),
    (V, "appeared in multiple dictionaries",
     lambda: tn.func.functional_call(nn.Linear(1, 1), ({"bias": v[:1]}, {"bias": v[:1]}), v[:1])),
]  # fmt: skip
CASES = by_name(
    function=FUNCTIONS, matrix=MATRICES, call=CALLS, module=MODULES, optimizer=OPTIMIZERS,
    tape=TAPE,
)  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_refused_by_the_check_that_is_meant(name: str) -> None:
    check(CASES[name])
