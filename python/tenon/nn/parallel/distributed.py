"""DistributedDataParallel: one copy of a module in each process, whose gradients are averaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tenon
from tenon import Tensor, distributed
from tenon.distributed._groups import _group
from tenon.distributed.algorithms.join import Join, Joinable, JoinHook
from tenon.nn.modules.module import Module
from tenon.nn.parallel._reducer import GradBucket, Reducer

__all__ = ["DistributedDataParallel"]


def _find_tensors(obj: Any) -> Iterator[Tensor]:
    """The tensors in nested lists, tuples, mappings and objects with attributes."""
    if isinstance(obj, Tensor):
        yield obj
    elif isinstance(obj, dict):
        for value in obj.values():
            yield from _find_tensors(value)
    elif isinstance(obj, (list, tuple, set)):
        for value in obj:
            yield from _find_tensors(value)
    elif hasattr(obj, "__dataclass_fields__"):
        for name in obj.__dataclass_fields__:
            yield from _find_tensors(getattr(obj, name))


class DistributedDataParallel(Module, Joinable):
    """Calls its module; backward averages the gradients over the processes of the group.

    Every process makes it with the same module, whose parameters and buffers are those of rank 0
    from then on. Averages are computed while backward goes on, in buckets of bucket_cap_mb.

    find_unused_parameters: some passes use only a part of the module. A parameter that got no
    gradient in any process keeps the one it has. broadcast_buffers: buffers are those of rank 0
    before each forward. gradient_as_bucket_view: gradients are parts of the buckets, not copies.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: Any = None,
        param_to_hook_all_reduce: Any = None,
        mixed_precision: Any = None,
        device_mesh: Any = None,
        skip_all_reduce_unused_params: bool = False,
    ) -> None:
        Module.__init__(self)
        Joinable.__init__(self)
        del check_reduction, skip_all_reduce_unused_params
        for name, value in (
            ("delay_all_reduce_named_params", delay_all_reduce_named_params),
            ("param_to_hook_all_reduce", param_to_hook_all_reduce),
            ("mixed_precision", mixed_precision),
        ):
            if value is not None:
                raise NotImplementedError(f"DistributedDataParallel: {name} is not there yet")
        if not distributed.is_initialized():
            raise ValueError(
                "Default process group has not been initialized, "
                "please make sure to call init_process_group."
            )
        if not any(p.requires_grad for p in module.parameters()):
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module "
                "doesn't have any parameter that requires a gradient."
            )
        if device_ids is not None and len(device_ids) > 1:
            raise ValueError("device_ids can only be None or contain a single element.")
        self.module = module
        self.device_ids = device_ids
        self.output_device = output_device
        self.dim = dim
        self.broadcast_buffers = broadcast_buffers
        if process_group is None and device_mesh is not None:
            process_group = device_mesh.get_group()
        self.process_group = process_group or distributed.group.WORLD
        self.find_unused_parameters = find_unused_parameters
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.static_graph = static_graph
        self.require_backward_grad_sync = True
        self.require_forward_param_sync = True
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        self._named = [
            (n, p) for n, p in module.named_parameters() if p.requires_grad and n not in ignored
        ]
        self._buffers_to_share = [
            b for n, b in module.named_buffers() if b is not None and n not in ignored
        ]
        self._divides_by_active = False  # inside join()
        cap = 25.0 if bucket_cap_mb is None else bucket_cap_mb
        self._bucket_bytes = max(int(cap * (1 << 20)), 1)
        self._reducer: Reducer | None = None
        if distributed.get_world_size(process_group) == 1:
            return
        if init_sync:
            self._check_alike(ignored)
            self._share([
                *(p for n, p in module.named_parameters() if n not in ignored),
                *(self._buffers_to_share if broadcast_buffers else ()),
            ])  # fmt: skip
        self._make_reducer()

    def _make_reducer(self) -> None:
        self._reducer = Reducer(
            self._named, self.process_group, self._bucket_bytes, self.gradient_as_bucket_view,
            self.find_unused_parameters or self.static_graph, self.static_graph,
        )  # fmt: skip

    def __getstate__(self) -> dict[str, Any]:
        if self.process_group is not None and self.process_group is not distributed.group.WORLD:
            raise RuntimeError(
                "DDP Pickling/Unpickling are only supported when using DDP with the default "
                "process group."
            )
        return {**self.__dict__, "process_group": None, "_reducer": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy averages over the processes, too; a communication hook is to be registered."""
        Module.__setstate__(self, state)
        self.process_group = distributed.group.WORLD
        if distributed.get_world_size() > 1:
            self._make_reducer()

    def _check_alike(self, ignored: set[str]) -> None:
        """Every process has parameters of the same names, shapes and dtypes."""
        mine = [
            (n, tuple(p.shape), str(p.dtype))
            for n, p in self.module.named_parameters()
            if n not in ignored
        ]
        size = distributed.get_world_size(self.process_group)
        everyone: list[Any] = [None] * size
        distributed.all_gather_object(everyone, mine, self.process_group)
        for rank, theirs in enumerate(everyone):
            if theirs == everyone[0]:
                continue
            both = zip(everyone[0], theirs)
            differ = next(((a, b) for a, b in both if a != b), None)
            what = (
                f"rank 0 has {differ[0]}, rank {rank} has {differ[1]}"
                if differ
                else f"rank 0 has {len(everyone[0])} parameters, rank {rank} {len(theirs)}"
            )
            raise RuntimeError(f"DistributedDataParallel: the modules are not alike: {what}")

    def _count_active(self, mine: int) -> None:
        """Sums are divided by the number of processes that still have inputs."""
        number = tenon.tensor([mine], dtype=tenon.int64, device="cpu")
        distributed.all_reduce(number, group=self.process_group)
        if self._reducer is not None:
            self._reducer.divisor = int(number.item())

    def _share_buffers(self, has_inputs: bool) -> None:
        """All processes get the buffers of rank 0; inside join() those of the last rank that still
        has inputs."""
        if not self.broadcast_buffers or not self._buffers_to_share:
            return
        root = 0
        if self._join_config.enable:
            root = self._last_rank(has_inputs)
        self._share(self._buffers_to_share, root)

    def _last_rank(self, counts: bool) -> int:
        """The highest rank of the processes that count."""
        rank = distributed.get_rank(self.process_group) if counts else -1
        last = tenon.tensor([rank], dtype=tenon.int64, device="cpu")
        distributed.all_reduce(last, distributed.ReduceOp.MAX, self.process_group)
        return int(last.item())

    def _share(self, tensors: list[Tensor], root: int = 0) -> None:
        """All processes get the tensors of one rank."""
        works = [
            distributed.broadcast(t.detach(), None, self.process_group, True, root) for t in tensors
        ]
        for work in works:
            work.wait()

    # ---- Passes ----

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        syncs = self._pre_forward()
        return self._post_forward(self.module(*inputs, **kwargs), syncs)

    def _pre_forward(self) -> bool:
        """Before a pass: whether its gradients will be exchanged."""
        if self._reducer is None:
            return False
        syncs = self.require_backward_grad_sync and tenon.is_grad_enabled()
        if syncs and self._join_config.enable:
            Join.notify_join_context(self)
            if self._divides_by_active:
                self._count_active(1)
        # Inside join() the processes without inputs take part in passes that exchange gradients.
        if syncs if self._join_config.enable else self.require_forward_param_sync:
            self._share_buffers(True)
        return syncs

    def _post_forward(self, output: Any, syncs: bool) -> Any:
        if self._reducer is None:
            return output
        if syncs:
            finds = self._reducer.finds_unused
            self._reducer.prepare(list(_find_tensors(output)) if finds else None)
        else:
            self._reducer.skip()
        self.require_forward_param_sync = syncs
        return output

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of several backward passes are summed before they are exchanged."""
        old = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = old

    def join(
        self, divide_by_initial_world_size: bool = True, enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Join:  # fmt: skip
        """Processes may have different numbers of inputs: one that has no more takes part in what
        the others reduce, with zeros, until all have ended. In the end every process has the
        parameters of the one that went on longest.

        divide_by_initial_world_size: sums are divided by the number of all processes, else by that
        of those that still have inputs.
        """
        return Join(
            [self], enable, throw_on_early_termination,
            divide_by_initial_world_size=divide_by_initial_world_size,
        )  # fmt: skip

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What a process without inputs does for it."""
        return _Shadow(self, kwargs.get("divide_by_initial_world_size", True))

    @property
    def join_device(self) -> Any:
        """Where its parameters are."""
        return self._named[0][1].device

    @property
    def join_process_group(self) -> Any:
        """The group that averages."""
        return _group(self.process_group)

    def register_comm_hook(self, state: Any, hook: Callable[[Any, GradBucket], Any]) -> None:
        """hook(state, bucket) -> Future of the average of the bucket's flat tensor, in place of
        all_reduce. PyTorch's hooks are in `distributed.algorithms.ddp_comm_hooks`."""
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        if self._reducer is None:
            return
        if self._reducer.hook is not None:
            raise RuntimeError("register_comm_hook can only be called once.")
        self._reducer.hook_state, self._reducer.hook = state, hook

    def _set_static_graph(self) -> None:
        """Every pass uses the same parameters."""
        self.static_graph = True
        if self._reducer is not None:
            self._reducer.finds_unused = self._reducer.static = True

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(module: Module, names: Any) -> None:
        module._ddp_params_and_buffers_to_ignore = list(names)  # type: ignore[assignment]


class _Shadow(JoinHook):
    """Takes part in the passes of other processes, with gradients that are zero."""

    def __init__(self, ddp: DistributedDataParallel, by_initial_size: bool) -> None:
        self._ddp = ddp
        ddp._divides_by_active = not by_initial_size

    def main_hook(self) -> None:
        ddp = self._ddp
        if ddp._reducer is None:
            return
        if ddp._divides_by_active:
            ddp._count_active(0)
        ddp._share_buffers(False)
        ddp._reducer.shadow()

    def post_hook(self, is_last_joiner: bool) -> None:
        """The process with the highest rank of those that ended last has the final parameters."""
        ddp = self._ddp
        if ddp._reducer is None:
            return
        ddp._divides_by_active = False
        ddp._reducer.divisor = distributed.get_world_size(ddp.process_group)
        last = ddp._last_rank(is_last_joiner)
        with tenon.no_grad():
            ddp._share([*(p for _, p in ddp._named), *ddp._buffers_to_share], last)
