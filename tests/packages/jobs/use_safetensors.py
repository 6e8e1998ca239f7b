"""A state dict written and read, whole and by slices."""

import tempfile
from pathlib import Path

import torch
from report import report
from safetensors import safe_open
from safetensors.torch import load, load_file, save, save_file

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8))
state = {**net.state_dict(), "half": torch.randn(3, 2).bfloat16(), "flags": torch.tensor([True])}
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "model.safetensors"
    save_file(state, path, metadata={"format": "pt"})
    for name, t in sorted(load_file(path).items()):
        report(name, t.float())
    with safe_open(path, framework="pt") as file:
        report("slice", file.get_slice("0.weight")[2:5])
        report("keys", [len(k) for k in sorted(file.keys())])
report("bytes", [sum(save({"a": torch.arange(5)}))])
report("again", load(save(state))["1.weight"])
