"""Decoders on encoders, losses, metrics, training steps."""

import segmentation_models_pytorch as smp
import torch
from report import report

x = torch.randn(2, 3, 128, 128, generator=torch.Generator().manual_seed(0))
for name in (
    "Unet",
    "UnetPlusPlus",
    "FPN",
    "PSPNet",
    "Linknet",
    "MAnet",
    "PAN",
    "DeepLabV3",
    "DeepLabV3Plus",
    "UPerNet",
):
    torch.manual_seed(0)
    model = getattr(smp, name)("resnet18", encoder_weights=None, classes=2).eval()
    with torch.no_grad():
        report(name, model(x)[:, :, ::32, ::32], 1e-3)
torch.manual_seed(0)
former = smp.Segformer("mit_b0", encoder_weights=None, classes=2).eval()
report("mit", former(x)[:, :, ::32, ::32], 1e-3)
model = smp.Unet(
    "mobilenet_v2",
    encoder_weights=None,
    classes=1,
    decoder_attention_type="scse",
    aux_params={"classes": 2, "pooling": "avg"},
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
target = (x[:, :1] > 0.3).float()
for loss in (
    smp.losses.DiceLoss("binary"),
    smp.losses.JaccardLoss("binary"),
    smp.losses.FocalLoss("binary"),
    smp.losses.TverskyLoss("binary"),
    smp.losses.LovaszLoss("binary"),
    smp.losses.SoftBCEWithLogitsLoss(smooth_factor=0.1),
    smp.losses.MCCLoss(),
):
    mask, label = model(x)
    value = loss(mask, target)
    (value + label.square().mean()).backward()
    report("norm", torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0), 5e-3)
    optimizer.zero_grad()
    report("loss", value, 1e-3)
torch.manual_seed(1)
logits, classes = torch.randn(2, 4, 8, 8), torch.randint(0, 4, (2, 8, 8))
for loss in (
    smp.losses.DiceLoss("multiclass"),
    smp.losses.FocalLoss("multiclass"),
    smp.losses.LovaszLoss("multiclass"),
    smp.losses.SoftCrossEntropyLoss(smooth_factor=0.1),
):
    report("multiclass", loss(logits, classes))
counts = smp.metrics.get_stats(logits.argmax(1), classes, mode="multiclass", num_classes=4)
report("counts", torch.stack(counts).float())
for name in ("iou_score", "f1_score", "accuracy", "recall", "precision"):
    for kind in ("micro", "macro", "weighted"):
        more = {"class_weights": [0.1, 0.2, 0.3, 0.4]} if kind == "weighted" else {}
        report(name, getattr(smp.metrics, name)(*counts, reduction=kind, **more))
