"""nn.Transformer with every mask it knows, trained to turn sequences round."""

import torch
from torch import nn

torch.manual_seed(4)
PAD = 0


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(12, 16, padding_idx=PAD)
        places = torch.arange(8).unsqueeze(1) * torch.exp(-torch.arange(0, 16, 2) / 4)
        self.register_buffer("places", torch.stack([places.sin(), places.cos()], -1).flatten(1))
        self.body = nn.Transformer(
            16, 4, 1, 1, 32, dropout=0.1, batch_first=True, norm_first=True, activation="gelu"
        )
        self.head = nn.Linear(16, 12)

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.size(1)).isinf()
        hidden = self.body(
            self.tokens(source) + self.places[: source.size(1)],
            self.tokens(target) + self.places[: target.size(1)],
            tgt_mask=mask,
            src_key_padding_mask=source == PAD,
            tgt_key_padding_mask=target == PAD,
            memory_key_padding_mask=source == PAD,
        )
        return self.head(hidden)


model = Model()
criterion = nn.CrossEntropyLoss(ignore_index=PAD)
optimizer = torch.optim.NAdam(model.parameters(), lr=3e-3)
warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
for step in range(6):
    source = torch.randint(3, 12, (16, 6))
    source[torch.arange(6) >= torch.randint(3, 7, (16, 1))] = PAD
    target = torch.cat([torch.ones(16, 1, dtype=torch.long), source.flip(1)], 1)
    target = torch.where(target == PAD, 2, target)
    logits = model(source, target[:, :-1])
    loss = criterion(logits.reshape(-1, 12), target[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    warm.step()
    print(f"step {step} loss {loss.item():.4f} lr {warm.get_last_lr()[0]:.6f}")
attention = nn.MultiheadAttention(16, 2, kdim=5, vdim=7, add_zero_attn=True)
out, weights = attention(torch.randn(3, 2, 16), torch.randn(4, 2, 5), torch.randn(4, 2, 7))
print(out[0, 0, :4], weights.shape, weights.sum(-1))
