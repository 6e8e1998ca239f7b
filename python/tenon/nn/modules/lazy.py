"""Layers that learn their input size from the first input.

Until then their parameters are UninitializedParameter: objects without a shape, which keep their
identity when the shape comes, so an optimizer may hold them already. The first call gives them
their shape, draws their values and turns the layer into an ordinary one.
"""

from __future__ import annotations

from typing import Any

import tenon
from tenon import Tensor
from tenon.nn.modules.batchnorm import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
)
from tenon.nn.modules.conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from tenon.nn.modules.linear import Linear
from tenon.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy


class LazyModuleMixin:
    """What all lazy layers share. A class says what it becomes and how it reads its size."""

    cls_to_become: type | None = None

    def _be_lazy(self) -> None:
        self._infer_hook = self.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Gives the parameters their shapes, from the arguments of the first call."""
        raise NotImplementedError(
            f"initialize_parameters is not implemented for {type(self).__name__}"
        )

    def _has_shape(self) -> bool:
        """False while the layer is being made, and until its first input is seen."""
        return "_infer_hook" in self.__dict__ and not self.has_uninitialized_params()

    def has_uninitialized_params(self) -> bool:
        """Whether some parameter or buffer has no shape yet."""
        return any(map(is_lazy, (*self._parameters.values(), *self._buffers.values())))

    def _infer_parameters(
        self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
    ) -> None:
        self.initialize_parameters(*args, **(kwargs or {}))
        if self.has_uninitialized_params():
            raise RuntimeError(f"module {type(self).__name__} has not been fully initialized")
        self._become()

    def _become(self) -> None:
        self._infer_hook.remove()
        del self._infer_hook
        if self.cls_to_become is not None:
            self.__class__ = self.cls_to_become

    def _materialize(self, shapes: dict[str, tuple[int, ...]]) -> None:
        for name, shape in shapes.items():
            value = getattr(self, name)
            if is_lazy(value):
                value.materialize(shape)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        # A file of an ordinary layer says the shapes as well as an input does.
        for name, value in (*self._parameters.items(), *self._buffers.items()):
            saved = state_dict.get(prefix + name)
            if is_lazy(value) and isinstance(saved, Tensor) and not is_lazy(saved):
                value.materialize(saved.shape)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def reset_parameters(self) -> None:
        if self._has_shape():
            super().reset_parameters()


class LazyLinear(LazyModuleMixin, Linear):
    """Linear whose in_features is the last size of the first input.

    Shapes: (*, any) to (*, out_features).

    >>> nn.LazyLinear(30)(tn.rand(8, 20)).shape
    tenon.Size([8, 30])
    """

    cls_to_become = Linear

    def __init__(
        self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(0, 0, False)
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_features = out_features
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)
        self._be_lazy()

    def initialize_parameters(self, input: Tensor) -> None:
        fresh = self.has_uninitialized_params()
        self.in_features = self.weight.shape[1] if not fresh else input.shape[-1]
        if fresh:
            shapes = {"weight": (self.out_features, self.in_features)}
            if self.bias is not None:
                shapes["bias"] = (self.out_features,)
            self._materialize(shapes)
            self.reset_parameters()


class _LazyConv(LazyModuleMixin):
    """What lazy convolutions share; the class beside it says which one it is."""

    def __init__(self, out_channels: int, kernel_size: Any, *args: Any, **kwargs: Any) -> None:
        base = type(self).cls_to_become
        names = _CONV_NAMES if not base.__name__.startswith("ConvT") else _TRANSPOSED_NAMES
        kwargs.update(zip(names, args))
        place = {"device": kwargs.get("device"), "dtype": kwargs.get("dtype")}
        bias = kwargs.pop("bias", True)
        super().__init__(0, 0, kernel_size, **{**kwargs, "groups": 1, "bias": False})
        self.groups = kwargs.get("groups", 1)
        self.out_channels = out_channels
        self.weight = UninitializedParameter(**place)
        if bias:
            self.bias = UninitializedParameter(**place)
        self._be_lazy()

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        whole = len(self.kernel_size) + 2
        if input.dim() not in (whole, whole - 1):
            raise RuntimeError(
                f"Expected {whole - 1}D (unbatched) or {whole}D (batched) input to "
                f"{type(self).__name__}, but got input of size: {input.shape}"
            )
        fresh = self.has_uninitialized_params()
        self.in_channels = input.shape[1 if input.dim() == whole else 0]
        if not fresh:
            return
        if self.in_channels % self.groups:
            raise ValueError("in_channels must be divisible by groups")
        sides = (self.out_channels, self.in_channels // self.groups)
        if self.transposed:
            sides = (self.in_channels, self.out_channels // self.groups)
        shapes = {"weight": (*sides, *self.kernel_size)}
        if self.bias is not None:
            shapes["bias"] = (self.out_channels,)
        self._materialize(shapes)
        self.reset_parameters()


_CONV_NAMES = (
    "stride", "padding", "dilation", "groups", "bias", "padding_mode", "device", "dtype",
)  # fmt: skip
_TRANSPOSED_NAMES = (
    "stride", "padding", "output_padding", "groups", "bias", "dilation", "padding_mode", "device",
    "dtype",
)  # fmt: skip


class _LazyNorm(LazyModuleMixin):
    """What lazy normalisations share."""

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, False, False, device, dtype)
        place = {"device": device, "dtype": dtype}
        self.affine = affine
        self.track_running_stats = track_running_stats
        if affine:
            self.weight = UninitializedParameter(**place)
            self.bias = UninitializedParameter(**place) if bias else None
        if track_running_stats:
            self.running_mean = UninitializedBuffer(**place)
            self.running_var = UninitializedBuffer(**place)
            self.num_batches_tracked = tenon.tensor(0, dtype=tenon.long, device=device)
        self._be_lazy()

    def reset_running_stats(self) -> None:
        if self._has_shape():
            super().reset_running_stats()

    def initialize_parameters(self, input: Tensor) -> None:
        fresh = self.has_uninitialized_params()
        batched = input.dim() > self._unbatched
        self.num_features = input.shape[1 if batched else 0]
        if fresh:
            names = ["weight", "bias"] if self.affine else []
            names += ["running_mean", "running_var"] if self.track_running_stats else []
            self._materialize(dict.fromkeys(names, (self.num_features,)))
            self.reset_parameters()


class LazyConv1d(_LazyConv, Conv1d):
    """Conv1d that reads in_channels from the first input.

    Shapes: those of Conv1d.

    >>> nn.LazyConv1d(8, 5)(tn.rand(2, 3, 20)).shape
    tenon.Size([2, 8, 16])
    """

    cls_to_become = Conv1d


class LazyConv2d(_LazyConv, Conv2d):
    """Conv2d that reads in_channels from the first input.

    Shapes: those of Conv2d.

    >>> nn.LazyConv2d(16, 3)(tn.rand(8, 3, 32, 32)).shape
    tenon.Size([8, 16, 30, 30])
    """

    cls_to_become = Conv2d


class LazyConv3d(_LazyConv, Conv3d):
    """Conv3d that reads in_channels from the first input.

    Shapes: those of Conv3d.

    >>> nn.LazyConv3d(4, 3)(tn.rand(1, 3, 9, 9, 9)).shape
    tenon.Size([1, 4, 7, 7, 7])
    """

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyConv, ConvTranspose1d):
    """ConvTranspose1d that reads in_channels from the first input.

    Shapes: those of ConvTranspose1d.

    >>> nn.LazyConvTranspose1d(3, 4)(tn.rand(2, 8, 10)).shape
    tenon.Size([2, 3, 13])
    """

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConv, ConvTranspose2d):
    """ConvTranspose2d that reads in_channels from the first input.

    Shapes: those of ConvTranspose2d.

    >>> nn.LazyConvTranspose2d(3, 4)(tn.rand(2, 8, 16, 16)).shape
    tenon.Size([2, 3, 19, 19])
    """

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConv, ConvTranspose3d):
    """ConvTranspose3d that reads in_channels from the first input.

    Shapes: those of ConvTranspose3d.

    >>> nn.LazyConvTranspose3d(2, 2)(tn.rand(1, 4, 3, 3, 3)).shape
    tenon.Size([1, 2, 4, 4, 4])
    """

    cls_to_become = ConvTranspose3d


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """BatchNorm1d that reads num_features from the first input.

    Shapes: those of BatchNorm1d.

    >>> nn.LazyBatchNorm1d()(tn.rand(8, 3)).shape
    tenon.Size([8, 3])
    """

    cls_to_become = BatchNorm1d
    _unbatched = 1


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    """BatchNorm2d that reads num_features from the first input.

    Shapes: those of BatchNorm2d.

    >>> nn.LazyBatchNorm2d()(tn.rand(8, 3, 4, 4)).shape
    tenon.Size([8, 3, 4, 4])
    """

    cls_to_become = BatchNorm2d
    _unbatched = 3


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    """BatchNorm3d that reads num_features from the first input.

    Shapes: those of BatchNorm3d.

    >>> nn.LazyBatchNorm3d()(tn.rand(8, 3, 2, 4, 4)).shape
    tenon.Size([8, 3, 2, 4, 4])
    """

    cls_to_become = BatchNorm3d
    _unbatched = 4


class LazyInstanceNorm1d(_LazyNorm, InstanceNorm1d):
    """InstanceNorm1d that reads num_features from the first input.

    Shapes: those of InstanceNorm1d.

    >>> nn.LazyInstanceNorm1d()(tn.rand(2, 3, 5)).shape
    tenon.Size([2, 3, 5])
    """

    cls_to_become = InstanceNorm1d
    _unbatched = 2


class LazyInstanceNorm2d(_LazyNorm, InstanceNorm2d):
    """InstanceNorm2d that reads num_features from the first input.

    Shapes: those of InstanceNorm2d.

    >>> nn.LazyInstanceNorm2d()(tn.rand(2, 3, 5, 5)).shape
    tenon.Size([2, 3, 5, 5])
    """

    cls_to_become = InstanceNorm2d
    _unbatched = 3


class LazyInstanceNorm3d(_LazyNorm, InstanceNorm3d):
    """InstanceNorm3d that reads num_features from the first input.

    Shapes: those of InstanceNorm3d.

    >>> nn.LazyInstanceNorm3d()(tn.rand(2, 3, 2, 5, 5)).shape
    tenon.Size([2, 3, 2, 5, 5])
    """

    cls_to_become = InstanceNorm3d
    _unbatched = 4
