"""Transformers with hashed attention and reversible layers."""

import torch
from reformer_pytorch import LSHAttention, ReformerLM
from report import report

torch.manual_seed(0)
attention = LSHAttention(bucket_size=8, n_hashes=2, causal=True)
qk, v = torch.randn(2, 32, 16), torch.randn(2, 32, 16)
out, _, _ = attention(qk, v)
report("attention", out)
for options in (
    {},
    {"use_full_attn": True},
    {"weight_tie": True, "ff_chunks": 2},
    {"axial_position_emb": True, "axial_position_shape": (8, 8)},
):
    torch.manual_seed(1)
    model = ReformerLM(
        num_tokens=30,
        dim=16,
        depth=2,
        max_seq_len=64,
        heads=2,
        bucket_size=8,
        n_hashes=2,
        lsh_dropout=0.0,
        causal=True,
        **options,
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        x = torch.randint(30, (2, 64))
        loss = torch.nn.functional.cross_entropy(model(x).transpose(1, 2), x.roll(-1, 1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(
            f"loss {sorted(options)}",
            [loss, *(p.grad.norm() for p in model.parameters() if p.grad is not None)],
            1e-3,
        )
