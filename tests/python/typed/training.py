"""Correct: modules, losses, optimizers, data, checkpoints, by the name of torch."""

from collections.abc import Iterator

import tenon as torch
import tenon.nn as nn
import tenon.nn.functional as F
from tenon import Tensor, optim
from tenon.utils.data import DataLoader, Dataset, TensorDataset, random_split


class Squares(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x = torch.tensor([float(index)])
        return x, x * x


class Net(nn.Module):
    mask: Tensor

    def __init__(self, width: int, classes: int, drop: float = 0.1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, width, kernel_size=3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.pool = nn.MaxPool2d(2)
        self.body = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Dropout(drop))
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.rnn = nn.LSTM(width, width, batch_first=True)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.scale = nn.Parameter(torch.ones(width))
        self.register_buffer("mask", torch.zeros(3))
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor, shift: float = 0.0) -> Tensor:
        x = F.relu(self.norm(self.conv(x)))
        x = self.pool(x).mean(dim=(2, 3))
        for layer in self.layers:
            x = x + F.gelu(layer(x))
        out, (h, _) = self.rnn(self.body(x).unsqueeze(1))
        seen, _ = self.attention(out, out, out, need_weights=False)
        x = seen[:, -1] * self.scale + h[-1] + self.mask.sum() + shift
        return self.head(F.dropout(x, 0.5, self.training))


def initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)


def batches(data: Dataset[tuple[Tensor, Tensor]], size: int) -> Iterator[tuple[Tensor, Tensor]]:
    yield from DataLoader(data, batch_size=size, shuffle=True, num_workers=0, drop_last=True)


def train(model: Net, steps: int, device: str = "cpu") -> list[float]:
    model = model.to(device).train()
    model.apply(initialise)
    parts = random_split(Squares(100), [80, 20])
    extra = TensorDataset(torch.rand(8, 1), torch.rand(8))
    optimizer = optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1, betas=(0.9, 0.99))
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    losses: list[float] = []
    for x, y in DataLoader(extra, batch_size=4):
        loss = criterion(model(x), y) + F.mse_loss(model(x, shift=1.0), y, reduction="sum")
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    for group in optimizer.param_groups:
        group["lr"] *= 0.5
    rate: float = schedule.get_last_lr()[0]
    return [*losses, rate, float(len(parts[0]))]


def evaluate(model: nn.Module, loader: DataLoader[tuple[torch.Tensor, torch.Tensor]]) -> float:
    model.eval()
    right = total = 0
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        for x, y in loader:
            guess = model(x).argmax(dim=1)
            right += int((guess == y).sum())
            total += len(y)
    return right / total


def checkpoint(model: nn.Module, path: str) -> int:
    torch.save({"model": model.state_dict()}, path)
    saved = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(saved["model"])
    count = sum(p.numel() for p in model.parameters() if p.requires_grad)
    names = [name for name, _ in model.named_parameters()]
    return count + len(names)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 3 * x * x * g


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(2)
    net = Net(8, 10)
    print(train(net, 10), evaluate(net, DataLoader(Squares(4))), checkpoint(net, "net.pt"))
    print(next(batches(Squares(10), 2)), net.body[0], Cube.apply(torch.ones(2)))
