"""ZeroRedundancyOptimizer: each process keeps the optimizer's state of a part of the parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from tenon import Tensor, distributed
from tenon.distributed._groups import _group, get_global_rank
from tenon.distributed.algorithms.join import Join, Joinable, JoinHook
from tenon.optim import Optimizer

__all__ = ["ZeroRedundancyOptimizer"]


class _Steps(JoinHook):
    """Steps along with the processes that still have inputs, after the model's averages."""

    def __init__(self, optimizer: ZeroRedundancyOptimizer) -> None:
        self._optimizer = optimizer

    def main_hook(self) -> None:
        self._optimizer.step()


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """Another optimizer whose state is divided among the processes of a group.

    Every process makes it with the same parameters, whose gradients are alike in all of them, as
    DistributedDataParallel leaves them. Each steps with its part, and sends it to the others.
    """

    def __init__(
        self,
        params: Any,
        optimizer_class: type[Optimizer],
        process_group: Any = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        if overlap_with_ddp:
            raise NotImplementedError("ZeroRedundancyOptimizer: overlap_with_ddp is not there yet")
        del parameters_as_bucket_view  # parameters stay where they are
        self.process_group = _group(process_group)
        self.world_size, self.rank = self.process_group.size(), self.process_group.rank()
        self._optim_constructor, self._optim_defaults = optimizer_class, defaults
        self._sizes = [0] * self.world_size
        self._owner: dict[int, int] = {}  # by id of the parameter
        self._all_state_dicts: list[dict[str, Any]] = []
        self.optim: Any = None
        Optimizer.__init__(self, params, defaults)
        Joinable.__init__(self)
        self._check_alike()
        self._make_local()

    # ---- Parts ----

    def _check_alike(self) -> None:
        mine = [
            [(tuple(p.shape), str(p.dtype)) for p in group["params"]] for group in self.param_groups
        ]
        everyone: list[Any] = [None] * self.world_size
        distributed.all_gather_object(everyone, mine, self.process_group)
        for rank, theirs in enumerate(everyone):
            if theirs != everyone[0]:
                raise ValueError(
                    f"ZeroRedundancyOptimizer: ranks 0 and {rank} have different parameters"
                )

    def _divide(self, group: dict[str, Any]) -> None:
        """Gives each parameter of a group to the process that has least, the largest first."""
        order = sorted(range(len(group["params"])), key=lambda i: -group["params"][i].numel())
        for i in order:
            param = group["params"][i]
            rank = self._sizes.index(min(self._sizes))
            self._owner[id(param)] = rank
            self._sizes[rank] += param.numel()

    def _part(self, group: dict[str, Any], rank: int) -> list[Tensor]:
        return [p for p in group["params"] if self._owner[id(p)] == rank]

    def _make_local(self) -> None:
        groups = [
            {**{k: v for k, v in g.items() if k != "params"}, "params": self._part(g, self.rank)}
            for g in self.param_groups
        ]
        self.optim = self._optim_constructor(groups, **self._optim_defaults)
        self._copy_options(self.optim.param_groups, self.param_groups)

    @staticmethod
    def _copy_options(source: list[dict[str, Any]], target: list[dict[str, Any]]) -> None:
        for given, group in zip(source, target, strict=True):
            group.update({k: v for k, v in given.items() if k not in ("params", "param_names")})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters, divided among the processes."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        self._divide(group)
        if self.optim is not None:
            options = {k: v for k, v in group.items() if k != "params"}
            self.optim.add_param_group({**options, "params": self._part(group, self.rank)})
            self._copy_options(self.optim.param_groups, self.param_groups)

    # ---- Steps ----

    def _share(self) -> None:
        """Every process gets the parameters of each part's owner."""
        works = [
            distributed.broadcast(p.detach(), None, self.process_group, True, self._owner[id(p)])
            for group in self.param_groups
            for p in group["params"]
        ]
        for work in works:
            work.wait()

    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """A step of the part of this process, then the parameters of all."""
        Join.notify_join_context(self)
        self._copy_options(self.param_groups, self.optim.param_groups)
        result = (
            self.optim.step(**kwargs) if closure is None else self.optim.step(closure, **kwargs)
        )
        self._share()
        self._copy_options(self.optim.param_groups, self.param_groups)
        return result

    @property
    def state(self) -> Any:  # type: ignore[override]
        """That of the part of this process."""
        return {} if self.optim is None else self.optim.state

    @state.setter
    def state(self, value: Any) -> None:
        if self.optim is not None:
            self.optim.state = value

    # ---- Processes with different numbers of inputs ----

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What a process without inputs does for it: `Join([model, optimizer])`, in this order."""
        return _Steps(self)

    @property
    def join_device(self) -> Any:
        """Where its parameters are."""
        return self.param_groups[0]["params"][0].device

    @property
    def join_process_group(self) -> Any:
        """The group that shares the steps."""
        return self.process_group

    # ---- State ----

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Process `to` gets the state of all parts, for state_dict()."""
        self._copy_options(self.param_groups, self.optim.param_groups)
        self._all_state_dicts = []
        mine = self.optim.state_dict()
        gathered: list[Any] | None = [None] * self.world_size if to == self.rank else None
        distributed.gather_object(
            mine, gathered, get_global_rank(self.process_group, to), self.process_group
        )
        self._all_state_dicts = gathered or []

    def state_dict(self) -> dict[str, Any]:
        """The state of all parts as the other optimizer would have it, where consolidate_state_dict
        has brought it."""
        if not self._all_state_dicts:
            raise RuntimeError(
                "Optimizer state has not been consolidated on this rank. Please call "
                f"`consolidate_state_dict(to={self.rank})` on all ranks beforehand if you meant to "
                "save the global state."
            )
        whole = super().state_dict()
        whole["state"] = {}
        number = {
            id(p): n
            for group, saved in zip(self.param_groups, whole["param_groups"], strict=True)
            for p, n in zip(group["params"], saved["params"], strict=True)
        }
        for rank, theirs in enumerate(self._all_state_dicts):
            for group, saved in zip(self.param_groups, theirs["param_groups"], strict=True):
                for param, local in zip(self._part(group, rank), saved["params"], strict=True):
                    if local in theirs["state"]:
                        whole["state"][number[id(param)]] = theirs["state"][local]
        whole["state"] = dict(sorted(whole["state"].items()))
        return whole

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes a state of all parts; this process keeps that of its own."""
        mine: dict[str, Any] = {"state": {}, "param_groups": []}
        local = 0
        for group, saved in zip(self.param_groups, state_dict["param_groups"], strict=True):
            numbers = []
            for param, number in zip(group["params"], saved["params"], strict=True):
                if self._owner[id(param)] != self.rank:
                    continue
                if number in state_dict["state"]:
                    mine["state"][local] = copy.copy(state_dict["state"][number])
                numbers.append(local)
                local += 1
            mine["param_groups"].append({**saved, "params": numbers})
        self.optim.load_state_dict(mine)
        self._copy_options(self.optim.param_groups, self.param_groups)
