"""Similarities of images."""

import torch
from pytorch_msssim import SSIM, ms_ssim, ssim
from report import report

torch.manual_seed(0)
a = torch.rand(2, 3, 176, 176)
b = (a + 0.1 * torch.randn_like(a)).clamp(0, 1).requires_grad_()
report("ssim", ssim(a, b, data_range=1.0, size_average=False))
loss = 1 - ms_ssim(a, b, data_range=1.0)
loss.backward()
report("loss", loss)
report("gradient", b.grad[0, 0, :8, :8], 1e-3)
report("module", SSIM(data_range=1.0, channel=3)(a, b))
report(
    "3d",
    ssim(
        a[:, :, None].expand(-1, -1, 12, -1, -1)[..., :20, :20],
        b[:, :, None].expand(-1, -1, 12, -1, -1)[..., :20, :20],
        data_range=1.0,
    ),
)
