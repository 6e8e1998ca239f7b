"""Attributions of a network's outputs to its inputs."""

import torch
from captum.attr import (
    DeepLift,
    FeatureAblation,
    GuidedBackprop,
    InputXGradient,
    IntegratedGradients,
    LayerGradCam,
    NoiseTunnel,
    Occlusion,
    Saliency,
    ShapleyValueSampling,
)
from report import report
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).eval()
x = torch.randn(3, 4)
for method in (IntegratedGradients, Saliency, InputXGradient, DeepLift, GuidedBackprop,
               FeatureAblation, ShapleyValueSampling):  # fmt: skip
    report(method.__name__, method(net).attribute(x.clone().requires_grad_(), target=1))
report("noise", NoiseTunnel(Saliency(net)).attribute(x, nt_samples=3, target=1))
pictures = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2)).eval()
image = torch.randn(1, 1, 6, 6)
report("cam", LayerGradCam(pictures, pictures[0]).attribute(image, target=1))
report("occlusion", Occlusion(pictures).attribute(image, (1, 3, 3), target=0))
