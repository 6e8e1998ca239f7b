"""Transformers with many kinds of attention."""

import torch
from report import report
from x_transformers import (
    AutoregressiveWrapper,
    ContinuousTransformerWrapper,
    Decoder,
    Encoder,
    TransformerWrapper,
    ViTransformerWrapper,
    XTransformer,
)

torch.manual_seed(0)
ids = torch.randint(0, 40, (2, 12))
for name, more in {
    "plain": {},
    "rotary": {"rotary_pos_emb": True},
    "alibi": {"alibi_pos_bias": True},
    "t5": {"rel_pos_bias": True},
    "rms": {"use_rmsnorm": True},
    "glu": {"ff_glu": True, "ff_swish": True, "ff_no_bias": True},
    "memory": {"attn_num_mem_kv": 2},
    "topk": {"attn_sparse_topk": 4},
    "talking": {"attn_pre_talking_heads": True},
    "qknorm": {"attn_qk_norm": True},
    "gated": {"gate_residual": True},
    "one kv": {"attn_one_kv_head": True},
    "shift": {"shift_tokens": 1},
    "sandwich": {"sandwich_norm": True},
    "macaron": {"macaron": True},
    "scale": {"use_scalenorm": True},
    "dynamic": {"dynamic_pos_bias": True},
    "deepnorm": {"pre_norm": False, "scale_residual": True},
    "flash": {"attn_flash": True},
    "value residual": {"add_value_residual": True},
    "hyper": {"num_residual_streams": 2},
}.items():
    torch.manual_seed(1)
    net = AutoregressiveWrapper(
        TransformerWrapper(
            num_tokens=40,
            max_seq_len=12,
            attn_layers=Decoder(dim=32, depth=2, heads=4, attn_dim_head=8, **more),
        )
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(2):
        loss = net(ids)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(name, loss)
torch.manual_seed(3)
report("generate", net.generate(ids[:, :3], 6))
report("greedy", net.generate(ids[:, :3], 6, temperature=0.0))
xt = XTransformer(
    dim=32,
    enc_num_tokens=40,
    enc_depth=1,
    enc_heads=2,
    enc_max_seq_len=12,
    dec_num_tokens=40,
    dec_depth=1,
    dec_heads=2,
    dec_max_seq_len=12,
    tie_token_emb=True,
)
loss = xt(ids, ids, mask=torch.ones_like(ids).bool())
loss.backward()
report("xt", loss)
c = ContinuousTransformerWrapper(
    dim_in=6, dim_out=4, max_seq_len=12, attn_layers=Encoder(dim=32, depth=1, heads=2)
)
report("continuous", c(torch.randn(2, 10, 6), mask=torch.ones(2, 10).bool()))
v = ViTransformerWrapper(
    image_size=16, patch_size=8, num_classes=3, attn_layers=Encoder(dim=32, depth=1, heads=2)
)
report("vit", v(torch.randn(1, 3, 16, 16)))
