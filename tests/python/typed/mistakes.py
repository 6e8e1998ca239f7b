"""Wrong: every marked line has a mistake that a type checker must find."""

import tenon as torch
import tenon.nn.functional as F
from tenon import Tensor, nn, optim
from tenon.utils.data import DataLoader, TensorDataset

x = torch.rand(3, 4)
net = nn.Linear(4, 2)


class Net(nn.Module):
    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        return x * scale


torch.cat(x, x)  # wrong: a list of tensors, then dim
torch.softmx(x, 0)  # wrong: no such function
torch.zeros(2, 3, dtype="float32")  # wrong: a dtype is no text
torch.zeros("2")  # wrong: sizes are ints
torch.rand(2, 3, requires_gradient=True)  # wrong: no such keyword
x.to(device=1.5)  # wrong: no device
x.view("a")  # wrong: sizes are ints
x.sum(dim="rows")  # wrong: dimensions are ints
x.max(0).value  # wrong: values
x.max(0) + 1  # wrong: a pair, no tensor
x + "1"  # wrong: no number
x @ 2  # wrong: no tensor
x["a"]  # wrong: no index
x.shape = (4, 3)  # wrong: cannot be set
x.unsqeeze(0)  # wrong: no such method
x.item().shape  # wrong: a number has no shape
x.grad.zero_()  # wrong: may be None
F.relu(3.0)  # wrong: no tensor
F.cross_entropy(x)  # wrong: no target
F.dropout(x, p="half")  # wrong: no number
net(x, 2)  # wrong: one argument
net("x")  # wrong: no tensor
Net()(x, factor=2.0)  # wrong: scale
nn.Linear(4)  # wrong: out_features is missing
nn.Linear(4, "2")  # wrong: no int
nn.Conv2d(1, 2)  # wrong: kernel_size is missing
nn.LeakyReLU(slope=0.1)  # wrong: negative_slope
nn.Flatten("1")  # wrong: no int
nn.Sequential(3)  # wrong: no module
nn.Liner(4, 2)  # wrong: no such module
net.weight.requires_grad = "yes"  # wrong: no bool
optim.Adam(net.parameters(), learning_rate=0.1)  # wrong: lr
optim.SGD(net.parameters(), lr="small")  # wrong: no number
DataLoader(TensorDataset(x), batch_size="4")  # wrong: no int
torch.manual_seed("one")  # wrong: no int
torch.linalg.vector_norm("x")  # wrong: no tensor
torch.fft.rfft(x, n="8")  # wrong: no int
count: int = x.mean()  # wrong: a tensor
name: str = x.size(0)  # wrong: an int
