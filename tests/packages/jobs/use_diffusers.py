"""UNets, autoencoders, a transformer, schedulers, pipelines, training with an EMA."""

import tempfile

import torch
from diffusers import (
    AutoencoderKL,
    DDIMPipeline,
    DDPMPipeline,
    DiTTransformer2DModel,
    StableDiffusionPipeline,
    UNet2DConditionModel,
    UNet2DModel,
    VQModel,
)
from diffusers import schedulers as S
from diffusers.optimization import get_cosine_schedule_with_warmup
from diffusers.training_utils import EMAModel, compute_snr
from report import report
from transformers import CLIPTextConfig, CLIPTextModel

torch.manual_seed(0)
unet = UNet2DModel(
    sample_size=16,
    in_channels=3,
    out_channels=3,
    layers_per_block=1,
    block_out_channels=(32, 64),
    norm_num_groups=8,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D"),
)
noise = S.DDPMScheduler(num_train_timesteps=100)
optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-3)
rate = get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=1, num_training_steps=4)
ema = EMAModel(unet.parameters(), decay=0.9, use_ema_warmup=True)
clean = torch.randn(2, 3, 16, 16)
for _ in range(3):
    drawn = torch.randn(clean.shape)
    steps = torch.randint(0, 100, (2,))
    noisy = noise.add_noise(clean, drawn, steps)
    guess = unet(noisy, steps, return_dict=False)[0]
    loss = torch.nn.functional.mse_loss(guess, drawn)
    loss.backward()
    report("norm", torch.nn.utils.clip_grad_norm_(unet.parameters(), 1.0), 1e-3)
    optimizer.step()
    rate.step()
    optimizer.zero_grad()
    ema.step(unet.parameters())
    report("loss", loss, 1e-3)
report("snr", compute_snr(noise, torch.tensor([0, 10, 99])))
report("ema", sum(p.abs().sum() for p in ema.shadow_params))
unet.eval()
for kind, pipe in (
    ("ddpm", DDPMPipeline(unet, noise)),
    ("ddim", DDIMPipeline(unet, S.DDIMScheduler(num_train_timesteps=100))),
):
    pipe.set_progress_bar_config(disable=True)
    made = pipe(
        batch_size=1,
        num_inference_steps=4,
        generator=torch.Generator().manual_seed(3),
        output_type="np",
    ).images
    report(kind, made.mean((0, 1)), 2e-3)
torch.manual_seed(1)
x = torch.randn(2, 3, 4, 4)
for kind in (
    S.DDIMScheduler,
    S.DDPMScheduler,
    S.PNDMScheduler,
    S.LMSDiscreteScheduler,
    S.EulerDiscreteScheduler,
    S.EulerAncestralDiscreteScheduler,
    S.HeunDiscreteScheduler,
    S.DPMSolverMultistepScheduler,
    S.DPMSolverSinglestepScheduler,
    S.KDPM2DiscreteScheduler,
    S.UniPCMultistepScheduler,
    S.DEISMultistepScheduler,
    S.EDMEulerScheduler,
    S.FlowMatchEulerDiscreteScheduler,
    S.LCMScheduler,
    S.DDIMInverseScheduler,
):
    torch.manual_seed(2)
    scheduler = kind()
    scheduler.set_timesteps(5)
    y = x * getattr(scheduler, "init_noise_sigma", 1.0)
    for t in scheduler.timesteps:
        scaled = scheduler.scale_model_input(y, t) if hasattr(scheduler, "scale_model_input") else y
        y = scheduler.step(scaled.tanh() * 0.5, t, y).prev_sample
    report(kind.__name__, y, 1e-3)
torch.manual_seed(3)
vae = AutoencoderKL(
    block_out_channels=[32, 64],
    in_channels=3,
    out_channels=3,
    down_block_types=["DownEncoderBlock2D"] * 2,
    up_block_types=["UpDecoderBlock2D"] * 2,
    latent_channels=4,
)
conditioned = UNet2DConditionModel(
    block_out_channels=(32, 64),
    layers_per_block=1,
    sample_size=8,
    in_channels=4,
    out_channels=4,
    down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
    up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    cross_attention_dim=32,
    attention_head_dim=8,
)
text = CLIPTextModel(
    CLIPTextConfig(
        bos_token_id=0,
        eos_token_id=2,
        hidden_size=32,
        intermediate_size=37,
        num_attention_heads=4,
        num_hidden_layers=2,
        pad_token_id=1,
        vocab_size=100,
    )
)
picture = torch.randn(1, 3, 16, 16)
coded = vae.encode(picture).latent_dist
report("latent", coded.mean)
report("kl", coded.kl())
report("sample", coded.sample(torch.Generator().manual_seed(1)))
report("decoded", vae.decode(coded.mode()).sample.mean((2, 3)), 1e-3)
vae.enable_slicing()
vae.enable_tiling()
report("tiled", vae.decode(torch.cat([coded.mode()] * 2)).sample.mean((2, 3)), 1e-3)
words = text(torch.randint(3, 100, (1, 7)))[0]
report("conditioned", conditioned(torch.randn(1, 4, 8, 8), 10, words).sample.mean((2, 3)), 1e-3)
conditioned.set_attention_slice("auto")
report("sliced", conditioned(torch.ones(1, 4, 8, 8), 10, words).sample.mean((2, 3)), 1e-3)
conditioned.enable_gradient_checkpointing()
conditioned.train()
conditioned(torch.ones(1, 4, 8, 8), 10, words.detach()).sample.square().mean().backward()
report("gradient", sum(p.grad.abs().sum() for p in conditioned.parameters()), 1e-3)
conditioned.eval()
pipe = StableDiffusionPipeline(
    vae=vae,
    text_encoder=text,
    tokenizer=None,
    unet=conditioned,
    scheduler=S.PNDMScheduler(skip_prk_steps=True, beta_schedule="scaled_linear"),
    safety_checker=None,
    feature_extractor=None,
    requires_safety_checker=False,
)
pipe.set_progress_bar_config(disable=True)
made = pipe(
    prompt_embeds=words,
    negative_prompt_embeds=torch.zeros_like(words),
    num_inference_steps=3,
    height=16,
    width=16,
    generator=torch.Generator().manual_seed(0),
    output_type="pt",
).images
report("stable diffusion", made.mean((2, 3)), 2e-3)
torch.manual_seed(4)
vq = VQModel(
    block_out_channels=[32],
    in_channels=3,
    out_channels=3,
    down_block_types=["DownEncoderBlock2D"],
    up_block_types=["UpDecoderBlock2D"],
    num_vq_embeddings=8,
    norm_num_groups=8,
)
report("vq", vq(picture).sample.mean((2, 3)), 1e-3)
dit = DiTTransformer2DModel(
    num_attention_heads=2,
    attention_head_dim=8,
    in_channels=4,
    out_channels=8,
    num_layers=2,
    sample_size=8,
    patch_size=2,
    norm_type="ada_norm_zero",
    num_embeds_ada_norm=8,
)
labels = torch.tensor([1])
report("dit", dit.eval()(torch.ones(1, 4, 8, 8), torch.tensor([5]), labels).sample.mean((2, 3)))
with tempfile.TemporaryDirectory() as folder:
    unet.save_pretrained(folder)
    again = UNet2DModel.from_pretrained(folder)
    report("loaded", again(clean, 3).sample.mean((2, 3)), 1e-3)
