"""Makes the archives of this folder with PyTorch: `python tests/data/torchscript/make.py`.

NAME.pt is what `torch.jit.save` writes, without what is for debuggers; NAME.io holds arguments and
what PyTorch answers to them. TorchScript compiles the functions below from their sources, so that
they are written in its words.
"""

import io
import math
import zipfile
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple  # noqa: UP035 - TorchScript's

import torch
from torch import Tensor, nn
from torch.nn import functional as F

FOLDER = Path(__file__).parent


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 4, 3, padding="same", padding_mode="reflect"), None
        self.batch, self.instance = nn.BatchNorm2d(4), nn.InstanceNorm2d(4, affine=True)
        self.up, self.wide = nn.Upsample(scale_factor=2.0), nn.Upsample((7, 7), mode="bilinear")
        self.mean, self.most = nn.AvgPool2d(2, ceil_mode=True), nn.AdaptiveMaxPool2d(3)
        self.shuffle, self.slope, self.deep = (
            nn.PixelShuffle(2),
            nn.PReLU(),
            nn.Conv2d(4, 4, 3, groups=4),
        )
        self.back, self.drop = nn.ConvTranspose2d(4, 2, 2, 2), nn.Dropout2d()

    def forward(self, x):
        y = self.drop(self.slope(self.instance(self.batch(self.conv(x)))))
        return (
            self.up(y),
            self.wide(y),
            self.mean(y),
            self.most(y),
            self.shuffle(y),
            F.hardswish(self.deep(y)),
            F.max_pool2d(y, 2, 1),
            self.back(y),
            F.unfold(y, 2),
            F.interpolate(y, scale_factor=0.5, mode="bicubic", recompute_scale_factor=True),
            F.grid_sample(y, torch.zeros(1, 2, 2, 2), align_corners=False),
        )


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(9, 4)
        self.lstm = nn.LSTM(4, 3, 2, batch_first=True, bidirectional=True)
        self.gru, self.rnn, self.cell = nn.GRU(4, 3), nn.RNN(4, 3), nn.GRUCell(4, 3)

    def forward(self, words):
        x = self.words(words)
        a, (b, c) = self.lstm(x)
        d, e = self.gru(x)
        f, g = self.rnn(x)
        h = torch.zeros(x.size(0), 3)
        steps = []
        for step in x.unbind(1):
            h = self.cell(step, h)
            steps.append(h)
        return a, b, c, d, e, f, g, torch.stack(steps)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.MultiheadAttention(8, 2, batch_first=True)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 6, batch_first=True), 1
        )
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(8, 2, 6, batch_first=True), 1
        )

    def forward(self, x, mask: Tensor | None = None):
        y, weights = self.heads(x, x, x, attn_mask=mask)
        return self.decoder(self.encoder(x), y), weights


class Course(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.scale, self.names = 0.5, ["a", "bc"]
        self.register_buffer("held", torch.ones(4))

    def forward(self, x, n: int = 3, y: Tensor | None = None):
        out: list[Tensor] = []
        named: dict[str, Tensor] = {}
        for layer in self.layers:
            x = torch.tanh(layer(x)) * self.scale
            if x.sum() > 0:
                out.append(x)
            else:
                out.append(-x)
        i = 0
        while i < n:
            i += 1
            if i == 2:
                continue
            x = x + self.held * i
        for name in self.names:
            named[name] = x * len(name)
        if y is not None:
            x = x + y
        assert n > 0, "n must be positive"
        return x, torch.stack(out), named

    @torch.jit.export
    def twice(self, x):
        self.held = self.held * 2
        return x * 2 + self.held


class Attributes(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.plain = nn.Linear(3, 3), torch.ones(3)
        self.table = {"a": torch.ones(2), "b": torch.zeros(1)}
        self.several, self.none = (1, 2.5, "x"), None
        self.listed = nn.ParameterList([nn.Parameter(torch.ones(3) * i) for i in range(3)])
        self.named = nn.ModuleDict({"x": nn.Linear(3, 2), "y": nn.ReLU()})

    def forward(self, x):
        for p in self.listed:
            x = x + p
        y = self.layer(x)[:, :2]
        for module in self.named.values():
            y = module(x)[:, :2]
        z = x.mean().item() > 0
        return y + self.table["a"], self.several[1] * 2, self.several[2] + "q", len(self.table), z


class Pair(NamedTuple):
    first: Tensor
    second: int = 7


class Color(Enum):
    RED = 1
    BLUE = 2


@torch.jit.script
class Counter:
    def __init__(self, n: int):
        self.n = n
        self.items: list[int] = []

    def add(self, x: int):
        self.n += x
        self.items.append(x)
        return self


class Kinds(nn.Module):
    def __init__(self):
        super().__init__()
        self.color, self.layer = Color.BLUE, nn.Linear(3, 3)

    def forward(self, x):
        pair, counter, color = Pair(x * 2, 3), Counter(2), Color.BLUE
        counter.add(5).add(6)
        with torch.no_grad():
            y = self.layer(x)
        if color == Color.RED:
            y = -y
        elif self.color == color:
            y = y * self.color.value
        return pair.first + pair.second, counter.n, counter.items, y.detach(), color.name


class Holder(nn.Module):
    """Objects among its attributes."""

    def __init__(self):
        super().__init__()
        self.counter = Counter(3)
        self.counters, self.both = [Counter(1), Counter(2)], (Counter(5), 6)
        self.by_name = {"a": Counter(8)}

    def forward(self, x):
        self.counter.add(2)
        total = self.counter.n + self.both[0].n * 10 + self.by_name["a"].n * 100
        for counter in self.counters:
            counter.add(1)
            total += counter.n * 1000
        return x * 2, total, Pair(x).second, self.counter.items


class Structures(nn.Module):
    def forward(self, x: dict[str, Tensor], many: list[Tensor], pair: tuple[Tensor, int]):
        out = torch.zeros(3)
        for key in x:
            out = out + x[key]
        for value in x.values():
            out = out * 2 + value
        for each in many:
            out += each
        return out * pair[1] + pair[0], {k: v * 2 for k, v in x.items()}


def arithmetic(n: int, f: float, s: str):
    numbers = [n // 3, n % 3, -7 // 2, -7 % 3, int(f), abs(-n), min(n, 3), max(n, 9), n ^ 5, n & 6]
    floats = [math.sqrt(f), math.pi * f, n / 3, 2**0.5, float(n), round(f), f % 0.7, n**2]
    whole = [math.floor(f), math.ceil(f)]
    text = s.upper() + ",".join(s.split("b")) + str(n) + f"{n}-{f}-{n * 1.0}"
    text += str(1e20) + str(2.0) + "%d-%s" % (n, s)  # noqa: UP031
    table = {"a": 1, "b": 2}
    table["c"] = n
    table.pop("a")
    listed = [3, 1, 2]
    listed.sort()
    listed.insert(0, 9)
    listed.extend([7])
    last = listed.pop()
    table.update({"d": 9})
    more = {"e": table.get("b", 0), "f": table.setdefault("g", 5), "h": len(table)}
    del table["b"]
    words = ["x y".split(), "a-b".replace("-", "+").partition("+"), " q ".strip().ljust(3, ".")]
    listed.reverse()
    found = [listed.index(9), listed.count(1), "abcb".find("c"), ord("a"), int("12")]
    copied = listed.copy()
    copied.clear()
    signs = [math.isnan(f), not f > 1, True and n > 3, n == 7 or f == 0, "ab" < "b", [1] == [1]]
    mixed = [math.gcd(12, 18), n << 2, n >> 1, n | 8, math.factorial(4)]
    holds = "b" in table and not (n > 100) and (s.startswith("a") or n == 2)
    total = 0
    for i, (k, v) in enumerate(zip([1, 2, 3], [4, 5, 6])):  # noqa: B905
        total += i * k * v
        if total > 10:
            break
    for i in range(10, 0, -3):
        total += i
    turns = 0
    while True:
        turns += 1
        if turns % 2 == 0:
            continue
        if turns > 7:
            break
    return (
        numbers,
        floats,
        whole,
        text,
        list(table.keys()),
        listed,
        last,
        holds,
        total,
        turns,
        listed[1:3],
        listed[-1],
        listed[::2],
        [x * 2 for x in listed],
        s[1:3],
        more, words, found, len(copied), signs, mixed, listed + [4] * 2, table,
    )  # fmt: skip


def operators(x, index):
    y = x.clone()
    y[0] = 1.0
    y[:, 1] += 2
    y[index] = 5.0
    values, places = torch.max(x, 1)
    ordered, _ = torch.sort(x, dim=1, descending=True)
    labels = torch.tensor([0, 1, 2])
    return (
        x[index], x[:, 1], x[x > 0], x[None], x[..., 0], x[1:, ::2], y, values, places, ordered,
        torch.topk(x, 2)[0], torch.arange(5, dtype=torch.float32),
        torch.zeros([2, 3], dtype=torch.int64), torch.full([2], 3.5), torch.linspace(0, 1, 5),
        x.to(torch.float64).sum(), x.int(), x.masked_fill(x > 0, 0.0), torch.where(x > 0, x, -x),
        torch.cat([x, x], 0), torch.split(x, 2, 1)[0], x.chunk(2, 0)[1], F.pad(x, [1, 1]),
        torch.einsum("ij,kj->ik", x, x), F.cross_entropy(x, labels), F.mse_loss(x, x * 2),
        F.smooth_l1_loss(x, x * 3, reduction="sum", beta=0.5),
        F.nll_loss(F.log_softmax(x, 1), labels), F.huber_loss(x, x * 3, reduction="none"),
        F.binary_cross_entropy_with_logits(x, torch.ones_like(x)), x.norm(), x.std(), x.var(1),
        torch.cumsum(x, 0), torch.clamp(x, -1, 1), x.transpose(0, 1).contiguous(),
        torch.gather(x, 1, torch.tensor([[0], [1], [2]])), torch.bmm(x[None], x.t()[None]),
        x.unsqueeze(0).expand(2, 3, 4).reshape(-1), F.softmax(x, dim=-1, dtype=torch.float64),
        F.gelu(x), F.elu(x, 0.5), F.leaky_relu(x, 0.2), F.hardtanh(x), F.softplus(x), x.argmax(1),
        torch.logsumexp(x, 1), F.one_hot(torch.tensor([0, 2]), 4), F.normalize(x),
        F.cosine_similarity(x, x), F.embedding(torch.tensor([0, 1]), x), x.half().float(),
        x.std(1, unbiased=False), torch.nonzero(x > 0), x.new_zeros([2]), x.sum(0, keepdim=True),
        F.group_norm(x.t()[None], 2, x[0], x[1], 1e-3), F.layer_norm(x, [4], x[0], x[1], 1e-3),
        F.embedding(torch.tensor([0, 2]), x, padding_idx=1), torch.std_mean(x, 1)[0],
        F.l1_loss(x, x * 2, reduction="sum"), F.kl_div(x, x.exp(), reduction="sum"),
        F.binary_cross_entropy(x.sigmoid(), torch.ones_like(x), x.abs()), torch.ones(2, 2).dim(),
        x.contiguous(memory_format=torch.contiguous_format).stride(), torch.tensor(2.5).item(),
        torch.tensor([[1, 2], [3, 4]], dtype=torch.int16), x.type_as(x.double()), int(x[0, 0] * 0),
        torch.cumsum(x, 1, dtype=torch.float64), F.log_softmax(x, 1, dtype=torch.float64),
        torch.conv1d(x[None], x[:2, None, :2].expand(2, 3, 2), None, [1], [1], [1]), x.numel(),
        torch.empty([2, 0]).size(1), torch.zeros_like(x, dtype=torch.bool).any(),
        x.is_floating_point(),
        x.to(x.double(), False), x.to(torch.float64, True, copy=True),
        x.size(0), x.shape, x.dtype == torch.float32, x.view(-1)[::2], torch.rand_like(x) * 0,
    )  # fmt: skip


def keep(name: str, program: Any, *args: Any) -> None:
    if isinstance(program, nn.Module):
        program.eval()
    file = io.BytesIO()
    torch.jit.save(program, file, _extra_files={"about.txt": "a note"})
    with zipfile.ZipFile(file) as whole, zipfile.ZipFile(FOLDER / f"{name}.pt", "w") as less:
        for member in whole.infolist():
            if not member.filename.endswith(".debug_pkl"):
                less.writestr(member.filename, whole.read(member), member.compress_type)
    torch.save((args, program(*args)), FOLDER / f"{name}.io")


def main() -> None:
    torch.manual_seed(0)
    image, words = torch.randn(1, 2, 8, 8), torch.tensor([[1, 2, 3], [8, 0, 5]])
    script, trace = torch.jit.script, torch.jit.trace
    keep("convolutions", script(Convolutions().eval()), image)
    keep("convolutions_traced", trace(Convolutions().eval(), image, check_trace=False), image)
    keep("recurrent", script(Recurrent().eval()), words)
    keep("recurrent_frozen", torch.jit.freeze(script(Recurrent().eval())), words)
    keep("attention", script(Attention().eval()), torch.randn(2, 3, 8))
    keep("course", script(Course()), torch.randn(2, 4))
    keep("attributes", script(Attributes()), torch.randn(2, 3))
    keep("kinds", script(Kinds()), torch.randn(2, 3))
    keep("holder", script(Holder()), torch.randn(2))
    table = {"a": torch.ones(3), "b": torch.ones(3) * 2}
    keep("structures", script(Structures()), table, [torch.ones(3)], (torch.ones(1), 4))
    keep("arithmetic", script(arithmetic), 7, 2.7, "abcb")
    keep("operators", script(operators), torch.randn(3, 4), torch.tensor([2, 0]))
    keep("halves", script(nn.Linear(3, 2).bfloat16()), torch.randn(2, 3).bfloat16())


if __name__ == "__main__":
    main()
