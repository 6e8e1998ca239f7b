"""Learners on pictures, tables and tensors: callbacks, schedules, losses, metrics, layers."""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from fastai.callback.mixup import MixUp
from fastai.tabular import all as T
from fastai.vision import all as V
from PIL import Image
from report import report

rng = np.random.default_rng(0)
frame = pd.DataFrame({
    "age": rng.integers(20, 60, 64).astype(float),
    "hours": rng.normal(size=64),
    "job": rng.choice(["a", "b", "c"], 64),
    "pay": rng.choice(["low", "high"], 64),
})  # fmt: skip
frame.loc[3, "hours"] = np.nan
V.set_seed(0)
data = T.TabularDataLoaders.from_df(
    frame,
    procs=[T.Categorify, T.FillMissing, V.Normalize],
    cat_names=["job"],
    cont_names=["age", "hours"],
    y_names="pay",
    valid_idx=list(range(48, 64)),
    bs=16,
    num_workers=0,
)
learn = T.tabular_learner(data, layers=[16, 8], metrics=[V.accuracy, T.RocAucBinary()])
with learn.no_bar(), learn.no_logging():
    learn.fit_one_cycle(2, 1e-2)
    report("tabular", [list(v) for v in learn.recorder.values], 1e-3)
    learn.fit_flat_cos(1, 1e-3, wd=0.1)
    report("validate", list(learn.validate()), 1e-3)
    guess, target = learn.get_preds()
report("guess", guess, 1e-3)
report("rates", learn.recorder.lrs, 1e-3)
with tempfile.TemporaryDirectory() as folder:
    for n in range(16):
        kind = Path(folder) / ("x" if n % 2 else "y")
        kind.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (40, 36, 3), dtype=np.uint8)).save(kind / f"{n}.png")
    V.set_seed(1)
    pictures = V.ImageDataLoaders.from_path_func(
        folder,
        sorted(Path(folder).rglob("*.png")),  # folders have no order
        V.parent_label,
        valid_pct=0.25,
        seed=1,
        bs=4,
        item_tfms=V.Resize(32),
        batch_tfms=[V.Normalize.from_stats(*V.imagenet_stats)],
        num_workers=0,
    )
    batch = pictures.one_batch()
    report("batch", batch[0].mean((0, 2, 3)))
    learn = V.vision_learner(
        pictures, V.resnet18, pretrained=False, metrics=V.error_rate, path=folder, normalize=False
    )
    with learn.no_bar(), learn.no_logging():
        learn.fine_tune(1, 1e-3)
        report("vision", [list(v) for v in learn.recorder.values], 5e-3)
        learn.add_cb(MixUp(0.4))
        learn.fit(1, 1e-4)
        # Weights times 1 + 1e-7 move this loss by 4 % in PyTorch.
        report("mixup", [list(v) for v in learn.recorder.values], 1e-1)
        learn.save("model")
        learn.load("model")
        report("validate", list(learn.validate()), 3e-2)
        report("predict", learn.predict(Path(folder, "x", "1.png"))[2], 3e-2)
V.set_seed(2)
x = V.TensorImage(torch.rand(2, 3, 16, 16))
for change in (
    V.Rotate(20, p=1.0),
    V.Zoom(1.0, 1.5, p=1.0),
    V.Warp(0.2, p=1.0),
    V.Flip(p=1.0),
    V.Brightness(0.3, p=1.0),
    V.Contrast(0.3, p=1.0),
    V.Saturation(0.3, p=1.0),
    V.RandomErasing(p=1.0),
):
    report(type(change).__name__, change(x, split_idx=0).mean((0, 2)), 1e-3)
out, target = torch.randn(4, 3), torch.tensor([0, 2, 1, 1])
for loss in (
    V.CrossEntropyLossFlat(),
    V.LabelSmoothingCrossEntropyFlat(),
    V.FocalLossFlat(),
):
    report(type(loss).__name__, loss(out, target))
report("dice", V.DiceLoss()(torch.randn(2, 3, 4, 4), torch.randint(0, 3, (2, 4, 4))))
report("xresnet", V.xresnet18(n_out=2, act_cls=V.Mish).eval()(torch.randn(1, 3, 32, 32)), 1e-3)
unet = V.DynamicUnet(V.create_body(V.resnet18(), pretrained=False), 2, (32, 32)).eval()
report("unet", unet(torch.ones(1, 3, 32, 32))[:, :, ::8, ::8], 1e-3)
for opt in (V.Adam, V.RAdam, V.Lamb, V.Larc, V.QHAdam, V.RMSProp, V.ranger):
    V.set_seed(3)
    model = torch.nn.Linear(4, 3)
    o = opt(list(model.parameters()), lr=0.01)
    for _ in range(4):
        torch.nn.functional.cross_entropy(model(torch.ones(4, 4)), target).backward()
        o.step()
        o.zero_grad()
    report(getattr(opt, "__name__", "opt"), model.weight, 1e-3)
