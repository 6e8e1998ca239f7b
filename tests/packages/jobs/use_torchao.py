"""Numbers of few bits by blocks, and layers of them."""

import torch
from report import report
from torch import nn
from torchao.quantization import (
    Float8WeightOnlyConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8WeightOnlyConfig,
    quantize_,
)
from torchao.quantization.quant_primitives import (
    MappingType,
    choose_qparams_affine,
    dequantize_affine,
    quantize_affine,
)

torch.manual_seed(0)
x = torch.randn(8, 64)
for mapping in (MappingType.SYMMETRIC, MappingType.ASYMMETRIC):
    for block in ((1, 64), (8, 64), (1, 16)):
        scale, zero = choose_qparams_affine(x, mapping, block, torch.int8)
        q = quantize_affine(x, block, scale, zero, torch.int8)
        back = dequantize_affine(q, block, scale, zero, torch.int8)
        report(f"affine {mapping.name} {block}", [scale, zero.float(), q.float(), back])
for config in (
    Int8WeightOnlyConfig(),
    Int8DynamicActivationInt8WeightConfig(),
    Float8WeightOnlyConfig(),
):
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 16))
    quantize_(net, config)
    report(type(config).__name__, net(x), 1e-3)
