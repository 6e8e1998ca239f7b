"""Codebooks learned by averages, residual, without a lookup, by spheres and random projections."""

import torch
import vector_quantize_pytorch as vq
from report import report

numbers = torch.Generator().manual_seed(5)
x = torch.randn(2, 24, 16, generator=numbers)
for name, make in (
    ("plain", lambda: vq.VectorQuantize(dim=16, codebook_size=8, decay=0.8, commitment_weight=1.0)),
    ("kmeans", lambda: vq.VectorQuantize(dim=16, codebook_size=8, kmeans_init=True,
                                         kmeans_iters=3)),
    ("cosine", lambda: vq.VectorQuantize(dim=16, codebook_size=8, use_cosine_sim=True)),
    ("heads", lambda: vq.VectorQuantize(dim=16, codebook_size=8, heads=4, codebook_dim=4,
                                        separate_codebook_per_head=True)),
    ("dead", lambda: vq.VectorQuantize(dim=16, codebook_size=32, threshold_ema_dead_code=2)),
    ("orthogonal", lambda: vq.VectorQuantize(dim=16, codebook_size=8, orthogonal_reg_weight=10.0,
                                             learnable_codebook=True, ema_update=False)),
    ("rotation", lambda: vq.VectorQuantize(dim=16, codebook_size=8, rotation_trick=True)),
    ("residual", lambda: vq.ResidualVQ(dim=16, codebook_size=8, num_quantizers=3)),
    ("dropout", lambda: vq.ResidualVQ(dim=16, codebook_size=8, num_quantizers=4,
                                      stochastic_sample_codes=True, shared_codebook=True)),
    ("grouped", lambda: vq.GroupedResidualVQ(dim=16, codebook_size=8, num_quantizers=2, groups=2)),
    ("simple", lambda: vq.SimVQ(dim=16, codebook_size=8)),
    ("lookup free", lambda: vq.LFQ(dim=16, codebook_size=16, entropy_loss_weight=0.1)),
    ("finite", lambda: vq.FSQ(levels=[5, 3, 4], dim=16)),
    ("residual finite", lambda: vq.ResidualFSQ(dim=16, levels=[5, 3], num_quantizers=2)),
):  # fmt: skip
    torch.manual_seed(0)
    layer = make()
    for _ in range(2):
        a = x.clone().requires_grad_()
        results = layer(a)
        results = results if isinstance(results, tuple) else (results,)
        loss = sum(r.pow(2).mean() for r in results if r.is_floating_point())
        loss.backward()
        for place, result in enumerate(results[:3]):
            report(f"{name} {place}", result, 1e-3)
        if a.grad is not None:
            report(f"{name} slope", a.grad, 1e-3)
torch.manual_seed(1)
project = vq.RandomProjectionQuantizer(dim=16, num_codebooks=3, codebook_dim=4, codebook_size=8)
report("projections", project(x), 0)
