"""Networks that label pixels, their losses and measures."""

import segmentation_models_pytorch as smp
import torch
from report import report

x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(5))
labels = (x[:, :1] > 0).long()
for kind in (smp.Unet, smp.FPN, smp.DeepLabV3Plus):
    torch.manual_seed(0)
    net = kind("resnet18", encoder_weights=None, classes=1)
    out = net(x)
    report(kind.__name__, out[:, :, ::8, ::8], 1e-3)
    for loss in (smp.losses.DiceLoss("binary"), smp.losses.FocalLoss("binary")):
        report(type(loss).__name__, loss(out, labels))
counts = smp.metrics.get_stats((out > 0).long(), labels, mode="binary")
report("iou", smp.metrics.iou_score(*counts, reduction="micro"), 1e-2)
