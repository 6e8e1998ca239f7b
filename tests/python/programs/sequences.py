"""Recurrent networks over sequences of several lengths, and text drawn from a trained one."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

torch.manual_seed(2)
text = "the cat sat on the mat and the dog sat on the log " * 3
letters = sorted(set(text))
codes = torch.tensor([letters.index(c) for c in text])


class Model(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.embedding = nn.Embedding(len(letters), 8)
        self.rnn = getattr(nn, kind)(8, 16, num_layers=2, dropout=0.1, batch_first=True)
        self.head = nn.Linear(16, len(letters))

    def forward(self, x, state=None):
        y, state = self.rnn(self.embedding(x), state)
        return self.head(y), state


for kind in ("RNN", "LSTM", "GRU"):
    model = Model(kind)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=5e-3)
    for step in range(4):
        starts = torch.randint(len(codes) - 13, (8,))
        x = torch.stack([codes[i : i + 12] for i in starts])
        y = torch.stack([codes[i + 1 : i + 13] for i in starts])
        logits, _ = model(x)
        loss = nn.functional.cross_entropy(logits.transpose(1, 2), y)
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        print(f"{kind} {step} loss {loss.item():.4f} norm {norm:.4f}")
model.eval()
x, state, drawn = torch.tensor([[letters.index("t")]]), None, "t"
with torch.no_grad():
    for _ in range(20):
        logits, state = model(x, state)
        x = torch.multinomial(torch.softmax(logits[:, -1] / 0.9, -1), 1)
        drawn += letters[x.item()]
print(repr(drawn))
rows = [torch.randn(n, 3) for n in (4, 2, 6)]
lengths = torch.tensor([len(row) for row in rows])
packed = pack_padded_sequence(pad_sequence(rows), lengths, enforce_sorted=False)
both = nn.LSTM(3, 5, bidirectional=True)
output, (hidden, _) = both(packed)
unpacked, lengths = pad_packed_sequence(output, padding_value=-1.0)
print(packed.batch_sizes, unpacked.shape, lengths, unpacked[:, 1, :2], hidden[-1])
