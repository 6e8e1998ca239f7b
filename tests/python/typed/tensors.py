"""Correct: tensors, operators, indexing, named results, dtypes and devices."""

import math

import tenon as tn
import tenon as torch
from tenon import Size, Tensor


def make() -> list[Tensor]:
    return [
        tn.tensor([[1, 2], [3, 4]]),
        tn.tensor(1.5, dtype=tn.float64, device="cpu", requires_grad=True),
        tn.zeros(2, 3),
        tn.zeros((2, 3), dtype=tn.int64),
        tn.ones([2, 3], requires_grad=True),
        tn.full((2,), math.pi),
        tn.arange(10),
        tn.arange(0, 1, 0.25),
        tn.linspace(0, 1, 5),
        tn.eye(3),
        tn.randn(2, 3, generator=tn.Generator().manual_seed(1)),
        tn.randint(0, 10, (3,)),
        tn.randint(5, (2, 2)),
        tn.empty_like(tn.rand(3)),
        tn.as_tensor([1.0, 2.0]),
        tn.cat([tn.zeros(1), tn.ones(1)]),
        tn.stack((tn.zeros(1), tn.ones(1)), dim=1),
        torch.where(tn.rand(3) > 0.5, 1.0, tn.zeros(3)),
    ]


def arithmetic(a: Tensor, b: Tensor) -> Tensor:
    c = a + b * 2 - 1 / a
    c += 1
    c = -(c**2) @ b.T
    c = 2 + c % 3 // 2
    mask = (a > 0) & ~(b == 0) | (a <= b)
    return c.abs().clamp(min=0.0).masked_fill(mask, 0) + abs(c) + tn.exp(a).sin_()


def shapes(x: Tensor) -> Tensor:
    batch, width = x.shape
    size: Size = x.size()
    rows: int = x.size(0) + x.shape[-1] + size.numel() + x.ndim + x.numel() + len(x)
    y = x.view(batch, -1).reshape(rows).unsqueeze(0).expand(3, -1).permute(1, 0)
    y = y.transpose(0, 1).flatten(1).squeeze().repeat(2, width).contiguous()
    return y.permute((1, 0)).movedim(0, 1).t().swapaxes(0, 1).broadcast_to((4, 4))


def indexing(x: Tensor, rows: Tensor) -> Tensor:
    y = x[0] + x[..., 1:] + x[:, None, ::2] + x[rows] + x[x > 0] + x[[0, 2]] + x[-1, rows]
    y[0] = 1.0
    y[rows, 1:] = x[0]
    y[y != y] = 0
    return y.index_select(0, rows).gather(1, rows.long())


def reductions(x: Tensor) -> float:
    values, places = x.max(dim=1)
    best = x.topk(2).indices
    order = tn.sort(x, descending=True)
    low = tn.min(x, 0, keepdim=True).values
    total = x.sum() + x.mean(dim=(0, 1)) + x.std(0).sum(-1, keepdim=True) + x.max() + order[0].sum()
    q, k, v = x.chunk(3, dim=-1)
    first, *rest = x.split(2, dim=0)
    sizes = [part.shape for part in rest]
    value = (total + low + values).sum().item() + q.norm().item() + (k @ v.mT).sum().item()
    return (
        float(value)
        + best.float().mean().item()
        + places.argmax().item()
        + len(sizes)
        + len(first.unique())
    )


def conversions(x: Tensor) -> Tensor:
    d = tn.device("cuda", 0) if x.is_cuda else tn.device("cpu")
    y = x.to(d).to("cpu").to(tn.float32).to(d, tn.float64).to(x).to(dtype=tn.half, device="cpu")
    kinds = [x.dtype, y.device.type, tn.float32.itemsize, x.dtype.is_floating_point]
    return y.float().double().long().int().bool().half() if kinds else y.cpu().type_as(x)


def gradients(x: Tensor) -> Tensor | None:
    w = x.detach().clone().requires_grad_()
    loss = (w * x).sum()
    loss.backward(retain_graph=True)
    handle = w.register_hook(lambda g: g * 2)
    handle.remove()
    (g,) = tn.autograd.grad(loss, [w], create_graph=True)
    with tn.no_grad():
        w -= 0.1 * g
    if w.grad is not None:
        w.grad.zero_()
    return w.grad


@tn.no_grad()
def frozen(x: Tensor) -> Tensor:
    return x * 2


@tn.inference_mode()
def fast(x: Tensor, scale: float = 1.0) -> Tensor:
    return x * scale


def algebra(a: Tensor, b: Tensor) -> Tensor:
    u, s, vh = tn.linalg.svd(a, full_matrices=False)
    values, vectors = tn.linalg.eigh(a)
    x = tn.linalg.solve(a, b) + tn.linalg.norm(a) + tn.linalg.inv(a) @ tn.linalg.qr(b).Q
    y = tn.einsum("ij,jk->ik", a, b) + tn.matmul(a, b) + tn.bmm(a[None], b[None])[0]
    freq = tn.fft.rfft(a, n=8, dim=-1).abs()
    return x + y + u @ s.diag() @ vh + values + vectors + freq + tn.special.erf(a) + frozen(fast(a))
