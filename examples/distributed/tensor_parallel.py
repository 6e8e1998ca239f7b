"""A transformer's layers cut by columns and rows among processes (Megatron's way), and checked
against the same layers in one.

    tenon launch -n 2 examples/distributed/tensor_parallel.py
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class FeedForward(torch.nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


def main() -> None:
    dist.init_process_group()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    torch.manual_seed(0)
    alone = torch.nn.Sequential(*(FeedForward() for _ in range(3)))
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(FeedForward() for _ in range(3)))
    parallelize_module(model, mesh, {"*.up": ColwiseParallel(), "*.down": RowwiseParallel()})
    pairs = [(m, torch.optim.AdamW(m.parameters(), lr=1e-2)) for m in (alone, model)]
    for step in range(5):
        torch.manual_seed(step)
        x, y = torch.randn(8, 64), torch.randn(8, 64)
        losses: list[float] = []
        for m, optimizer in pairs:
            loss = torch.nn.functional.mse_loss(m(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        if dist.get_rank() == 0:
            print(f"step {step}: {losses[0]:.6f} in one process, {losses[1]:.6f} cut")
    weight = model[0].up.weight
    if dist.get_rank() == 0:
        print(f"{tuple(weight.to_local().shape)} of {tuple(weight.shape)} in each process")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
