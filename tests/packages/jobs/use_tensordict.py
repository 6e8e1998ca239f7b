"""Dictionaries of tensors: indexed, stacked, stored, as arguments of modules and of vmap."""

import tempfile

import torch
from report import report
from tensordict import TensorDict, from_module, lazy_stack, tensorclass
from tensordict.nn import (
    InteractionType,
    NormalParamExtractor,
    ProbabilisticTensorDictModule,
    ProbabilisticTensorDictSequential,
    TensorDictModule,
    set_interaction_type,
)

torch.manual_seed(0)
inner = {"c": torch.arange(8.0).reshape(4, 2)}
td = TensorDict({"a": torch.randn(4, 3), "b": inner}, batch_size=[4])
report("index", td[1:3]["b", "c"])
report("stack", torch.stack([td, td * 2], 0)["a"])
report("cat", torch.cat([td, td.clone()], 0)["b", "c"])
report("gather", torch.gather(td, 0, torch.tensor([2, 0]))["a"])
report("masked", td[td["a"][:, 0] > 0]["a"])
report("norm", td.norm()["a"])
report("permute", td.expand(2, 4).permute(1, 0)["a"])
report("lazy", [len(lazy_stack([TensorDict({"x": torch.ones(i + 1)}) for i in range(3)]))])
report("consolidated", td.consolidate()["b", "c"])
with tempfile.TemporaryDirectory() as folder:
    td.memmap(folder)
    report("memmap", TensorDict.load_memmap(folder)["b", "c"])
    torch.save(td, folder + "/t.pt")
    report("saved", torch.load(folder + "/t.pt", weights_only=False)["a"])


@tensorclass
class Data:
    x: torch.Tensor
    y: torch.Tensor


data = Data(x=torch.randn(3, 2), y=torch.zeros(3), batch_size=[3])
report("class", torch.stack([data[1:], data[1:]]).x)
layers = torch.nn.Sequential(torch.nn.Linear(3, 4), NormalParamExtractor())
actor = ProbabilisticTensorDictSequential(
    TensorDictModule(layers, in_keys=["a"], out_keys=["loc", "scale"]),
    ProbabilisticTensorDictModule(
        in_keys=["loc", "scale"],
        out_keys=["action"],
        distribution_class=torch.distributions.Normal,
        return_log_prob=True,
    ),
)
optimizer = torch.optim.Adam(actor.parameters())
for _ in range(3):
    loss = actor(td)["action"].pow(2).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    report("loss", loss)
with set_interaction_type(InteractionType.RANDOM):
    torch.manual_seed(2)
    out = actor(td)
report("random", out["action"])
report("probability", actor.get_dist(td).log_prob(out["action"]))
linear = torch.nn.Linear(3, 2)
with from_module(linear).data.mul(2).to_module(linear):
    report("functional", linear(td["a"]))
stacked = torch.stack([from_module(torch.nn.Linear(3, 2)) for _ in range(3)])


def call(params, value):
    with params.to_module(linear):
        return linear(value)


report("ensemble", torch.vmap(call, (0, None))(stacked, td["a"]))
report("mapped", torch.vmap(lambda t: t.apply(lambda v: v * 2))(td)["a"])
