"""Captions and contrasts of pictures."""

import torch
from coca_pytorch.coca_pytorch import CoCa
from report import report
from vit_pytorch.extractor import Extractor
from vit_pytorch.simple_vit_with_patch_dropout import SimpleViT

torch.manual_seed(0)
vit = SimpleViT(
    image_size=32, patch_size=8, num_classes=5, dim=16, depth=1, heads=2, mlp_dim=32,
    patch_dropout=0.5,
)  # fmt: skip
encoder = Extractor(vit, return_embeddings_only=True, detach=False)
model = CoCa(
    dim=16, img_encoder=encoder, image_dim=16, num_tokens=40, unimodal_depth=1,
    multimodal_depth=1, dim_head=8, heads=2, caption_loss_weight=1.0,
    contrastive_loss_weight=1.0,
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), 0.02)
for _ in range(3):
    text, images = torch.randint(0, 40, (4, 10)), torch.randn(4, 3, 32, 32)
    loss = model(text=text, images=images, return_loss=True)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    report("loss", loss, 1e-3)
report("gradients", [p.grad.norm() for p in model.parameters() if p.grad is not None], 2e-3)
model.eval()
report("logits", model(text=text, images=images), 1e-3)
