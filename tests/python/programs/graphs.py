"""Messages along the edges of a graph: sums, attention, pictures channels last for the nodes."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(21)
nodes, edges = 9, torch.randint(0, 9, (2, 30))
kinds = torch.randint(0, 3, (nodes,))


def softmax_of_edges(scores, ends):
    largest = torch.full((nodes, scores.size(1)), -torch.inf)
    largest = largest.scatter_reduce(0, ends[:, None].expand_as(scores), scores.detach(), "amax")
    shares = (scores - largest[ends]).exp()
    return shares / torch.zeros_like(largest).index_add(0, ends, shares)[ends]


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.values = nn.Linear(width, width, bias=False)
        self.scores = nn.Parameter(torch.empty(2, heads, width // heads))
        nn.init.xavier_normal_(self.scores)

    def forward(self, x):
        v = self.values(x).unflatten(-1, (self.heads, -1))
        begin, end = edges
        score = (v * self.scores[0]).sum(-1)[begin] + (v * self.scores[1]).sum(-1)[end]
        share = softmax_of_edges(F.leaky_relu(score, 0.2), end)
        return torch.zeros_like(v).index_add(0, end, share[..., None] * v[begin]).flatten(1)


pictures = torch.randn(nodes, 8, 6, 6).to(memory_format=torch.channels_last)
see = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.GLU(1))
see = see.to(memory_format=torch.channels_last)
seen = see(pictures)
print(
    see[1](see[0](pictures)).stride(), seen.stride(), F.interpolate(seen, scale_factor=2).stride()
)
print(F.pixel_unshuffle(seen, 2).stride(), seen.roll(1, 2).stride(), seen.sum((0, 2, 3)))
net = nn.ModuleList([Attention(4, 2), nn.PReLU(), nn.Linear(4, 3, bias=False)])
optimizer = torch.optim.RMSprop([*see.parameters(), *net.parameters()], lr=1e-2)
for step in range(5):
    x = see(pictures).mean((2, 3))
    for layer in net:
        x = layer(x) if layer is not net[0] else x + layer(x)
    loss = F.cross_entropy(x, kinds) + 0.1 * F.binary_cross_entropy_with_logits(
        x, F.one_hot(kinds, 3).float()
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss, (x.argmax(1) == kinds).sum().item())
print(x[:2], net[1].weight, x.logsumexp(1)[:2], x.max(), F.glu(x[:, :2])[:2])
near = torch.cdist(x, x).fill_diagonal_(torch.inf).topk(2, largest=False)
print(near.indices[:3], torch.bincount(edges[1], minlength=nodes), torch.unique(kinds))
