"""Networks, losses, metrics and transforms of medical images."""

import numpy as np
import torch
from monai.inferers import sliding_window_inference
from monai.losses import DiceCELoss, FocalLoss, GeneralizedDiceLoss, SSIMLoss, TverskyLoss
from monai.metrics import DiceMetric, HausdorffDistanceMetric
from monai.networks.nets import AttentionUnet, SegResNet, UNet
from monai.transforms import (
    GaussianSmooth,
    RandAffine,
    RandFlip,
    RandGaussianNoise,
    Resize,
    Rotate,
    ScaleIntensity,
    Spacing,
)
from monai.utils import set_determinism
from report import report

set_determinism(0)
x, y = torch.randn(2, 1, 32, 32), torch.randint(0, 2, (2, 1, 32, 32))
net = UNet(2, 1, 2, channels=(4, 8, 16), strides=(2, 2), num_res_units=1)
optimizer = torch.optim.Adam(net.parameters(), 1e-2)
loss_of = DiceCELoss(to_onehot_y=True, softmax=True)
for _ in range(3):
    loss = loss_of(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    report("loss", loss, 1e-3)
small = y[:, :, :8, :8]
for kind in (GeneralizedDiceLoss, TverskyLoss):
    report(kind.__name__, kind(to_onehot_y=True, softmax=True)(torch.randn(2, 2, 8, 8), small))
report("focal", FocalLoss(to_onehot_y=True)(torch.randn(2, 2, 8, 8), small.float()))
report("ssim", SSIMLoss(2)(torch.rand(2, 1, 16, 16), torch.rand(2, 1, 16, 16)))
seen = torch.nn.functional.one_hot(torch.randint(0, 2, (2, 12, 12)), 2).permute(0, 3, 1, 2)
report("dice", DiceMetric()(seen, seen.flip(2)))
report("hausdorff", HausdorffDistanceMetric(percentile=95)(seen, seen.flip(2)))
image = torch.randn(1, 1, 40, 40)
net.eval()
whole = sliding_window_inference(image, (16, 16), 2, net, overlap=0.25, mode="gaussian")
report("sliding", whole, 1e-3)
for make, size in (
    (lambda: SegResNet(2, 8, 1, 2), 32),
    (lambda: AttentionUnet(2, 1, 2, (4, 8), (2,)), 16),
):
    torch.manual_seed(3)
    report("net", make()(torch.randn(1, 1, size, size)).sum(), 1e-3)
image = torch.tensor(np.random.default_rng(0).normal(size=(1, 20, 20)).astype("float32"))
for change in (
    ScaleIntensity(), RandFlip(1.0), RandGaussianNoise(1.0), Resize((9, 11)), Rotate(0.4),
    GaussianSmooth(1.2), Spacing((2.0, 1.5)),
    RandAffine(1.0, rotate_range=0.5, shear_range=0.2, padding_mode="zeros"),
):  # fmt: skip
    if hasattr(change, "set_random_state"):
        change.set_random_state(3)
    report(type(change).__name__, change(image))
