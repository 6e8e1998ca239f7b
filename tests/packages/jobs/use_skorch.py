"""A network as an estimator of scikit-learn."""

import numpy as np
import torch
from report import report
from sklearn.model_selection import cross_val_predict
from skorch import NeuralNetClassifier


class Net(torch.nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(5, width),
            torch.nn.ReLU(),
            torch.nn.Linear(width, 2),
            torch.nn.Softmax(-1),
        )

    def forward(self, x):
        return self.layers(x)


rng = np.random.default_rng(0)
x = rng.standard_normal((80, 5)).astype(np.float32)
y = (x.sum(1) > 0).astype(np.int64)
torch.manual_seed(0)
net = NeuralNetClassifier(Net, max_epochs=5, lr=0.1, verbose=0, iterator_train__shuffle=True)
net.fit(x, y)
report("losses", [row["train_loss"] for row in net.history])
report("probabilities", net.predict_proba(x)[:10])
torch.manual_seed(1)
report("folds", cross_val_predict(net, x, y, cv=3)[:20])
