"""The transformer of examples/shakespeare.py, learned by several processes that have a part of its
parameters each. A checkpoint is written now and then; a run that is started again goes on from the
last one, with any number of processes.

    tenon launch -n 2 --max-restarts 3 examples/distributed/shakespeare_fsdp.py --folder /tmp/play
"""

from __future__ import annotations

import argparse
import gzip
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

sys.path.insert(0, str(Path(__file__).parents[1]))
from progress import Progress
from shakespeare import DATA, Model, loss_of, rate


def held_here(p: torch.Tensor) -> int:
    return p.to_local().numel() if isinstance(p, DTensor) else p.numel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=50, help="steps between checkpoints")
    parser.add_argument("--folder", type=Path, default=Path("shakespeare-checkpoint"))
    options = parser.parse_args()
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    text = gzip.decompress(DATA.read_bytes()).decode("ascii")
    alphabet = sorted(set(text))
    number = {c: i for i, c in enumerate(alphabet)}
    data = torch.tensor([number[c] for c in text])
    torch.manual_seed(2)
    model = Model(len(alphabet))
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.99))

    def state() -> dict[str, Any]:
        weights, moments = get_state_dict(model, optimizer)
        return {"model": weights, "optimizer": moments, "step": first}

    first: int = 0
    if (options.folder / ".metadata").exists():
        saved = state()
        dcp.load(saved, checkpoint_id=options.folder)
        set_state_dict(model, optimizer, model_state_dict=saved["model"],
                       optim_state_dict=saved["optimizer"])  # fmt: skip
        first = saved["step"]
    if rank == 0:
        own = sum(held_here(p) for p in model.parameters())
        total = sum(p.numel() for p in model.parameters())
        print(f"from step {first}: {own} of {total} parameters in each of {size} processes")
    loss = torch.zeros(())
    for step in Progress(range(first, options.steps), "shakespeare", shown=rank == 0):
        for group in optimizer.param_groups:
            group["lr"] = rate(step, options.steps)
        torch.manual_seed(1000 * step + rank)  # each process has lines of its own
        loss = loss_of(model, data)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        first = step + 1
        if first % options.every == 0 or first == options.steps:
            dcp.save(state(), checkpoint_id=options.folder)
    mean = loss.detach()
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    if rank == 0:
        print(f"shakespeare: a loss of {mean.item():.3f} after {options.steps} steps")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
