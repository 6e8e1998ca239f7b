"""einx's notation."""

import einx
import torch
from report import report

torch.manual_seed(0)
x = torch.randn(4, 6, 8, requires_grad=True)
w = torch.randn(8, 5)
report("sum", einx.sum("a [b] c", x))
report("mean", einx.mean("a (s [b]) c", x, s=2))
report("dot", einx.dot("a b [c], [c] d -> a b d", x, w))
report(
    "rearrange",
    einx.id("a (s b) c -> s (a c) b", x, s=2)
    if hasattr(einx, "id")
    else einx.rearrange("a (s b) c -> s (a c) b", x, s=2),
)
report("add", einx.add("a b c, c -> a b c", x, torch.arange(8.0)))
report("softmax", einx.softmax("a [b] c", x))
report("where", einx.where("a b c, , a b c", x > 0, 0.0, x))
report("get", einx.get_at("a [b] c, a i -> a i c", x, torch.randint(0, 6, (4, 3))))
report(
    "set", einx.set_at("[b] c, i, i c", torch.zeros(6, 8), torch.tensor([1, 3]), torch.ones(2, 8))
)
report("var", einx.var("a [b] c", x))
report("logsumexp", einx.logsumexp("a [b] c", x))
report("flip", einx.flip("a [b] c", x))
report("roll", einx.roll("a [b] c", x, shift=2))
y = einx.sum("[a] b [c]", einx.multiply("a b c, b -> a b c", x, torch.arange(6.0)) ** 2)
y.sum().backward()
report("gradient", x.grad)
