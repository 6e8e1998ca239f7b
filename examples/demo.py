"""The main job: train a digit reader and a character transformer on real data, show the outcome.

Prints accuracy, validation loss, a text sample and what did the work; draws one page (loss curves,
a grid of right and wrong predictions) when matplotlib is there.
"""

from __future__ import annotations

import argparse
import sys
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import digits
import shakespeare
import tenon as tn


def draw(path: Path, seen: digits.Result, read: shakespeare.Result) -> bool:
    """Writes the page; False without matplotlib."""
    if find_spec("matplotlib") is None:
        return False
    import_module("matplotlib").use("Agg")
    plt: Any = import_module("matplotlib.pyplot")
    fig = plt.figure(figsize=(11, 8.5))
    grid = fig.add_gridspec(2, 2, height_ratios=[1, 1.25])
    axis = fig.add_subplot(grid[0, 0])
    axis.plot(seen.losses, linewidth=0.8)
    axis.set(
        title=f"digits: {100 * seen.accuracy:.2f} % right",
        xlabel="step",
        ylabel="loss",
        yscale="log",
    )
    axis = fig.add_subplot(grid[0, 1])
    axis.plot(read.losses, linewidth=0.8, label="training")
    axis.plot(*zip(*read.validation, strict=True), "o-", label="validation")
    axis.set(
        title=f"shakespeare: validation {read.validation[-1][1]:.3f}", xlabel="step", ylabel="loss"
    )
    axis.legend()
    below = grid[1, :].subgridspec(4, 12)
    right = (seen.guesses == seen.labels).tolist()
    wrong = [i for i, ok in enumerate(right) if not ok][:24]
    shown = [i for i, ok in enumerate(right) if ok][: 48 - len(wrong)] + wrong
    for place, i in enumerate(shown):
        axis = fig.add_subplot(below[place // 12, place % 12])
        axis.imshow(seen.images[i, 0].tolist(), cmap="gray_r")
        text = (
            f"{seen.guesses[i].item()}"
            if right[i]
            else f"{seen.guesses[i].item()} not {seen.labels[i].item()}"
        )
        axis.set_title(text, fontsize=8, color="green" if right[i] else "red", pad=2)
        axis.axis("off")
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path, dpi=110)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description="Train two small networks on real data.")
    parser.add_argument(
        "--out", type=Path, default=Path("build/demo"), help="folder of the picture"
    )
    parser.add_argument("--epochs", type=int, default=6, help="passes over the digits")
    parser.add_argument("--steps", type=int, default=1500, help="steps of the transformer")
    parser.add_argument("--device", default="cpu", help="where the networks are trained")
    opts = parser.parse_args()
    start = time.perf_counter()
    seen = digits.train(opts.epochs, opts.device)
    middle = time.perf_counter()
    read = shakespeare.train(opts.steps, opts.device)
    end = time.perf_counter()
    print(f"\n--- sample ---\n{read.sample}\n--------------\n")
    print(
        f"digits: {100 * seen.accuracy:.2f} % of {len(seen.labels)} images never seen are right "
        f"({middle - start:.1f} s)"
    )
    print(f"shakespeare: validation loss {read.validation[-1][1]:.3f} ({end - middle:.1f} s)")
    picture = opts.out / "demo.png"
    print(
        f"picture: {picture}"
        if draw(picture, seen, read)
        else "no picture: matplotlib is not installed"
    )
    device = tn.device(opts.device).type
    done_by = (
        tn.backends.cpu.describe() if device == "cpu" else getattr(tn, device).get_device_name()
    )
    print(f"done by: {done_by}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
