"""Input and output: the data loader, checkpoints."""

from __future__ import annotations

import importlib
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from registry import case, normal, whole

inout = partial(case, "input and output", threads=(1,))

SAMPLES, FEATURES, BATCH = 20_000, 784, 64
SIZE = 256 << 20  # bytes of a checkpoint


@inout(0.10, bytes=2 * 4.0 * SAMPLES * FEATURES)
def dataloader_20000x784_b64(T):
    data = importlib.import_module(f"{T.__name__}.utils.data")
    set_ = data.TensorDataset(normal(T, SAMPLES, FEATURES), whole(T, SAMPLES, 10))
    loader = data.DataLoader(set_, batch_size=BATCH, shuffle=True)

    def run():
        seen = 0
        for _, y in loader:
            seen += len(y)
        return float(seen)

    return run


class Pictures:
    """Ready-made samples of a decoded picture's size."""

    def __init__(self, T: Any) -> None:
        self.picture = normal(T, 3, 224, 224)

    def __len__(self) -> int:
        return 256

    def __getitem__(self, i: int) -> Any:
        return self.picture, i


@inout(0.5, bytes=2 * 4.0 * 256 * 3 * 224 * 224)
def dataloader_workers2_256x3x224(T):
    data = importlib.import_module(f"{T.__name__}.utils.data")
    loader = data.DataLoader(Pictures(T), batch_size=32, num_workers=2, persistent_workers=True)
    return lambda: float(sum(len(y) for _, y in loader))


class Checkpoint:
    """A state of 256 MB and the file it goes to, in a folder that ends with this object."""

    def __init__(self, T: Any) -> None:
        count = 16
        self.framework = T
        self.folder = tempfile.TemporaryDirectory(prefix="tenon-bench-")
        self.path = Path(self.folder.name) / "state.pt"
        self.state = {f"layer{i}.weight": normal(T, SIZE // 4 // count) for i in range(count)}

    def save(self) -> float:
        self.framework.save(self.state, str(self.path))
        return float(self.path.stat().st_size >> 20)

    def load(self) -> dict[str, Any]:
        return self.framework.load(str(self.path))


@inout(0.7, bytes=2.0 * SIZE)
def save_256MB_new(T):
    file = Checkpoint(T)

    def run():
        file.path.unlink(missing_ok=True)
        return file.save()

    return run


@inout(0.3, bytes=2.0 * SIZE)
def save_256MB_overwrite(T):
    return Checkpoint(T).save


@inout(0.05)
def load_256MB(T):
    """No limit: a file may be mapped and read when it is used."""
    file = Checkpoint(T)
    file.save()
    return lambda: file.load()["layer3.weight"]


@inout(0.5, bytes=1.0 * SIZE)
def load_256MB_and_read(T):
    file = Checkpoint(T)
    file.save()
    return lambda: sum(float(x.sum()) for x in file.load().values())
