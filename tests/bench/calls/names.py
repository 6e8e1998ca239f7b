"""The names that the expressions of the lists use, of either framework `T`."""

from __future__ import annotations

import copy
import importlib
import io
import pickle
from typing import Any

import numpy as np

Names = dict[str, Any]
OPTIMIZERS = (
    "SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adamax", "NAdam", "RAdam", "Adadelta", "Rprop",
    "ASGD",
)  # fmt: skip


def _both(T: Any) -> Names:
    return {"T": T, "nn": T.nn, "F": T.nn.functional}


def _classes(T: Any) -> Names:
    nn = T.nn

    class Mod(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
            self.p = nn.Parameter(T.ones(4))

        def forward(self, x: Any) -> Any:
            return self.b(self.a(x).relu()) * self.p

    class Sub(T.Tensor):
        pass

    class Fn(T.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    return {"Mod": Mod, "Sub": Sub, "Fn": Fn, "mod": Mod()}


def _with_gradients(T: Any, count: int) -> list[Any]:
    params = [T.nn.Parameter(T.randn(4)) for _ in range(count)]
    for p in params:
        p.grad = T.randn(4)
    return params


def small(T: Any) -> Names:
    """A few elements of everything."""
    nn = T.nn
    data = importlib.import_module(f"{T.__name__}.utils.data")
    law = importlib.import_module(f"{T.__name__}.distributions")
    a, m = T.randn(8), T.randn(4, 4)
    found = _both(T) | _classes(T)
    found |= {"T_d": law, "T_data": data, "np": np, "io": io, "copy": copy, "pickle": pickle}
    found |= {
        "a": a, "b": T.randn(8), "m": m, "m2": T.randn(4, 4), "i": T.tensor([0, 2, 1]),
        "x3": T.randn(2, 3, 4), "img": T.randn(1, 2, 6, 6), "ii": T.arange(8), "bb": a > 0,
        "c": T.randn(4, 4, dtype=T.complex64), "g": T.randn(8, requires_grad=True),
        "d": a.double(), "h": a.half(), "tgt": T.tensor([0, 1, 2, 3]), "a_np": a.numpy().copy(),
        "bp": T.rand(8) * 0.5 + 0.2, "spd": m @ m.T + 4 * T.eye(4), "a4": T.ones(4),
        "grid": T.zeros(1, 3, 3, 2), "bw": T.randn(3, 4, 4), "b3": T.ones(3),
    }  # fmt: skip
    hooked = nn.Linear(4, 4)
    hooked.register_forward_hook(lambda module, given, out: None)
    found |= {
        "lin": nn.Linear(4, 4), "conv": nn.Conv2d(2, 2, 3), "bn": nn.BatchNorm2d(2),
        "ln": nn.LayerNorm(4), "emb": nn.Embedding(10, 4), "drop": nn.Dropout(0.5),
        "mha": nn.MultiheadAttention(4, 2, batch_first=True), "gru": nn.GRUCell(4, 4),
        "seq": nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), "hooked": hooked,
        "lstm": nn.LSTM(4, 4, batch_first=True), "crit": nn.CrossEntropyLoss(),
        "tl": nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), "mse": nn.MSELoss(),
        "sub": a.as_subclass(found["Sub"]), "sd": found["mod"].state_dict(),
    }  # fmt: skip
    opts = {n: getattr(T.optim, n)(_with_gradients(T, 4), lr=0.01) for n in OPTIMIZERS}
    params, blob = _with_gradients(T, 8), io.BytesIO()
    T.save(found["sd"], blob)
    found |= {
        "opts": opts, "sch": T.optim.lr_scheduler.CosineAnnealingLR(opts["SGD"], 100),
        "params": params, "params_d": [p.detach() for p in params], "blob": blob.getvalue(),
        "ds": data.TensorDataset(T.randn(32, 4), T.randn(32)), "pk": pickle.dumps(a),
        "vm": T.func.vmap(lambda x: (x * 2).sum()), "gr": T.func.grad(lambda x: (x * x).sum()),
        "jac": T.func.jacrev(lambda x: x * x), "nrm": law.Normal(T.zeros(4), T.ones(4)),
        "cat": law.Categorical(logits=T.randn(4)),
        "mvn": law.MultivariateNormal(T.zeros(3), T.eye(3)),
    }  # fmt: skip
    return found


def middle(T: Any) -> Names:
    """Tensors of 16,384 to 65,536 elements: the same values for both frameworks."""
    nn = T.nn
    draw = np.random.default_rng(0)

    def normal(*shape: int, dtype: type = np.float32) -> Any:
        return T.tensor(draw.standard_normal(shape).astype(dtype))

    def whole(below: int, *shape: int) -> Any:
        return T.tensor(draw.integers(0, below, shape))

    def uniform(low: float, high: float, *shape: int) -> Any:
        return T.tensor(draw.uniform(low, high, shape).astype(np.float32))

    v, iv, sm = normal(65536), whole(1000, 65536), normal(64, 8, 8)
    found = _both(T) | {
        "R": normal, "R1": normal(16, 16, 1, 1), "v": v, "w": normal(65536), "b": v > 0,
        "p": uniform(0.05, 0.95, 65536), "m": normal(256, 256), "m2": normal(256, 256),
        "d": normal(65536, dtype=np.float64), "h": v.half(), "bf": v.bfloat16(),
        "c": T.complex(normal(16384), normal(16384)), "x3": normal(16, 64, 64),
        "iv": iv, "iv32": iv.int(), "ix": whole(65536, 16384),
        "i8": whole(100, 65536).to(T.int8), "u8": whole(200, 65536).to(T.uint8),
        "im": normal(4, 16, 32, 32), "i1": normal(4, 16, 512), "i3": normal(2, 4, 8, 16, 16),
        "sm": sm, "spd": sm @ sm.mT + 8 * T.eye(8), "tr": T.triu(sm) + 8 * T.eye(8),
        "cw": normal(16, 16, 3, 3), "cw1": normal(16, 16, 5), "cw3": normal(4, 4, 3, 3, 3),
        "tw": normal(16, 8, 3, 3), "dw": normal(16, 1, 3, 3), "g16": T.ones(16),
        "lg": normal(256, 100), "tg": whole(100, 256), "emb": normal(1000, 64),
        "eix": whole(1000, 2048), "off": T.arange(0, 2048, 8), "ss": T.sort(normal(4096))[0],
        "grid": uniform(-1, 1, 4, 16, 16, 2), "q": normal(2, 4, 128, 32),
        "ctl": T.nn.functional.log_softmax(normal(50, 8, 20), -1), "ctt": whole(18, 8, 10) + 1,
        "il": T.full((8,), 50), "tl": T.full((8,), 10), "k": normal(2, 4, 128, 32),
    }  # fmt: skip
    found |= {
        "lin": nn.Linear(64, 64), "lstm": nn.LSTM(32, 32, batch_first=True),
        "gru": nn.GRU(32, 32, batch_first=True), "sq": normal(8, 20, 32),
        "tel": nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval(),
    }  # fmt: skip
    return found


def short(T: Any) -> Names:
    """Many rows of few elements: points, boxes, pixels, classes, heads."""
    draw = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return T.tensor(draw.standard_normal(shape).astype(np.float32))

    def whole(below: int, *shape: int) -> Any:
        return T.tensor(draw.integers(0, below, shape))

    rows = 16384
    return _both(T) | {
        "X3": normal(rows, 3), "X10": normal(rows // 2, 10), "X16": normal(rows // 4, 16),
        "X32": normal(rows // 8, 32), "s3": normal(3), "c1": normal(rows, 1),
        "t10": whole(10, rows // 2), "R3": normal(3, 3), "W10": normal(64, 10),
        "W3": normal(32, 3), "mask": normal(rows) > 0, "idx": whole(rows, rows // 2),
        "g3": whole(3, rows, 3), "ar": T.arange(rows // 2), "I2": whole(100, rows, 2),
        "t8": whole(8, rows), "img": whole(255, 128, 128, 3).to(T.uint8),
        "im4": normal(4, 3, 64, 64), "tokens": whole(50, 32, 64), "seq": normal(32, 64, 64),
        "pe": normal(64, 64),
    }  # fmt: skip
