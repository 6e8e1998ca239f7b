"""What operators refuse, each with the words that only this check says: without the check the call
goes through, or ends at another one. Classes and most words are PyTorch 2.13's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tenon as tn
import tenon.nn.functional as F
from refusals import Refusal, by_name, check

f = tn.tensor([[0.5, -1.25, 2.0], [3.0, -0.5, 1.5], [-2.5, 0.25, 1.0]])
v, n0, cube = f[0], tn.tensor(1.5), tn.ones(2, 3, 4)
i = tn.tensor([[3, 1, 2], [4, 1, 5], [9, 2, 6]])
at = tn.tensor([2, 0, 1])
c = f * (1 + 0.5j)
coo = f.to_sparse()
twice = tn.sparse_coo_tensor(tn.tensor([[0, 0]]), tn.tensor([1.0, 2.0]), (3,))
csr = f.to_sparse_csr()
pair = (tn.zeros(2, 2), tn.zeros(2, 2))
ops = tn._C._ops
R, V, X, E, N = RuntimeError, ValueError, IndexError, TypeError, NotImplementedError

INDICES: list[Refusal] = [
    (R, "index_select(): Index to scalar can have only 1 value, got 2",
     lambda: n0.index_select(0, at[:2])),
    (R, "index_copy_(): Expected a long tensor for index",
     lambda: f.clone().index_copy_(0, at.int(), f)),
    (X, "When source is scalar, index should have one element (got 3)",
     lambda: v.clone().index_copy_(0, at, n0)),
    (X, "When source and destination are not scalars, their dimensionality must match",
     lambda: f.clone().index_copy_(0, at, v)),
    (R, "Index put requires the source and destination dtypes match",
     lambda: f.clone().index_put_((at,), i)),
    (X, "index_fill_(): Expected dtype int64 for index",
     lambda: f.clone().index_fill_(0, at.float(), 1.0)),
    (R, "Index has to be a vector/scalar", lambda: f.clone().index_fill_(0, i, 1.0)),
    (R, "take(): Expected a long tensor for index", lambda: f.take(at.float())),
    (X, "take(): tried to take from an empty tensor", lambda: tn.empty(0).take(at)),
    (R, "masked_scatter_ only supports boolean masks", lambda: f.clone().masked_scatter_(i, f)),
    (R, "masked_scatter: expected self and source to have same dtypes",
     lambda: f.clone().masked_scatter_(f > 0, i)),
    (R, "put_(): Expected a long tensor for index", lambda: f.clone().put_(at.float(), v)),
    (R, "to be no larger than self", lambda: f.gather(0, tn.zeros(3, 4, dtype=tn.int64))),
    (R, "reduce argument must be either add or multiply",
     lambda: f.clone().scatter_(0, i[:1] * 0, 1.0, reduce="mean")),
    (R, "reduce argument must be either sum, prod, mean, amax or amin",
     lambda: f.clone().scatter_reduce_(0, i * 0, f, "add")),
    (R, "reduce argument must be either prod, mean, amax or amin, got sum",
     lambda: f.clone().index_reduce_(0, at, f, "sum")),
    (R, "take_along_dim(): dtype of indices should be Long", lambda: f.take_along_dim(f, 0)),
    (R, "one_hot is only applicable to index tensor of type LongTensor",
     lambda: F.one_hot(at.int())),
    (R, "Can not infer total number of classes from empty tensor", lambda: F.one_hot(at[:0])),
    (R, "repeat_interleave only accept 1D vector as repeat", lambda: tn.repeat_interleave(i)),
    (R, "repeats has to be Long or Int tensor", lambda: tn.repeat_interleave(v.abs())),
    (R, "repeats can not be negative", lambda: tn.repeat_interleave(-at)),
]  # fmt: skip
SHAPES: list[Refusal] = [
    (R, "required rank 5 tensor to use channels_last_3d format",
     lambda: f.contiguous(memory_format=tn.channels_last_3d)),
    (R, "required rank 5 tensor to use channels_last_3d format",
     lambda: tn.empty(2, 3, memory_format=tn.channels_last_3d)),
    (R, "preserve memory format is unsupported by the contiguous operator",
     lambda: f.t().contiguous(memory_format=tn.preserve_format)),
    (R, "dimensionality of sizes (2) must match dimensionality of strides (1)",
     lambda: tn.empty_strided((2, 3), (1,))),
    (R, "row must be non-negative, got-1", lambda: tn.tril_indices(-1, 2)),
    (R, "col must be non-negative, got-2", lambda: tn.triu_indices(1, -2)),
    (R, 'indexing must be one of "xy" or "ij"', lambda: tn.meshgrid(v, v, indexing="yx")),
    (R, "meshgrid expects a non-empty TensorList", lambda: tn.meshgrid()),
    (R, "Expected 0D or 1D tensor in the tensor list", lambda: tn.meshgrid(f, v, indexing="ij")),
    (V, "torch.cat(): expected a non-empty list of Tensors", lambda: tn.cat([])),
    (R, "stack expects a non-empty TensorList", lambda: tn.stack([])),
    (R, "Expect a 1D vector", lambda: tn.cartesian_prod(f, v)),
    (R, "expects all tensors to have the same dtype", lambda: tn.cartesian_prod(v, at)),
    (R, "cannot do hardtanh on an unsigned type with negative limits",
     lambda: F.hardtanh(at.to(tn.uint8), -1, 1)),
    (R, "number of dimensions (1) for an operand with an ellipsis",
     lambda: tn.einsum("ij...->i", v)),
    *((R, "tensor [3] and src [2] to have the same number of elements",
       lambda product=product: product(v, v[:2])) for product in (tn.dot, tn.vdot)),
    *((R, "(): Bad in-place call: input tensor size [1] and output tensor size [3",
       lambda name=name, x=x: getattr(tn.ones(1), name)(f, x))
      for name, x in (("addmm_", f), ("addmv_", v))),
    *((X, f"{n} indices from dimension {first} on do not fit [3, 3]",
       lambda n=n, first=first, dims=dims: ops._index(f, [at] * n, first, dims))
      for n, first, dims in ((1, 3, [0]), (1, 4, [0]), (1, -1, [0]), (1, 0, [0, 1]), (3, 0, [0, 1, 2]),
                             (0, 0, []))),
    *((R, "boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries",
       lambda edges=edges, x=x: tn.searchsorted(edges, x))
      for edges, x in ((f[:2], f), (f, v), (cube, tn.ones(2, 1, 4)), (n0, n0))),
    (R, "Expect a 1D vector", lambda: tn.combinations(f)),
    (R, "Expect a non-negative number, but got -1", lambda: tn.combinations(v, -1)),
    (R, "Trying to create tensor with negative dimension -6", lambda: f.repeat(-2, 1)),
    (R, "expected total rotation dims == 2, but got dims = 1", lambda: tn.rot90(f, 1, [0])),
    (R, "expected total dims >= 2, but got total dims = 1", lambda: tn.rot90(v, 1, [0, 1])),
    (R, "expected rotation dims to be different, but got dim0 = 1 and dim1 = 1",
     lambda: tn.rot90(f, 1, [1, 1])),
    (R, "expected rotation dims to be different", lambda: tn.rot90(f, 1, [1, -1])),
    (R, "Supports 1D or 2D tensors. Got 3D", lambda: tn.diag(cube)),
    (R, "order must be non-negative but got -1", lambda: tn.diff(f, -1)),
    (R, "start_dim cannot come after end_dim", lambda: f.flatten(1, 0)),
    (R, "sizes must be non-empty", lambda: f.unflatten(0, ())),
    (R, "split expects split_size be non-negative, but got split_size=-1", lambda: f.split(-1)),
    (R, "number of sections must be larger than 0, got 0", lambda: f.tensor_split(0)),
    (R, "imag is not implemented for tensors with non-complex dtypes", lambda: f.imag),
    (R, "is not expandable to size", lambda: f.sum_to_size(2, 2)),
    (R, "self.dim() cannot be 0 to view", lambda: n0.view(tn.int16)),
    (R, "self.stride(-1) must be 1 to view", lambda: f.t().view(tn.int16)),
    (R, "isn't allowed in a leading, non-existing dimension 0", lambda: v.expand(-1, 3)),
    (R, "Negative strides are not supported at the moment", lambda: f.as_strided((2,), (-1,))),
    (V, "'shape' cannot have negative values, but got -3", lambda: tn.unravel_index(at, (-3, 2))),
    (R, "expected src to have a size equal to the slice of self",
     lambda: f.select_scatter(f, 0, 0)),
    (R, "expected src to have a size equal to the slice of self",
     lambda: f.slice_scatter(v, 0, 0, 1)),
]  # fmt: skip
MATH: list[Refusal] = [
    (R, "to be a boolean tensor", lambda: tn.where(i, f, f)),
    (R, "addcdiv does not divide integers by integers", lambda: tn.addcdiv(i, i, i)),
    (R, "Expected both inputs to be Half, Float or Double tensors",
     lambda: tn.polar(v.bfloat16(), v.bfloat16())),
    (R, "linalg.cross: inputs dimension -1 must have length 3. Got 2 and 2",
     lambda: tn.linalg.cross(f[:, :2], f[:, :2])),
    (R, "to have integral dtype", lambda: tn.cov(f, fweights=v.abs())),
    (R, "to have floating point dtype", lambda: tn.cov(f, aweights=at)),
    (R, "fweights cannot be negative", lambda: tn.cov(f, fweights=-at)),
    (R, "aweights cannot be negative", lambda: tn.cov(f, aweights=v)),
    (R, "quantile() interpolation must be one of linear, lower",
     lambda: tn.quantile(f, 0.5, interpolation="cubic")),
    (R, "quantile() input tensor must be either float or double dtype",
     lambda: tn.quantile(i, 0.5)),
    (R, "quantile() input tensor must be non-empty", lambda: tn.quantile(tn.empty(0), 0.5)),
    (R, "float_power", lambda: f.clone().float_power_(2)),
    (R, "torch.frexp() only supports floating-point dtypes", lambda: tn.frexp(i)),
    (R, "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found 'up'",
     lambda: tn.div(f, f, rounding_mode="up")),
    (R, "approximate argument must be either none or tanh", lambda: F.gelu(f, approximate="erf")),
    (R, "side and right can't be set to opposites",
     lambda: tn.searchsorted(v, v, side="left", right=True)),
    (R, "boundaries tensor must be 1 dimension, but got dim(2)", lambda: tn.bucketize(v, f)),
    (R, "renorm: expected maxnorm to be >= 0 but got -1", lambda: tn.renorm(f, 2, 0, -1.0)),
    (R, "cannot compute aminmax over an empty dimension", lambda: tn.empty(2, 0).aminmax()),
    (R, "trace: expected a matrix, but got tensor with dim 1", lambda: tn.trace(v)),
    (R, "torch.gradient only supports edge_order=1 and edge_order=2",
     lambda: tn.gradient(v, edge_order=3)),
    (R, "expected each dimension size to be at least edge_order+1", lambda: tn.gradient(v[:1])),
    (R, "torch.histogram(): bins must be > 0, got 0", lambda: tn.histogram(v, 0)),
    (R, "torch.histogram(): too many bins: 9223372036854775807",
     lambda: tn.histogram(v, 2**63 - 1)),
    (R, "bins tensor should have one dimension and at least two edges",
     lambda: tn.histogram(v, v[:1]) ),
    (R, "torch.histc(): bins must be > 0, got 0", lambda: tn.histc(v, 0)),
    (R, "we only support dx as a real number", lambda: tn.trapezoid(v, dx=1j)),
    (R, "unsupported range", lambda: tn.arange(0, float("inf"))),
    (R, "unsupported range", lambda: tn.arange(float("nan"), 2.0)),
]  # fmt: skip
RANDOM: list[Refusal] = [
    (R, "Trying to create tensor with negative dimension -1", lambda: tn.randperm(-1)),
    (R, '"randperm" not implemented for', lambda: tn.randperm(3, dtype=tn.complex64)),
    (V, "binomial only supports floating-point dtypes for count and prob",
     lambda: tn.binomial(at, v.abs())),
    (R, "normal expects standard deviation to be non-complex", lambda: tn.normal(f, c)),
    (R, "prob_dist must be 1 or 2 dim", lambda: tn.multinomial(cube, 1)),
    (R, "multinomial only supports floating-point dtypes for input", lambda: tn.multinomial(at, 1)),
    (R, "cannot sample n_sample <= 0 samples", lambda: tn.multinomial(v.abs(), 0)),
    (R, "cannot sample n_sample > prob_dist.size(-1) samples without replacement",
     lambda: tn.multinomial(v.abs(), 4)),
    (R, "invalid multinomial distribution (sum of probabilities <= 0)",
     lambda: tn.multinomial(tn.zeros(3), 1)),
]  # fmt: skip
MATRICES: list[Refusal] = [
    (R, "mat1 must be a matrix, got 1-D tensor", lambda: tn.mm(v, f)),
    (R, "mat2 must be a matrix, got 1-D tensor", lambda: tn.mm(f, v)),
    (R, "vector + matrix @ vector expected, got 2, 2", lambda: tn.addmv(v, f, f)),
    (R, "size mismatch, got input (3), mat (3x2), vec (3)", lambda: tn.addmv(v, f[:, :2], v)),
    (R, "tensor.adjoint() is only supported on matrices or batches of matrices. Got 1-D",
     lambda: v.adjoint()),
    (R, "outer: Expected 1-D argument self, but got 2-D", lambda: tn.outer(f, v)),
    (R, "outer: Expected 1-D argument vec2, but got 2-D", lambda: tn.outer(v, f)),
    (R, "contracted dimensions need to match, but first has size 3 in dim 1",
     lambda: tn.tensordot(f, f[:2], 1)),
    (R, "found '.' that is not part of any ellipsis", lambda: tn.einsum("i.j->i", f)),
    (R, "subscript is repeated for an operand but the sizes don't match, 3 != 2",
     lambda: tn.einsum("ii->i", f[:2])),
    (R, "operands do not broadcast with remapped shapes", lambda: tn.einsum("ij,jk->ik", f, f[:2])),
    (R, "'-' is not followed by '>'", lambda: tn.einsum("ij-i", f)),
    (R, "an output subscript does not appear in the equation for any input operand",
     lambda: tn.einsum("ij->k", f)),
    (R, "more operands were provided than specified in the equation",
     lambda: tn.einsum("ij->i", f, f)),
    (R, "fewer operands were provided than specified in the equation",
     lambda: tn.einsum("ij,jk->ik", f)),
    (R, "Incompatible shapes of A and B for the equation AX = B",
     lambda: tn.linalg.solve(f, tn.ones(2, 3))),
    (R, "Expected pivots to be integers", lambda: tn.linalg.ldl_solve(f, v, f)),
    (R, "not differentiable when mode='complete' and nrows > ncols",
     lambda: tn.linalg.qr(f[:, :2].clone().requires_grad_(), "complete").Q.sum().backward()),
    (R, "linalg.matrix_norm: dim must be a 2-tuple",
     lambda: tn.linalg.matrix_norm(cube, "fro", (0, 1, 2))),
    (R, "Order 3 not supported", lambda: tn.linalg.matrix_norm(f, 3)),
    (R, "Expected tau to have the batch of input and one dimension less",
     lambda: tn.linalg.householder_product(f, f)),
]  # fmt: skip
SIGNALS: list[Refusal] = [
    (R, 'Invalid normalization mode: "both"', lambda: tn.fft.fft(v, norm="both")),
    (R, "expects a real input tensor", lambda: tn.fft.rfft(c)),
    (R, "Invalid number of data points (0)", lambda: ops._fft_r2c(tn.ones(3, 0), [1], 0, True)),
    (R, "Invalid number of data points (0)", lambda: ops._fft_r2c(tn.ones(0, 3), [0, 1], 0, True)),
    (R, "Invalid number of data points (0)", lambda: ops._fft_c2c(c[:0], [0], 0, True)),
    (R, "Invalid number of data points (0)", lambda: ops._fft_c2r(c[:0], [0, 1], 0, 3)),
    (R, "Invalid number of data points (0)", lambda: ops._fft_c2r_backward(f[:0], [0], 0)),
    (R, "stft: expected 0 < n_fft <= ", lambda: tn.stft(tn.ones(9), 0, return_complex=True)),
    (R, "stft: expected hop_length > 0, but got hop_length=0",
     lambda: tn.stft(tn.ones(9), 4, 0, return_complex=True)),
    (R, "stft: expected 0 < win_length <= n_fft, but got win_length=5",
     lambda: tn.stft(tn.ones(9), 4, 1, 5, return_complex=True)),
    (R, "stft: expected a 1D or 2D tensor, but got 3D",
     lambda: tn.stft(cube, 2, center=False, return_complex=True)),
    (R, "Cannot have onesided output if window or input is complex",
     lambda: tn.stft(tn.ones(9) * 1j, 4, onesided=True, return_complex=True)),
    (R, "istft requires a complex-valued input tensor", lambda: tn.istft(tn.ones(3, 5), 4)),
    (R, "istft: input tensor cannot be empty",
     lambda: tn.istft(tn.empty(3, 0, dtype=tn.complex64), 4)),
    (R, "istft: expected 0 < hop_length <= win_length", lambda: tn.istft(tn.ones(3, 5) * 1j, 4, 5)),
    (R, "istft: expected 0 < win_length <= n_fft", lambda: tn.istft(tn.ones(3, 5) * 1j, 4, 1, 6)),
    (R, "Invalid window shape. window has to be 1D and length of `win_length`",
     lambda: tn.istft(tn.ones(3, 5) * 1j, 4, 1, 4, window=tn.ones(3))),
    (R, "window overlap add min: 1",
     lambda: tn.istft(tn.ones(3, 5) * 1j, 4, 2, 4, window=tn.zeros(4))),
    (R, "hann_window requires non-negative window_length, got window_length=-1",
     lambda: tn.hann_window(-1)),
    (R, "hann_window expects floating point dtypes", lambda: tn.hann_window(3, dtype=tn.int64)),
]  # fmt: skip
SPARSE: list[Refusal] = [
    (E, "a strided tensor keeps no values apart", lambda: ops._sparse_values(f)),
    *((V, f"there is no layout {layout} of these components",
       lambda layout=layout: ops._sparse_make(
           coo._indices(), None, coo._values(), [3, 3], layout, True))
      for layout in (-1, 0, 2, 99)),
    (V, "there is no layout 1 of these components",
     lambda: ops._sparse_make(
         csr.col_indices(), csr.crow_indices(), csr.values(), [3, 3], 1, False)),
    (R, "expected both of one dtype, got Float and Double",
     lambda: ops._spmm(csr.col_indices(), csr.crow_indices(), csr.values(), f.double())),
    *((N, f"{name}(): argument 'input' has layout {words}, which this operator does not take",
       lambda name=name, x=x: getattr(tn, name)(x))
      for name, words, x in (("sort", "sparse_coo", coo), ("median", "sparse_csr", csr))),
    (R, "_coalesced_ expected sparse coordinate tensor layout but got Strided",
     lambda: f._coalesced_(True)),
    (R, "coalesce expected sparse coordinate tensor layout", lambda: csr.coalesce()),
    (R, "operands have incompatible sizes; self has size",
     lambda: f.sparse_mask(tn.ones(2, 3).to_sparse())),
    (R, "Cannot get indices on an uncoalesced tensor", lambda: twice.indices()),
    (R, "Cannot get values on an uncoalesced tensor", lambda: twice.values()),
    (R, "needs to be divisible by blocksize[0] 2", lambda: f.to_sparse_bsr((2, 1))),
    (R, "a compressed sparse layout needs 2 dimensions", lambda: v.to_sparse_csr()),
    (R, "cannot set is_coalesced to true",
     lambda: tn.sparse_coo_tensor(twice._indices(), v[:2], (3,), is_coalesced=True,
                                  check_invariants=True)),
    (R, "sparse tensors of shapes", lambda: coo.clone().copy_(tn.ones(2, 3).to_sparse())),
    (R, "takes no sparse tensor with dense dimensions",
     lambda: tn.sparse.mm(tn.ones(3, 3).to_sparse(1), f)),
    (R, "sampled_addmm: shapes", lambda: tn.sparse.sampled_addmm(csr, f, f[:, :2])),
    (R, "Diagonals must be vector or matrix", lambda: tn.sparse.spdiags(cube, at, (3, 3))),
]  # fmt: skip
# Query, key and value that differ in one thing: dimensions, batch, heads, length or width.
HEADS = [
    ((2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4)), ((1, 2, 3, 4), (2, 3, 4), (1, 2, 3, 4)),
    ((1, 2, 3, 4), (1, 2, 3, 4), (2, 3, 4)), ((2, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4)),
    ((1, 2, 3, 4), (1, 2, 3, 4), (2, 2, 3, 4)), ((1, 3, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4)),
    ((1, 2, 3, 4), (1, 2, 3, 4), (1, 1, 3, 4)), ((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 3, 4)),
    ((1, 2, 3, 4), (1, 2, 3, 5), (1, 2, 3, 4)), ((1, 2, 3, 4), (1, 0, 3, 4), (1, 0, 3, 4)),
]  # fmt: skip
y, filters = tn.ones(2, 3, 6), tn.ones(1, 3, 2)
LAYERS: list[Refusal] = [
    (R, "per channel: (6). Kernel size: (7). Kernel size can't be",
     lambda: F.conv1d(cube, tn.ones(1, 3, 4), padding=1, dilation=2)),
    (R, "per channel: (4 x 5). Kernel size: (7 x 9). Kernel size can't be",
     lambda: F.conv2d(tn.ones(1, 2, 3), tn.ones(1, 1, 4, 5), padding=1, dilation=2)),
    (R, "Expected 3D or 4D (batch mode) tensor with optional 0 dim batch size",
     lambda: F.max_pool2d(cube[:, :0], 1)),
    (R, "Expected 3D or 4D (batch mode) tensor with optional 0 dim batch size",
     lambda: F.max_pool2d(tn.ones(2, 3, 0, 4), 1)),
    (R, "input sizes do not match the weight or each other",
     lambda: F.bilinear(cube, cube[:, :1], tn.ones(2, 4, 4))),
    (R, "input sizes do not match the weight or each other",
     lambda: F.bilinear(cube, cube[:1], tn.ones(2, 4, 4))),
    (R, "with non-zero sizes behind the batch",
     lambda: F.fractional_max_pool2d(cube[:, :0], 1, (1, 1), _random_samples=tn.ones(1, 2, 2))),
    (R, "got weight of shape [2, 2]", lambda: F.group_norm(tn.ones(1, 4, 2), 2, tn.ones(2, 2))),
    (R, "got weight of shape [3]", lambda: F.group_norm(tn.ones(1, 4, 2), 2, tn.ones(3))),
    (R, "got bias of shape [1, 4]",
     lambda: F.group_norm(tn.ones(1, 4, 2), 2, tn.ones(4), tn.ones(1, 4))),
    (R, "expected weight of dtype Float, but got Double",
     lambda: F.group_norm(tn.ones(1, 4, 2), 2, tn.ones(4).double())),
    (R, "but got bias of size [3, 1] instead",
     lambda: F.conv1d(tn.ones(1, 4, 2), tn.ones(3, 4, 1), tn.ones(3, 1))),
    (R, "but got bias of size [2] instead",
     lambda: F.conv1d(tn.ones(1, 4, 2), tn.ones(3, 4, 1), tn.ones(2))),
    (R, "3 elements, but got bias of size [3, 1]",
     lambda: F.conv_transpose1d(tn.ones(1, 4, 2), tn.ones(4, 3, 1), tn.ones(3, 1))),
    *[(R, "do not fit together", lambda shapes=shapes: ops._flash_attention(
        *(tn.ones(*s) for s in shapes), None, False, 1.0)) for shapes in HEADS],
    *[(R, "do not fit together", lambda shapes=shapes: ops._flash_attention_backward(
        tn.ones(1, 2, 3, 4), *(tn.ones(*s) for s in shapes), None, tn.ones(1, 2, 3, 4),
        tn.ones(1, 2, 3), False, 1.0)) for shapes in HEADS],
    (R, "query, key and value must be of one dtype",
     lambda: ops._flash_attention(tn.ones(1, 2, 3, 4), tn.ones(1, 2, 3, 4).double(),
                                  tn.ones(1, 2, 3, 4), None, False, 1.0)),
    (R, "'kernel_size' should contain one int (got 2)", lambda: F.max_pool1d(y, [2, 2])),
    (R, "'stride' should contain one int (got 2)", lambda: F.max_pool1d(y, 2, [1, 1])),
    (R, "'padding' should contain one int (got 2)", lambda: F.max_pool1d(y, 2, 1, [0, 0])),
    (R, "'dilation' should contain one int (got 2)", lambda: F.max_pool1d(y, 2, 1, 0, [1, 1])),
    (R, "'kernel_size' should contain one int (got 2)", lambda: F.avg_pool1d(y, [2, 2])),
    (R, "'stride' should contain one int (got 3)", lambda: F.avg_pool1d(y, 2, [1, 1, 1])),
    (R, "'padding' should contain one int (got 2)", lambda: F.avg_pool1d(y, 2, 1, [0, 0])),
    (R, "'output_size' should contain one int (got 2)", lambda: F.adaptive_avg_pool1d(y, [2, 2])),
    (R, "expected stride to be a list of 1 ints, but got 2",
     lambda: F.conv1d(y, filters, stride=[1, 1])),
    (R, "expected padding to be a list of 1 ints, but got 2",
     lambda: F.conv1d(y, filters, padding=[1, 1])),
    (R, "expected dilation to be a list of 1 ints, but got 2",
     lambda: F.conv1d(y, filters, dilation=[1, 1])),
    (R, "expected stride to be a list of 1 ints, but got 2",
     lambda: F.conv_transpose1d(y, tn.ones(3, 1, 2), stride=[1, 1])),
    (R, "expected output_padding to be a list of 1 ints, but got 2",
     lambda: F.conv_transpose1d(y, tn.ones(3, 1, 2), output_padding=[0, 0])),
    (R, "negative output_padding is not supported",
     lambda: F.conv_transpose1d(y, tn.ones(3, 1, 2), output_padding=-1)),
    (R, "output padding must be smaller than either stride or dilation",
     lambda: F.conv_transpose1d(y, tn.ones(3, 1, 2), stride=2, output_padding=2)),
    (R, "Invalid padding string: 'full'",
     lambda: F.conv1d(tn.ones(1, 2, 5), tn.ones(3, 2, 2), padding="full")),
    (R, "padding='same' is not supported for strided convolutions",
     lambda: F.conv1d(tn.ones(1, 2, 5), tn.ones(3, 2, 2), stride=2, padding="same")),
    (R, "Given groups=2, weight of size [4, 2, 2], expected input[1, 2, 5] to have 4 channels, but",
     lambda: F.conv1d(tn.ones(1, 2, 5), tn.ones(4, 2, 2), groups=2)),
    (R, "Given transposed=1, weight of size [4, 2, 2], expected input[1, 2, 5] to have 4 channels",
     lambda: F.conv_transpose1d(tn.ones(1, 2, 5), tn.ones(4, 2, 2))),
    (R, "expected bias to be 1-dimensional with 3 elements, but got bias of size [2]",
     lambda: F.conv1d(tn.ones(1, 2, 5), tn.ones(3, 2, 2), tn.ones(2))),
    (R, "'weight' must be 2-D", lambda: F.embedding(at, v)),
    (R, "both arguments to linear need to be at least 1D", lambda: F.linear(n0, f)),
    (R, "blank must be in label range",
     lambda: F.ctc_loss(tn.zeros(4, 1, 3), i[:1, :2], tn.tensor([4]), tn.tensor([2]), blank=3)),
    (R, "cdist only supports floating-point dtypes, X1 got", lambda: tn.cdist(i, i)),
    (R, "cdist only supports non-negative p values", lambda: tn.cdist(f, f, -1.0)),
    (R, "pdist only supports non-negative p values", lambda: F.pdist(f, -1.0)),
    (V, "Expected 1 or more dimensions (got 0)", lambda: F.nll_loss(n0, tn.tensor(0))),
    (V, "Expected input batch_size (3) to match target batch_size (2)",
     lambda: F.nll_loss(f, at[:2])),
    (R, "weight tensor should be defined either for all 3 classes or no classes",
     lambda: F.nll_loss(f, at, weight=v[:2])),
    (R, "inconsistent weight size, expected 3 but got",
     lambda: F.multi_margin_loss(f, at, weight=v[:2])),
    (R, "running_mean should contain 3 elements not 2", lambda: F.batch_norm(f, v[:2], v.abs())),
    (R, "weight should contain 3 elements not 2", lambda: F.batch_norm(f, v, v.abs(), v[:2])),
    (R, "running_mean must be defined in evaluation mode", lambda: F.batch_norm(f, None, None)),
    (R, "running_var must be defined in evaluation mode", lambda: F.batch_norm(f, v, None)),
    (R, "running_var should contain 3 elements not 2",
     lambda: F.batch_norm(f, v, v.abs()[:2], v[:2])),
    (R, 'Padding mode "reflect" doesn\'t take in value argument',
     lambda: F.pad(f[None], (1, 1), "reflect", 2.0)),
    (R, "The size of tensor a (3) must match the size of tensor b (2)",
     lambda: F.soft_margin_loss(tn.ones(3), tn.ones(2))),
    (N, "Unrecognised padding mode mirror", lambda: F.pad(f[None], (1, 1), "mirror")),
    (R, "expected grid and input to have same batch size",
     lambda: F.grid_sample(tn.ones(2, 1, 3, 3), tn.ones(1, 2, 2, 2))),
    (R, "expected grid to have size 2 in last dimension",
     lambda: F.grid_sample(tn.ones(1, 1, 3, 3), tn.ones(1, 2, 2, 3))),
    (R, "expected input to have non-empty spatial dimensions",
     lambda: F.grid_sample(tn.ones(1, 1, 0, 3), tn.ones(1, 2, 2, 2))),
    (R, "pool size (4) too large relative to input size (3)",
     lambda: F.fractional_max_pool2d(tn.ones(1, 1, 3, 3), 4, output_size=1)),
    (R, "Expected 3D or 4D (batch mode) tensor with optional 0 dim batch size for input",
     lambda: F.max_pool2d(v, 1)),
    (R, "Expected 2D or 3D (batch mode) tensor with optional 0 dim batch size for input",
     lambda: F.avg_pool1d(v, 1)),
    (V, "`quant_min` and `quant_max`",
     lambda: tn.fake_quantize_per_tensor_affine(f, 0.1, 0, 0, 1 << 25)),
    (R, "`zero_point` must be between `quant_min` and `quant_max`.",
     lambda: tn.fake_quantize_per_tensor_affine(f, 0.1, 300, 0, 255)),
    (R, "scale and zero_point should be 1-D tensors",
     lambda: tn.fake_quantize_per_channel_affine(f, f, at.int(), 0, 0, 255)),
    (R, "lstm_cell expects two hidden states, got 1",
     lambda: tn.lstm_cell(f, [f], tn.ones(12, 3), tn.ones(12, 3))),
    (R, "lstm expects two hidden states, got 1",
     lambda: tn.lstm(cube, [f], [f], False, 1, 0.0, False, False, False)),
]  # fmt: skip
TAPE: list[Refusal] = [
    (R, "can't retain_grad on Tensor that has requires_grad=False", lambda: f.retain_grad()),
    (R, "can't assign Variable as its own grad", lambda: setattr(t := tn.ones(2), "grad", t)),
    (R, "Can't detach views in-place. Use detach() instead.",
     lambda: (tn.ones(3, requires_grad=True) * 1)[:2].detach_()),
    (R, "cannot be registered on non-leaf tensors",
     lambda: (tn.ones(3, requires_grad=True) * 1).register_post_accumulate_grad_hook(print)),
    (R, "`inputs` argument to `grad()` cannot be empty",
     lambda: tn.autograd.grad(tn.ones(1, requires_grad=True).sum(), [])),
]  # fmt: skip


def watched() -> tn.Tensor:
    return tn.ones(3, requires_grad=True)


def inferred() -> tn.Tensor:
    with tn.inference_mode():
        return tn.ones(3)


class Keeper(tn.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: tn.Tensor) -> tn.Tensor:
        ctx.save_for_backward(3)
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: tn.Tensor) -> tn.Tensor:
        return g


GENERATED = tn.Generator().get_state()
OBJECTS: list[Refusal] = [
    (R, "functions with out=... arguments don't support automatic differentiation",
     lambda: tn.add(watched(), 1.0, out=tn.ones(3))),
    (E, "only floating-point types are supported as the default type",
     lambda: tn.set_default_dtype(tn.int32)),
    (R, "Expected a generator state of size", lambda: tn.Generator().set_state(GENERATED[:-1])),
    (E, "RNG state must be a ByteTensor", lambda: tn.Generator().set_state(v)),
    (V, "set_rng takes 'philox' or 'torch', not 'dice'", lambda: tn.set_rng("dice")),
    (R, "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed",
     lambda: inferred().requires_grad_()),
    (R, "Inference tensors cannot be saved for backward", lambda: watched() * inferred()),
    (E, "~ (operator.invert) is only implemented on integer and Boolean-type tensors", lambda: ~f),
    (E, "save_for_backward can only save variables, but argument 0 is of type int",
     lambda: Keeper.apply(watched())),
    (X, "an index can only have a single ellipsis ('...')", lambda: f[..., 0, ...]),
    (E, "can't convert a buffer with format '1w' (4 bytes each) to a tensor",
     lambda: tn.from_numpy(np.array(["a"]))),
    (BufferError, "Can't export tensors that require gradient, use tensor.detach()",
     lambda: watched().__dlpack__()),
    (V, "Unknown device type meta for Dlpack",
     lambda: tn.ones(2, device="meta").__dlpack_device__()),
    (R, "requires_grad must be a bool", lambda: setattr(tn.ones(2), "requires_grad", "yes")),
    (R, "Tensor.__contains__ only supports Tensor or scalar, but you passed in a",
     lambda: "a" in f),
    (E, "Size() takes an iterable of 'int' (item 1 is", lambda: tn.Size([1, "a"])),
    (E, "Size() takes no keyword arguments", lambda: tn.Size(a=3)),
    (R, "must not include an index when an index is passed", lambda: tn.device("cpu:0", 1)),
    (E, "frombuffer() missing required keyword argument 'dtype'", lambda: tn.frombuffer(bytes(8))),
    (E, "pow() of tensors takes no modulus", lambda: pow(f, 2, 3)),
    (V, "can't alias data: it has to be copied", lambda: tn.asarray([1.0, 2.0], copy=False)),
    (R, "einsum(): too many subscripts", lambda: tn.einsum("i" * 70, f)),
    (R, "einsum(): text follows the output subscripts", lambda: tn.einsum("ij->i->j", f)),
    (V, "p has to be at most", lambda: tn.mvlgamma(v.abs() + 1e9, 1 << 31)),
    (R, "combinations: there are too many", lambda: tn.combinations(tn.ones(500), 250)),
    (R, "istft: expected length >= 0",
     lambda: tn.istft(tn.ones(3, 5) * 1j, 4, 1, 4, window=tn.ones(4), length=-1)),
    (R, "Complex windows are incompatible with return_complex=False",
     lambda: tn.istft(tn.ones(4, 5) * 1j, 4, 1, 4, window=tn.ones(4) * (1 + 0j), onesided=False)),
    (R, "Expected log_probs of shape (T, N, C) or (T, C)", lambda: F.ctc_loss(v, at, at, at)),
    (R, "a tensor has at most", lambda: tn.ones(*[1] * 65)),
    (R, "a tensor has at most", lambda: n0.expand(*[1] * 65)),
    (V, "is larger than the address space",
     lambda: tn.empty_strided((1 << 40, 1 << 40), (1 << 40, 1))),
    (V, "grid_sampler(): interpolation_mode and padding_mode are 0, 1 or 2",
     lambda: tn.grid_sampler(tn.ones(1, 1, 3, 3), tn.ones(1, 2, 2, 2), 3, 0, False)),
    (V, "grid_sampler(): interpolation_mode and padding_mode are 0, 1 or 2",
     lambda: tn.grid_sampler(tn.ones(1, 1, 3, 3), tn.ones(1, 2, 2, 2), 0, 3, False)),
]  # fmt: skip
CASES = by_name(
    index=INDICES, shape=SHAPES, math=MATH, random=RANDOM, tape=TAPE, matrix=MATRICES,
    signal=SIGNALS, sparse=SPARSE, layer=LAYERS, object=OBJECTS,
)  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_refused_by_the_check_that_is_meant(name: str) -> None:
    check(CASES[name])


def test_a_minus_of_masks_says_what_to_write():
    mask, x = tn.tensor([True, False]), tn.ones(2)
    words = "Subtraction, the `-` operator, with a bool tensor is not supported.*`~`"
    for call in (lambda: mask - mask, lambda: x - mask, lambda: 1 - mask, lambda: x.sub_(mask)):
        with pytest.raises(RuntimeError, match=words):
            call()
    with pytest.raises(RuntimeError, match="Negation, the `-` operator, on a bool tensor is not"):
        -mask
