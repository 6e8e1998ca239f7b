"""Schedulers, a denoiser, an autoencoder, a pipeline."""

import torch
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    DDPMPipeline,
    DDPMScheduler,
    DPMSolverMultistepScheduler,
    EulerDiscreteScheduler,
    UNet2DModel,
)
from report import report

torch.manual_seed(0)
net = UNet2DModel(
    sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8, 16),
    norm_num_groups=4, down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=4,
)  # fmt: skip
noise_schedule = DDPMScheduler(num_train_timesteps=20)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
clean = torch.randn(4, 1, 8, 8)
for _ in range(2):
    noise = torch.randn_like(clean)
    steps = torch.randint(0, 20, (4,))
    found = net(noise_schedule.add_noise(clean, noise, steps), steps).sample
    loss = torch.nn.functional.mse_loss(found, noise)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    report("loss", loss)
net.eval()
for kind in (DDIMScheduler, DPMSolverMultistepScheduler, EulerDiscreteScheduler):
    schedule = kind(num_train_timesteps=20)
    schedule.set_timesteps(4)
    x = torch.randn(1, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    x = x * schedule.init_noise_sigma
    for t in schedule.timesteps:
        with torch.no_grad():
            x = schedule.step(net(schedule.scale_model_input(x, t), t).sample, t, x).prev_sample
    report(kind.__name__, x, 1e-3)
pipeline = DDPMPipeline(unet=net, scheduler=noise_schedule)
pipeline.set_progress_bar_config(disable=True)
pictures = pipeline(
    generator=torch.Generator().manual_seed(3), num_inference_steps=3, output_type="np"
).images
report("pipeline", pictures, 1e-3)
coder = AutoencoderKL(block_out_channels=(8,), norm_num_groups=4, latent_channels=2)
report("autoencoder", coder(torch.ones(1, 3, 8, 8)).sample)
