"""A convolutional network that reads handwritten digits. Part of the demo; runs on its own too."""

from __future__ import annotations

import gzip
import struct
from dataclasses import dataclass, field
from pathlib import Path

import tenon as tn
from progress import Progress
from tenon import nn
from tenon.nn import functional as F
from tenon.utils.data import DataLoader, TensorDataset

DATA = Path(__file__).parent / "data"
TRAINED = 8500  # of the 10,000 images; the rest is never seen in training


def read_idx(name: str) -> tn.Tensor:
    """A gzipped IDX file as a uint8 tensor of its shape."""
    raw = gzip.decompress((DATA / name).read_bytes())
    rank = raw[3]
    shape = struct.unpack(f">{rank}I", raw[4 : 4 + 4 * rank])
    return tn.frombuffer(bytearray(raw[4 + 4 * rank :]), dtype=tn.uint8).reshape(shape)


def load() -> tuple[tn.Tensor, tn.Tensor]:
    """Images (10000, 1, 28, 28), scaled to about zero mean and unit deviation, and labels."""
    images = read_idx("mnist-t10k-images-idx3-ubyte.gz").float().unsqueeze(1) / 255.0
    labels = read_idx("mnist-t10k-labels-idx1-ubyte.gz").long()
    return (images - 0.1307) / 0.3081, labels


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.drop = nn.Dropout(0.25)
        self.fc1 = nn.Linear(32 * 7 * 7, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x: tn.Tensor) -> tn.Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = self.drop(x.flatten(1))
        return self.fc2(F.relu(self.fc1(x)))


@dataclass
class Result:
    images: tn.Tensor  # of the test part
    labels: tn.Tensor
    guesses: tn.Tensor
    losses: list[float] = field(default_factory=list[float])

    @property
    def accuracy(self) -> float:
        return (self.guesses == self.labels).float().mean().item()


def shifted(batch: tn.Tensor) -> tn.Tensor:
    """The batch moved by up to two pixels: a digit stays the digit it is."""
    dy, dx = (int(v) for v in tn.randint(0, 5, (2,)))
    return F.pad(batch, (2, 2, 2, 2), value=-0.4242)[:, :, dy : dy + 28, dx : dx + 28]


def evaluate(model: nn.Module, images: tn.Tensor) -> tn.Tensor:
    model.eval()
    with tn.no_grad():
        return tn.cat([model(part).argmax(1).cpu() for part in images.split(500)])


def train(epochs: int = 6, device: str = "cpu") -> Result:
    """Trains on the first TRAINED images of a fixed shuffle, tests on the others."""
    tn.manual_seed(1)
    images, labels = load()
    order = tn.randperm(len(images))
    images, labels = images[order], labels[order]
    model = Net().to(device)
    optimizer = tn.optim.AdamW(model.parameters(), lr=2e-3)
    loader = DataLoader(
        TensorDataset(images[:TRAINED], labels[:TRAINED]), batch_size=64, shuffle=True
    )
    schedule = tn.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(loader))
    batches = (batch for _ in range(epochs) for batch in loader)
    steps = Progress(batches, "digits", total=epochs * len(loader), shown=epochs > 0)
    losses: list[float] = []
    for x, y in steps:
        loss = F.cross_entropy(model(shifted(x).to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        steps.note(loss=f"{losses[-1]:.3f}")
    seen, labels = images[TRAINED:], labels[TRAINED:]
    return Result(seen, labels, evaluate(model, seen.to(device)), losses)


if __name__ == "__main__":
    done = train()
    print(f"digits: {100 * done.accuracy:.2f} % of {len(done.labels)} images never seen are right")
