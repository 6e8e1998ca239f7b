"""Networks of sines fitted to a picture, one of them told which by a latent."""

import torch
from report import report
from siren_pytorch import SirenNet, SirenWrapper

torch.manual_seed(0)
net = SirenNet(dim_in=2, dim_hidden=16, dim_out=3, num_layers=3, w0_initial=30.0)
wrapper = SirenWrapper(net, latent_dim=8, image_width=6, image_height=6)
picture, latent = torch.rand(1, 3, 6, 6), torch.zeros(8).requires_grad_()
optimizer = torch.optim.Adam([*wrapper.parameters(), latent], 1e-4)
for _ in range(4):
    loss = wrapper(picture, latent=latent)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    report("loss", loss, 1e-3)
report("latent", latent, 1e-3)
report("gradients", [p.grad.norm() for p in wrapper.parameters() if p.grad is not None], 2e-3)
report("picture", wrapper(latent=latent), 1e-3)
