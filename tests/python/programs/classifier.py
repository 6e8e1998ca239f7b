"""A convolutional classifier: batch norm, dropout, a held-out part, a schedule, a checkpoint."""

import argparse
import hashlib
import os
import tempfile

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


def digest(module):
    data = b"".join(t.detach().numpy().tobytes() for t in module.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.MaxPool2d(2)
        )
        self.drop = nn.Dropout2d(0.2)
        self.head = nn.Linear(6 * 4 * 4, 4)

    def forward(self, x):
        return self.head(torch.flatten(self.drop(self.features(x)), 1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    labels = torch.randint(0, 4, (96,))
    images = torch.randn(96, 1, 8, 8)
    for i, label in enumerate(labels):
        images[i, 0, 2 * label : 2 * label + 2] += 2.0
    parts = random_split(
        TensorDataset(images, labels), [0.75, 0.25], generator=torch.Generator().manual_seed(1)
    )
    train = DataLoader(parts[0], batch_size=16, shuffle=True, drop_last=True, num_workers=2)
    test = DataLoader(parts[1], batch_size=8)
    model = Net().to(device)
    print(model, "weights", digest(model))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    for epoch in range(args.epochs):
        model.train()
        total = 0.0
        for x, y in train:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x.to(device)), y.to(device), label_smoothing=0.1)
            loss.backward()
            optimizer.step()
            total += loss.item()
        scheduler.step()
        print(f"epoch {epoch} loss {total / len(train):.4f} lr {scheduler.get_last_lr()[0]:.4f}")
    model.eval()
    correct = 0
    with torch.no_grad():
        for x, y in test:
            correct += (model(x).argmax(1) == y).sum().item()
    print("correct", correct, "of", len(parts[1]))
    path = os.path.join(tempfile.mkdtemp(), "net.pt")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    saved = torch.load(path, weights_only=True)
    again = Net().eval()
    print(again.load_state_dict(saved["model"]), torch.equal(again(images), model(images)))


if __name__ == "__main__":
    main()
