"""Volumes: changes of them by chance, patches and their sums."""

import torch
import torchio as tio
from report import report

torch.manual_seed(0)
subject = tio.Subject(
    t1=tio.ScalarImage(tensor=torch.rand(1, 16, 18, 14)),
    label=tio.LabelMap(tensor=(torch.rand(1, 16, 18, 14) > 0.7).float()),
)
for change in (
    tio.RandomFlip(axes=(0, 1), flip_probability=0.7),
    tio.RandomAffine(scales=0.1, degrees=10, translation=2),
    tio.RandomElasticDeformation(num_control_points=6, max_displacement=2),
    tio.RandomNoise(std=0.1),
    tio.RandomBlur(std=1),
    tio.RandomBiasField(coefficients=0.4),
    tio.RandomGamma(log_gamma=0.3),
    tio.RandomSpike(intensity=0.5),
    tio.RandomGhosting(num_ghosts=2),
    tio.RandomMotion(num_transforms=1),
    tio.RandomAnisotropy(),
    tio.RandomSwap(patch_size=4, num_iterations=3),
    tio.ZNormalization(),
    tio.RescaleIntensity((0, 1), percentiles=(1, 99)),
    tio.CropOrPad((12, 20, 12)),
    tio.Resample(1.5),
    tio.OneHot(num_classes=2),
):
    torch.manual_seed(1)
    out = change(subject)
    report(type(change).__name__, [out.t1.data[:, ::3, ::3, ::3], out.t1.data.mean()], 1e-3)
    report("label", out.label.data.float().sum((1, 2, 3)))
sampler = tio.GridSampler(subject, patch_size=8, patch_overlap=2)
whole = tio.GridAggregator(sampler, overlap_mode="hann")
for batch in tio.SubjectsLoader(sampler, batch_size=4):
    whole.add_batch(batch["t1"][tio.DATA] * 2, batch[tio.LOCATION])
report("aggregated", whole.get_output_tensor()[:, ::3, ::3, ::3])
torch.manual_seed(2)
queue = tio.Queue(
    tio.SubjectsDataset([subject] * 3), 8, 4, tio.data.WeightedSampler(6, "label"), num_workers=0
)
for batch in tio.SubjectsLoader(queue, batch_size=4):
    report("queue", [batch["t1"][tio.DATA].mean((1, 2, 3, 4)), batch[tio.LOCATION]])
