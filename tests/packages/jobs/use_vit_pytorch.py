"""Vision transformers."""

import torch
from report import report
from vit_pytorch import SimpleViT, ViT
from vit_pytorch.cait import CaiT

x = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(5))
torch.manual_seed(0)
common = {"image_size": 16, "patch_size": 4, "num_classes": 3, "dim": 16, "mlp_dim": 32}
for net in (
    ViT(depth=2, heads=2, dropout=0.1, **common),
    SimpleViT(depth=2, heads=2, **common),
    CaiT(depth=2, cls_depth=1, heads=2, layer_dropout=0.05, **common),
):
    loss = torch.nn.functional.cross_entropy(net(x), torch.tensor([0, 2]))
    loss.backward()
    report(type(net).__name__, loss)
    report(type(net).__name__, [p.grad.abs().sum() for p in net.parameters()], 1e-3)
