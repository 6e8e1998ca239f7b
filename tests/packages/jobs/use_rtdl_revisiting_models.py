"""Nets for tables."""

import torch
from report import report
from rtdl_num_embeddings import (
    LinearReLUEmbeddings,
    PeriodicEmbeddings,
    PiecewiseLinearEmbeddings,
    PiecewiseLinearEncoding,
    compute_bins,
)
from rtdl_revisiting_models import MLP, FTTransformer, ResNet

torch.manual_seed(0)
x, c = torch.randn(32, 5), torch.stack([torch.randint(3, (32,)), torch.randint(4, (32,))], 1)
y = torch.randn(32, 1)
bins = compute_bins(x, n_bins=6)
report("bins", bins)
models = {
    "mlp": MLP(d_in=5, d_out=1, n_blocks=2, d_block=16, dropout=0.1),
    "resnet": ResNet(
        d_in=5, d_out=1, n_blocks=2, d_block=16, d_hidden=None, d_hidden_multiplier=2.0,
        dropout1=0.2, dropout2=0.0,
    ),
    "transformer": FTTransformer(
        n_cont_features=5, cat_cardinalities=[3, 4], d_out=1, n_blocks=2, d_block=16,
        attention_n_heads=2, attention_dropout=0.1, ffn_d_hidden=None,
        ffn_d_hidden_multiplier=4 / 3, ffn_dropout=0.1, residual_dropout=0.0,
    ),
}  # fmt: skip
for name, model in models.items():
    groups = model.make_parameter_groups() if name == "transformer" else model.parameters()
    optimizer = torch.optim.AdamW(groups, 1e-3, weight_decay=1e-2)
    for _ in range(3):
        out = model(x, c) if name == "transformer" else model(x)
        loss = torch.nn.functional.mse_loss(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(name, loss, 1e-3)
torch.manual_seed(1)
for layer in (
    LinearReLUEmbeddings(5, 4),
    PeriodicEmbeddings(5, 4, lite=False),
    PeriodicEmbeddings(5, 4, lite=True),
    PiecewiseLinearEncoding(bins),
    PiecewiseLinearEmbeddings(bins, 4, activation=True, version="B"),
):
    report(type(layer).__name__, layer(x))
