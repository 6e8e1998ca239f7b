#!/bin/sh
# A vendor has a chip with six runtime functions, a C compiler and a Tenon wheel. Everything runs on the
# chip's memory the first day; a dozen kernels later nearly nothing leaves it.
#
#     tests/stories/vendor.sh FOLDER     FOLDER holds the wheel; nothing comes from a network
set -eu
. "$(dirname "$0")/fresh.sh"

cat >train.py <<'END'
"""Trains on the chip as on the CPU, and says how often the CPU helped: train.py [MOST]"""
import json
import sys
from pathlib import Path

import tenon as tn


def train(device):
    tn.manual_seed(0)
    x = tn.rand(256, 8)
    x, y = x.to(device), (x.sum(1) > 4).long().to(device)
    net = tn.nn.Sequential(
        tn.nn.Linear(8, 32), tn.nn.LayerNorm(32), tn.nn.SiLU(), tn.nn.Linear(32, 2)
    ).to(device)
    opt = tn.optim.AdamW(net.parameters(), lr=0.02)
    losses = []
    for _ in range(20):
        opt.zero_grad()
        loss = tn.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return tn.tensor(losses), net


cpu, _ = train("cpu")
chip, net = train("mychip")
assert chip[-1] < 0.4 and tn.allclose(cpu, chip, atol=1e-4), (cpu, chip)

names = json.loads(Path(tn.__path__[0], "ops.json").read_text())
names = [row["name"] for row in names] if isinstance(names, list) else list(names)
helped = {op: n for op in names if (n := tn.mychip.fallback_count(op)[1])}
print("the CPU helped with", helped or "nothing")
assert len(sys.argv) == 1 or sum(helped.values()) <= int(sys.argv[1]), helped

tn.save(net.state_dict(), "net.pt")
back = tn.load("net.pt")
assert all(v.device.type == "mychip" and tn.equal(v, back[k]) for k, v in net.state_dict().items())
assert "device='mychip:0'" in repr(net[0].bias)
x = tn.arange(6.0, device="mychip").reshape(2, 3)
x[:, 1:] *= 2
assert x.t().tolist() == [[0, 3], [2, 8], [4, 10]] and x[x > 3].tolist() == [4, 8, 10]
END

step "six functions: the project of tenon plugin new, as it is"
tenon plugin new mychip --kind device
cd mychip
line=$(grep '^cc ' README.md)
sh -c "$line"
tenon plugin check tenon_mychip.so
TENON_PLUGIN_PATH=$PWD
export TENON_PLUGIN_PATH
python ../train.py
kit=$(python -c 'import tenon, pathlib; print(*pathlib.Path(tenon.__path__[0]).rglob("tenon-conform"))')
"$kit" mychip --mode abi --mode test --op 'add' --op 'soft*' --op 'mm' --op '*norm*' --op 'cat' --level 0

step "the demo"
python "$stories/../../examples/demo.py" --device mychip --epochs 1 --steps 20 --out "$work/demo"

step "a dozen kernels"
cp "$stories/vendor_kernels.h" .
python - <<'END'
from pathlib import Path

source = Path("mychip.c")
before, rest = source.read_text().split("static const tn_kernel_row rows[] = {\n")
source.write_text(before + '#include "vendor_kernels.h"\n' + rest.split("};\n", 1)[1])
END
sh -c "$line"
python ../train.py 0
"$kit" mychip --mode abi --mode test --mode grad --op 'add' --op 'soft*' --op 'mm' --op '*norm*' --op 'where' \
    --op 'linear' --op '*embedding*' --op 'sum' --dtype float32 --level 0
tenon coverage mychip | tail -n 5
step "done"
