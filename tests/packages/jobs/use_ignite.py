"""A trainer and an evaluator with handlers and metrics."""

import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import EarlyStopping
from ignite.metrics import Accuracy, Loss
from report import report

torch.manual_seed(0)
x = torch.randn(48, 4)
y = (x[:, 0] > 0).long()
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=16)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
criterion = torch.nn.CrossEntropyLoss()
trainer = create_supervised_trainer(net, torch.optim.Adam(net.parameters(), lr=1e-2), criterion)
metrics = {"accuracy": Accuracy(), "loss": Loss(criterion)}
evaluator = create_supervised_evaluator(net, metrics=metrics)
stop = EarlyStopping(10, lambda e: -e.state.metrics["loss"], trainer)
evaluator.add_event_handler(Events.COMPLETED, stop)


@trainer.on(Events.EPOCH_COMPLETED)
def evaluate(engine):
    evaluator.run(loader)
    report("accuracy", [evaluator.state.metrics["accuracy"]])
    report("loss", [evaluator.state.metrics["loss"]])


trainer.run(loader, max_epochs=4)
