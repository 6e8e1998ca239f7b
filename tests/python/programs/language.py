"""A small transformer language model: tied weights, parameter groups, accumulation, top-k draws."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    vocabulary: int = 40
    context: int = 12
    width: int = 16
    heads: int = 4
    depth: int = 2
    dropout: float = 0.1


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads = c.heads
        self.norms = nn.ModuleList(nn.LayerNorm(c.width) for _ in range(2))
        self.qkv = nn.Linear(c.width, 3 * c.width)
        self.out = nn.Linear(c.width, c.width)
        self.mlp = nn.Sequential(
            nn.Linear(c.width, 4 * c.width), nn.GELU(), nn.Linear(4 * c.width, c.width)
        )
        self.dropout = nn.Dropout(c.dropout)

    def forward(self, x):
        b, t, w = x.shape
        parts = self.qkv(self.norms[0](x)).view(b, t, 3, self.heads, w // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(y.transpose(1, 2).reshape(b, t, w)))
        return x + self.dropout(self.mlp(self.norms[1](x)))


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config = c
        self.tokens = nn.Embedding(c.vocabulary, c.width)
        self.places = nn.Parameter(torch.zeros(1, c.context, c.width))
        self.blocks = nn.Sequential(*[Block(c) for _ in range(c.depth)])
        self.norm = nn.LayerNorm(c.width)
        self.head = nn.Linear(c.width, c.vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        self.apply(self.init)
        nn.init.trunc_normal_(self.places, std=0.02)

    @staticmethod
    def init(m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, std=0.02)
        if isinstance(m, nn.Linear) and m.bias is not None:
            nn.init.zeros_(m.bias)

    def forward(self, x, y=None):
        h = self.tokens(x) + self.places[:, : x.size(1)]
        logits = self.head(self.norm(self.blocks(h)))
        loss = None if y is None else F.cross_entropy(logits.flatten(0, 1), y.flatten())
        return logits, loss

    @torch.no_grad()
    def draw(self, x, count, k):
        for _ in range(count):
            logits = self(x[:, -self.config.context :])[0][:, -1] / 0.8
            least = torch.topk(logits, k)[0][:, [-1]]
            logits[logits < least] = -float("inf")
            x = torch.cat([x, torch.multinomial(logits.softmax(-1), 1)], dim=1)
        return x


torch.manual_seed(1337)
model = Model(Config())
print(model, sum(p.numel() for p in model.parameters()))
matrices = [p for p in model.parameters() if p.dim() >= 2]
others = [p for p in model.parameters() if p.dim() < 2]
groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95))
scaler = torch.amp.GradScaler("cpu", enabled=False)
data = (torch.arange(400) * 7 + torch.randint(0, 2, (400,))) % 40
for step in range(8):
    for group in optimizer.param_groups:
        group["lr"] = 1e-2 * 0.5 * (1 + math.cos(math.pi * step / 8))
    for _ in range(2):
        starts = torch.randint(len(data) - 13, (8,))
        x = torch.stack([data[i : i + 12] for i in starts])
        y = torch.stack([data[i + 1 : i + 13] for i in starts])
        with torch.autocast("cpu", enabled=False):
            loss = model(x, y)[1] / 2
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    print(f"step {step} loss {2 * loss.item():.4f} norm {norm:.4f}")
print(model.eval().draw(torch.zeros(1, 1, dtype=torch.long), 16, 4).tolist())
