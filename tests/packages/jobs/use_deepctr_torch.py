"""Models of clicks, with their own training loop."""

import contextlib
import io

import numpy as np
import torch
from deepctr_torch.inputs import DenseFeat, SparseFeat, VarLenSparseFeat, get_feature_names
from deepctr_torch.models import (
    AFM,
    CCPM,
    DCN,
    PNN,
    WDL,
    AutoInt,
    DeepFM,
    FiBiNET,
    xDeepFM,
)
from report import report

rng = np.random.default_rng(0)
columns = [SparseFeat("user", 10, 4), SparseFeat("item", 8, 4), SparseFeat("hour", 6, 4)]
columns += [DenseFeat("age", 1)]
seen = [VarLenSparseFeat(SparseFeat("seen", 8, 4), maxlen=3, combiner="mean")]
data = {
    "user": rng.integers(0, 10, 64), "item": rng.integers(0, 8, 64),
    "hour": rng.integers(0, 6, 64), "age": rng.random(64).astype("float32"),
    "seen": rng.integers(0, 8, (64, 3)),
}  # fmt: skip
label = rng.integers(0, 2, 64)
for kind in (DeepFM, xDeepFM, DCN, AutoInt, FiBiNET, WDL, PNN, AFM, CCPM):
    torch.manual_seed(0)
    used = columns[:3] if kind in (AFM, CCPM, FiBiNET, AutoInt) else columns + seen
    names = get_feature_names(used)
    options = {"dnn_feature_columns": used}
    if kind is not PNN:
        options["linear_feature_columns"] = used
    if kind is not AFM:
        options["dnn_hidden_units"] = (16, 8)
    model = kind(**options, task="binary", device="cpu", seed=3)
    model.compile("adam", "binary_crossentropy", metrics=["binary_crossentropy", "auc"])
    with contextlib.redirect_stdout(io.StringIO()):
        history = model.fit(
            {n: data[n] for n in names}, label, batch_size=16, epochs=2, verbose=0,
            validation_split=0.2,
        )  # fmt: skip
        chances = model.predict({n: data[n] for n in names}, 32)
    report(kind.__name__, [v for k in sorted(history.history) for v in history.history[k]], 1e-3)
    report("chances", chances.tolist(), 2e-3)
