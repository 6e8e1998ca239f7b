"""Diffusion of pictures and of rows, trained a step and sampled."""

import torch
from denoising_diffusion_pytorch import GaussianDiffusion, GaussianDiffusion1D, Unet, Unet1D
from report import report

torch.manual_seed(0)
m = Unet(dim=16, dim_mults=(1, 2), flash_attn=False)
d = GaussianDiffusion(m, image_size=16, timesteps=20, sampling_timesteps=5)
x = torch.rand(2, 3, 16, 16)
loss = d(x)
loss.backward()
report("loss", loss, 1e-3)
report("g", m.init_conv.weight.grad, 2e-3)
report("sample", d.sample(batch_size=2), 2e-2)
m = Unet1D(dim=16, dim_mults=(1, 2), channels=3)
d = GaussianDiffusion1D(m, seq_length=32, timesteps=20, objective="pred_v")
loss = d(torch.rand(2, 3, 32))
loss.backward()
report("loss1", loss, 1e-3)
