"""Voices taken apart: nets and the losses that find who is who."""

import torch
from asteroid.losses import (
    MixITLossWrapper,
    PITLossWrapper,
    SingleSrcMultiScaleSpectral,
    SinkPITLossWrapper,
    deep_clustering_loss,
    multisrc_neg_sisdr,
    pairwise_neg_sisdr,
    singlesrc_mse,
)
from asteroid.models import ConvTasNet, DPRNNTasNet, SuDORMRFNet
from report import report

torch.manual_seed(0)
mixture, sources = torch.randn(2, 1, 800), torch.randn(2, 2, 800)
loss = PITLossWrapper(pairwise_neg_sisdr, pit_from="pw_mtx")
for net in (
    ConvTasNet(n_src=2, n_filters=16, kernel_size=16, stride=8, n_blocks=2, n_repeats=1,
               bn_chan=8, hid_chan=12, skip_chan=8),
    DPRNNTasNet(n_src=2, n_filters=16, kernel_size=16, stride=8, bn_chan=8, hid_size=8,
                chunk_size=20, n_repeats=1),
    SuDORMRFNet(n_src=2, bn_chan=8, num_blocks=1, upsampling_depth=3, fb_name="free",
                n_filters=16, kernel_size=16, stride=8),
):  # fmt: skip
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    for _ in range(2):
        value = loss(net(mixture), sources)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        report(type(net).__name__, value, 1e-3)
estimates = torch.randn(2, 3, 800, requires_grad=True)
targets = torch.randn(2, 3, 800)
for name, measure in {
    "pair": PITLossWrapper(pairwise_neg_sisdr, pit_from="pw_mtx"),
    "points": PITLossWrapper(singlesrc_mse, pit_from="pw_pt"),
    "permutations": PITLossWrapper(multisrc_neg_sisdr, pit_from="perm_avg"),
    "sinkhorn": SinkPITLossWrapper(pairwise_neg_sisdr, n_iter=20),
}.items():
    estimates.grad = None
    value = measure(estimates, targets)
    value.backward()
    report(name, [value, estimates.grad], 1e-3)
report("mixit", MixITLossWrapper(multisrc_neg_sisdr)(torch.randn(2, 4, 800), targets[:, :2]), 1e-3)
report(
    "spectra",
    SingleSrcMultiScaleSpectral([256, 128], [256, 128], [64, 32])(targets[:, 0], targets[:, 1]),
    1e-3,
)
report("clusters", deep_clustering_loss(torch.randn(2, 30, 5), torch.randint(2, (2, 6, 5))), 1e-3)
