"""Predictions averaged over changes of the input."""

import torch
import ttach as tta
from report import report
from torch import nn

torch.manual_seed(0)
x = torch.rand(2, 3, 16, 16)
label = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
                      nn.Linear(16, 3)).eval()  # fmt: skip
mask = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 2, 1)).eval()
changes = tta.Compose([
    tta.HorizontalFlip(), tta.Rotate90(angles=[0, 90, 180]), tta.Scale(scales=[1, 2]),
    tta.Multiply(factors=[0.9, 1.1]),
])  # fmt: skip
for mode in ("mean", "gmean", "sum", "max", "min", "tsharpen"):
    net = nn.Sequential(label, nn.Softmax(1))
    report(mode, tta.ClassificationTTAWrapper(net, changes, merge_mode=mode)(x), 1e-3)
report("mask", tta.SegmentationTTAWrapper(mask, tta.aliases.d4_transform())(x))
report("crops", tta.ClassificationTTAWrapper(label, tta.aliases.ten_crop_transform(12, 12))(x))
