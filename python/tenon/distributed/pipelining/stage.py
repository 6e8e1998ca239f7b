"""A stage of a pipeline: some layers of a model, on one process; what it gets from the stage before
and gives to the one after.

Each message is a small tensor that says dtypes and shapes, and the tensors. Sizes may differ from
one micro-batch to the next.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import tenon
from tenon import Tensor, distributed
from tenon.distributed._groups import _group, get_global_rank
from tenon.nn.modules.module import Module

__all__ = ["PipelineStage"]

_HEADER = 128
_DTYPES = (
    "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
    "complex64", "complex128",
)  # fmt: skip


def _described(tensors: list[Tensor]) -> Tensor:
    told = [len(tensors)]
    for t in tensors:
        name = str(t.dtype).rpartition(".")[2]
        if name not in _DTYPES:
            raise TypeError(f"pipeline: stages cannot exchange tensors of {t.dtype}")
        told += [_DTYPES.index(name), t.ndim, *t.shape]
    if len(told) > _HEADER:
        raise ValueError(f"pipeline: {len(tensors)} tensors are too many between two stages")
    return tenon.tensor(told + [0] * (_HEADER - len(told)), dtype=tenon.int64)


def _rooms(header: Tensor, device: Any) -> list[Tensor]:
    told = iter(header.tolist())
    rooms = []
    for _ in range(next(told)):
        dtype, ndim = getattr(tenon, _DTYPES[next(told)]), next(told)
        rooms.append(
            tenon.empty([next(told) for _ in range(ndim)], dtype=dtype, device=device)
        )  # fmt: skip
    return rooms


class PipelineStage:
    """Layers of a model that one process runs: stage i is on rank i % size of the group, unless the
    schedule says otherwise.

    Its inputs are the outputs of the stage before, one tensor or several.
    """

    def __init__(
        self,
        submodule: Module,
        stage_index: int,
        num_stages: int,
        device: Any,
        input_args: Any = None,
        output_args: Any = None,
        output_grads: Any = None,
        input_grads: Any = None,
        group: Any = None,
        dw_builder: Any = None,
        get_mesh: Any = None,
    ) -> None:
        del input_args, output_args, output_grads, input_grads, get_mesh  # messages say their sizes
        if dw_builder is not None:
            raise NotImplementedError("PipelineStage: dw_builder is not there yet")
        if not 0 <= stage_index < num_stages:
            raise ValueError(
                f"Stage index {stage_index} is out of range of {num_stages}: it is counted from 0"
            )
        self.submod, self.stage_index, self.num_stages = submodule, stage_index, num_stages
        self.device, self.group = device, _group(group)
        self.group_rank, self.group_size = self.group.rank(), self.group.size()
        if self.group_size > num_stages:
            raise ValueError(
                f"Pipeline group size {self.group_size} cannot be larger than number of stages "
                f"{num_stages}"
            )
        self.rank_of: Callable[[int], int] = lambda stage: stage % self.group_size
        self.has_backward = True
        self._sends: list[tuple[Any, Tensor]] = []
        self._here: dict[tuple[int, bool], list[list[Tensor]]] = defaultdict(list)
        self._running: dict[int, tuple[list[Tensor], list[Tensor]]] = {}
        self.outputs: list[Any] = []

    @property
    def is_first(self) -> bool:
        """Whether it gets the batch."""
        return self.stage_index == 0

    @property
    def is_last(self) -> bool:
        """Whether it computes the loss."""
        return self.stage_index == self.num_stages - 1

    # ---- Messages ----

    def _send(self, tensors: list[Tensor], to: int, local: Any) -> None:
        backward = to < self.stage_index
        tensors = [t.detach().contiguous() for t in tensors]
        if self.rank_of(to) == self.group_rank:
            local[(to, backward)].append(tensors)
            return
        peer = get_global_rank(self.group, self.rank_of(to))
        tag = 2 * max(to, self.stage_index) + backward
        for t in (_described(tensors), *tensors):
            self._sends.append((distributed.isend(t, peer, self.group, tag), t))

    def _receive(self, source: int, local: Any) -> list[Tensor]:
        backward = source > self.stage_index
        if self.rank_of(source) == self.group_rank:
            return local[(self.stage_index, backward)].pop(0)
        peer = get_global_rank(self.group, self.rank_of(source))
        tag = 2 * max(source, self.stage_index) + backward
        header = tenon.empty(_HEADER, dtype=tenon.int64)
        distributed.recv(header, peer, self.group, tag)
        rooms = _rooms(header, self.device)
        for room in rooms:
            distributed.recv(room, peer, self.group, tag)
        return rooms

    def finish(self) -> None:
        """Waits until everything was sent."""
        for work, _ in self._sends:
            work.wait()
        self._sends.clear()

    # ---- Passes ----

    def forward(self, index: int, args: Any, kwargs: Any, local: Any, learns: bool) -> Any:
        """One micro-batch; what the stage gives for it."""
        inputs: list[Tensor] = []
        if not self.is_first:
            inputs = self._receive(self.stage_index - 1, local)
            if learns:
                for t in inputs:
                    t.requires_grad_(t.dtype.is_floating_point)
            args = tuple(inputs)
        output = self.submod(*args, **kwargs)
        tensors = list(output) if isinstance(output, (list, tuple)) else [output]
        if not self.is_last:
            if not all(isinstance(t, Tensor) for t in tensors):
                kinds = [type(t).__name__ for t in tensors]
                raise TypeError(
                    f"pipeline: stage {self.stage_index} gives {kinds}; stages exchange tensors"
                )
            self._send(tensors, self.stage_index + 1, local)
        if learns:
            self._running[index] = (inputs, tensors)
        return output

    def backward(self, index: int, loss: Tensor | None, local: Any) -> None:
        """The gradients of one micro-batch."""
        inputs, outputs = self._running.pop(index)
        if self.is_last:
            if loss is None:
                raise RuntimeError("pipeline: the last stage has no loss_fn")
            loss.backward()
        else:
            grads = self._receive(self.stage_index + 1, local)
            asked = [t for t in outputs if t.dtype.is_floating_point]
            pairs = [(t, g) for t, g in zip(asked, grads, strict=True) if t.requires_grad]
            if pairs:
                tenon.autograd.backward([t for t, _ in pairs], [g for _, g in pairs])
        if not self.is_first:
            back = [tenon.zeros_like(t) if t.grad is None else t.grad
                    for t in inputs if t.dtype.is_floating_point]  # fmt: skip
            self._send(back, self.stage_index - 1, local)

    def scale_grads(self, divisor: int) -> None:
        """Divides the gradients of the stage."""
        for p in self.submod.parameters():
            if p.grad is not None:
                p.grad.div_(divisor)
