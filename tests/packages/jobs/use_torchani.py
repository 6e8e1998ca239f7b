"""Energies of molecules from their surroundings, forces, and training on them."""

import torch
from report import report
from torchani.aev import AEVComputer
from torchani.arch import simple_ani
from torchani.grad import energies_and_forces

torch.manual_seed(0)
species = torch.tensor([[6, 1, 1, 1, 1], [8, 1, 1, -1, -1]])
coordinates = torch.randn(2, 5, 3) * 1.2
computer = AEVComputer.like_2x(num_species=3)
index = torch.tensor([[1, 0, 0, 0, 0], [2, 0, 0, -1, -1]])
report("surroundings", computer(index, coordinates), 1e-3)
model = simple_ani(("H", "C", "O"), lot="wb97x-631gd", ensemble_size=2)
pair = energies_and_forces(model, species, coordinates)
report("energies", pair[0], 1e-5)
report("forces", pair[1], 1e-3)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for _ in range(3):
    loss = model((species, coordinates)).energies.sub(torch.tensor([-40.5, -76.4])).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    report("loss", loss, 1e-2)
