"""Architectures found by their weights, upscalers and restorers of small sizes."""

import torch
from report import report
from spandrel import ImageModelDescriptor, ModelLoader
from spandrel.architectures.Compact import Compact
from spandrel.architectures.DAT import DAT
from spandrel.architectures.ESRGAN import ESRGAN
from spandrel.architectures.SwinIR import SwinIR

x = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))
for name, make in (
    ("esrgan", lambda: ESRGAN(num_filters=8, num_blocks=1, scale=2)),
    ("compact", lambda: Compact(num_feat=8, num_conv=2, upscale=2)),
    (
        "swinir",
        lambda: SwinIR(
            img_size=16, depths=[2], num_heads=[2], embed_dim=12, window_size=8, upscale=2,
            upsampler="pixelshuffle", mlp_ratio=2,
        ),
    ),
    (
        "dat",
        lambda: DAT(
            img_size=16, embed_dim=32, depth=[2], num_heads=[2], split_size=[4, 4],
            upscale=2, expansion_factor=2.0,
        ),
    ),
):  # fmt: skip
    torch.manual_seed(0)
    net = make().eval()
    report(name, net(x)[:, :, ::4, ::4], 1e-3)
    found = ModelLoader().load_from_state_dict(net.state_dict())
    assert isinstance(found, ImageModelDescriptor)
    report("scale", [found.scale, found.input_channels])
    report("again", found(x)[:, :, ::4, ::4], 1e-3)
