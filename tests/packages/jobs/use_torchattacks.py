"""Attacks on a network."""

import torch
import torchattacks as ta
from report import report

torch.manual_seed(0)
net = torch.nn.Sequential(
    torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 4)
).eval()
x = torch.rand(3, 3, 8, 8)
y = torch.tensor([0, 1, 2])
for n, kw in (
    ("FGSM", {}),
    ("BIM", {}),
    ("PGD", {"steps": 3}),
    ("PGDL2", {"steps": 3}),
    ("CW", {"steps": 5}),
    ("MIFGSM", {"steps": 3}),
    ("DIFGSM", {"steps": 3}),
    ("TIFGSM", {"steps": 2}),
    ("NIFGSM", {"steps": 3}),
    ("VMIFGSM", {"steps": 2, "N": 2}),
    ("RFGSM", {"steps": 2}),
    ("TPGD", {"steps": 3}),
    ("FFGSM", {}),
    ("GN", {}),
    ("OnePixel", {"steps": 2, "popsize": 4}),
    ("DeepFool", {"steps": 3}),
    ("SparseFool", {"steps": 2}),
    ("Square", {"n_queries": 5}),
    ("APGD", {"steps": 3}),
    ("Jitter", {"steps": 2}),
    ("EOTPGD", {"steps": 2}),
    ("UPGD", {"steps": 2}),
    ("PIFGSM", {}),
    ("SINIFGSM", {"steps": 2}),
    ("Pixle", {"max_iterations": 2, "restarts": 1}),
    ("FAB", {"steps": 2, "n_classes": 4}),
    ("JSMA", {}),
):
    torch.manual_seed(1)
    import random

    import numpy

    random.seed(0)
    numpy.random.seed(0)
    report(n, getattr(ta, n)(net, **kw)(x, y), 1e-3)
