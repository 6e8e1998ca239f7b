"""A small SAM: encoder, prompts, predictor, masks of a whole picture."""

from functools import partial

import numpy as np
import torch
from report import report
from segment_anything import SamAutomaticMaskGenerator, SamPredictor
from segment_anything.modeling import (
    ImageEncoderViT,
    MaskDecoder,
    PromptEncoder,
    Sam,
    TwoWayTransformer,
)
from segment_anything.utils.amg import (
    batched_mask_to_box,
    calculate_stability_score,
    mask_to_rle_pytorch,
    rle_to_mask,
)

torch.manual_seed(0)
width, size, patch = 32, 64, 16
sam = Sam(
    image_encoder=ImageEncoderViT(
        depth=2,
        embed_dim=24,
        img_size=size,
        mlp_ratio=4,
        norm_layer=partial(torch.nn.LayerNorm, eps=1e-6),
        num_heads=2,
        patch_size=patch,
        qkv_bias=True,
        use_rel_pos=True,
        global_attn_indexes=[1],
        window_size=3,
        out_chans=width,
    ),
    prompt_encoder=PromptEncoder(
        embed_dim=width,
        image_embedding_size=(size // patch,) * 2,
        input_image_size=(size, size),
        mask_in_chans=4,
    ),
    mask_decoder=MaskDecoder(
        num_multimask_outputs=3,
        transformer=TwoWayTransformer(depth=2, embedding_dim=width, mlp_dim=48, num_heads=4),
        transformer_dim=width,
        iou_head_depth=2,
        iou_head_hidden_dim=16,
    ),
    pixel_mean=[123.675, 116.28, 103.53],
    pixel_std=[58.395, 57.12, 57.375],
).eval()
for p in sam.parameters():
    torch.nn.init.normal_(p, std=0.2)
picture = (np.arange(48 * 64 * 3) * 7 % 251).astype(np.uint8).reshape(48, 64, 3)
predictor = SamPredictor(sam)
predictor.set_image(picture)
report("embedding", predictor.get_image_embedding(), 1e-3)
for prompt in (
    {"point_coords": np.array([[20, 20], [40, 10]]), "point_labels": np.array([1, 0])},
    {"box": np.array([5, 5, 40, 30])},
    {"box": np.array([5, 5, 40, 30]), "mask_input": np.ones((1, 16, 16), np.float32)},
):
    masks, scores, low = predictor.predict(**prompt, return_logits=True)
    report("scores", scores, 1e-3)
    report("low", low[:, ::4, ::4], 1e-3)
    report("masks", masks[:, ::8, ::8], 2e-3)
out = sam(
    [
        {
            "image": torch.from_numpy(picture).permute(2, 0, 1).float(),
            "original_size": (48, 64),
            "boxes": torch.tensor([[1.0, 2.0, 30.0, 40.0]]),
        }
    ],
    multimask_output=False,
)[0]
report("batch", out["iou_predictions"], 1e-3)
torch.manual_seed(1)
few = torch.rand(3, 12, 10) > 0.5
report("boxes", batched_mask_to_box(few))
report("rle", [n for r in mask_to_rle_pytorch(few) for n in r["counts"]])
report("back", sum(rle_to_mask(r).sum() for r in mask_to_rle_pytorch(few)))
report("stability", calculate_stability_score(torch.randn(3, 8, 8), 0.0, 0.5))
maker = SamAutomaticMaskGenerator(
    sam, points_per_side=3, pred_iou_thresh=-100.0, stability_score_thresh=0.0, crop_n_layers=1
)
made = maker.generate(picture)
report("made", [len(made), *(m["area"] for m in made)], 2e-2)
for p in sam.image_encoder.parameters():
    p.requires_grad_(True)
sam.image_encoder(torch.ones(1, 3, 64, 64)).square().mean().backward()
report("gradient", [p.grad.abs().sum() for p in sam.image_encoder.parameters()], 2e-3)
