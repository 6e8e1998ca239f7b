"""In which order processes run the micro-batches of their stages, forward and backward.

The order is found by playing the pipeline through, all processes step by step: each takes, of what
could run, what its schedule prefers. So no process ever waits for something that is behind what
the other is waiting for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import tenon
from tenon.distributed.pipelining.microbatch import merge_chunks, split_args_kwargs_into_chunks
from tenon.distributed.pipelining.stage import PipelineStage

__all__ = [
    "PipelineScheduleMulti", "PipelineScheduleSingle", "Schedule1F1B", "ScheduleDualPipeV",
    "ScheduleGPipe", "ScheduleInterleaved1F1B", "ScheduleInterleavedZeroBubble",
    "ScheduleLoopedBFS", "ScheduleZBVZeroBubble", "get_schedule_class",
]  # fmt: skip

# (backward, stage, micro-batch)
Action = tuple[bool, int, int]


def play(
    stages: int, ranks: int, count: int, learns: bool, limit: Callable[[int], int],
    order: Callable[[Action], Any], rank_of: Callable[[int], int],
    counts: Callable[[int], bool] = lambda stage: True,
) -> list[list[Action]]:  # fmt: skip
    """The actions of each rank. limit(rank): how many micro-batches a rank may have between
    forward and backward, over those of its stages that count; order: what is taken first;
    rank_of(stage): where a stage is."""
    done: dict[Action, int] = {}  # when
    plans: list[list[Action]] = [[] for _ in range(ranks)]
    todo: list[set[Action]] = [set() for _ in range(ranks)]
    for s in range(stages):
        for i in range(count):
            todo[rank_of(s)].add((False, s, i))
            if learns:
                todo[rank_of(s)].add((True, s, i))

    def ready(action: Action, now: int) -> bool:
        backward, s, i = action
        needs: list[Action] = [] if i == 0 else [(backward, s, i - 1)]
        if backward:
            needs.append((False, s, i))
            if s + 1 < stages:
                needs.append((True, s + 1, i))
        elif s:
            needs.append((False, s - 1, i))
        return all(n in done and done[n] < now for n in needs)

    now = 0
    while any(todo):
        taken = []
        for rank in range(ranks):
            held = sum(1 if not b else -1 for b, s, _ in plans[rank] if counts(s))
            able = [a for a in todo[rank] if ready(a, now)]
            if learns:
                able = [a for a in able if a[0] or held < limit(rank) or not counts(a[1])]
            if able:
                taken.append((rank, min(able, key=order)))
        if not taken:
            raise RuntimeError("pipeline: the schedule cannot go on")
        for rank, action in taken:
            done[action] = now
            plans[rank].append(action)
            todo[rank].discard(action)
        now += 1
    return plans


class _Schedule:
    """Runs the stages of this process on one batch."""

    def __init__(
        self,
        stages: Sequence[PipelineStage],
        n_microbatches: int,
        loss_fn: Callable[..., Any] | None,
        args_chunk_spec: Any,
        kwargs_chunk_spec: Any,
        output_merge_spec: Any,
        scale_grads: bool,
    ) -> None:
        if n_microbatches < 1:
            raise ValueError(f"pipeline: {n_microbatches} micro-batches")
        self._stages, self._n_microbatches, self._loss_fn = list(stages), n_microbatches, loss_fn
        self._specs = args_chunk_spec, kwargs_chunk_spec
        self._merge, self.scale_grads = output_merge_spec, scale_grads
        first = self._stages[0]
        self._ranks, self._rank = first.group_size, first.group_rank
        self._num_stages = first.num_stages
        own = [s.stage_index for s in self._stages]
        wanted = [s for s in range(self._num_stages) if self._rank_of(s) == self._rank]
        if sorted(own) != wanted:
            raise ValueError(
                f"pipeline: rank {self._rank} of {self._ranks} has the stages {wanted} of "
                f"{self._num_stages}, got {own}"
            )
        for stage in self._stages:
            stage.rank_of = self._rank_of
        self._plans: dict[bool, list[Action]] = {}

    def _rank_of(self, stage: int) -> int:
        return stage % self._ranks

    def _counts(self, stage: int) -> bool:
        return True

    def _limit(self, rank: int) -> int:
        return self._n_microbatches * self._num_stages

    def _order(self, action: Action) -> Any:
        """Forward first, stage by stage."""
        backward, stage, index = action
        return backward, -stage if backward else stage, index

    def _plan(self, learns: bool) -> list[Action]:
        if learns not in self._plans:
            plans = play(self._num_stages, self._ranks, self._n_microbatches, learns, self._limit,
                         self._order, self._rank_of, self._counts)  # fmt: skip
            self._plans[learns] = plans[self._rank]
        return self._plans[learns]

    def _run(
        self, args: Any, kwargs: Any, target: Any, losses: list[Any] | None, learns: bool,
        loss_kwargs: dict[str, Any] | None, wants_output: bool,
    ) -> Any:  # fmt: skip
        count, local = self._n_microbatches, defaultdict(list)
        stages = {s.stage_index: s for s in self._stages}
        parts, named = split_args_kwargs_into_chunks(args, kwargs, count, *self._specs)
        last = self._num_stages - 1
        targets = None
        if last in stages and target is not None:
            (targets, _) = split_args_kwargs_into_chunks((target,), None, count)
        outputs: list[Any] = []
        computed: list[Any] = []
        try:
            for backward, s, i in self._plan(learns):
                stage = stages[s]
                if backward:
                    stage.backward(i, computed[i] if s == last else None, local)
                    continue
                given = parts[i] if stage.is_first else ()
                output = stage.forward(i, given, named[i], local, learns)
                if s == last:
                    outputs.append(_detached(output) if wants_output else None)
                    if targets is not None and self._loss_fn is not None:
                        computed.append(self._loss_fn(output, *targets[i], **(loss_kwargs or {})))
            for stage in self._stages:
                stage.finish()
        finally:
            for stage in self._stages:
                stage._running.clear()
        if learns and self.scale_grads:
            for stage in self._stages:
                stage.scale_grads(count)
        if losses is not None:
            losses[:] = computed
        return merge_chunks(outputs, self._merge) if outputs and wants_output else None

    def step(
        self, *args: Any, target: Any = None, losses: list[Any] | None = None,
        return_outputs: bool = True, loss_kwargs: dict[str, Any] | None = None, **kwargs: Any,
    ) -> Any:  # fmt: skip
        """Forward, and backward where there is a loss_fn, of one whole batch: the first stage gets
        it, the last one the target; every stage gets the keyword arguments. The last stage's
        outputs, where this process has it."""
        learns = self._loss_fn is not None and tenon.is_grad_enabled()
        if learns and target is None and self._num_stages - 1 in {
            s.stage_index for s in self._stages
        }:  # fmt: skip
            raise RuntimeError("target is needed on the last stage, as there is a loss_fn")
        return self._run(args, kwargs, target, losses, learns, loss_kwargs, return_outputs)

    def eval(
        self, *args: Any, target: Any = None, losses: list[Any] | None = None, **kwargs: Any
    ) -> Any:
        """Forward alone."""
        with tenon.no_grad():
            return self._run(args, kwargs, target, losses, False, None, True)


def _detached(output: Any) -> Any:
    if isinstance(output, tenon.Tensor):
        return output.detach()
    if isinstance(output, (list, tuple)):
        return type(output)(_detached(v) for v in output)
    return output


class PipelineScheduleSingle(_Schedule):
    """A schedule of one stage in each process."""

    def __init__(
        self,
        stage: PipelineStage,
        n_microbatches: int,
        loss_fn: Callable[..., Any] | None = None,
        args_chunk_spec: Any = None,
        kwargs_chunk_spec: Any = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
    ) -> None:
        super().__init__([stage], n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec,
                         output_merge_spec, scale_grads)  # fmt: skip
        self._stage = stage


class ScheduleGPipe(PipelineScheduleSingle):
    """All micro-batches forward, then all backward."""


class Schedule1F1B(PipelineScheduleSingle):
    """One forward, one backward: a stage holds as many micro-batches as stages follow it, and
    one."""

    def __init__(
        self, stage: PipelineStage, n_microbatches: int, *args: Any, **kwargs: Any
    ) -> None:
        if n_microbatches < stage.num_stages:
            raise ValueError(
                f"Number of microbatches ({n_microbatches}) must be greater than or equal to the "
                f"number of stages ({stage.num_stages})."
            )
        super().__init__(stage, n_microbatches, *args, **kwargs)

    def _limit(self, rank: int) -> int:
        return self._num_stages - rank

    def _order(self, action: Action) -> Any:
        backward, stage, index = action
        return not backward, stage, index


class PipelineScheduleMulti(_Schedule):
    """A schedule of several stages in each process."""

    def __init__(
        self,
        stages: list[PipelineStage],
        n_microbatches: int,
        loss_fn: Callable[..., Any] | None = None,
        args_chunk_spec: Any = None,
        kwargs_chunk_spec: Any = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
        backward_requires_autograd: bool = True,
        defer_pp_recv: bool = False,
    ) -> None:
        del backward_requires_autograd, defer_pp_recv
        super().__init__(stages, n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec,
                         output_merge_spec, scale_grads)  # fmt: skip


class ScheduleLoopedBFS(PipelineScheduleMulti):
    """All micro-batches through a stage before the next one of the process, then back."""


class ScheduleInterleaved1F1B(PipelineScheduleMulti):
    """One forward, one backward, with several stages in each process."""

    def _limit(self, rank: int) -> int:
        local = self._num_stages // self._ranks
        return (local - 1) * self._ranks + 2 * (self._ranks - 1 - rank) + 1 + (local > 1)

    def _order(self, action: Action) -> Any:
        # Rounds of as many micro-batches as ranks: each goes through all stages before the next.
        backward, stage, index = action
        depth = self._num_stages - 1 - stage if backward else stage
        return not backward, index // self._ranks, depth, index


class ScheduleInterleavedZeroBubble(ScheduleInterleaved1F1B):
    """The order of ScheduleInterleaved1F1B. Gradients of inputs and of weights are computed in one
    pass, not in two."""


class ScheduleZBVZeroBubble(PipelineScheduleMulti):
    """One forward, one backward, with two stages in each process: they go down the ranks, and back
    up, so that the first rank has the first stage and the last one. Gradients of inputs and of
    weights are computed in one pass, not in two."""

    def _rank_of(self, stage: int) -> int:
        if self._num_stages != 2 * self._ranks:
            raise ValueError(
                f"{type(self).__name__} requires exactly 2 stages per rank, but got "
                f"{self._num_stages} stages of {self._ranks} ranks."
            )
        return min(stage, self._num_stages - 1 - stage)

    def _counts(self, stage: int) -> bool:
        return stage < self._ranks  # what has come down goes up

    def _limit(self, rank: int) -> int:
        return self._num_stages - rank

    def _order(self, action: Action) -> Any:
        backward, stage, index = action
        return not backward, -stage if not backward else stage, index


class ScheduleDualPipeV(ScheduleZBVZeroBubble):
    """The order of ScheduleZBVZeroBubble."""


_SCHEDULES = {
    kind.__name__.removeprefix("Schedule").lower(): kind
    for kind in (
        Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble,
        ScheduleLoopedBFS, ScheduleZBVZeroBubble, ScheduleDualPipeV,
    )
} | {"pipelineschedulesingle": PipelineScheduleSingle,
     "pipelineschedulemulti": PipelineScheduleMulti}  # fmt: skip


def get_schedule_class(schedule_name: str) -> Any:
    """The schedule of a name, such as "1F1B" or "Interleaved1F1B"."""
    found = _SCHEDULES.get(schedule_name.lower())
    if found is None:
        raise ValueError(
            f"Unknown schedule name: {schedule_name}. The valid options are "
            f"{[k.__name__.removeprefix('Schedule') for k in _SCHEDULES.values()]}"
        )
    return found
