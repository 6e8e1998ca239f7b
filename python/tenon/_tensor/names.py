"""Functions of PyTorch's package that are facts about tensors, checks, or other names of what is
there."""

from __future__ import annotations

import warnings
from typing import Any

import tenon
from tenon import _C
from tenon._C import Tensor
from tenon._tape import overridable


def _assert(condition: Any, message: str) -> None:
    """`assert` as a function; a mode or a class that overrides sees it."""
    from tenon import overrides

    if type(condition) is not Tensor and overrides.has_torch_function((condition,)):
        overrides.handle_torch_function(_assert, (condition,), condition, message)
        return
    assert condition, message


def _of(input: Tensor) -> Tensor:
    """The tensor; of anything else overridable() says which argument it is."""
    if isinstance(input, Tensor):
        return input
    raise AttributeError("it is no tensor")


def is_conj(input: Tensor) -> bool:
    """Whether the elements are to be conjugated when they are read: never, conj() is done at
    once."""
    _of(input)
    return False


def is_neg(input: Tensor) -> bool:
    """Whether the elements are to be negated when they are read: never."""
    _of(input)
    return False


def resolve_neg(input: Tensor) -> Tensor:
    """The tensor itself, whose elements need no negation."""
    return _of(input)


def is_signed(input: Tensor) -> bool:
    """Whether the dtype has negative numbers."""
    return input.dtype.is_signed


def is_inference(input: Tensor) -> bool:
    """Whether the tensor was made under inference_mode."""
    return input.is_inference()


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether both have the same sizes."""
    return input.shape == other.shape


def get_device(input: Tensor) -> int:
    """The index of the device, -1 for the CPU."""
    return input.get_device()


def orgqr(input: Tensor, tau: Tensor) -> Tensor:
    """The older name of linalg.householder_product."""
    return tenon.linalg.householder_product(input, tau)


def saddmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """The older name of sparse.addmm."""
    return tenon.sparse.addmm(input, mat1, mat2, beta=beta, alpha=alpha)


def set_flush_denormal(mode: bool) -> bool:
    """Whether the CPU now flushes denormal numbers to 0: False, it never does."""
    return False


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """A convolution along time, which comes first.

    Shapes: input (T, B, C), weight (K, C, out), bias (out,) to (T + 2 pad - K + 1, B, out).

    >>> tn.conv_tbc(tn.ones(3, 1, 2), tn.ones(2, 2, 1), tn.zeros(1)).flatten()
    tensor([4., 4.])
    """
    if input.dim() != 3 or weight.dim() != 3 or bias.dim() != 1:
        raise RuntimeError(
            "conv_tbc: Input must have 3 dims: time, batch, in_channel; weight must have 3 dims: "
            "kernel_width, in_channels, out_channels; bias must be 1-D"
        )
    from tenon.nn import functional as F

    moved = F.conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad)
    return moved.permute(2, 0, 1).contiguous()


def _softmax_backward_data(
    grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any
) -> Tensor:
    """The gradient of softmax's input, of that dtype, from its output and its gradient."""
    return _C._ops._softmax_backward(grad_output, output, dim).to(input_dtype)


_MODES = ("sum", "mean", "max")


def embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False,
    mode: int = 0, sparse: bool = False, per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False, padding_idx: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """nn.functional.embedding_bag, and of which bag each index is, how many count in each bag, and
    with mode 2 the row that each element of a bag's maximum comes from. Sums have no need of the
    others, which are empty or 0 as PyTorch's are."""
    from tenon.nn import functional as F

    result = F.embedding_bag(
        indices, weight, offsets, None, 2.0, scale_grad_by_freq, _MODES[mode], sparse,
        per_sample_weights, include_last_offset, padding_idx,
    )  # fmt: skip
    starts = offsets[:-1] if include_last_offset else offsets
    none = tenon.zeros_like(starts)
    if mode == 0 and padding_idx is None and weight.dtype is not tenon.float64:
        return result, offsets.new_empty(0), none, none
    ends = tenon.cat([starts[1:], offsets[-1:] if include_last_offset
                      else starts.new_full((1,), len(indices))])  # fmt: skip
    bags = tenon.arange(len(starts)).to(indices).repeat_interleave(ends - starts)
    if mode == 0:
        return result, bags, none, none
    counted = tenon.ones_like(indices)
    if padding_idx is not None:
        counted = (indices != padding_idx % len(weight)).to(indices.dtype)
    sizes = tenon.zeros_like(starts).index_add_(0, bags, counted.to(starts.dtype))
    if mode != 2:
        return result, bags, sizes, sizes
    return (
        result,
        bags,
        sizes,
        _from_where(result.detach(), weight.detach(), indices, bags, counted),
    )


def _from_where(
    result: Tensor, weight: Tensor, indices: Tensor, bags: Tensor, counted: Tensor
) -> Tensor:
    """The first row of each bag that has the maximum; 0 for a bag of none."""
    rows = indices.unsqueeze(1).expand(-1, weight.shape[1])
    held = (weight[indices] == result[bags]) & (counted > 0).unsqueeze(1)
    places = tenon.arange(len(indices)).to(indices).unsqueeze(1).expand_as(rows)
    last = len(indices)
    first = tenon.full_like(result, last, dtype=indices.dtype).scatter_reduce(
        0, bags.unsqueeze(1).expand_as(rows), places.masked_fill(~held, last), "amin"
    )
    found = rows.gather(0, first.clamp(max=max(last - 1, 0))) if last else first
    return found.masked_fill(first == last, 0)


def sym_int(a: Any) -> int:
    """A size as a whole number, towards zero."""
    return int(a)


def sym_float(a: Any) -> float:
    """A size as a number."""
    return float(a)


def sym_max(a: Any, b: Any) -> Any:
    """The larger of two sizes."""
    return max(a, b)


def sym_min(a: Any, b: Any) -> Any:
    """The smaller of two sizes."""
    return min(a, b)


def sym_not(a: Any) -> bool:
    """Whether a condition on sizes does not hold."""
    return not a


def sym_ite(condition: Any, a: Any, b: Any) -> Any:
    """a where the condition on sizes holds, else b."""
    return a if condition else b


def sym_sum(args: Any) -> Any:
    """The sum of sizes."""
    return sum(args)


_BUILT = {
    "has_cuda": "cuda.is_built", "has_cudnn": "cudnn.is_available",
    "has_mkldnn": "mkldnn.is_available", "has_mps": "mps.is_built",
}  # fmt: skip
_PARTS = {"has_lapack": True, "has_mkl": False, "has_openmp": False, "has_spectral": True}


def built(name: str) -> bool | None:
    """What the package says of itself by an older name; None: it has no such name."""
    if name not in _BUILT:
        return _PARTS.get(name)
    where, _, asked = _BUILT[name].partition(".")
    warnings.warn(
        f"'{name}' is deprecated, please use '{tenon.__name__}.backends.{_BUILT[name]}()'",
        stacklevel=4,
    )
    return bool(getattr(getattr(tenon.backends, where), asked)())


def is_autocast_cache_enabled() -> bool:
    """Whether autocast keeps converted parameters; it does, see amp."""
    return True


def get_deterministic_debug_mode() -> int:
    """0: anything, 1: warnings, 2: errors where an operator may give other bits each time."""
    if not tenon.are_deterministic_algorithms_enabled():
        return 0
    return 1 if tenon.is_deterministic_algorithms_warn_only_enabled() else 2


_LEVELS = ("default", "warn", "error")


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """use_deterministic_algorithms by a number from 0 to 2 or its name."""
    if not isinstance(debug_mode, int | str):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    if isinstance(debug_mode, str):
        if debug_mode not in _LEVELS:
            raise RuntimeError(
                "invalid value of debug_mode, expected one of `default`, `warn`, `error`, but got "
                f"{debug_mode}"
            )
        debug_mode = _LEVELS.index(debug_mode)
    if debug_mode not in (0, 1, 2):
        raise RuntimeError(
            f"invalid value of debug_mode, expected 0, 1, or 2, but got {debug_mode}"
        )
    tenon.use_deterministic_algorithms(debug_mode > 0, warn_only=debug_mode == 1)


def set_anomaly_enabled(mode: bool, check_nan: bool = True) -> None:
    """Turns autograd's anomaly mode on or off."""
    tenon.autograd.set_detect_anomaly(mode, check_nan)


_always = False


def set_warn_always(b: bool) -> None:
    """True: warnings that are given once are given each time."""
    global _always
    _always = bool(b)


def is_warn_always_enabled() -> bool:
    """What set_warn_always was given."""
    return _always


def map_(self: Tensor, tensor: Tensor, callable: Any) -> Tensor:
    """Tensor.map_: each element becomes callable(element, that of the other tensor)."""
    return _mapped(self, (tensor,), callable)


def map2_(self: Tensor, x: Tensor, y: Tensor, callable: Any) -> Tensor:
    """Tensor.map2_: the same with the elements of two other tensors."""
    return _mapped(self, (x, y), callable)


def _mapped(self: Tensor, others: tuple[Tensor, ...], function: Any) -> Tensor:
    columns = [t.expand_as(self).flatten().tolist() for t in (self, *others)]
    rows = zip(*columns, strict=True)
    values = _C.tensor([function(*row) for row in rows], dtype=self.dtype)
    with _C.no_grad():
        return self.copy_(values.view(self.shape))


overridable.make_overridable(globals(), leave=("set_flush_denormal",))
