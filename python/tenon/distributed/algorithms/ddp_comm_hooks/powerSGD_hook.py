"""PowerSGD (Vogels and others, 2019): gradients of matrices travel as products of two thin ones.

Each gradient M (m x n) is approximated by P Q^T of rank r: P is the average of M Q, made
orthogonal; Q the average of M^T P. What the approximation leaves out is added to the next gradient.
With `warm_start` a pass begins from the Q of the pass before. Where random numbers are PyTorch's
(TENON_RNG=torch), so is the first Q.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Iterator
from typing import Any

import tenon
from tenon import Tensor, distributed
from tenon.distributed.algorithms.ddp_comm_hooks import default_hooks
from tenon.futures import Future

__all__ = ["PowerSGDState", "batched_powerSGD_hook", "powerSGD_hook"]

logger = logging.getLogger(__name__)
_SEEDS = 10**9  # those of the first factors are below


def _seeds(seed: int) -> Iterator[int]:
    """Whole numbers below 10^9 from a Mersenne twister, as `numpy.random.RandomState(seed)` draws
    them: 30 bits of each output, again where they are too large."""
    words = [seed & 0xFFFFFFFF]
    for i in range(1, 624):
        words.append((1812433253 * (words[-1] ^ words[-1] >> 30) + i) & 0xFFFFFFFF)
    twister = random.Random()
    twister.setstate((3, (*words, 624), None))
    while True:
        drawn = twister.getrandbits(32) & (2**30 - 1)
        if drawn < _SEEDS:
            yield drawn


class PowerSGDState:
    """What the hook keeps between passes, by bucket: factors and what was left out."""

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
        if (use_error_feedback or warm_start) and start_powerSGD_iter <= 1:
            raise ValueError(
                "Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is "
                "enabled, because PowerSGD can only be applied after the first two iterations in "
                "DDP."
            )
        self.process_group = process_group
        self.matrix_approximation_rank = matrix_approximation_rank
        self.start_powerSGD_iter = start_powerSGD_iter
        self.min_compression_rate = min_compression_rate
        self.use_error_feedback, self.warm_start = use_error_feedback, warm_start
        self.orthogonalization_epsilon = orthogonalization_epsilon
        self.random_seed, self._drawn = random_seed, 0
        self.compression_stats_logging_frequency = max(1, compression_stats_logging_frequency)
        self.batch_tensors_with_same_shape = batch_tensors_with_same_shape
        self.error_dict: dict[int, Tensor] = {}
        self.p_memory_dict: dict[int, Tensor] = {}
        self.q_memory_dict: dict[int, Tensor] = {}
        self.iter = 0
        self.total_numel_before_compression = self.total_numel_after_compression = 0
        self.next_stats_report = 0
        self._random = _seeds(random_seed)

    def __getstate__(self) -> dict[str, Any]:
        logger.warning("a PowerSGDState is kept without its process group, which is to be set anew")
        return {k: v for k, v in vars(self).items() if k not in ("process_group", "_random")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, process_group=None, _random=_seeds(state["random_seed"]))
        for _ in range(self._drawn):
            next(self._random)

    def maybe_increase_iter(self, bucket: Any) -> None:
        """Counts a pass when its last bucket has come."""
        if bucket.is_last():
            self.iter += 1
            if self.iter == self.start_powerSGD_iter:
                logger.info("Start to apply PowerSGD after %s iterations.", self.iter)

    def compression_stats(self) -> tuple[float, int, int]:
        """The rate so far, and the elements before and after compression."""
        before, after = self.total_numel_before_compression, self.total_numel_after_compression
        return before / after if after else 0, before, after

    def rank_of(self, rows: int, columns: int) -> int:
        """The rank of a matrix's approximation; 0: it has too few elements for one."""
        rank = min(rows, columns, self.matrix_approximation_rank)
        small = (rows + columns) * rank
        return rank if small * self.min_compression_rate < rows * columns else 0

    def fill(self, factors: list[Tensor]) -> None:
        """New factors of a bucket, the same in all processes; the program's random numbers stay."""
        self._drawn += 1
        with tenon.random.fork_rng(devices=[]):
            tenon.manual_seed(next(self._random))
            for q in factors:
                q.copy_(tenon.randn(*q.shape, dtype=q.dtype, device="cpu"))

    def count(self, before: int, after: int, bucket: Any) -> None:
        self.total_numel_before_compression += before
        self.total_numel_after_compression += after
        if bucket.is_last() and self.iter >= self.next_stats_report:
            rate, _, _ = self.compression_stats()
            logger.info("Compression stats: iter %s, rate %s.", self.iter, rate)
            self.next_stats_report = self.iter + self.compression_stats_logging_frequency


def _orthogonalize(matrices: Tensor, epsilon: float) -> None:
    """Makes the columns of each matrix (batch, rows, rank) orthonormal, in place: by Gram and
    Schmidt for few of them and in half precision, which has no decomposition, else by QR."""
    rank = matrices.shape[2]
    if rank > 2 and matrices.dtype not in (tenon.float16, tenon.bfloat16):
        matrices.copy_(tenon.linalg.qr(matrices)[0])
        return
    for i in range(rank):
        column = matrices[:, :, i : i + 1]
        column.div_(tenon.linalg.vector_norm(column, dim=1, keepdim=True) + epsilon)
        rest = matrices[:, :, i + 1 :]
        rest.sub_((column * rest).sum(1, keepdim=True) * column)


def _group(state: PowerSGDState) -> Any:
    return state.process_group if state.process_group is not None else distributed.group.WORLD


def _with_error(state: PowerSGDState, index: int, flat: Tensor) -> Tensor | None:
    """Adds what the pass before left out; returns what is to be approximated then."""
    if not state.use_error_feedback:
        return None
    if index in state.error_dict:
        flat.add_(state.error_dict[index])
    return flat.clone().detach()


def _slices(memory: Tensor, sizes: list[tuple[int, int, int]]) -> list[Tensor]:
    """Parts of a row, one after another, in these shapes."""
    parts = memory.split([math.prod(size) for size in sizes])
    return [part.view(size) for part, size in zip(parts, sizes, strict=True)]


def _approximate(
    state: PowerSGDState, index: int, matrices: list[Tensor], ranks: list[int], plain: list[Tensor]
) -> None:
    """Puts the averages' approximations in the place of matrices (batch, rows, columns), and
    averages in that of plain tensors."""
    group, size = _group(state), distributed.get_world_size(_group(state))
    epsilon, like = state.orthogonalization_epsilon, (matrices or plain)[0]
    p_sizes = [(m.shape[0], m.shape[1], r) for m, r in zip(matrices, ranks, strict=True)]
    q_sizes = [(m.shape[0], m.shape[2], r) for m, r in zip(matrices, ranks, strict=True)]
    fresh = not state.warm_start or index not in state.p_memory_dict
    if fresh:
        for memory, sizes in ((state.p_memory_dict, p_sizes), (state.q_memory_dict, q_sizes)):
            memory[index] = like.new_empty(sum(map(math.prod, sizes)))
    p_memory, q_memory = state.p_memory_dict[index], state.q_memory_dict[index]
    ps, qs = _slices(p_memory, p_sizes), _slices(q_memory, q_sizes)
    if fresh:
        state.fill(qs)
    for matrix, p, q in zip(matrices, ps, qs, strict=True):
        _orthogonalize(q, epsilon)
        tenon.bmm(matrix, q, out=p)
    if plain:
        row = tenon.cat([t.reshape(-1) for t in plain])
        distributed.all_reduce(row, group=group)
        parts = row.div_(size).split([t.numel() for t in plain])
        for tensor, part in zip(plain, parts, strict=True):
            tensor.copy_(part.view_as(tensor))
    if not matrices:
        return
    distributed.all_reduce(p_memory, group=group)
    for matrix, p, q in zip(matrices, ps, qs, strict=True):
        _orthogonalize(p, epsilon)
        tenon.bmm(matrix.transpose(1, 2), p, out=q)
    distributed.all_reduce(q_memory, group=group)
    q_memory.div_(size)
    for matrix, p, q in zip(matrices, ps, qs, strict=True):
        tenon.bmm(p, q.transpose(1, 2), out=matrix)
    if not state.warm_start:
        state.p_memory_dict.clear()
        state.q_memory_dict.clear()


def powerSGD_hook(state: PowerSGDState, bucket: Any) -> Future[Tensor]:  # noqa: N802 - PyTorch's name
    """Plain averages for the first `start_powerSGD_iter` passes, then compressed ones."""
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return default_hooks.allreduce_hook(_group(state), bucket)
    flat, index = bucket.buffer(), bucket.index()
    whole = _with_error(state, index, flat)
    by_shape: dict[tuple[int, ...], list[Tensor]] = {}
    plain, after = [], 0
    for gradient in bucket.gradients():
        matrix = gradient.view(gradient.shape[0], -1) if gradient.ndim else gradient.view(1, 1)
        rank = state.rank_of(*matrix.shape)
        if rank:
            by_shape.setdefault(tuple(matrix.shape), []).append(matrix)
        else:
            plain.append(gradient)
        after += sum(matrix.shape) * rank if rank else gradient.numel()
    state.count(flat.numel(), after, bucket)
    matrices: list[Tensor] = []
    together: list[tuple[Tensor, list[Tensor]]] = []
    for alike in by_shape.values():
        if state.batch_tensors_with_same_shape and len(alike) > 1:
            matrices.append(tenon.stack(alike))
            together.append((matrices[-1], alike))
        else:
            matrices += [m.unsqueeze(0) for m in alike]
    ranks = [state.rank_of(*m.shape[1:]) for m in matrices]
    _approximate(state, index, matrices, ranks, plain)
    for batch, alike in together:
        for matrix, own in zip(batch, alike, strict=True):
            own.copy_(matrix)
    return _finished(state, bucket, flat, whole)


def batched_powerSGD_hook(  # noqa: N802 - PyTorch's name
    state: PowerSGDState, bucket: Any
) -> Future[Tensor]:
    """As powerSGD_hook, with all of a bucket as one square matrix, filled up by zeros: fewer and
    larger products, and a coarser approximation."""
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return default_hooks.allreduce_hook(_group(state), bucket)
    flat, index = bucket.buffer(), bucket.index()
    side = math.isqrt(flat.numel() - 1) + 1 if flat.numel() else 0
    whole = _with_error(state, index, flat)
    square = tenon.nn.functional.pad(flat, (0, side * side - flat.numel())).view(1, side, side)
    rank = min(side, state.matrix_approximation_rank)
    state.count(flat.numel(), 2 * side * rank, bucket)
    _approximate(state, index, [square] if side else [], [rank] if side else [], [])
    flat.copy_(square.view(-1)[: flat.numel()])
    return _finished(state, bucket, flat, whole)


def _finished(
    state: PowerSGDState, bucket: Any, flat: Tensor, whole: Tensor | None
) -> Future[Tensor]:
    if whole is not None:
        state.error_dict[bucket.index()] = whole - flat
    state.maybe_increase_iter(bucket)
    done: Future[Tensor] = Future()
    done.set_result(flat)
    return done
