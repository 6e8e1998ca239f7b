"""Distances of pictures by networks, as measures and as losses."""

import lpips
import torch
from report import report

torch.manual_seed(0)
a = torch.rand(2, 3, 64, 64) * 2 - 1
b = (a + 0.2 * torch.randn(2, 3, 64, 64)).clamp(-1, 1).requires_grad_()
for net in ("alex", "vgg", "squeeze"):
    torch.manual_seed(1)
    loss = lpips.LPIPS(net=net, pnet_rand=True, verbose=False)
    distance = loss(a, b)
    report(net, distance, 1e-3)
    (gradient,) = torch.autograd.grad(distance.sum(), b)
    report("gradient", gradient[:, :, ::8, ::8], 1e-3)
    report("map", lpips.LPIPS(net=net, pnet_rand=True, verbose=False, spatial=True)(a, b).shape)
report("l2", lpips.L2(colorspace="RGB", use_gpu=False)(a[:1], b[:1].detach()), 1e-3)
report("picture", lpips.tensor2im(a[:1])[::16, ::16].tolist())
