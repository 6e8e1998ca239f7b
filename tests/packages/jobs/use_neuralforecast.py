"""Forecasts of several series by models of the package, trained and asked."""

import logging

import numpy as np
import pandas as pd
from neuralforecast import NeuralForecast
from neuralforecast.losses.pytorch import DistributionLoss, MQLoss
from neuralforecast.models import GRU, MLP, NBEATS, NHITS, TCN, TFT, DLinear, PatchTST
from report import report

logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
time = pd.date_range("2020-01-01", periods=60, freq="D")
rows = [
    pd.DataFrame({"unique_id": str(k), "ds": time, "y": np.sin(np.arange(60) / (3 + k)) + 0.1 * k})
    for k in range(3)
]
shared = {
    "h": 4,
    "input_size": 12,
    "max_steps": 4,
    "batch_size": 2,
    "windows_batch_size": 16,
    "random_seed": 1,
    "enable_progress_bar": False,
    "logger": False,
    "enable_checkpointing": False,
    "accelerator": "cpu",
}
for model in (
    NHITS(**shared, mlp_units=3 * [[16, 16]]),
    NBEATS(**shared, mlp_units=3 * [[16, 16]]),
    MLP(**shared, hidden_size=16),
    GRU(**shared, encoder_hidden_size=8, decoder_hidden_size=8),
    TCN(**shared, encoder_hidden_size=8, decoder_hidden_size=8),
    DLinear(**shared),
    TFT(**shared, hidden_size=8, n_head=2),
    PatchTST(
        **shared,
        hidden_size=8,
        n_heads=2,
        linear_hidden_size=16,
        encoder_layers=1,
        patch_len=4,
        stride=2,
    ),
    MLP(**shared, hidden_size=16, loss=MQLoss(level=[80])),
    NHITS(**shared, mlp_units=3 * [[16, 16]], loss=DistributionLoss("Normal", level=[80])),
):
    forecast = NeuralForecast(models=[model], freq="D")
    forecast.fit(pd.concat(rows))
    found = forecast.predict().select_dtypes("number")
    report(type(model).__name__, found.to_numpy(), 1e-3)
    report("losses", [float(v) for _, v in model.train_trajectories], 1e-3)
