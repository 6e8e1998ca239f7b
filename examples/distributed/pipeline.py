"""Layers in different processes, and micro-batches that follow each other through them.

tenon launch -n 2 examples/distributed/pipeline.py
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

WIDTH, BATCH, PARTS = 64, 32, 8


def main() -> None:
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    layers = [m for _ in range(2) for m in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
    stage = PipelineStage(torch.nn.Sequential(*layers), rank, size, torch.device("cpu"))
    schedule = Schedule1F1B(stage, max(PARTS, size), loss_fn=torch.nn.functional.mse_loss)
    optimizer = torch.optim.AdamW(stage.submod.parameters(), lr=1e-3)
    for step in range(10):
        torch.manual_seed(step % 2)
        x = torch.randn(BATCH, WIDTH)
        losses: list[torch.Tensor] = []
        optimizer.zero_grad()
        if rank == 0 and size > 1:
            schedule.step(x)
        elif rank == size - 1:
            schedule.step(*([x] if size == 1 else []), target=x.relu(), losses=losses)
        else:
            schedule.step()
        optimizer.step()
        if losses:
            print(f"step {step}: {torch.stack(losses).mean().item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
