"""Measures of pictures, and their slopes."""

import piq
import torch
from report import report

numbers = torch.Generator().manual_seed(5)
x = torch.rand(2, 3, 64, 72, generator=numbers)
y = (x + 0.1 * torch.randn(2, 3, 64, 72, generator=numbers)).clamp(0, 1)
for name, measure in (
    ("psnr", piq.psnr),
    ("ssim", lambda a, b: piq.ssim(a, b, downsample=False)),
    ("ms ssim", lambda a, b: piq.multi_scale_ssim(a, b, kernel_size=3)),
    ("vif", piq.vif_p),
    ("fsim", piq.fsim),
    ("srsim", piq.srsim),
    ("gmsd", piq.gmsd),
    ("ms gmsd", lambda a, b: piq.multi_scale_gmsd(a, b, chromatic=True)),
    ("vsi", piq.vsi),
    ("dss", piq.dss),
    ("haarpsi", piq.haarpsi),
    ("mdsi", piq.mdsi),
    ("tv", lambda a, b: piq.total_variation(a)),
):
    a = x.clone().requires_grad_()
    value = measure(a, y)
    value.backward()
    report(name, value)
    report(f"{name} slope", a.grad[:, :, ::8, ::8], 1e-3)
first, second = torch.rand(30, 8, generator=numbers), torch.rand(40, 8, generator=numbers)
report("fid", piq.FID()(first.double(), second.double()), 1e-3)
torch.manual_seed(0)
report("kid", piq.KID(subset_size=20, average=False)(first, second), 1e-2)
report("recall", piq.PR()(first, second))
report("inception", piq.inception_score(first, num_splits=3)[0])
