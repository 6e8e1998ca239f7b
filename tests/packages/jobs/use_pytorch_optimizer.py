"""Every optimizer that steps without more, on the same model; schedules and losses."""

import pytorch_optimizer as po
import torch
from report import report

torch.set_default_dtype(torch.float64)


def closure_of(model, x, y):
    def closure():
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward(create_graph=False)
        return loss

    return closure


skip = {
    "lbfgs",  # goes away without a search
    "alice",  # eigenvectors of what has rank 1
    "bsam", "lookahead", "sam", "gsam", "wsam", "looksam", "friendlysam", "gcsam",
    "orthograd", "schedulefreewrapper", "pcgrad", "gradientcentralization",
}  # fmt: skip
for name in sorted(po.get_supported_optimizers()):
    if name in skip or "8bit" in name or "4bit" in name or "fp8" in name:
        continue
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Tanh(), torch.nn.Linear(6, 6))
    x, y = torch.randn(16, 6), torch.randn(16, 6)
    try:
        optimizer = po.load_optimizer(name)(model.parameters())
    except Exception as fault:
        report(f"{name} {type(fault).__name__}", 1)
        continue
    closure = closure_of(model, x, y)
    try:
        for _ in range(5):
            optimizer.zero_grad()
            loss = closure()
            optimizer.step(closure if name in ("lbfgs", "alig", "bsam") else None)
    except Exception as fault:
        report(f"{name} {type(fault).__name__}", 2)
        continue
    report(name, torch.cat([p.detach().flatten() for p in model.parameters()]), 1e-3)
