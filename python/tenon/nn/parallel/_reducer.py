"""Gradients of a module, averaged over processes while backward goes on.

Parameters lie in buckets, those that were registered last in the first one, as backward reaches
them first. The layout never changes, and a bucket is started only after those before it, so that
every process reduces the same numbers in the same order whatever order its gradients come in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tenon
from tenon import Tensor, distributed
from tenon.autograd import Variable
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
        static: bool,
    ) -> None:
        self.names = {id(p): name for name, p in named}
        self.group, self.as_views = group, as_views
        self.finds_unused, self.static = finds_unused, static
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
        self._arrivals: Counter[int] = Counter()  # gradients of this pass, where it is counted
        self._counts: Counter[int] | None = None  # those of any pass of a static graph
        self._counting = False
        self._unused: list[Parameter] = []  # not yet marked in this pass
        self._used: Tensor | None = None
        self._used_work: Any = None
        self._handles = [p.register_post_accumulate_grad_hook(self._arrived) for _, p in named]

    # ---- One pass ----

    def prepare(self, outputs: Iterable[Tensor] | None) -> None:
        """Before backward. outputs: what a search for unused parameters starts from."""
        if self._enabled and self._ready and len(self._ready) < len(self.names):
            self._fail_unfinished()
        self._enabled, self._next, self._counting = True, 0, False
        self._ready.clear()
        self._arrivals.clear()
        for bucket in self.buckets:
            bucket.pending, bucket.future = len(bucket._parameters), None
        if self.static and self._counts is None:
            for t in outputs or ():
                if t.requires_grad:
                    t.register_hook(self._count)
        elif self.static:
            self._expect(set(self._counts or ()))
        elif self.finds_unused:
            self._expect(leaves_of(outputs or ()))

    def _expect(self, reached: set[int]) -> None:
        """The parameters that this pass reaches. The others are marked when its first gradient
        comes: until then a program may let go of what they have."""
        parameters = [p for bucket in self.buckets for p in bucket._parameters]
        used = [id(p) in reached for p in parameters]
        self._used = tenon.tensor(used, dtype=tenon.uint8, device="cpu")
        self._unused = [p for p, there in zip(parameters, used, strict=True) if not there]
        if not any(used):
            self._mark_unused()

    def _mark_unused(self) -> None:
        """What they have, from passes that were not exchanged, counts as their gradient."""
        unused, self._unused = self._unused, []
        for p in unused:
            self._mark(p, p.grad)

    # ---- The first pass of a static graph, in which parts may be computed again ----

    def _count(self, grad: Any = None) -> None:
        if self._enabled and not self._counting:
            self._counting = True
            Variable._execution_engine.queue_callback(self._end_counting)

    def _end_counting(self) -> None:
        self._counting = False
        self._counts = Counter(self._arrivals)
        self._expect(set(self._counts))
        self._mark_unused()
        for bucket in self.buckets:
            for p in bucket._parameters:
                if id(p) in self._counts:
                    self._mark(p, p.grad)

    def skip(self) -> None:
        """The gradients of the next backward stay in this process."""
        self._enabled = False

    def _arrived(self, parameter: Parameter) -> None:
        if not self._enabled:
            return
        if self.static:
            self._arrivals[id(parameter)] += 1
            if self._counts is None:
                self._count()
                return
            if self._arrivals[id(parameter)] < self._counts[id(parameter)]:
                return
        self._mark_unused()
        self._mark(parameter, parameter.grad)

    def _mark(self, parameter: Parameter, grad: Tensor | None) -> None:
        bucket, i = self._place[id(parameter)]
        if id(parameter) in self._ready and self.static:
            raise RuntimeError(
                "Your training graph has changed in this iteration: parameter "
                f"'{self.names[id(parameter)]}' got another number of gradients than in the first "
                "one. This is not compatible with static_graph set to True."
            )
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
