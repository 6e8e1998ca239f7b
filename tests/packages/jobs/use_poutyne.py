"""A model fitted, evaluated and asked, with metrics, callbacks and a checkpoint."""

import numpy as np
import torch
from poutyne import EarlyStopping, ExponentialLR, Model, ModelCheckpoint, set_seeds
from report import report

set_seeds(7)
data = np.random.RandomState(3).randn(60, 5).astype("float32")
target = (data[:, 0] + data[:, 1] ** 2 > 0.7).astype("int64")
net = torch.nn.Sequential(
    torch.nn.Linear(5, 16), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 2)
)
model = Model(
    net,
    torch.optim.Adam(net.parameters(), 1e-2),
    "cross_entropy",
    batch_metrics=["accuracy"],
    epoch_metrics=["f1"],
    device="cpu",
)
history = model.fit(
    data,
    target,
    validation_data=(data[:20], target[:20]),
    epochs=5,
    batch_size=8,
    verbose=False,
    callbacks=[
        ExponentialLR(gamma=0.9),
        EarlyStopping(patience=3),
        ModelCheckpoint("best.pt", restore_best=True, save_best_only=True),
    ],
)
for row in history:
    report("epoch", [v for k, v in sorted(row.items()) if k != "time"], 1e-3)
report("asked", model.predict(data, verbose=False), 1e-3)
loss, (accuracy, score) = model.evaluate(data, target, verbose=False)
report("evaluated", [loss, accuracy, score], 1e-3)
report("single", model.train_on_batch(data[:8], target[:8])[0], 1e-3)
