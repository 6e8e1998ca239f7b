"""A small character transformer that learns to spell from Shakespeare. Part of the demo."""

from __future__ import annotations

import gzip
import math
from dataclasses import dataclass, field
from pathlib import Path

import tenon as tn
from progress import Progress
from tenon import nn
from tenon.nn import functional as F

DATA = Path(__file__).parent / "data" / "tinyshakespeare.txt.gz"
LAYERS, HEADS, WIDTH, BLOCK, BATCH = 4, 4, 128, 64, 12


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.ln2 = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def attend(self, x: tn.Tensor) -> tn.Tensor:
        b, t, _ = x.shape
        q, k, v = (
            part.view(b, t, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in self.qkv(x).split(WIDTH, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).contiguous().view(b, t, WIDTH))

    def forward(self, x: tn.Tensor) -> tn.Tensor:
        x = x + self.attend(self.ln1(x))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class Model(nn.Module):
    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, WIDTH)
        self.position = nn.Embedding(BLOCK, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.ln = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, vocabulary, bias=False)
        self.head.weight = self.token.weight
        for name, p in self.named_parameters():
            if p.dim() == 2:
                std = (
                    0.02 / math.sqrt(2 * LAYERS)
                    if name.endswith(("proj.weight", "down.weight"))
                    else 0.02
                )
                nn.init.normal_(p, std=std)

    def forward(self, ids: tn.Tensor) -> tn.Tensor:
        x = self.token(ids) + self.position(tn.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


@dataclass
class Result:
    losses: list[float] = field(default_factory=list[float])
    validation: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])
    sample: str = ""


def batch_of(data: tn.Tensor) -> tuple[tn.Tensor, tn.Tensor]:
    starts = tn.randint(0, len(data) - BLOCK - 1, (BATCH,)).unsqueeze(1)
    rows = data[(starts + tn.arange(BLOCK + 1)).to(data.device)]
    return rows[:, :-1], rows[:, 1:]


def loss_of(model: nn.Module, data: tn.Tensor) -> tn.Tensor:
    x, y = batch_of(data)
    logits = model(x)
    return F.cross_entropy(logits.view(-1, logits.shape[-1]), y.reshape(-1))


def validate(model: nn.Module, data: tn.Tensor, batches: int = 20) -> float:
    model.eval()
    with tn.no_grad():
        total = sum(loss_of(model, data).item() for _ in range(batches))
    model.train()
    return total / batches


def generate(model: nn.Module, ids: tn.Tensor, count: int) -> tn.Tensor:
    model.eval()
    with tn.no_grad():
        for _ in range(count):
            chances = F.softmax(model(ids[:, -BLOCK:])[:, -1] / 0.8, dim=-1)
            ids = tn.cat([ids, tn.multinomial(chances, 1)], dim=1)
    return ids


def rate(step: int, steps: int, peak: float = 2e-3, warmup: int = 100) -> float:
    """Linear warm-up, then a cosine down to a tenth of the peak."""
    if step < warmup:
        return peak * (step + 1) / warmup
    part = (step - warmup) / max(1, steps - warmup)
    return peak * (0.1 + 0.45 * (1 + math.cos(math.pi * part)))


def train(steps: int = 1500, device: str = "cpu") -> Result:
    tn.manual_seed(2)
    text = gzip.decompress(DATA.read_bytes()).decode("ascii")
    alphabet = sorted(set(text))
    number = {c: i for i, c in enumerate(alphabet)}
    data = tn.tensor([number[c] for c in text]).to(device)
    cut = len(data) * 9 // 10
    learn, held = data[:cut], data[cut:]
    model = Model(len(alphabet)).to(device)
    optimizer = tn.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.99), weight_decay=0.1)
    result = Result()
    bar = Progress(range(steps), "shakespeare")
    for step in bar:
        for group in optimizer.param_groups:
            group["lr"] = rate(step, steps)
        loss = loss_of(model, learn)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        result.losses.append(loss.item())
        if step % 250 == 249 or step == steps - 1:
            result.validation.append((step + 1, validate(model, held)))
            bar.note(validation=f"{result.validation[-1][1]:.3f}")
    start = tn.tensor([[number["\n"]]], device=device)
    ids: list[int] = generate(model, start, 400)[0].tolist()
    result.sample = "".join(alphabet[i] for i in ids).strip()
    return result


if __name__ == "__main__":
    done = train()
    print(f"validation loss {done.validation[-1][1]:.3f}\n\n{done.sample}")
