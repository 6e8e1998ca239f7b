"""A small MACE: energies, forces and stresses of structures, and a trained step."""

import numpy as np
import torch
from ase.build import bulk, molecule
from e3nn import o3
from mace import data, modules, tools
from mace.tools import torch_geometric
from report import report

torch.set_default_dtype(torch.float64)
table = tools.AtomicNumberTable([1, 6, 8, 14])
torch.manual_seed(1)
shared = {
    "r_max": 3.5,
    "num_bessel": 4,
    "num_polynomial_cutoff": 5,
    "max_ell": 2,
    "num_interactions": 2,
    "num_elements": 4,
    "hidden_irreps": o3.Irreps("8x0e + 8x1o"),
    "MLP_irreps": o3.Irreps("8x0e"),
    "gate": torch.nn.functional.silu,
    "atomic_energies": np.array([1.0, 3.0, 2.0, 4.0]),
    "avg_num_neighbors": 4,
    "atomic_numbers": table.zs,
    "correlation": 2,
    "interaction_cls": modules.interaction_classes["RealAgnosticResidualInteractionBlock"],
    "interaction_cls_first": modules.interaction_classes["RealAgnosticInteractionBlock"],
}
model = modules.MACE(**shared)
structures = [molecule("CH3OH"), molecule("H2O"), bulk("Si") * (2, 1, 1)]
batch = next(
    iter(
        torch_geometric.dataloader.DataLoader(
            [
                data.AtomicData.from_config(data.config_from_atoms(a), z_table=table, cutoff=3.5)
                for a in structures
            ],
            3,
            shuffle=False,
        )
    )
)
found = model(batch.to_dict(), compute_stress=True, training=True)
for name in ("energy", "forces", "stress", "node_energy", "contributions"):
    report(name, found[name], 1e-6)
(found["energy"].pow(2).sum() + found["forces"].pow(2).sum()).backward()
report("slopes", [p.grad.norm() for p in model.parameters() if p.grad is not None], 1e-5)
optimizer = torch.optim.Adam(model.parameters(), 1e-2, amsgrad=True)
for _ in range(3):
    optimizer.zero_grad()
    found = model(batch.to_dict(), training=True)
    loss = found["energy"].sub(1).pow(2).mean() + found["forces"].pow(2).mean()
    loss.backward()
    optimizer.step()
    report("loss", loss, 1e-5)
torch.manual_seed(1)
scaled = modules.ScaleShiftMACE(**shared, atomic_inter_scale=0.8, atomic_inter_shift=0.1)
report("scaled", scaled(batch.to_dict())["energy"], 1e-6)
