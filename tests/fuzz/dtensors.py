"""Random computations of DTensors in random layouts, against plain tensors: values and gradients.
`tests/processes/test_sharding.py` starts it: dtensors.py ENGINE SEED CASES, in three processes, or
in four, which are a mesh of 2 x 2."""

import os
import random
import sys
import traceback

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

# d: a dimension; i: an index of the first one; INDEX: the numbers [0].
ONE = (
    "x * 2 + 1", "x.tanh()", "x.sum({d})", "x.mean({d})", "x.mean()", "x.movedim(0, -1)", "x[{i}]",
    "x[..., {i}]", "x[1:]", "x[:, None]", "x.unsqueeze({d})", "x.flatten()", "x.reshape(-1)",
    "x.amax({d})", "x.softmax({d})", "x.cumsum({d})", "x.roll(1, {d})", "F.pad(x, (1, 0))",
    "x.repeat(*[2] * x.ndim)", "x.unbind({d})[0]", "x.chunk(2, {d})[0]", "x.split(1, {d})[-1]",
    "x.flip({d})", "x.sort({d})[0]", "x.expand(2, *x.shape)", "x.pow(2).mean().sqrt() * x",
    "x - x.mean({d}, keepdim=True)", "x / (1 + x.abs().sum())", "x.norm(dim={d})", "x.var({d})",
    "x.logsumexp({d})", "torch.cat([x, x * 2], {d})", "torch.stack([x, x], {d})", "x.squeeze()",
    "torch.where(x > 0, x, x * 0.1)", "F.gelu(x)", "x.tril()", "x.max({d})[0]", "x.clone().mul_(2)",
    "x.narrow({d}, 0, 1)", "x.masked_fill(x > 1, 0.5)", "F.layer_norm(x, x.shape[-1:])",
    "x.tile(2)", "x.index_select({d}, INDEX)", "x.argsort({d}).double() * x", "x.median({d})[0]",
    "x.mean({d}) * 2 + x.mean({d})", "x.mean(0) * x[0]", "x.prod({d})", "x.view(x.shape)",
    "F.avg_pool1d(x, 1) * 2", "F.normalize(x, dim={d})", "x.T @ x", "x.max() - x.min()",
    "x.count_nonzero({d}) * x.sum({d})", "F.one_hot(x.abs().long(), 4).double() * 1.5",
    "x.clone().cumsum_({d})", "x.clone().scatter_({d}, x.argsort({d}), x)", "x.norm(3) + x",
    "x.clone().unsqueeze_({d})", "F.softmin(x, {d})", "torch.ones_like(x.sum({d})) * 2",
)  # fmt: skip
TWO = (
    "x @ y.mT", "x + y", "x * y[:1]", "torch.einsum('ij,kj->ik', x, y)", "F.mse_loss(x, y) * x",
    "torch.hstack([x, y])", "F.cosine_similarity(x, y, 0)", "x.t() @ y", "F.linear(x, y)",
    "torch.outer(x[0], y[:, 0])", "x @ y[0]", "torch.einsum('ij,ij->j', x, y)",
    "F.l1_loss(x, y, reduction='sum') + x", "x.gather(1, y.argsort(1))",
    "F.conv1d(x[:, None], y[:, None, :1])", "F.embedding(x.abs().long().clamp(max=0), y)",
)  # fmt: skip


class Case:
    """A computation, done twice: `plain`, and of DTensors in `cut`."""

    def __init__(self, draw: random.Random, mesh: object) -> None:
        self.draw, self.mesh, self.text = draw, mesh, ""
        shape = [draw.randint(1, 6) for _ in range(draw.choice((1, 2, 2, 2, 3)))]
        self.leaves = [self.leaf(shape)]
        self.plain, self.cut = self.leaves[0]
        if len(shape) == 2 and draw.random() < 0.6:
            self.leaves.append(self.leaf(shape))
            self.go_on(draw.choice(TWO), *self.leaves[1])
        for _ in range(draw.randint(1, 3)):
            if self.plain.ndim:
                dim = draw.randrange(-self.plain.ndim, self.plain.ndim)
                first = draw.randrange(max(self.plain.shape[0], 1))
                self.go_on(draw.choice(ONE).format(d=dim, i=first))

    def leaf(self, shape: list[int]) -> tuple[torch.Tensor, DTensor]:
        values = [self.draw.uniform(-2, 2) for _ in range(torch.Size(shape).numel())]
        plain = torch.tensor(values, dtype=torch.float64).reshape(shape)
        places = [Replicate(), *(Shard(d) for d in range(len(shape)))]
        layout = [self.draw.choice(places) for _ in range(self.mesh.ndim)]
        self.text += f"{shape} {layout}; "
        cut = distribute_tensor(plain, self.mesh, layout).requires_grad_()
        return plain.requires_grad_(), cut

    def go_on(self, step: str, y: object = None, y_cut: object = None) -> None:
        """One more step, if the plain tensor allows it."""
        index = torch.tensor([0])
        names = {"torch": torch, "F": F}
        try:
            plain = eval(step, {**names, "x": self.plain, "y": y, "INDEX": index})
        except (RuntimeError, IndexError, ValueError, TypeError):
            return
        self.text += step + "; "
        whole = distribute_tensor(index, self.mesh, [Replicate()] * self.mesh.ndim)
        self.cut = eval(step, {**names, "x": self.cut, "y": y_cut, "INDEX": whole})
        self.plain = plain

    def check(self) -> None:
        """That both have the same values and gradients."""
        torch.testing.assert_close(
            self.cut.full_tensor(), self.plain, rtol=1e-8, atol=1e-10, equal_nan=True
        )
        assert tuple(self.cut.to_local().shape) == self.cut._spec.local[0]
        if not (self.plain.requires_grad and self.plain.numel()):
            return
        factor = torch.linspace(1, 2, self.plain.numel(), dtype=torch.float64)
        factor = factor.reshape(self.plain.shape)
        (self.plain * factor).sum().backward()
        (self.cut * distribute_tensor(factor, self.mesh)).sum().backward()
        for plain, cut in self.leaves:
            assert (plain.grad is None) == (cut.grad is None)
            if plain.grad is not None:
                torch.testing.assert_close(
                    cut.grad.full_tensor(), plain.grad, rtol=1e-7, atol=1e-9, equal_nan=True
                )


def main(engine: str, seed: int, cases: int) -> None:
    dist.init_process_group(engine)
    size = dist.get_world_size()
    mesh = dist.init_device_mesh("cpu", (2, 2) if size == 4 else (size,))
    draw = random.Random(seed)
    for number in range(cases):
        case = None
        try:
            case = Case(draw, mesh)
            case.check()
        except Exception:
            traceback.print_exc()
            print(f"case {number} of seed {seed}: {case and case.text}", file=sys.stderr)
            os._exit(1)  # the others end by it
    dist.destroy_process_group()
    print("ok\n", end="")


main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
