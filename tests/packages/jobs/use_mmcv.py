"""Blocks of mmcv's lite package: convolutions, norms, attention, transforms of pictures."""

import numpy as np
import torch
from mmcv import cnn, transforms
from mmcv.cnn.bricks.transformer import FFN, MultiheadAttention, PatchEmbed
from report import report

numbers = torch.Generator().manual_seed(3)
x = torch.randn(2, 4, 10, 12, generator=numbers, requires_grad=True)
for options in (
    {},
    {"norm_cfg": {"type": "BN"}},
    {"norm_cfg": {"type": "GN", "num_groups": 2}, "act_cfg": {"type": "LeakyReLU"}},
    {"padding_mode": "reflect"},
    {"with_spectral_norm": True},
    {"order": ("norm", "conv", "act"), "norm_cfg": {"type": "IN"}},
    {"conv_cfg": {"type": "ConvAWS"}},
    {"conv_cfg": {"type": "ConvWS"}},
    {"act_cfg": {"type": "HSwish"}},
    {"act_cfg": {"type": "GELU"}},
):
    torch.manual_seed(1)
    block = cnn.ConvModule(4, 6, 3, padding=1, **options)
    out = block(x)
    report(f"block {options}", out)
    report("slope", torch.autograd.grad(out.pow(2).sum(), x)[0], 1e-3)
for name, options in (
    ("NonLocal2d", {"in_channels": 4}),
    ("ContextBlock", {"in_channels": 4, "ratio": 0.5}),
    ("GeneralizedAttention", {"in_channels": 4, "num_heads": 2, "spatial_range": -1}),
    ("DepthwiseSeparableConvModule", {"in_channels": 4, "out_channels": 4, "kernel_size": 3}),
):
    torch.manual_seed(1)
    block = getattr(cnn, name)(**options)
    out = block(x)
    report(name, out)
    report("slope", torch.autograd.grad(out.pow(2).sum(), x)[0], 1e-3)
torch.manual_seed(1)
queries = torch.randn(5, 2, 16, generator=numbers)
report("attention", MultiheadAttention(16, 4)(queries))
report("feedforward", FFN(16, 32, ffn_drop=0.0)(queries))
report("patches", PatchEmbed(4, 8, kernel_size=4, stride=4)(x)[0])
for up in ("nearest", "bilinear", "deconv", "pixel_shuffle"):
    torch.manual_seed(1)
    options = (
        {"scale_factor": 2}
        if up in ("nearest", "bilinear")
        else {"in_channels": 4, "out_channels": 3}
    )
    options |= (
        {"kernel_size": 3, "stride": 2}
        if up == "deconv"
        else {"scale_factor": 2, "upsample_kernel": 3}
        if up == "pixel_shuffle"
        else {}
    )
    report(up, cnn.build_upsample_layer({"type": up, **options})(x))
net = cnn.ResNet(18)
torch.manual_seed(1)
net.init_weights()
net.eval()
report("resnet", net(torch.randn(1, 3, 32, 32, generator=numbers))[-1], 1e-3)
picture = np.random.RandomState(3).randint(0, 255, (20, 24, 3), np.uint8)
np.random.seed(1)
for transform in (
    transforms.Resize((12, 10)),
    transforms.RandomFlip(1.0),
    transforms.Normalize([1, 2, 3], [4, 5, 6]),
    transforms.CenterCrop(8),
    transforms.Pad((32, 32)),
):
    report(
        type(transform).__name__,
        transform({"img": picture.astype(np.float32), "img_shape": picture.shape[:2]})["img"],
    )
