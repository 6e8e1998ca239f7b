"""Some of the vision transformers."""

import torch
from report import report
from vit_pytorch import MAE, SimpleViT, ViT
from vit_pytorch.cait import CaiT
from vit_pytorch.cct import CCT
from vit_pytorch.cross_vit import CrossViT
from vit_pytorch.crossformer import CrossFormer
from vit_pytorch.cvt import CvT
from vit_pytorch.deepvit import DeepViT
from vit_pytorch.distill import DistillableViT, DistillWrapper
from vit_pytorch.levit import LeViT
from vit_pytorch.max_vit import MaxViT
from vit_pytorch.mobile_vit import MobileViT
from vit_pytorch.nest import NesT
from vit_pytorch.pit import PiT
from vit_pytorch.regionvit import RegionViT
from vit_pytorch.simple_flash_attn_vit import SimpleViT as FlashViT
from vit_pytorch.t2t import T2TViT
from vit_pytorch.twins_svt import TwinsSVT
from vit_pytorch.vit_for_small_dataset import ViT as SmallViT

x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
common = {"image_size": 32, "patch_size": 8, "num_classes": 3, "dim": 32}
plain = {**common, "depth": 2, "heads": 2, "mlp_dim": 32}
for name, make in (
    ("vit", lambda: ViT(**plain)),
    ("mean", lambda: ViT(**plain, pool="mean")),
    ("simple", lambda: SimpleViT(**plain)),
    ("flash", lambda: FlashViT(**plain, use_flash=True)),
    ("deep", lambda: DeepViT(**plain)),
    ("small", lambda: SmallViT(**plain)),
    ("cait", lambda: CaiT(**plain, cls_depth=1, layer_dropout=0.0)),
    ("pit", lambda: PiT(**{**plain, "depth": (1, 1)})),
    ("t2t", lambda: T2TViT(dim=32, image_size=32, depth=1, heads=2, mlp_dim=32, num_classes=3)),
    (
        "cct",
        lambda: CCT(
            img_size=32,
            embedding_dim=32,
            n_conv_layers=1,
            num_layers=2,
            num_heads=2,
            mlp_ratio=2.0,
            num_classes=3,
        ),
    ),
    (
        "cross",
        lambda: CrossViT(
            image_size=32, num_classes=3, depth=1, sm_dim=16, sm_patch_size=8, lg_dim=24
        ),
    ),
    ("cvt", lambda: CvT(num_classes=3, s1_emb_dim=16, s2_emb_dim=24, s3_emb_dim=32, s3_depth=1)),
    (
        "levit",
        lambda: LeViT(
            image_size=32, num_classes=3, stages=1, dim=(32,), depth=1, heads=(2,), mlp_mult=2
        ),
    ),
    (
        "maxvit",
        lambda: MaxViT(num_classes=3, dim=16, dim_head=8, depth=(1, 1), window_size=4),
    ),
    (
        "nest",
        lambda: NesT(
            image_size=32,
            patch_size=4,
            dim=16,
            heads=2,
            num_hierarchies=2,
            block_repeats=(1, 1),
            num_classes=3,
        ),
    ),
):
    torch.manual_seed(0)
    model = make().eval()
    out = model(x)
    report(name, out, 1e-3)
    out.square().sum().backward()
    report(
        "gradient", sum(p.grad.abs().sum() for p in model.parameters() if p.grad is not None), 2e-3
    )
y = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(1))
torch.manual_seed(0)
mobile = MobileViT(
    image_size=(64, 64),
    dims=[16, 24, 32],
    channels=[8, 8, 8, 8, 8, 8, 16, 16, 16, 16, 32],
    num_classes=3,
).eval()
report("mobile", mobile(y), 1e-3)
region = RegionViT(dim=(16, 16, 16, 16), depth=(1, 1, 1, 1), window_size=2, num_classes=3).eval()
report("region", region(y), 1e-3)
cross = CrossFormer(dim=(32, 32, 32, 32), depth=(1,) * 4, global_window_size=(4, 2, 2, 1),
                    local_window_size=2, num_classes=3).eval()  # fmt: skip
report("crossformer", cross(y), 1e-3)
twins = TwinsSVT(num_classes=3, s1_emb_dim=8, s2_emb_dim=16, s3_emb_dim=16, s4_emb_dim=16,
                 s1_local_patch_size=2, s2_local_patch_size=2, s3_local_patch_size=1,
                 s4_local_patch_size=1, s1_patch_size=2, s2_patch_size=2, s3_patch_size=2,
                 s4_patch_size=2, s1_global_k=2, s2_global_k=2, s3_global_k=2,
                 s4_global_k=2, s3_depth=1).eval()  # fmt: skip
report("twins", twins(y), 1e-3)
torch.manual_seed(2)
student = DistillableViT(**plain)
teacher = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 3))
distill = DistillWrapper(student=student, teacher=teacher, temperature=3, alpha=0.5, hard=False)
optimizer = torch.optim.Adam(distill.parameters(), lr=1e-3)
for _ in range(2):
    loss = distill(x, torch.tensor([0, 2]))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    report("distill", loss, 1e-3)
mean = ViT(**plain, pool="mean")
report("mae", MAE(encoder=mean, masking_ratio=0.75, decoder_dim=16, decoder_depth=1)(x))
