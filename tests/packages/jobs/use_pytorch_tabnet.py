"""TabNet, classes and numbers."""

import numpy as np
from pytorch_tabnet.tab_model import TabNetClassifier, TabNetRegressor
from report import report

g = np.random.default_rng(0)
x = g.normal(size=(128, 6)).astype("float32")
y = (x[:, 0] > 0).astype(int)
m = TabNetClassifier(n_d=4, n_a=4, n_steps=2, seed=0, verbose=0, device_name="cpu")
m.fit(x, y, eval_set=[(x, y)], max_epochs=2, batch_size=64, virtual_batch_size=32)
report("p", m.predict_proba(x), 2e-3)
report("h", m.history["loss"], 1e-3)
e, masks = m.explain(x[:8])
report("e", e, 5e-3)
m = TabNetRegressor(
    n_d=4, n_a=4, n_steps=2, seed=0, verbose=0, mask_type="entmax", device_name="cpu"
)
m.fit(x, x[:, :1] * 2, max_epochs=2, batch_size=64, virtual_batch_size=32)
report("r", m.predict(x), 2e-3)
