"""Losses, miners and distances."""

import torch
from pytorch_metric_learning import distances, losses, miners, reducers
from report import report

torch.manual_seed(0)
points = torch.randn(16, 5, requires_grad=True)
labels = torch.arange(16) % 4
for name, loss in {
    "triplet": losses.TripletMarginLoss(),
    "contrastive": losses.ContrastiveLoss(distance=distances.CosineSimilarity(), pos_margin=1,
                                          neg_margin=0),
    "ntxent": losses.NTXentLoss(temperature=0.2),
    "multi": losses.MultiSimilarityLoss(),
    "circle": losses.CircleLoss(),
    "arcface": losses.ArcFaceLoss(4, 5),
    "proxy": losses.ProxyAnchorLoss(4, 5),
    "supcon": losses.SupConLoss(reducer=reducers.AvgNonZeroReducer()),
}.items():  # fmt: skip
    value = loss(points, labels)
    (gradient,) = torch.autograd.grad(value, points)
    report(name, value)
    report(name, gradient)
pairs = miners.TripletMarginMiner(margin=0.3, type_of_triplets="semihard")(points, labels)
report("mined", [part.sum() for part in pairs])
