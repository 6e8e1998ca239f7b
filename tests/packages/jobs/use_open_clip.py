"""Pictures and texts in one space."""

import torch
from open_clip.loss import ClipLoss
from open_clip.model import CLIP
from report import report

torch.manual_seed(0)
vision = {"image_size": 16, "layers": 1, "width": 16, "patch_size": 8, "head_width": 8}
text = {"context_length": 6, "vocab_size": 20, "width": 16, "heads": 2, "layers": 1}
net = CLIP(8, vision, text)
pictures, texts = torch.randn(3, 3, 16, 16), torch.randint(0, 20, (3, 6))
found = net(pictures, texts)
loss = ClipLoss()(*found)
loss.backward()
report("loss", loss)
report("pictures", found[0])
report("gradient", net.logit_scale.grad)
