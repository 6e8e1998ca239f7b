"""A network that learns an equation: its derivatives by torch.func, in the loss."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, hessian, jacrev, stack_module_state, vmap

torch.manual_seed(11)


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, place):
        return self.layers(place).squeeze(-1)


field = Field()
places = torch.rand(32, 2) * 2 - 1
edges = torch.cat([places[:8].clamp(-1, 1), torch.tensor([[1.0, 0.0], [-1.0, 0.0]])])
optimizer = torch.optim.Adam(field.parameters(), lr=1e-2)
for step in range(6):
    curve = vmap(hessian(field))(places)
    slope = vmap(grad(field))(places)
    source = torch.sin(torch.pi * places).prod(1)
    inside = F.mse_loss(curve.diagonal(dim1=1, dim2=2).sum(1) + 0.1 * slope[:, 0], source)
    outside = F.smooth_l1_loss(field(edges), torch.zeros(len(edges)))
    loss = inside + 2 * outside
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(field.parameters(), 1.0)
    optimizer.step()
    print(step, loss, inside, outside, f"{norm:.5f}")
print(curve.shape, curve.requires_grad, slope.stride(), field(edges))

members = [Field() for _ in range(3)]
weights, buffers = stack_module_state(members)


def answer(weights, place):
    return functional_call(field, weights, (place,))


both = vmap(vmap(answer, (None, 0)), (0, None))(weights, places[:4])
print(both.shape, both.mean(1), both.std(0, correction=0))
rows = vmap(jacrev(answer), (None, 0))({k: v[0].detach() for k, v in weights.items()}, places[:4])
flat = torch.cat([r.flatten(1) for r in rows.values()], 1)
print((flat @ flat.T).diagonal(), torch.linalg.eigvalsh(flat @ flat.T)[-1])
for mode in ("different", "same"):
    drawn = vmap(lambda p: p + torch.rand(2), randomness=mode)(places[:3] * 0)
    print(mode, len(drawn.unique(dim=0)))
