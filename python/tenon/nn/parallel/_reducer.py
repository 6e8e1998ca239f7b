"""Gradients of a module, averaged over processes while backward goes on.

Parameters lie in buckets, those that were registered last in the first one, as backward reaches
them first. The layout never changes, and a bucket is started only after those before it, so that
every process reduces the same numbers in the same order whatever order its gradients come in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tenon
from tenon import Tensor, distributed
from tenon.nn.parameter import Parameter

_FIRST_BUCKET_BYTES = 1 << 20


class GradBucket:
    """A bucket as communication hooks see it: gradients one behind the other, not yet divided."""

    def __init__(self, reducer: Reducer, index: int, parameters: Sequence[Parameter]) -> None:
        self._reducer, self._index, self._parameters = reducer, index, list(parameters)
        first = parameters[0]
        size = sum(p.numel() for p in parameters)
        self._buffer = tenon.zeros(size, dtype=first.dtype, device=first.device)
        self._slices: list[Tensor] = []
        at = 0
        for p in parameters:
            self._slices.append(self._buffer[at : at + p.numel()].view(p.shape))
            at += p.numel()
        self.pending = len(parameters)
        self.future: Any = None

    def index(self) -> int:
        """Its number, from 0 in the order in which buckets are reduced."""
        return self._index

    def buffer(self) -> Tensor:
        """All of its gradients as one flat tensor."""
        return self._buffer

    def set_buffer(self, tensor: Tensor) -> None:
        """Writes the flat tensor."""
        self._buffer.copy_(tensor)

    def gradients(self) -> list[Tensor]:
        """The gradients, as views of the buffer."""
        return list(self._slices)

    def parameters(self) -> list[Parameter]:
        """The parameters, in the order of their gradients."""
        return list(self._parameters)

    def is_last(self) -> bool:
        """Whether no bucket follows."""
        return self._index == len(self._reducer.buckets) - 1


def layout(parameters: Iterable[Parameter], bytes_per_bucket: int) -> list[list[Parameter]]:
    """Parameters by bucket, of one dtype and device: the last ones first, a small bucket first."""
    buckets: list[list[Parameter]] = []
    limit, size = min(_FIRST_BUCKET_BYTES, bytes_per_bucket), 0
    for p in reversed(list(parameters)):
        bytes_of = p.numel() * p.element_size()
        fits = buckets and size + bytes_of <= limit
        same = buckets and (buckets[-1][0].dtype, buckets[-1][0].device) == (p.dtype, p.device)
        if fits and same:
            buckets[-1].append(p)
            size += bytes_of
            continue
        if buckets:
            limit = bytes_per_bucket
        buckets.append([p])
        size = bytes_of
    return buckets


def leaves_of(outputs: Iterable[Tensor]) -> set[int]:
    """The ids of the leaves that backward from these tensors would reach."""
    nodes = [t.grad_fn for t in outputs if t.grad_fn is not None]
    found = {id(t) for t in outputs if t.grad_fn is None and t.requires_grad}
    seen = set(nodes)
    while nodes:
        node = nodes.pop()
        variable = getattr(node, "variable", None)
        if isinstance(variable, Tensor):
            found.add(id(variable))
        for before, _ in node.next_functions:
            if before is not None and before not in seen:
                seen.add(before)
                nodes.append(before)
    return found


class Reducer:
    """Averages the gradients of named parameters over the processes of a group."""

    def __init__(
        self,
        named: Sequence[tuple[str, Parameter]],
        group: Any,
        bucket_bytes: int,
        as_views: bool,
        finds_unused: bool,
    ) -> None:
        self.names = {id(p): name for name, p in named}
        self.group, self.as_views, self.finds_unused = group, as_views, finds_unused
        rows = layout([p for _, p in named], bucket_bytes)
        self.buckets: list[GradBucket] = []
        for row in rows:
            self.buckets.append(GradBucket(self, len(self.buckets), row))
        self._place = {
            id(p): (bucket, i) for bucket in self.buckets for i, p in enumerate(bucket._parameters)
        }
        self.hook: Callable[[Any, GradBucket], Any] | None = None
        self.hook_state: Any = None
        self.divisor = distributed.get_world_size(group)
        self._sparse: dict[int, int] = {}  # sparse dimensions of gradients; they are averaged dense
        self._enabled = False
        self._ready: set[int] = set()
        self._next = 0
        self._used: Tensor | None = None
        self._used_work: Any = None
        self._handles = [p.register_post_accumulate_grad_hook(self._arrived) for _, p in named]

    # ---- One pass ----

    def prepare(self, outputs: Iterable[Tensor] | None) -> None:
        """Before backward. outputs: what a search for unused parameters starts from."""
        if self._enabled and self._ready and len(self._ready) < len(self.names):
            self._fail_unfinished()
        self._enabled, self._next = True, 0
        self._ready.clear()
        for bucket in self.buckets:
            bucket.pending, bucket.future = len(bucket._parameters), None
        if not self.finds_unused:
            return
        reached = leaves_of(outputs or ())
        order = [id(p) for bucket in self.buckets for p in bucket._parameters]
        self._used = tenon.tensor([i in reached for i in order], dtype=tenon.uint8, device="cpu")
        for bucket in self.buckets:
            for p in bucket._parameters:
                if id(p) not in reached:
                    self._mark(p, None)

    def skip(self) -> None:
        """The gradients of the next backward stay in this process."""
        self._enabled = False

    def _arrived(self, parameter: Parameter) -> None:
        if self._enabled:
            self._mark(parameter, parameter.grad)

    def _mark(self, parameter: Parameter, grad: Tensor | None) -> None:
        bucket, i = self._place[id(parameter)]
        if id(parameter) in self._ready:
            raise RuntimeError(
                "Expected to mark a variable ready only once: parameter "
                f"'{self.names[id(parameter)]}' got a gradient twice in one backward pass"
            )
        self._ready.add(id(parameter))
        target = bucket._slices[i]
        with tenon.no_grad():
            if grad is None:
                target.zero_()
            elif grad.is_sparse:
                self._sparse[id(parameter)] = grad.sparse_dim()
                target.copy_(grad.to_dense())
            elif grad.data_ptr() != target.data_ptr():
                target.copy_(grad)
        bucket.pending -= 1
        while self._next < len(self.buckets) and self.buckets[self._next].pending == 0:
            self._start(self.buckets[self._next])
            self._next += 1
        if self._next == len(self.buckets):
            self._finish()

    def _start(self, bucket: GradBucket) -> None:
        with tenon.no_grad():
            if self.hook is not None:
                bucket.future = self.hook(self.hook_state, bucket)
                return
            bucket._buffer.div_(self.divisor)
            bucket.future = distributed.all_reduce(bucket._buffer, group=self.group, async_op=True)

    def _finish(self) -> None:
        used = self._used_anywhere()
        with tenon.no_grad():
            for bucket in self.buckets:
                result = bucket.future.wait()
                if self.hook is not None:
                    value = result[0] if isinstance(result, (list, tuple)) else result
                    if value.data_ptr() != bucket._buffer.data_ptr():
                        bucket._buffer.copy_(value.view_as(bucket._buffer))
                for p, average in zip(bucket._parameters, bucket._slices, strict=True):
                    if used is None or id(p) in used:
                        self._hand_over(p, average)
        self._enabled = False

    def _hand_over(self, parameter: Parameter, average: Tensor) -> None:
        if id(parameter) in self._sparse:  # what rows were not used anywhere are left out
            parameter.grad = average.to_sparse(self._sparse[id(parameter)])
        elif self.as_views:
            parameter.grad = average
        elif parameter.grad is None:
            parameter.grad = average.clone()
        else:
            parameter.grad.copy_(average)

    def _used_anywhere(self) -> set[int] | None:
        """The parameters that got a gradient in some process; None: all of them."""
        if self._used is None:
            return None
        distributed.all_reduce(self._used, distributed.ReduceOp.MAX, self.group)
        order = [id(p) for bucket in self.buckets for p in bucket._parameters]
        return {i for i, used in zip(order, self._used.tolist(), strict=True) if used}

    def _fail_unfinished(self) -> None:
        missing = [name for i, name in self.names.items() if i not in self._ready]
        self._enabled = False
        raise RuntimeError(
            "Expected to have finished reduction in the prior iteration before starting a new one. "
            "Parameters that got no gradient: " + ", ".join(missing) + ". Where a part of the "
            "module is not used in every pass, say find_unused_parameters=True"
        )

    # ---- A process that has no more inputs ----

    def shadow(self) -> None:
        """Takes part in what the others reduce, with zeros; gradients are the averages."""
        for bucket in self.buckets:
            bucket._buffer.zero_()
            self._start(bucket)
        if self.finds_unused:
            self._used = tenon.zeros(len(self.names), dtype=tenon.uint8, device="cpu")
        self._finish()

    def detach(self) -> None:
        """Forgets the parameters."""
        for handle in self._handles:
            handle.remove()
