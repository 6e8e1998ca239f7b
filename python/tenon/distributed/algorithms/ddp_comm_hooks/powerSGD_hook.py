"""PowerSGD (Vogels and others, 2019): gradients of matrices travel as products of two thin ones.

Each gradient M (m x n) is approximated by P Q^T of rank r: P is the average of M Q, made
orthogonal; Q the average of M^T P. What the approximation leaves out is added to the next gradient.
"""

from __future__ import annotations

from typing import Any

import tenon
from tenon import Tensor, distributed
from tenon.distributed.algorithms.ddp_comm_hooks import default_hooks
from tenon.futures import Future

__all__ = ["PowerSGDState", "powerSGD_hook"]


class PowerSGDState:
    """What the hook keeps between passes."""

    def __init__(
        self,
        process_group: Any,
        matrix_approximation_rank: int = 1,
        start_powerSGD_iter: int = 1000,  # noqa: N803 - PyTorch's name
        min_compression_rate: float = 2,
        use_error_feedback: bool = True,
        warm_start: bool = True,
        orthogonalization_epsilon: float = 0,
        random_seed: int = 0,
        compression_stats_logging_frequency: int = 10000,
        batch_tensors_with_same_shape: bool = False,
    ) -> None:
        del compression_stats_logging_frequency, batch_tensors_with_same_shape
        if (use_error_feedback or warm_start) and start_powerSGD_iter <= 1:
            raise ValueError(
                "Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is "
                "enabled, because PowerSGD can only be applied after the first two iterations in "
                "DDP."
            )
        self.process_group = process_group
        self.rank = matrix_approximation_rank
        self.start = start_powerSGD_iter
        self.min_compression_rate = min_compression_rate
        self.use_error_feedback, self.warm_start = use_error_feedback, warm_start
        self.epsilon = orthogonalization_epsilon
        self.generator = tenon.Generator()
        self.generator.manual_seed(random_seed)  # the same numbers in all processes
        self.errors: dict[int, Tensor] = {}
        self.factors: dict[tuple[int, int], Tensor] = {}
        self.iter = 0

    def is_worth_it(self, gradient: Tensor) -> bool:
        """Whether the two factors have few enough elements."""
        if gradient.ndim < 2:
            return False
        rows, columns = gradient.shape[0], gradient.numel() // gradient.shape[0]
        small = min(rows, columns, self.rank) * (rows + columns)
        return small * self.min_compression_rate < gradient.numel()


def _orthogonal(matrix: Tensor, epsilon: float) -> Tensor:
    q, _ = tenon.linalg.qr(matrix + epsilon if epsilon else matrix)
    return q


def _average(state: PowerSGDState, tensor: Tensor) -> Tensor:
    distributed.all_reduce(tensor, group=state.process_group)
    return tensor.div_(distributed.get_world_size(state.process_group))


def powerSGD_hook(state: PowerSGDState, bucket: Any) -> Future[Tensor]:  # noqa: N802 - PyTorch's name
    """Plain averages for the first `start_powerSGD_iter` passes, then compressed ones."""
    if state.iter < state.start:
        if bucket.is_last():
            state.iter += 1
        return default_hooks.allreduce_hook(state.process_group, bucket)
    flat = bucket.buffer()
    if state.use_error_feedback:
        error = state.errors.setdefault(bucket.index(), tenon.zeros_like(flat))
        flat.add_(error)
        error.copy_(flat)
    for i, gradient in enumerate(bucket.gradients()):
        if not state.is_worth_it(gradient):
            own = gradient.contiguous()
            gradient.copy_(_average(state, own.clone()))
            continue
        matrix = gradient.view(gradient.shape[0], -1)
        rank = min(*matrix.shape, state.rank)
        q = state.factors.get((bucket.index(), i)) if state.warm_start else None
        if q is None:
            size = matrix.shape[1], rank
            q = tenon.randn(size, generator=state.generator, device="cpu").to(matrix)
        p = _orthogonal(_average(state, matrix @ _orthogonal(q, state.epsilon)), state.epsilon)
        q = _average(state, matrix.t() @ p)
        state.factors[bucket.index(), i] = q
        matrix.copy_(p @ q.t())
    if state.use_error_feedback:
        error.sub_(flat)
    done: Future[Tensor] = Future()
    done.set_result(flat)
    return done
