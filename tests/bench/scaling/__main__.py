"""python tests/bench/scaling: how far training in many processes scales, by the alpha-beta model of
model.py, and the same step among simulated machines where SimGrid is installed.

--ranks simulates that many (default 64 256 1024; 1024 take minutes); --picture draws the model's
efficiency for 8 to 4,096 GPUs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import simulate
import tenon
import tenon.vision.models
from model import Cluster, Link, Work, ddp, flat_ring, fsdp, ring, tree, two_level, two_level_part
from tenon.nn.parallel._reducer import layout

# The assumptions. GPUs: 989 TFLOP/s of bfloat16, of which training reaches 45 %. Links: NVLink
# within a machine, 400 Gbit/s for each GPU across machines, of which 40 GB/s are data.
OPERATIONS_PER_SECOND = 0.45 * 989e12
CLUSTER = Cluster(inside=Link(4e-6, 360e9), across=Link(10e-6, 40e9))
DEVICES = [2**i for i in range(3, 13)]
# A transformer of 32 equal layers, as sharded models of that size are cut, in bfloat16.
PARAMETERS, LAYERS, TOKENS = 7e9, 32, 4096
BUCKET = 25 << 20

WAYS: dict[str, Any] = {
    "DDP, one ring": lambda n: ddp(transformer(BUCKET), n, flat_ring(CLUSTER)),
    "DDP, rings of two levels": lambda n: ddp(transformer(BUCKET), n, two_level(CLUSTER, ring)),
    "DDP, trees across machines": lambda n: ddp(transformer(BUCKET), n, two_level(CLUSTER, tree)),
    "FSDP, sums waited for": lambda n: fsdp(transformer(), n, two_level_part(CLUSTER), True),
    "FSDP, sums behind backward": lambda n: fsdp(transformer(), n, two_level_part(CLUSTER), False),
}


def transformer(bucket: float | None = None) -> Work:
    """A step of the transformer on one GPU; what is exchanged at once is a bucket or a layer."""
    size = 2 * PARAMETERS
    count = round(size / bucket) if bucket else LAYERS
    forward = 2 * PARAMETERS * TOKENS / OPERATIONS_PER_SECOND
    return Work((size / count,) * count, forward, 2 * forward)


def efficiency(way: str, devices: int) -> float:
    """The share of a step in which a GPU computes."""
    work = transformer()
    return (work.forward + work.backward) / WAYS[way](devices)


def resnet() -> Work:
    """ResNet-50's gradients in the buckets that DistributedDataParallel makes of them, for 64
    images of 4.1 GFLOP forward in float32, at 45 % of 67 TFLOP/s."""
    with tenon.device("meta"):
        model = tenon.vision.models.resnet50()
    buckets = layout(list(model.parameters()), BUCKET)
    sizes = tuple(float(sum(p.numel() * p.element_size() for p in row)) for row in buckets)
    forward = 64 * 4.1e9 / (0.45 * 67e12)
    return Work(sizes, forward, 2 * forward)


def simulated(ranks: list[int]) -> list[dict[str, float]]:
    """ResNet-50's step through the engine for MPI, beside the model."""
    rows = []
    work, link = resnet(), CLUSTER.across
    with tempfile.TemporaryDirectory() as folder:
        program = simulate.build(Path(folder))
        for n in ranks:
            began = time.monotonic()
            found = simulate.step(program, n, work, link)
            rows.append({
                "ranks": n, "simulated_s": found, "took_s": time.monotonic() - began,
                "model_s": ddp(work, n, lambda devices, size: ring(link, devices, size)),
            })  # fmt: skip
    return rows


def draw(path: Path) -> None:
    import_module("matplotlib").use("Agg")
    plt: Any = import_module("matplotlib.pyplot")
    plt.rcParams.update({"svg.hashsalt": "tenon", "svg.fonttype": "none"})
    figure, axis = plt.subplots(figsize=(7, 4.2))
    for way in WAYS:
        axis.plot(DEVICES, [100 * efficiency(way, n) for n in DEVICES], marker=".", label=way)
    axis.set(xscale="log", ylim=(0, 105), xlabel="GPUs", ylabel="% of the time in computing")
    axis.set_xticks(DEVICES, [f"{n:,}" for n in DEVICES])
    axis.minorticks_off()
    axis.grid(alpha=0.2)
    axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser("scaling", description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, nargs="*", default=[64, 256, 1024])
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    table = {way: {n: efficiency(way, n) for n in DEVICES} for way in WAYS}
    why = simulate.lacks()
    rows = [] if why else simulated(options.ranks)
    if options.picture:
        draw(options.picture)
    if options.json:
        print(json.dumps({"efficiency": table, "simulated": rows}))
        return
    print("| % of a step in computing |" + "".join(f" {n} |" for n in DEVICES))
    print("|---|" + "---|" * len(DEVICES))
    for way, of in table.items():
        print(f"| {way} |" + "".join(f" {100 * of[n]:.0f} |" for n in DEVICES))
    print(f"\nnot simulated: {why}" if why else "\n| ranks | simulated, ms | by the model, ms |")
    for row in rows:
        print(
            f"| {row['ranks']} | {1e3 * row['simulated_s']:.1f} | {1e3 * row['model_s']:.1f} |"
            f" {row['took_s']:.0f} s"
        )


if __name__ == "__main__":
    main()
