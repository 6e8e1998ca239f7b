"""Colors, filters and geometry of pictures, with gradients."""

import kornia
import torch
from report import report

torch.manual_seed(0)
x = torch.rand(2, 3, 24, 20, requires_grad=True)
report("gray", kornia.color.rgb_to_grayscale(x).mean((2, 3)))
report("hsv", kornia.color.rgb_to_hsv(x).mean((2, 3)))
report("lab", kornia.color.rgb_to_lab(x).mean((2, 3)))
report("blur", kornia.filters.gaussian_blur2d(x, (5, 5), (1.5, 1.5)).std((2, 3)))
report("sobel", kornia.filters.sobel(x).mean((2, 3)))
report("canny", kornia.filters.canny(x.detach())[0].mean((2, 3)))
report("ssim", kornia.metrics.ssim(x, x.flip(0), 5).mean((2, 3)))
report("resize", kornia.geometry.resize(x, (12, 10)).mean((2, 3)))
angle = torch.tensor([30.0, -20.0])
turned = kornia.geometry.rotate(x, angle)
turned.pow(2).sum().backward()
report("rotate", turned.mean((2, 3)))
report("gradient", x.grad.mean((2, 3)))
