"""Optimizers without a schedule: steps, and the weights between and after them."""

import schedulefree
import torch
from report import report

for name, options in (
    ("SGDScheduleFree", {"lr": 0.1, "momentum": 0.9, "warmup_steps": 2}),
    ("AdamWScheduleFree", {"lr": 0.01, "warmup_steps": 2, "weight_decay": 0.1}),
    ("RAdamScheduleFree", {"lr": 0.01}),
    ("SGDScheduleFreeClosure", {"lr": 0.1}),
    ("AdamWScheduleFreeClosure", {"lr": 0.01}),
    ("RAdamScheduleFreeClosure", {"lr": 0.01}),
    ("SGDScheduleFreeReference", {"lr": 0.1}),
    ("AdamWScheduleFreeReference", {"lr": 0.01}),
):
    for foreach in (True, False):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))
        x, y = torch.randn(6, 4), torch.randn(6, 2)
        more = {} if "Reference" in name or "Closure" in name else {"foreach": foreach}
        optimizer = getattr(schedulefree, name)(model.parameters(), **options, **more)

        def closure(model=model, optimizer=optimizer, x=x, y=y):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            return loss

        optimizer.train() if hasattr(optimizer, "train") else None
        for _ in range(6):
            if "Closure" in name:
                optimizer.step(closure)
            else:
                closure()
                optimizer.step()
        report(f"{name} train", torch.cat([p.detach().flatten() for p in model.parameters()]))
        if hasattr(optimizer, "eval"):
            optimizer.eval()
            report(f"{name} eval", torch.cat([p.detach().flatten() for p in model.parameters()]))
        report("keys", len(optimizer.state_dict()["state"]))
torch.manual_seed(1)
model = torch.nn.Linear(3, 3)
wrapped = schedulefree.ScheduleFreeWrapper(
    torch.optim.SGD(model.parameters(), lr=0.01), momentum=0.9, weight_decay_at_y=0.1
)
wrapped.train()
for _ in range(4):
    model(torch.ones(2, 3)).square().sum().backward()
    wrapped.step()
    wrapped.zero_grad()
wrapped.eval()
report("wrapped", model.weight)
