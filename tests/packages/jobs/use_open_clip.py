"""CLIP of small towers, its tokenizer, transforms, losses and training steps."""

import numpy as np
import open_clip
import torch
from open_clip import CLIP, ClipLoss, CoCa
from open_clip.loss import SigLipLoss
from open_clip.transform import image_transform
from PIL import Image
from report import report

torch.manual_seed(0)
vision = {"image_size": 32, "layers": 2, "width": 64, "patch_size": 8, "head_width": 32}
text = {"context_length": 16, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2}
model = CLIP(embed_dim=16, vision_cfg=vision, text_cfg=text)
tokenizer = open_clip.SimpleTokenizer(context_length=16)
tokens = tokenizer(["a diagram", "a dog", "a cat, sitting"])
report("tokens", tokens)
picture = Image.fromarray((np.arange(50 * 40 * 3) % 256).astype(np.uint8).reshape(50, 40, 3))
report("transform", image_transform(32, is_train=False)(picture).mean((1, 2)))
images = torch.randn(3, 3, 32, 32)
model.eval()
with torch.no_grad():
    image = model.encode_image(images, normalize=True)
    words = model.encode_text(tokens, normalize=True)
report("image", image)
report("text", words)
report("probabilities", (100.0 * image @ words.T).softmax(dim=-1), 1e-3)
model.train()
model.set_grad_checkpointing()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-6)
for loss in (ClipLoss(), SigLipLoss()):
    for _ in range(2):
        a, b, scale = model(images, tokens)[:3]
        bias = {} if isinstance(loss, ClipLoss) else {"logit_bias": torch.tensor(-10.0)}
        value = loss(a, b, scale, **bias)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        report("loss", value, 1e-3)
torch.manual_seed(1)
resnet = CLIP(
    embed_dim=16,
    vision_cfg={"image_size": 32, "layers": [1, 1, 1, 1], "width": 8},
    text_cfg=text,
).eval()
report("resnet", resnet(images, tokens)[0], 1e-3)
coca = CoCa(
    embed_dim=32,
    multimodal_cfg={
        "context_length": 16,
        "vocab_size": 49408,
        "width": 32,
        "heads": 2,
        "layers": 2,
    },
    text_cfg={**text, "embed_cls": True, "output_tokens": True},
    vision_cfg={**vision, "attentional_pool": True, "attn_pooler_heads": 2, "output_tokens": True},
).eval()
out = coca(images, tokens)
report("coca", out["logits"][:, :, ::1000], 1e-3)
timm = CLIP(
    embed_dim=16,
    vision_cfg={"timm_model_name": "resnet18", "timm_pool": "avg", "image_size": 32},
    text_cfg=text,
).eval()
report("timm", timm.encode_image(images), 1e-3)
report("lock", sum(p.requires_grad for p in timm.parameters()))
timm.lock_image_tower()
report("locked", sum(p.requires_grad for p in timm.parameters()))
