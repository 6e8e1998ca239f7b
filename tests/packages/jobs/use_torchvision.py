"""The package itself: transforms of pictures with boxes, policies, regions, a detector."""

import numpy as np
import torch
import torchvision
from PIL import Image
from report import report
from torchvision import ops, tv_tensors, utils
from torchvision.transforms import v2

numbers = torch.Generator().manual_seed(5)
pixels = torch.randint(0, 256, (3, 37, 45), generator=numbers, dtype=torch.uint8)
picture = Image.fromarray(pixels.permute(1, 2, 0).numpy())
sample = {
    "image": tv_tensors.Image(pixels),
    "boxes": tv_tensors.BoundingBoxes(
        [[2, 3, 10, 12], [5, 5, 8, 20.0]], format="XYWH", canvas_size=(37, 45)
    ),
    "masks": tv_tensors.Mask(torch.randint(0, 2, (2, 37, 45), generator=numbers)),
    "labels": torch.tensor([1, 2]),
}
for transform in (
    v2.RandomAffine(20, (0.1, 0.2), (0.8, 1.2), 10), v2.RandomPerspective(0.5, 1.0),
    v2.RandomResizedCrop(16), v2.RandomIoUCrop(), v2.RandomZoomOut(p=1.0), v2.ElasticTransform(),
    v2.RandomRotation(30, expand=True), v2.ScaleJitter((30, 30)), v2.RandomPhotometricDistort(),
):  # fmt: skip
    torch.manual_seed(0)
    for name, value in transform(sample).items():
        report(f"{type(transform).__name__} {name}", value)
for transform in (v2.AutoAugment(), v2.RandAugment(), v2.TrivialAugmentWide(), v2.AugMix()):
    for seed in range(3):
        torch.manual_seed(seed)
        report(type(transform).__name__, np.asarray(transform(picture)).astype(float).mean((0, 1)))
torch.manual_seed(0)
report("mixed", v2.MixUp(num_classes=3)(torch.rand(2, 3, 4, 4), torch.tensor([0, 2])))
features = torch.randn(2, 8, 9, 9, generator=numbers, requires_grad=True)
boxes = torch.tensor([[0, 1, 1, 7, 7], [1, 0, 2, 5, 8.0]])
for name, result in (
    ("align", ops.roi_align(features, boxes, 3, 0.9, 2)),
    ("pool", ops.roi_pool(features, boxes, 3, 0.9)),
    ("cells align", ops.ps_roi_align(features, boxes, 2, 0.9, 2)),
    ("cells pool", ops.ps_roi_pool(features, boxes, 2, 0.9)),
    ("deformed", ops.DeformConv2d(8, 2, 3)(features, torch.rand(2, 18, 7, 7, generator=numbers))),
):
    report(name, result)
    report(f"{name} slope", torch.autograd.grad(result.pow(2).sum(), features)[0])
corners = torch.rand(40, 4, generator=numbers) * 20
corners[:, 2:] += corners[:, :2]
report("kept", ops.nms(corners, torch.rand(40, generator=numbers), 0.3), 0)
report("drawn", utils.draw_bounding_boxes(pixels, corners[:3], colors="red").float().mean((1, 2)))
torch.manual_seed(0)
detector = torchvision.models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(
    weights=None, weights_backbone=None, num_classes=4, min_size=64, max_size=96
)
torch.manual_seed(1)
found = detector(
    [torch.rand(3, 60, 70, generator=numbers)],
    [{"boxes": torch.tensor([[5.0, 6, 40, 50]]), "labels": torch.tensor([3])}],
)
sum(found.values()).backward()
report("losses", list(found.values()), 1e-3)
report("slopes", [p.grad.norm() for p in detector.roi_heads.parameters()], 1e-2)
# In float64: of a batch of two, float32 leaves PyTorch's own gradients two digits.
for name in ("regnet_x_400mf", "googlenet", "densenet121", "shufflenet_v2_x0_5"):
    torch.manual_seed(0)
    model = getattr(torchvision.models, name)(weights=None).double()
    torch.manual_seed(1)
    out = model(torch.rand(2, 3, 64, 64, generator=numbers, dtype=torch.float64))
    out = out[0] if isinstance(out, tuple) else out
    out.pow(2).mean().backward()
    report(name, out, 1e-9)
    report("slopes", [p.grad.norm() for p in model.parameters() if p.grad is not None], 1e-8)
