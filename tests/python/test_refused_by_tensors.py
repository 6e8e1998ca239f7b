"""What calls on tensors refuse, each with the words that only this check says, and with PyTorch's
class of error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import stored
import tenon as tn
from refusals import outcome

Call = Callable[[Any], Any]


def functional(lib: Any) -> Any:
    return lib.nn.functional


def needs(lib: Any) -> Any:
    return lib.ones(2, 2, requires_grad=True)


MAKING: dict[str, tuple[str, Call]] = {
    "numbers beside sequences": (
        "the data has numbers and sequences at one level",
        lambda t: t.tensor([1, [2]]),
    ),
    "too large": ("Overflow when unpacking long", lambda t: t.tensor([2**70])),
    "complex into real": (
        "must be real number, not complex",
        lambda t: t.tensor([1j], dtype=t.float32),
    ),
    "dtype of text": ("argument 'dtype' must be dtype", lambda t: t.tensor([1], dtype="float32")),
    "range without end": ("unsupported range", lambda t: t.arange(0, float("inf"))),
    "range too long": ("invalid size, possible overflow", lambda t: t.arange(0, 1e300)),
    "linspace between vectors": (
        "only supports 0-dimensional start and end tensors",
        lambda t: t.linspace(t.ones(2), t.ones(1), 3),
    ),
    "negative strides": (
        "strides must not be negative, got \\[-1, 1\\]",
        lambda t: t.empty_strided((2, 2), (-1, 1)),
    ),
    "strides of another length": (
        "mismatch in length of strides and shape",
        lambda t: t.ones(4).as_strided((2, 2), (1,)),
    ),
    "offset below none": (
        "storage_offset must not be negative, got -1",
        lambda t: t.ones(4).as_strided((2,), (1,), -1),
    ),
    "array of strings": (
        "can't convert a buffer with format",
        lambda t: t.from_numpy(np.array(["a"])),
    ),
    "array in another order": (
        "byte order different from the native byte order",
        lambda t: t.from_numpy(np.ones(2, np.dtype(float).newbyteorder())),
    ),
    "data of text": ("Variable data has to be a tensor", lambda t: setattr(t.ones(1), "data", 3)),
    "as another class": (
        "as_subclass\\(\\) takes a subclass of Tensor",
        lambda t: t.ones(1).as_subclass(int),
    ),
    "subclass of none": (
        "the class must be a subclass of Tensor",
        lambda t: t.Tensor._make_subclass(int, t.ones(1)),
    ),
    "device of nothing": ("Invalid device string: ''", lambda t: t.device("")),
    "device with a number of 30 digits": (
        "Invalid device string",
        lambda t: t.device("cpu:" + "9" * 30),
    ),
    "device with two numbers": ("Invalid device string", lambda t: t.device("cpu:0:1")),
    "device by a fraction": (
        "argument 'device' must be device, not float",
        lambda t: t.ones(1, device=1.5),
    ),
    "coo of nothing": ("needs indices and values, or a size", lambda t: t.sparse_coo_tensor()),
    "no layout of components": (
        "expected compressed sparse tensor layout",
        lambda t: t.sparse_compressed_tensor([0, 1], [0], [1.0], (1, 1), layout=t.sparse_coo),
    ),
    "strided by blocks": (
        "layout strided takes no",
        lambda t: t.eye(2).to_sparse().to_sparse(layout=t.strided, blocksize=(1, 1)),
    ),
    "coo by blocks": (
        "layout tenon.sparse_coo takes no blocksize",
        lambda t: t.ones(2, 2).to_sparse(layout=t.sparse_coo, blocksize=(1, 1)),
    ),
    "negative index of a sparse tensor": (
        "found negative index -1",
        lambda t: t.sparse_coo_tensor([[-1]], [1.0], (2,)),
    ),
    "bounded seed": (
        "Overflow when unpacking long long",
        lambda t: t.Generator().manual_seed(2**65),
    ),
    "plus of truths": (
        "`\\+` operator, on a bool tensor is not supported",
        lambda t: +t.tensor(True),
    ),
    "dlpack of a graph": (
        "that require gradient, use tensor.detach",
        lambda t: needs(t).__dlpack__(),
    ),
    "dlpack of sparse": (
        "Can't export a sparse tensor",
        lambda t: t.ones(2).to_sparse().__dlpack__(),
    ),
    "stream of a number": (
        "record_stream\\(\\) takes a Stream, not int",
        lambda t: t.ones(1).record_stream(3),
    ),
    "isin of numbers": ("one of elements and test_elements must be", lambda t: t.isin(3, 4)),
    "isin text": ("'a' is neither a Tensor nor a number", lambda t: t.isin(t.ones(1), "a")),
    "reduction of text": (
        "argument 'reduction' must be int",
        lambda t: t.poisson_nll_loss(t.ones(1), t.ones(1), True, False, 1e-8, "mean"),
    ),
    "lu of a vector": (
        "Expected tensor with 2 or more dimensions",
        lambda t: t.lu_unpack(t.ones(2), t.ones(2, dtype=t.int32)),
    ),
    "results of lu": (
        "expected tuple of 2 elements but got 1",
        lambda t: t.lu(t.eye(2), out=(t.ones(2),)),
    ),
    "api of arrays": (
        "api_version is one of",
        lambda t: t.ones(1).__array_namespace__(api_version="1999"),
    ),
}

OPERATORS: dict[str, tuple[str, Call]] = {
    "bmm of a matrix": (
        "batch1 and batch2 must be 3D tensors",
        lambda t: t.bmm(t.ones(2, 2), t.ones(1, 2, 2)),
    ),
    "bmm by a matrix": (
        "batch1 and batch2 must be 3D tensors",
        lambda t: t.bmm(t.ones(1, 2, 2), t.ones(2, 2)),
    ),
    "baddbmm of a matrix": (
        "batch1 and batch2 must be 3D tensors",
        lambda t: t.baddbmm(t.ones(1), t.ones(2, 2), t.ones(1, 2, 2)),
    ),
    "dot of a matrix": (
        "1D tensors expected, but got 2D and 1D tensors",
        lambda t: t.dot(t.ones(2, 2), t.ones(2)),
    ),
    "addr to more": (
        "The expanded size of the tensor",
        lambda t: t.addr(t.ones(1, 2, 2), t.ones(2), t.ones(2)),
    ),
    "mvlgamma of none": (
        "p has to be greater than or equal to 1",
        lambda t: t.mvlgamma(t.ones(1), 0),
    ),
    "searched rows": (
        "the first N-1 dimensions of boundaries tensor",
        lambda t: t.searchsorted(t.ones(2, 3), t.ones(3, 2)),
    ),
    "index_reduce_ of other sizes": (
        "source \\[1, 3\\] and self \\[2, 2\\] differ",
        lambda t: t.ones(2, 2).index_reduce_(0, t.tensor([0]), t.ones(1, 3), "prod"),
    ),
    "renorm of no norm": (
        "non-positive-norm not supported",
        lambda t: t.renorm(t.ones(2, 2), 0.0, 0, 1.0),
    ),
    "vander of a matrix": ("x must be a one-dimensional tensor", lambda t: t.vander(t.ones(2, 2))),
    "histc without end": ("is not finite", lambda t: t.histc(t.tensor([1.0, float("inf")]))),
    "narrow too far": ("exceeds dimension size", lambda t: t.ones(3).narrow(0, 2, 2)),
    "narrow_copy too far": ("exceeds dimension size", lambda t: t.narrow_copy(t.ones(3), 0, 2, 2)),
    "unfold below none": ("size is -1 but must be >= 0", lambda t: t.ones(3).unfold(0, -1, 1)),
    "unfold in place": ("step is 0 but must be > 0", lambda t: t.ones(3).unfold(0, 1, 0)),
    "complex of odd strides": (
        "stride divisible by 2",
        lambda t: t.view_as_complex(t.ones(3, 3)[:, :2]),
    ),
    "complex of an odd place": (
        "storage_offset divisible by 2",
        lambda t: t.view_as_complex(t.ones(5)[1:].view(2, 2)),
    ),
    "roll by nothing": ("argument 'shifts'", lambda t: t.roll(t.ones(3), ())),
    "diff before": ("same dimension as input", lambda t: t.diff(t.ones(3), prepend=t.ones(1, 1))),
    "mask of numbers": (
        "expected BoolTensor for mask",
        lambda t: t.masked_select(t.ones(2), t.ones(2)),
    ),
    "filled by numbers": (
        "masked_fill only supports boolean masks",
        lambda t: t.ones(2).masked_fill(t.ones(2), 1.0),
    ),
    "where of numbers": (
        "where expected condition to be a boolean tensor, but got a tensor with dtype Float",
        lambda t: t.where(t.ones(2), t.ones(2), t.ones(2)),
    ),
    "repeat of vectors": (
        "1D vector as repeat",
        lambda t: t.repeat_interleave(t.ones(2), t.ones(2, 2, dtype=t.int64)),
    ),
    "flipped twice": (
        "expected rotation dims to be different",
        lambda t: t.rot90(t.ones(2, 2), 1, (0, 0)),
    ),
    "trace of a vector": (
        "expected a matrix, but got tensor with dim 1",
        lambda t: t.trace(t.ones(2)),
    ),
    "fft in another way": (
        "Invalid normalization mode",
        lambda t: t.fft.fft(t.ones(3), norm="other"),
    ),
    "tril of a vector": ("must have at least 2 dimensions", lambda t: t.tril(t.ones(2))),
    "tril_indices below none": ("row must be non-negative", lambda t: t.tril_indices(-1, 2)),
    "crossed vectors of two": (
        r"linalg.cross: inputs dimension 1 must have length 3\. Got 2 and 2",
        lambda t: t.linalg.cross(t.ones(3, 2), t.ones(3, 2), dim=1),
    ),
    "crossed vectors of three and two": (
        "linalg.cross: inputs dimension -1 must have length 3. Got 3 and 2",
        lambda t: t.linalg.cross(t.ones(2, 3), t.ones(2, 2)),
    ),
    "crossed with fewer dimensions": (
        "linalg.cross: inputs must have the same number of dimensions",
        lambda t: t.linalg.cross(t.ones(2, 3), t.ones(3)),
    ),
    "a driver of singular values": (
        "torch.linalg.svd: keyword argument `driver=` is only supported on CUDA inputs",
        lambda t: t.linalg.svd(t.eye(2), driver="gesvd"),
    ),
    "a driver of singular values alone": (
        "linalg.svdvals: keyword argument `driver=` is only supported on CUDA inputs",
        lambda t: t.linalg.svdvals(t.eye(2), driver="gesvd"),
    ),
    "inv of parts": (
        "prod\\(self.shape\\[ind:\\]\\) == prod",
        lambda t: t.linalg.tensorinv(t.ones(2, 3, 4), 1),
    ),
    "solve of parts": (
        "prod\\(self.shape\\[other.ndim:\\]\\)",
        lambda t: t.linalg.tensorsolve(t.ones(2, 3), t.ones(2)),
    ),
    "ldl of other pivots": (
        "Expected LD.shape\\[:-1\\] and pivots.shape to be the same",
        lambda t: t.linalg.ldl_solve(t.eye(2), t.ones(3, dtype=t.int32), t.ones(2, 1)),
    ),
    "norm in another dtype": (
        "dtype should be floating point or complex",
        lambda t: t.linalg.matrix_norm(t.ones(2, 2), dtype=t.int64),
    ),
    "to_padded of whole": (
        "expected a nested tensor",
        lambda t: t.nested.to_padded_tensor(t.ones(2), 0.0),
    ),
    "outer of a matrix": ("Expected 1-D argument self", lambda t: t.outer(t.ones(2, 2), t.ones(2))),
    "logcumsumexp of numbers": (
        "not implemented for 'Long'",
        lambda t: t.logcumsumexp(t.tensor([1, 2]), 0),
    ),
    "bincount of a matrix": (
        "only supports 1-d non-negative",
        lambda t: t.bincount(t.ones(2, 2, dtype=t.int64)),
    ),
    "hash in another way": (
        "Unknown hash_tensor mode: 3",
        lambda t: t.hash_tensor(t.ones(2), mode=3),
    ),
}

for order in ("fro", "nuc", 1, -2, float("inf")):
    OPERATORS[f"norm {order} of whole numbers"] = (
        "linalg.matrix_norm: Expected a floating point or complex tensor as input",
        lambda t, order=order: t.linalg.matrix_norm(t.ones(2, 2, dtype=t.int64), order),
    )
    OPERATORS[f"norm {order} in whole numbers"] = (
        "linalg.matrix_norm: dtype should be floating point or complex",
        lambda t, order=order: t.linalg.norm(t.ones(2, 2), order, dtype=t.int64),
    )


def gradient_of(lib: Any, grad: Any) -> None:
    lib.ones(2, requires_grad=True).grad = grad


GRADIENTS: dict[str, tuple[str, Call]] = {
    "gradient of another dtype": (
        "to a tensor with dtype .float32",
        lambda t: gradient_of(t, t.ones(2, dtype=t.float64)),
    ),
    "gradient of another size": (
        "attempting to assign a gradient of size",
        lambda t: gradient_of(t, t.ones(3)),
    ),
    "gradient that is no tensor": (
        "assigned grad expected to be a Tensor or None",
        lambda t: gradient_of(t, 3),
    ),
    "root of another size": (
        "grad_output\\[0\\] has a shape of",
        lambda t: (needs(t) * 2).backward(t.ones(3)),
    ),
    "several roots without gradients": (
        "grad can be implicitly created only for scalar outputs",
        lambda t: (needs(t) * 2).backward(),
    ),
    "nothing to differentiate": (
        "does not require grad and does not have a grad_fn",
        lambda t: t.ones(1).backward(),
    ),
    "no way to an input": (
        "not have been used in the graph",
        lambda t: t.autograd.grad(needs(t).sum(), needs(t)),
    ),
    "whole numbers": (
        "floating point",
        lambda t: t.ones(2, dtype=t.int64).requires_grad_(),
    ),
    "leaf in place": (
        "a leaf Variable that requires grad is being used in an in-place operation",
        lambda t: needs(t).add_(1),
    ),
    "view of a leaf in place": (
        "a view of a leaf Variable that requires grad is being used in an in-place",
        lambda t: needs(t)[0].add_(1),
    ),
    "history changed by hand": (
        "you can only change requires_grad flags of leaf variables",
        lambda t: (needs(t) * 2).requires_grad_(False),
    ),
}

LAYERS: dict[str, tuple[str, Call]] = {
    "attention of vectors": (
        "to all be at least 2 dimensional",
        lambda t: functional(t).scaled_dot_product_attention(t.ones(2), t.ones(2), t.ones(2)),
    ),
    "affine of a line": (
        "only supports 4D and 5D sizes",
        lambda t: functional(t).affine_grid(t.ones(1, 2, 2), [1, 1, 2]),
    ),
    "affine of other sizes": (
        "affine matrices of shape Nx2x3",
        lambda t: functional(t).affine_grid(t.ones(1, 3, 3), [1, 1, 2, 2]),
    ),
    "groups below one": (
        "divide channels in must be positive",
        lambda t: functional(t).channel_shuffle(t.ones(1, 4, 2, 2), 0),
    ),
    "fold by three": ("output_size", lambda t: functional(t).fold(t.ones(1, 4, 4), (3, 3, 3), 2)),
    "unfold by none": (
        "kernel size should be greater than zero",
        lambda t: functional(t).unfold(t.ones(1, 1, 3, 3), 0),
    ),
    "unfold of a vector": ("Expected 3D or 4D", lambda t: functional(t).unfold(t.ones(3), 1)),
    "pixel_shuffle by none": (
        "expects a positive upscale_factor",
        lambda t: functional(t).pixel_shuffle(t.ones(1, 4, 2, 2), 0),
    ),
    "pool by a divisor of zero": (
        "divisor must be not zero",
        lambda t: functional(t).avg_pool2d(t.ones(1, 1, 2, 2), 2, divisor_override=0),
    ),
    "pool by a divisor of zero, 3d": (
        "divisor must be not zero",
        lambda t: functional(t).avg_pool3d(t.ones(1, 1, 2, 2, 2), 2, divisor_override=0),
    ),
    "padded to less than none": (
        "resulted in a negative output size",
        lambda t: functional(t).pad(t.ones(1, 2), (-2, -2)),
    ),
    "corners of nearest": (
        "align_corners option can only be set",
        lambda t: functional(t).interpolate(t.ones(1, 1, 2), 3, align_corners=True),
    ),
    "smooth volumes": (
        "Anti-alias option is restricted to bilinear",
        lambda t: functional(t).interpolate(t.ones(1, 1, 2), 3, mode="linear", antialias=True),
    ),
    "scale of a size": (
        "recompute_scale_factor is not meaningful",
        lambda t: functional(t).interpolate(t.ones(1, 1, 2), 3, recompute_scale_factor=True),
    ),
    "instance of one": (
        "Expected more than 1 spatial element",
        lambda t: functional(t).instance_norm(t.ones(1, 2, 1)),
    ),
    "norm of other sizes": (
        "Given normalized_shape=\\[2\\]",
        lambda t: functional(t).layer_norm(t.ones(2, 3), (2,)),
    ),
    "embedding by fractions": (
        "Long, Int",
        lambda t: functional(t).embedding(t.ones(2), t.ones(2, 2)),
    ),
    "ctc of three": (
        "or of one dimension",
        lambda t: functional(t).ctc_loss(t.ones(2, 1, 3), t.ones(1, 1, 1, dtype=t.int64), [2], [1]),
    ),
    "fractional by none": (
        "either an output_size or an output_ratio",
        lambda t: functional(t).fractional_max_pool2d(t.ones(1, 1, 4, 4), 2),
    ),
    "statistics of one kind": (
        "running_mean must be defined",
        lambda t: functional(t).batch_norm(t.ones(2, 2), None, t.ones(2)),
    ),
    "weights of other classes": (
        "inconsistent weight size, expected 2",
        lambda t: t.nn.MultiMarginLoss(weight=t.ones(3))(t.ones(1, 2), t.tensor([0])),
    ),
    "attention of another width": (
        "was expecting embedding dimension of 4, but got 3",
        lambda t: functional(t).multi_head_attention_forward(
            t.ones(1, 1, 3),
            t.ones(1, 1, 3),
            t.ones(1, 1, 3),
            4,
            1,
            t.ones(12, 4),
            None,
            None,
            None,
            False,
            0.0,
            t.ones(4, 4),
            None,
        ),
    ),
    "instance of other features": (
        "to match num_features \\(3\\), but got: 2",
        lambda t: t.nn.InstanceNorm1d(3, affine=True)(t.ones(1, 2, 4)),
    ),
    "bilinear of none": ("in1_features must be > 0", lambda t: t.nn.Bilinear(0, 1, 1)),
    "backends of a text": (
        "expected SDPBackend, got 'math'",
        lambda t: (
            __import__(t.__name__ + ".nn.attention", fromlist=["x"]).sdpa_kernel("math").__enter__()
        ),
    ),
}

KERNELS: dict[str, tuple[str, Call]] = {
    "convolution of four dimensions": (
        "weight has 6 dimensions, of 5 at most",
        lambda t: t.convolution(
            t.ones(1, 1, 2, 2, 2, 2),
            t.ones(1, 1, 1, 1, 1, 1),
            None,
            [1] * 4,
            [0] * 4,
            [1] * 4,
            False,
            [0] * 4,
            1,
        ),
    ),
    "convolution of a matrix": (
        r"weight should have at least three dimensions",
        lambda t: t.convolution(t.ones(2, 3), t.ones(2, 3), None, [1], [0], [1], False, [0], 1),
    ),
    "groups of none": (
        r"non-positive groups is not supported",
        lambda t: functional(t).conv2d(t.ones(1, 1, 3, 3), t.ones(1, 1, 2, 2), groups=0),
    ),
    "groups that do not divide": (
        r"Given groups=2, weight of size \[2, 1, 1\], expect",
        lambda t: functional(t).conv1d(t.ones(1, 3, 4), t.ones(2, 1, 1), groups=2),
    ),
    "stride of none": (
        r"non-positive stride is not supported",
        lambda t: functional(t).conv1d(t.ones(1, 1, 4), t.ones(1, 1, 2), stride=0),
    ),
    "padding below none": (
        r"negative padding is not supported",
        lambda t: functional(t).conv1d(t.ones(1, 1, 4), t.ones(1, 1, 2), padding=-1),
    ),
    "dilation of none": (
        r"non-positive dilation is not supported",
        lambda t: functional(t).conv1d(t.ones(1, 1, 4), t.ones(1, 1, 2), dilation=0),
    ),
    "kernel larger than the input": (
        r"Calculated padded input size per channel: \(4\)\. K",
        lambda t: functional(t).conv1d(t.ones(1, 1, 4), t.ones(1, 1, 5)),
    ),
    "bias of another size": (
        r"Given weight of size \[2, 1, 1\], expected bias to",
        lambda t: functional(t).conv1d(t.ones(1, 1, 4), t.ones(2, 1, 1), t.ones(3)),
    ),
    "output padding as wide as a stride": (
        r"output padding must be smaller than either strid",
        lambda t: functional(t).conv_transpose1d(
            t.ones(1, 1, 4), t.ones(1, 1, 2), stride=2, output_padding=2
        ),
    ),
    "group norm of other sizes": (
        r"native_group_norm: an input of shape \[2, 4, 3\] i",
        lambda t: t.native_group_norm(t.ones(2, 4, 3), None, None, 2, 4, 5, 2, 1e-5),
    ),
    "group norm of three": (
        r"Expected number of channels in input to be divis",
        lambda t: functional(t).group_norm(t.ones(2, 4), 3),
    ),
    "layer norm of nothing": (
        r"Expected normalized_shape to be at least 1-dimen",
        lambda t: t.native_layer_norm(t.ones(2), [], None, None, 1e-5),
    ),
    "one running statistic": (
        r"running_mean and running_var must either both be",
        lambda t: functional(t).batch_norm(t.ones(2, 2), t.ones(2), None, training=True),
    ),
    "batch of one": (
        r"Expected more than 1 value per channel when trai",
        lambda t: functional(t).batch_norm(t.ones(1, 2), None, None, training=True),
    ),
    "grid for a line": (
        r"AffineGridGenerator needs 4d \(spatial\) or 5d \(vo",
        lambda t: t.affine_grid_generator(t.ones(1, 2, 3), [1, 1, 2], False),
    ),
    "samples of another size": (
        r"Expect _random_samples of \(batch, channels, 2\) n",
        lambda t: functional(t).fractional_max_pool2d(
            t.ones(1, 1, 4, 4), 2, output_size=2, _random_samples=t.ones(1, 1, 3)
        ),
    ),
    "scales for other channels": (
        r"dimensions of scale and zero-point are not consi",
        lambda t: t.fake_quantize_per_channel_affine(
            t.ones(2, 3), t.ones(3), t.zeros(3, dtype=t.int32), 0, 0, 255
        ),
    ),
    "levels in the other order": (
        r"`quant_min` should be less than or equal to `qua",
        lambda t: t.fake_quantize_per_tensor_affine(t.ones(2), 0.1, 0, 255, 0),
    ),
    "zero outside of levels": (
        r"`zero_point` must be between `quant_min` and `qu",
        lambda t: t.fake_quantize_per_tensor_affine(t.ones(2), 0.1, 300, 0, 255),
    ),
    "index outside of a table": (
        r"index out of range in self",
        lambda t: functional(t).embedding(t.tensor([2]), t.ones(2, 2)),
    ),
    "padding row outside of a table": (
        r"Padding_idx must be within num_embeddings",
        lambda t: functional(t).embedding(t.tensor([0]), t.ones(2, 2), padding_idx=2),
    ),
    "class below none": (
        r"Target -1 is out of bounds\.",
        lambda t: functional(t).nll_loss(t.ones(1, 2), t.tensor([-1])),
    ),
    "class outside": (
        r"Target 2 is out of bounds\.",
        lambda t: functional(t).cross_entropy(t.ones(1, 2), t.tensor([2])),
    ),
    "smoothing above one": (
        r"label_smoothing must be between 0\.0 and 1\.0\. Got",
        lambda t: functional(t).cross_entropy(t.ones(1, 2), t.tensor([1]), label_smoothing=1.5),
    ),
    "pool of none": (
        r"non-positive kernel_size is not supported",
        lambda t: functional(t).max_pool2d(t.ones(1, 1, 4, 4), 0),
    ),
    "pool with wide padding": (
        r"pad should be at most half of effective kernel s",
        lambda t: functional(t).max_pool2d(t.ones(1, 1, 4, 4), 2, padding=2),
    ),
    "unpool to another size": (
        r"invalid output_size .\[9\]. \(dim 0 must be between",
        lambda t: functional(t).max_unpool1d(
            t.ones(1, 1, 2), t.zeros(1, 1, 2, dtype=t.int64), 2, output_size=[9]
        ),
    ),
    "folded from other blocks": (
        r"Given output_size=\(4, 4\), kernel_size=\(2, 2\), di",
        lambda t: functional(t).fold(t.ones(1, 4, 3), (4, 4), 2, stride=2),
    ),
    "folded from other columns": (
        r"Expected size of input's dimension 1 to be divis",
        lambda t: functional(t).fold(t.ones(1, 3, 4), (4, 4), 2, stride=2),
    ),
    "larger by none": (
        r"Input and output sizes should be greater than 0,",
        lambda t: functional(t).interpolate(t.ones(1, 1, 2, 2), (0, 2)),
    ),
    "glu of three": (
        r"Halving dimension must be even, but dimension 0 ",
        lambda t: functional(t).glu(t.ones(3)),
    ),
    "prelu of other channels": (
        r"Mismatch of parameter numbers and input channel ",
        lambda t: functional(t).prelu(t.ones(1, 3), t.ones(2)),
    ),
    "dropout above one": (
        r"dropout probability has to be between 0 and 1, b",
        lambda t: functional(t).dropout(t.ones(2), 1.5),
    ),
    "distances of other columns": (
        r"X1 and X2 must have the same number of columns\. ",
        lambda t: t.cdist(t.ones(2, 3), t.ones(2, 4)),
    ),
    "distances of a norm below none": (
        r"cdist only supports non-negative p values",
        lambda t: t.cdist(t.ones(2, 3), t.ones(2, 3), -1.0),
    ),
    "shuffled by none": (
        r"pixel_unshuffle expects a positive downscale_fac",
        lambda t: functional(t).pixel_unshuffle(t.ones(1, 1, 4, 4), 0),
    ),
    "shuffled by three": (
        r"pixel_unshuffle expects height to be divisible b",
        lambda t: functional(t).pixel_unshuffle(t.ones(1, 1, 4, 4), 3),
    ),
    "rnn of another width": (
        r"input\.size\(-1\) must be equal to input_size\. Expe",
        lambda t: t.nn.GRU(3, 2)(t.ones(1, 1, 4)),
    ),
    "rnn from another state": (
        r"Expected hidden size \(1, 1, 2\), got \[1, 1, 3\]",
        lambda t: t.nn.RNN(3, 2)(t.ones(1, 1, 3), t.ones(1, 1, 3)),
    ),
    "lstm from one state": (
        r"Expected hidden\[0\] size \(1, 1, 2\), got \[1, 2, 2\]",
        lambda t: t.nn.LSTM(3, 2)(t.ones(1, 1, 3), (t.ones(1, 2, 2),) * 2),
    ),
    "bilinear of other columns": (
        r"bilinear\(\): input sizes do not match the weight ",
        lambda t: functional(t).bilinear(t.ones(1, 2), t.ones(1, 3), t.ones(1, 3, 3)),
    ),
    "linear of other columns": (
        r"mat1 and mat2 shapes cannot be multiplied \(1x2 a",
        lambda t: functional(t).linear(t.ones(1, 2), t.ones(1, 3)),
    ),
}


# Here PyTorch goes on, has no such method, or fails further down.
NOT_THERE = {
    "negative index of a sparse tensor", "stream of a number", "api of arrays",
    "to_padded of whole", "unfold of a vector",
}  # fmt: skip


@pytest.mark.parametrize("name", [*MAKING, *OPERATORS, *GRADIENTS, *LAYERS, *KERNELS])
def test_refused_with_words_and_pytorchs_class(name: str) -> None:
    words, call = (MAKING | OPERATORS | GRADIENTS | LAYERS | KERNELS)[name]
    with pytest.raises(Exception, match=words):
        call(tn)
    if name not in NOT_THERE:
        stored.same(outcome(call, tn), stored.of_torch(lambda torch: outcome(call, torch)))
