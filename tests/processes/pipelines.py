"""Pipelines of two processes against the same model in one, which every rank runs for itself;
`test_sharding.py` starts it."""

import copy
import sys

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from expected import expect
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
    SplitPoint,
    pipeline,
)
from torch.distributed.pipelining.schedules import get_schedule_class

dist.init_process_group(sys.argv[1])
RANK, SIZE = dist.get_rank(), dist.get_world_size()


class Part(torch.nn.Module):
    """Takes and gives two tensors, of which one has no gradient."""

    def __init__(self, last: bool) -> None:
        super().__init__()
        self.linear, self.last = torch.nn.Linear(5, 5), last

    def forward(self, x, mask=None, *, scale=1.0):
        mask = (x.sum(-1, keepdim=True) > 0).to(torch.int64) if mask is None else mask
        y = torch.tanh(self.linear(x)) * (1 + mask) * scale
        return y if self.last else (y, mask)


def parts(count: int) -> list[torch.nn.Module]:
    torch.manual_seed(4)
    return [Part(i == count - 1).double() for i in range(count)]


def whole(layers, x, scale):
    given = (x,)
    for layer in layers:
        given = layer(*given, scale=scale)
        given = given if isinstance(given, tuple) else (given,)
    return given[0]


def train(kind, count: int, batches: int, rows: int) -> None:
    alone = parts(count)
    down_and_up = kind in (ScheduleZBVZeroBubble, ScheduleDualPipeV)

    def rank_of(stage: int) -> int:
        return min(stage, count - 1 - stage) if down_and_up else stage % SIZE

    mine = {i: m for i, m in enumerate(parts(count)) if rank_of(i) == RANK}
    stages = [PipelineStage(m, i, count, torch.device("cpu")) for i, m in mine.items()]
    single = kind in (ScheduleGPipe, Schedule1F1B)
    schedule = kind(stages[0] if single else stages, batches, loss_fn=F.mse_loss)
    params = [p for m in mine.values() for p in m.parameters()]
    optimizer = torch.optim.SGD(params, lr=0.2)
    plain = torch.optim.SGD([p for m in alone for p in m.parameters()], lr=0.2)
    numbers = torch.Generator().manual_seed(8)
    for _ in range(2):
        x = torch.randn(rows, 5, generator=numbers).double()
        y = torch.randn(rows, 5, generator=numbers).double()
        scale = torch.rand(rows, 1, generator=numbers).double() + 1
        optimizer.zero_grad()
        losses = []
        first, last = RANK == 0, rank_of(count - 1) == RANK
        out = schedule.step(*([x] if first else []), target=y if last else None, losses=losses,
                            scale=scale)  # fmt: skip
        optimizer.step()
        plain.zero_grad()
        want = whole(alone, x, scale)
        terms = [
            F.mse_loss(a, b) for a, b in zip(want.tensor_split(batches), y.tensor_split(batches))
        ]
        (sum(terms) / batches).backward()
        plain.step()
        assert (out is not None) == last
        if last:
            np.testing.assert_allclose(out.numpy(), want.detach().numpy(), 1e-9)
            np.testing.assert_allclose([t.item() for t in losses], [t.item() for t in terms], 1e-9)
    for i, m in mine.items():
        for p, q in zip(m.parameters(), alone[i].parameters()):
            np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), 1e-8, 1e-10)
    got = schedule.eval(*([x] if first else []), scale=scale)
    if last:
        np.testing.assert_allclose(got.numpy(), whole(alone, x, scale).detach().numpy(), 1e-8)


def check_one_stage_each() -> None:
    train(ScheduleGPipe, SIZE, 3, 8)  # micro-batches of different sizes
    train(Schedule1F1B, SIZE, 4, 8)
    train(Schedule1F1B, SIZE, 5, 11)


def check_several_stages_each() -> None:
    train(ScheduleInterleaved1F1B, 2 * SIZE, 4, 8)
    train(ScheduleInterleaved1F1B, 3 * SIZE, 5, 10)
    train(ScheduleLoopedBFS, 2 * SIZE, 3, 6)
    train(ScheduleInterleavedZeroBubble, 2 * SIZE, 4, 8)
    train(ScheduleZBVZeroBubble, 2 * SIZE, 5, 10)
    train(ScheduleDualPipeV, 2 * SIZE, 1, 4)


def check_models_that_are_cut() -> None:
    """`pipeline` of a model whose input goes around the layers: as one process trains."""

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(5, 5) for _ in range(4))
            self.scale = torch.nn.Parameter(torch.ones(5))

        def forward(self, x, mask=None):
            h = x
            for layer in self.layers:
                h = torch.tanh(layer(h))
            return (h + x) * self.scale if mask is None else h * mask

    torch.manual_seed(2)
    model, x, y = Net().double(), torch.randn(8, 5).double(), torch.randn(8, 5).double()
    alone = copy.deepcopy(model)
    pipe = pipeline(model, (x[:2],), split_spec={f"layers.{4 // SIZE}": SplitPoint.BEGINNING})
    stage = pipe.build_stage(RANK, torch.device("cpu"))
    schedule = get_schedule_class("1f1b")(stage, 4, loss_fn=F.mse_loss)
    out = schedule.step(*([x] if RANK == 0 else []), target=y if RANK == SIZE - 1 else None)
    want = alone(x)
    F.mse_loss(want, y).backward()
    if RANK == SIZE - 1:
        np.testing.assert_allclose(out.numpy(), want.detach().numpy(), 1e-12)
    (again,) = pipe(x)
    np.testing.assert_allclose(again.detach().numpy(), want.detach().numpy(), 1e-12)

    class Shifted(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(5, 5).double() for _ in range(2))

        def forward(self, x, y=torch.zeros(2, 5).double()):  # noqa: B008 - a default that is data
            return self.layers[1](self.layers[0](x) + y)

    shifted = Shifted()
    for given in ({"y": x[2:4]}, {}):
        cut = pipeline(shifted, (x[:2],), given, {"layers.1": SplitPoint.BEGINNING})
        (got,) = cut(x[:2], **given)
        want_of = shifted(x[:2], **given)
        np.testing.assert_allclose(got.detach().numpy(), want_of.detach().numpy(), 1e-12)
    whole = dict(alone.named_parameters())
    names = [n for n, _ in stage.submod.named_parameters()]
    assert names and ("scale" in names) == (RANK == SIZE - 1)
    for n, p in stage.submod.named_parameters():
        np.testing.assert_allclose(p.grad.numpy(), whole[n].grad.numpy(), 1e-9, 1e-12)


def check_orders() -> None:
    from tenon.distributed.pipelining.schedules import play

    stage = PipelineStage(torch.nn.Linear(2, 2), RANK, SIZE, "cpu")
    order = Schedule1F1B(stage, 4)
    for ranks, batches in ((2, 4), (4, 6), (3, 3)):
        plans = play(ranks, ranks, batches, True, lambda r, n=ranks: n - r, order._order,
                     lambda stage: stage)  # fmt: skip
        for rank, plan in enumerate(plans):
            held = most = 0
            for backward, _, _ in plan:
                held += -1 if backward else 1
                most = max(most, held)
            assert len(plan) == 2 * batches and held == 0
            assert most == min(ranks - rank, batches), (rank, most)  # what 1F1B saves
        assert [b for b, _, _ in plans[-1]] == [False, True] * batches


def check_mistakes() -> None:
    layer = torch.nn.Linear(2, 2)
    stage = PipelineStage(layer, RANK, SIZE, "cpu")
    expect(ValueError, "must be greater than or equal to", lambda: Schedule1F1B(stage, 1))
    expect(ValueError, "out of range", lambda: PipelineStage(layer, 9, SIZE, "cpu"))
    other = PipelineStage(layer, 1 - RANK, SIZE, "cpu")
    expect(ValueError, "has the stages", lambda: ScheduleGPipe(other, 1))
    expect(ValueError, "exactly 2 stages per rank", lambda: ScheduleZBVZeroBubble([stage], 1))
    expect(ValueError, "Unknown schedule name: fast", lambda: get_schedule_class("fast"))
    expect(ValueError, "has the stages", lambda: ScheduleLoopedBFS(
        [PipelineStage(layer, RANK, 2 * SIZE, "cpu")], 2))  # fmt: skip
    if RANK == SIZE - 1:
        expect(RuntimeError, "target is needed",
               lambda: ScheduleGPipe(stage, 2, loss_fn=F.mse_loss).step())  # fmt: skip
    if RANK == 0:
        expect(
            ValueError,
            "not 4 micro-batches",
            lambda: ScheduleGPipe(stage, 4).step(torch.ones(2, 2)),
        )


for name, check in list(globals().items()):
    if name.startswith("check_") and name[6:].startswith(tuple(sys.argv[2:]) or ""):
        check()
dist.destroy_process_group()
print("ok\n", end="")
