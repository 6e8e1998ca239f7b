"""Maps of what a net looks at."""

import torch
from pytorch_grad_cam import (
    KPCA_CAM,
    AblationCAM,
    EigenCAM,
    EigenGradCAM,
    FullGrad,
    GradCAM,
    GradCAMElementWise,
    GradCAMPlusPlus,
    GuidedBackpropReLUModel,
    HiResCAM,
    LayerCAM,
    ScoreCAM,
    ShapleyCAM,
    XGradCAM,
)
from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget
from report import report
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1),
    nn.BatchNorm2d(8),
    nn.ReLU(),
    nn.Conv2d(8, 8, 3, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(2),
    nn.Flatten(),
    nn.Linear(32, 4),
).eval()
x = torch.randn(2, 3, 16, 16)
for kind in (
    GradCAM,
    GradCAMPlusPlus,
    HiResCAM,
    LayerCAM,
    XGradCAM,
    EigenCAM,
    ScoreCAM,
    AblationCAM,
    EigenGradCAM,
    GradCAMElementWise,
    FullGrad,
    KPCA_CAM,
    ShapleyCAM,
):
    with kind(model=net, target_layers=[net[3]]) as cam:
        cam.batch_size = 4
        m = cam(input_tensor=x, targets=[ClassifierOutputTarget(1), ClassifierOutputTarget(2)])
        report(kind.__name__, m.tolist(), 1e-3)
report("guided", GuidedBackpropReLUModel(net, "cpu")(x[:1], 1).tolist())
