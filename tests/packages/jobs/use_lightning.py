"""A LightningModule, trained and checkpointed."""

import tempfile

import lightning as L
import torch
from report import report


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.save_hyperparameters()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)
        )

    def training_step(self, batch, index):
        loss = torch.nn.functional.mse_loss(self.layers(batch[0]), batch[1])
        self.log("loss", loss)
        report("loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("val", torch.nn.functional.mse_loss(self.layers(batch[0]), batch[1]))

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


L.seed_everything(0)
x = torch.randn(32, 4)
data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
net = Net()
with tempfile.TemporaryDirectory() as folder:
    trainer = L.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(
        net,
        torch.utils.data.DataLoader(data, 8, shuffle=True),
        torch.utils.data.DataLoader(data, 16),
    )
    trainer.save_checkpoint(f"{folder}/a.ckpt")
    again = Net.load_from_checkpoint(f"{folder}/a.ckpt")
report("val", trainer.callback_metrics["val"])
report("weights", again.layers[0].weight)
