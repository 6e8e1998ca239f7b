"""Tensors under names, and modules that read and write them."""

import torch
from report import report
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential

torch.manual_seed(0)
data = TensorDict({"a": torch.randn(4, 3), "nested": {"b": torch.arange(4)}}, batch_size=[4])
report("slice", data[1:3]["nested", "b"])
report("stack", torch.stack([data, data * 2], 0)["a"])
report("reshape", data.view(2, 2)["a"].sum(1))
net = TensorDictSequential(
    TensorDictModule(torch.nn.Linear(3, 5), in_keys=["a"], out_keys=["hidden"]),
    TensorDictModule(torch.nn.Tanh(), in_keys=["hidden"], out_keys=["out"]),
)
report("module", net(data)["out"])
