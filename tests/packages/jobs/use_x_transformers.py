"""A decoder with rotary embeddings, and what it generates."""

import torch
from report import report
from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

torch.manual_seed(0)
net = TransformerWrapper(
    num_tokens=32, max_seq_len=16,
    attn_layers=Decoder(dim=16, depth=2, heads=2, attn_dim_head=8, rotary_pos_emb=True,
                        ff_glu=True, use_rmsnorm=True),
)  # fmt: skip
model = AutoregressiveWrapper(net)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
text = torch.arange(24).view(2, 12) % 32
for _ in range(3):
    loss = model(text)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    report("loss", loss)
report("logits", net.eval()(text))
report("generated", model.generate(text[:, :3], 5, temperature=0.0))
