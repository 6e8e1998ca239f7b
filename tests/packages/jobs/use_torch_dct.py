"""Cosine transforms."""

import torch
import torch_dct as dct
from report import report

x = torch.randn(3, 6, 8, generator=torch.Generator().manual_seed(0), requires_grad=True)
for norm in (None, "ortho"):
    for name in ("dct", "idct", "dct1", "idct1", "dct_2d", "idct_2d", "dct_3d", "idct_3d"):
        f = getattr(dct, name)
        y = f(x) if name.endswith("t1") else f(x, norm=norm)
        x.grad = None
        y.pow(2).sum().backward()
        report(f"{name} {norm}", [y, x.grad])
layer = dct.LinearDCT(8, "dct", norm="ortho")
report("linear", layer(x))
