"""Posteriors from simulations: NPE with several estimators, NLE with MCMC, NRE."""

import torch
from report import report
from sbi.inference import NLE, NPE, NRE
from sbi.utils import BoxUniform

prior = BoxUniform(torch.zeros(2), torch.ones(2) * 2, device="cpu")
for name in ("maf", "nsf", "mdn"):
    torch.manual_seed(1)
    theta = prior.sample((120,))
    x = theta + 0.1 * torch.randn(120, 2)
    trainer = NPE(prior, density_estimator=name, show_progress_bars=False)
    net = trainer.append_simulations(theta, x).train(max_num_epochs=3, training_batch_size=40)
    report(
        f"losses {name}",
        trainer.summary["training_loss"] + trainer.summary["validation_loss"],
        1e-3,
    )
    posterior = trainer.build_posterior(net)
    torch.manual_seed(2)
    report("drawn", posterior.sample((5,), x=x[:1], show_progress_bars=False), 1e-3)
    report("density", posterior.log_prob(theta[:6], x=x[:1]), 1e-3)
torch.manual_seed(1)
trainer = NLE(prior, show_progress_bars=False)
net = trainer.append_simulations(theta, x).train(max_num_epochs=3, training_batch_size=40)
report("losses", trainer.summary["training_loss"], 1e-3)
posterior = trainer.build_posterior(
    net,
    mcmc_method="slice_np_vectorized",
    mcmc_parameters={"num_chains": 2, "warmup_steps": 5, "thin": 1, "init_strategy": "proposal"},
)
torch.manual_seed(3)
report("density", net.log_prob(x[None, :6], theta[:6]), 1e-3)
torch.manual_seed(1)
trainer = NRE(prior, show_progress_bars=False)
trainer.append_simulations(theta, x).train(max_num_epochs=3, training_batch_size=40)
report("ratios", trainer.summary["training_loss"], 1e-3)
