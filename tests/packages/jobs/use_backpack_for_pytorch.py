"""Gradients of each sample, their variance, and diagonals of curvature, by one backward pass."""

import torch
from backpack import backpack, extend
from backpack.extensions import BatchGrad, BatchL2Grad, DiagGGNExact, DiagHessian, Variance
from report import report

torch.manual_seed(0)
model = extend(
    torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3),
        torch.nn.Sigmoid(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(8, 3),
    )
)
loss = extend(torch.nn.CrossEntropyLoss())
x, y = torch.randn(4, 1, 6, 6), torch.tensor([0, 1, 2, 1])
with backpack(BatchGrad(), BatchL2Grad(), Variance(), DiagGGNExact(), DiagHessian()):
    loss(model(x), y).backward()
for name, p in model.named_parameters():
    report(name, p.grad, 1e-3)
    for kind in ("grad_batch", "batch_l2", "variance", "diag_ggn_exact", "diag_h"):
        report(f"{name} {kind}", getattr(p, kind), 1e-3)
