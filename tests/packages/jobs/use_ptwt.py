"""Wavelet transforms in one to three dimensions, by convolutions and matrices, and packets."""

import ptwt
import torch
from report import report

numbers = torch.Generator().manual_seed(3)
line = torch.randn(2, 64, generator=numbers, dtype=torch.float64, requires_grad=True)
for wavelet in ("haar", "db3", "sym4", "bior2.2"):
    for mode in ("zero", "reflect", "periodic", "constant", "symmetric"):
        parts = ptwt.wavedec(line, wavelet, mode=mode, level=2)
        report(
            f"{wavelet} {mode}", [p.sum() for p in parts] + [p.pow(2).sum() for p in parts], 1e-8
        )
        report("back", ptwt.waverec(parts, wavelet), 1e-8)
    flat = torch.randn(2, 16, 20, generator=numbers, dtype=torch.float64)
    for p in ptwt.wavedec2(flat, wavelet, level=2):
        report("plane", torch.stack(list(p)).flatten() if isinstance(p, tuple) else p, 1e-8)
    report("plane back", ptwt.waverec2(ptwt.wavedec2(flat, wavelet, level=2), wavelet), 1e-8)
    solid = torch.randn(1, 8, 8, 8, generator=numbers, dtype=torch.float64)
    report("solid", ptwt.wavedec3(solid, wavelet, level=1)[1]["aad"], 1e-8)
matrix = ptwt.MatrixWavedec("db2", level=3)
report("matrix", torch.cat(matrix(line.detach()), -1), 1e-8)
report("matrix back", ptwt.MatrixWaverec("db2")(matrix(line.detach())), 1e-8)
report("plane matrix", ptwt.MatrixWavedec2("haar", level=2)(flat)[0], 1e-8)
packets = ptwt.WaveletPacket(line.detach(), "db2", mode="reflect", maxlevel=3)
report("packets", torch.stack([packets[n] for n in packets.get_level(3)]), 1e-8)
report("packets plane", ptwt.WaveletPacket2D(flat, "haar", maxlevel=2)["ah"], 1e-8)
scales = torch.arange(1, 9).numpy()
report("continuous", ptwt.cwt(line.detach(), scales, "mexh")[0].real, 1e-8)
report("stationary", torch.cat(ptwt.swt(line.detach(), "db2", level=2), -1), 1e-8)
loss = sum(p.abs().sum() for p in ptwt.wavedec(line, "db4", level=3))
report("slope", torch.autograd.grad(loss, line)[0], 1e-8)
