"""Networks of splines: training with LBFGS, pruning, grids refined, symbolic functions."""

import tempfile

import torch
from kan import KAN, create_dataset
from report import report


def f(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(torch.sin(torch.pi * x[:, [0]]) + x[:, [1]] ** 2)


data = create_dataset(f, n_var=2, train_num=60, test_num=20, seed=1)
report("data", data["train_label"])
model = KAN(width=[2, 3, 1], grid=3, k=3, seed=1, ckpt_path=tempfile.mkdtemp(), auto_save=False)
report("first", model(data["test_input"]))
for lamb in (0.0, 0.01):
    r = model.fit(data, opt="Adam", steps=4, lr=0.01, update_grid=False, lamb=lamb)
    report(f"losses {lamb}", [*map(float, r["train_loss"] + r["test_loss"] + r["reg"])])
model = KAN(
    width=[2, [2, 1], 1], grid=5, k=2, seed=2, ckpt_path=tempfile.mkdtemp(), auto_save=False
)
model(data["train_input"])
model.attribute()
report("attributed", [*model.node_scores, *model.edge_scores])
model.fix_symbolic(0, 0, 0, "sin", verbose=False, fit_params_bool=False)
report("symbolic", model(data["test_input"]))
