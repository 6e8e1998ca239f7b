"""Networks, losses, measures and transforms for medical pictures."""

import numpy as np
import torch
from monai.losses import DiceCELoss
from monai.metrics import DiceMetric
from monai.networks.nets import UNet
from monai.transforms import Compose, NormalizeIntensity, RandFlip, Rotate90, Zoom
from report import report

torch.manual_seed(0)
net = UNet(spatial_dims=2, in_channels=1, out_channels=2, channels=(4, 8), strides=(2,),
           num_res_units=1)  # fmt: skip
x = torch.randn(2, 1, 16, 16)
labels = (x > 0).long()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(3):
    loss = DiceCELoss(to_onehot_y=True, softmax=True)(net(x), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    report("loss", loss)
measure = DiceMetric(include_background=True)
one_hot = torch.nn.functional.one_hot
found = one_hot(net(x).argmax(1), 2).movedim(-1, 1)
measure(found, one_hot(labels[:, 0], 2).movedim(-1, 1))
report("dice", measure.aggregate(), 1e-2)
chain = Compose([NormalizeIntensity(), Rotate90(), RandFlip(prob=1.0), Zoom(1.5)])
report("transforms", chain(np.arange(64, dtype=np.float32).reshape(1, 8, 8)))
