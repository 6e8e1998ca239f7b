"""A loop prepared by an Accelerator, with accumulated gradients."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from report import report

set_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
x = torch.randn(32, 6)
data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
net, optimizer, loader, schedule = accelerator.prepare(net, optimizer, loader, schedule)
for _ in range(3):
    for a, b in loader:
        with accelerator.accumulate(net):
            loss = torch.nn.functional.mse_loss(net(a), b)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        report("loss", accelerator.gather(loss.detach()))
report("weights", accelerator.unwrap_model(net)[0].weight)
