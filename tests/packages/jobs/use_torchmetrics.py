"""Metrics of classes, numbers and texts, over batches."""

import torch
import torchmetrics as tm
from report import report

torch.manual_seed(0)
kinds = {
    "accuracy": tm.Accuracy(task="multiclass", num_classes=4, average="macro"),
    "f1": tm.F1Score(task="multiclass", num_classes=4),
    "auroc": tm.AUROC(task="multiclass", num_classes=4),
    "confusion": tm.ConfusionMatrix(task="multiclass", num_classes=4),
    "average": tm.AveragePrecision(task="multiclass", num_classes=4),
}
for _ in range(3):
    p, y = torch.randn(20, 4).softmax(-1), torch.randint(0, 4, (20,))
    for metric in kinds.values():
        metric.update(p, y)
for name, metric in kinds.items():
    report(name, metric.compute().float())
a, b = torch.randn(50), torch.randn(50)
for cls in (tm.MeanSquaredError, tm.R2Score, tm.PearsonCorrCoef, tm.SpearmanCorrCoef):
    report(cls.__name__, cls()(a, b))
picture = torch.rand(2, 3, 32, 32)
report(
    "ssim",
    tm.image.StructuralSimilarityIndexMeasure(data_range=1.0)(
        picture, 0.8 * picture + 0.2 * torch.rand(2, 3, 32, 32)
    ),
)
report("perplexity", tm.text.Perplexity()(torch.randn(2, 5, 7), torch.randint(0, 7, (2, 5))))
