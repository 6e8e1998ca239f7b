"""Pictures and texts side by side, with the losses that later papers added."""

import torch
from report import report
from x_clip import CLIP

torch.manual_seed(0)
text, images = torch.randint(1, 50, (4, 12)), torch.randn(4, 3, 32, 32)
common = {
    "dim_text": 16, "dim_image": 16, "dim_latent": 12, "num_text_tokens": 50, "text_enc_depth": 1,
    "text_seq_len": 12, "text_heads": 2, "visual_enc_depth": 1, "visual_image_size": 32,
    "visual_patch_size": 8, "visual_heads": 2, "visual_patch_dropout": 0.0,
    "checkpoint_during_training": False,
}  # fmt: skip
for extra in (
    {},
    {"use_all_token_embeds": True},
    {"decoupled_contrastive_learning": True, "extra_latent_projection": True},
    {"use_mlm": True},
):
    torch.manual_seed(1)
    model = CLIP(**common, **extra)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for _ in range(2):
        loss = model(text, images, freeze_image_encoder=False, return_loss=True)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(f"loss {sorted(extra)}", loss, 1e-3)
    grads = [p.grad.norm() for p in model.parameters() if p.grad is not None]
    report("gradients", grads, 2e-3)
