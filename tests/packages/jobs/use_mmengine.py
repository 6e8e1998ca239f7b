"""A model trained by a Runner from a config, its hooks, schedules, weights and initialisers."""

import torch
from mmengine import Config
from mmengine.evaluator import BaseMetric
from mmengine.model import BaseModel, kaiming_init, xavier_init
from mmengine.registry import METRICS, MODELS
from mmengine.runner import Runner
from report import report
from torch import nn
from torch.utils.data import Dataset


class Points(Dataset):
    def __init__(self, n):
        numbers = torch.Generator().manual_seed(n)
        self.x = torch.randn(n, 5, generator=numbers)
        self.y = (self.x[:, 0] > 0).long()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"inputs": self.x[i], "labels": self.y[i]}


@MODELS.register_module()
class Net(BaseModel):
    def __init__(self, width):
        super().__init__(init_cfg={"type": "Xavier", "layer": "Linear", "distribution": "uniform"})
        self.layers = nn.Sequential(
            nn.Linear(5, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 2)
        )

    def forward(self, inputs, labels, mode):
        out = self.layers(inputs)
        if mode == "loss":
            return {"loss": nn.functional.cross_entropy(out, labels)}
        return out, labels


@METRICS.register_module()
class Share(BaseMetric):
    def process(self, data_batch, data_samples):
        out, labels = data_samples
        self.results.append((out.argmax(1) == labels).float().mean().item())

    def compute_metrics(self, results):
        report("right", sum(results) / len(results))
        return {"share": sum(results) / len(results)}


config = Config({"width": 12, "optimizer": {"type": "AdamW", "lr": 0.01}})
model = MODELS.build({"type": "Net", "width": config.width})
loader = {
    "collate_fn": {"type": "default_collate"},
    "batch_size": 8,
    "num_workers": 0,
    "sampler": {"type": "DefaultSampler", "shuffle": True},
}
runner = Runner(
    model=model,
    work_dir="work",
    train_dataloader={**loader, "dataset": Points(40)},
    val_dataloader={**loader, "dataset": Points(16)},
    val_cfg={},
    val_evaluator={"type": "Share"},
    train_cfg={"by_epoch": True, "max_epochs": 4, "val_interval": 2},
    optim_wrapper={
        "type": "OptimWrapper",
        "optimizer": config.optimizer,
        "clip_grad": {"max_norm": 1.0},
        "accumulative_counts": 2,
        "paramwise_cfg": {"custom_keys": {"layers.3": {"lr_mult": 0.5}}},
    },
    param_scheduler=[
        {"type": "LinearLR", "start_factor": 0.1, "by_epoch": False, "end": 5},
        {"type": "CosineAnnealingLR", "T_max": 4, "convert_to_iter_based": True},
    ],
    custom_hooks=[{"type": "EMAHook"}],
    randomness={"seed": 3},
    log_level="ERROR",
    default_hooks={"checkpoint": {"type": "CheckpointHook", "interval": 2}},
)
runner.train()
report("weights", [p.norm() for p in model.parameters()], 1e-3)
saved = torch.load("work/epoch_4.pth", weights_only=False)
report("saved", [v.float().norm() for v in saved["state_dict"].values()], 1e-3)
layer = nn.Conv2d(3, 4, 3)
for start in (kaiming_init, xavier_init):
    torch.manual_seed(1)
    start(layer)
    report(start.__name__, layer.weight)
