"""Modules traced: values saved, set, gradients of inner results, edits."""

import torch
from nnsight import NNsight
from report import report

torch.manual_seed(1)
net = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
model = NNsight(net)
given = torch.randn(2, 5)
with model.trace(given):
    inner = model[0].output.save()
    last = model.output.save()
report("saved", [*inner.flatten(), *last.flatten()])
with model.trace(given):
    model[0].output[:, 2] = 4.0
    last = model.output.save()
report("set", last)
with model.trace(given):
    model[1].output = model[1].output * 2
    last = model[2].input.save()
report("doubled", last)
with model.trace(given):
    hidden = model[0].output
    hidden.requires_grad_()
    loss = model.output.pow(2).sum()
    with loss.backward():
        slope = hidden.grad.save()
report("slope", slope)
