"""EfficientNet and what it gives on the way."""

import torch
from efficientnet_pytorch import EfficientNet
from report import report

torch.manual_seed(0)
m = EfficientNet.from_name("efficientnet-b0", num_classes=5, image_size=64).eval()
x = torch.randn(1, 3, 64, 64)
out = m(x)
report("b0", out, 1e-3)
for n, p in m.extract_endpoints(x).items():
    report(n, p.mean((2, 3)), 1e-3)
