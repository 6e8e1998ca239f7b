"""Perceivers of pictures and of queries."""

import torch
from perceiver_pytorch import Perceiver, PerceiverIO, PerceiverLM
from report import report

torch.manual_seed(0)
net = Perceiver(
    input_channels=3, input_axis=2, num_freq_bands=3, max_freq=5.0, depth=2, num_latents=6,
    latent_dim=16, cross_dim_head=8, latent_heads=2, latent_dim_head=8, num_classes=4,
    attn_dropout=0.1, weight_tie_layers=True, self_per_cross_attn=2,
)  # fmt: skip
optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
x = torch.rand(2, 8, 8, 3)
for _ in range(2):
    loss = torch.nn.functional.cross_entropy(net(x), torch.tensor([1, 3]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    report("loss", loss)
report("classes", net.eval()(x))
pio = PerceiverIO(
    dim=12, queries_dim=10, logits_dim=5, depth=2, num_latents=6, latent_dim=16, latent_heads=2,
    latent_dim_head=8, cross_dim_head=8, decoder_ff=True,
)  # fmt: skip
y = pio(
    torch.rand(2, 20, 12), mask=(torch.arange(20) < 15).expand(2, 20), queries=torch.rand(7, 10)
)
y.pow(2).mean().backward()
report("queries", y)
report("slopes", [p.grad.norm() for p in pio.parameters() if p.grad is not None])
words = PerceiverLM(
    num_tokens=30, dim=12, depth=1, max_seq_len=16, num_latents=4, latent_dim=8,
    latent_heads=2, latent_dim_head=4, cross_dim_head=4,
)  # fmt: skip
report("words", words(torch.randint(30, (2, 16))))
