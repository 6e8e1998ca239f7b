"""Batch and instance normalisation."""

from __future__ import annotations

from typing import Any

import tenon
from tenon import Tensor
from tenon.nn import functional as F
from tenon.nn import init
from tenon.nn.modules.module import Module
from tenon.nn.parameter import Parameter


class _NormBase(Module):
    """Weights, running statistics and the loading of old files."""

    _version = 2
    __constants__ = ["track_running_stats", "momentum", "eps", "num_features", "affine"]

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        place = {"device": device, "dtype": dtype}
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            param = Parameter(tenon.empty(num_features, **place)) if wanted else None
            self.register_parameter(name, param)
        counter = None
        if track_running_stats:
            counter = tenon.tensor(0, dtype=tenon.long, device=device)
        for name, value in (("running_mean", 0.0), ("running_var", 1.0)):
            known = tenon.full((num_features,), value, **place) if track_running_stats else None
            self.register_buffer(name, known)
        self.register_buffer("num_batches_tracked", counter)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Forgets the statistics of earlier batches."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def _check_input_dim(self, input: Tensor) -> None:
        raise NotImplementedError

    def _expect_dims(self, input: Tensor, *dims: int) -> None:
        if input.dim() not in dims:
            words = " or ".join(f"{d}D" for d in dims)
            raise ValueError(f"expected {words} input (got {input.dim()}D input)")

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={self.affine}, bias={self.bias is not None}, "
            f"track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: dict[str, Any], *rest: Any
    ) -> None:
        version = local_metadata.get("version", None)
        if (version is None or version < 2) and self.track_running_stats:
            # Files of the first version have no counter of batches.
            key = prefix + "num_batches_tracked"
            own = self.num_batches_tracked
            if key not in state_dict:
                known = own is not None and own.device.type != "meta"
                state_dict[key] = own if known else tenon.tensor(0, dtype=tenon.long)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class _BatchNorm(_NormBase):
    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        factor = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # the plain mean over all batches
                factor = 1.0 / float(self.num_batches_tracked)
        use_batch = self.training or (self.running_mean is None and self.running_var is None)
        use_running = not self.training or self.track_running_stats
        return F.batch_norm(
            input,
            self.running_mean if use_running else None,
            self.running_var if use_running else None,
            self.weight,
            self.bias,
            use_batch,
            factor,
            self.eps,
        )


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of (N, C) or (N, C, L).

    Shapes: (N, C) or (N, C, L), C is num_features; the result has the same.

    >>> nn.BatchNorm1d(3)(tn.rand(8, 3)).shape
    tenon.Size([8, 3])
    """

    def _check_input_dim(self, input: Tensor) -> None:
        self._expect_dims(input, 2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of (N, C, H, W).

    Shapes: (N, C, H, W), C is num_features; the result has the same.

    >>> nn.BatchNorm2d(3)(tn.rand(8, 3, 4, 4)).shape
    tenon.Size([8, 3, 4, 4])
    """

    def _check_input_dim(self, input: Tensor) -> None:
        self._expect_dims(input, 4)


class BatchNorm3d(_BatchNorm):
    """Batch normalisation of (N, C, D, H, W).

    Shapes: (N, C, D, H, W), C is num_features; the result has the same.

    >>> nn.BatchNorm3d(3)(tn.rand(8, 3, 2, 4, 4)).shape
    tenon.Size([8, 3, 2, 4, 4])
    """

    def _check_input_dim(self, input: Tensor) -> None:
        self._expect_dims(input, 5)


class SyncBatchNorm(_BatchNorm):
    """BatchNorm whose mean and variance are those of the batches of all processes of a group.

    In training each process gives the sums of its elements, then those of their squared distances
    from the common mean; batches may differ in size. With one process it is the plain BatchNorm.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: Tensor) -> Tensor:
        uses_batch = self.training or self.running_mean is None
        if not (uses_batch and tenon.distributed.is_initialized()):
            return super().forward(input)
        if tenon.distributed.get_world_size(self.process_group) == 1:
            return super().forward(input)
        self._check_input_dim(input)
        return self._normalize(input)

    def _normalize(self, input: Tensor) -> Tensor:
        """The input by the mean and variance of all processes, which the running ones follow."""
        from tenon.distributed import nn as together

        x = input.float() if input.dtype in (tenon.float16, tenon.bfloat16) else input
        dims = [d for d in range(x.ndim) if d != 1]
        shape = [1, -1] + [1] * (x.ndim - 2)
        own = x.new_full((1,), x.numel() / x.shape[1])
        sums = together.all_reduce(tenon.cat([x.sum(dims), own]), group=self.process_group)
        count, mean = sums[-1].detach(), sums[:-1] / sums[-1].detach()
        centered = x - mean.view(shape)
        squares = together.all_reduce((centered * centered).sum(dims), group=self.process_group)
        variance = squares / count
        with tenon.no_grad():
            self._follow(mean, squares / (count - 1))
        result = centered * (variance + self.eps).rsqrt().view(shape)
        if self.affine:
            result = result * self.weight.view(shape)
            if self.bias is not None:
                result = result + self.bias.view(shape)
        return result.to(input.dtype)

    def _follow(self, mean: Tensor, variance: Tensor) -> None:
        """Moves the running mean and variance; the latter is the unbiased one."""
        if self.running_mean is None or not self.training:
            return
        self.num_batches_tracked.add_(1)
        share = self.momentum
        if share is None:
            share = 1.0 / float(self.num_batches_tracked)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(variance.to(self.running_var.dtype), share)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """Replaces every BatchNorm below `module` by a SyncBatchNorm with the same tensors."""
        result = module
        if isinstance(module, _BatchNorm) and not isinstance(module, SyncBatchNorm):
            result = cls(
                module.num_features,
                module.eps,
                module.momentum,
                module.affine,
                module.track_running_stats,
                process_group,
                bias=module.bias is not None,
            )
            if module.affine:
                result.weight = module.weight
                result.bias = module.bias
            result.running_mean = module.running_mean
            result.running_var = module.running_var
            result.num_batches_tracked = module.num_batches_tracked
            result.training = module.training
        for name, child in module.named_children():
            result.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return result


class _InstanceNorm(_NormBase):
    _samples: int  # number of dimensions of one sample without a batch

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )

    def _check_input_dim(self, input: Tensor) -> None:
        self._expect_dims(input, self._samples, self._samples + 1)

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        channels = input.dim() - self._samples
        if input.size(channels) != self.num_features and self.affine:
            raise ValueError(
                f"expected input's size at dim={channels} to match num_features "
                f"({self.num_features}), but got: {input.size(channels)}."
            )
        batch = input if channels == 1 else input.unsqueeze(0)
        result = F.instance_norm(
            batch,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            self.momentum if self.momentum is not None else 0.0,
            self.eps,
        )
        return result if channels == 1 else result.squeeze(0)


class InstanceNorm1d(_InstanceNorm):
    """Instance normalisation of (N, C, L) or (C, L).

    Shapes: (N, C, L) or (C, L); the result has the same.

    >>> nn.InstanceNorm1d(3)(tn.rand(2, 3, 5)).shape
    tenon.Size([2, 3, 5])
    """

    _samples = 2


class InstanceNorm2d(_InstanceNorm):
    """Instance normalisation of (N, C, H, W) or (C, H, W).

    Shapes: (N, C, H, W) or (C, H, W); the result has the same.

    >>> nn.InstanceNorm2d(3)(tn.rand(2, 3, 5, 5)).shape
    tenon.Size([2, 3, 5, 5])
    """

    _samples = 3


class InstanceNorm3d(_InstanceNorm):
    """Instance normalisation of (N, C, D, H, W) or (C, D, H, W).

    Shapes: (N, C, D, H, W) or (C, D, H, W); the result has the same.

    >>> nn.InstanceNorm3d(3)(tn.rand(2, 3, 2, 5, 5)).shape
    tenon.Size([2, 3, 2, 5, 5])
    """

    _samples = 4
