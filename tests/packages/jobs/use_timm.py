"""Models, a training step, an optimizer, a schedule, transforms."""

import numpy as np
import timm
import torch
from PIL import Image
from report import report
from timm.data import create_transform, resolve_data_config
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler

x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(5))
for name, options in (
    ("resnet18", {}),
    ("efficientnet_b0", {}),
    ("mobilenetv3_small_100", {}),
    ("vit_tiny_patch16_224", {"img_size": 64}),
    ("convnext_atto", {}),
):
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=5, **options).eval()
    report(name, model(x))
torch.manual_seed(0)
model = timm.create_model("resnet10t", num_classes=3)
optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
schedule = CosineLRScheduler(optimizer, t_initial=4, warmup_t=1)
for step in range(3):
    loss = torch.nn.functional.cross_entropy(model(x), torch.tensor([0, 2]))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    schedule.step(step + 1)
    report("loss", loss, 1e-3)
picture = Image.fromarray(np.arange(80 * 70 * 3, dtype=np.uint8).reshape(80, 70, 3))
config = resolve_data_config({}, model=timm.create_model("resnet18"))
report("transform", create_transform(**config)(picture).mean((1, 2)))
