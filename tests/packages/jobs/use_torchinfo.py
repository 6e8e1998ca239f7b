"""A summary of a network's layers."""

import torch
from report import report
from torchinfo import summary

torch.manual_seed(0)
net = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3),
    torch.nn.BatchNorm2d(8),
    torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(1),
    torch.nn.Flatten(),
    torch.nn.Linear(8, 4),
)
s = summary(net, input_size=(2, 3, 16, 16), verbose=0)
report(
    "counts",
    [
        s.total_params,
        s.trainable_params,
        s.total_mult_adds,
        s.total_param_bytes,
        s.total_output_bytes,
        s.total_input,
    ],
)
report("layers", [len(str(s))] + [layer.num_params for layer in s.summary_list])
lstm = torch.nn.LSTM(5, 7, batch_first=True)
s = summary(
    lstm,
    input_size=(2, 4, 5),
    verbose=0,
    col_names=("input_size", "output_size", "num_params", "kernel_size", "mult_adds", "trainable"),
)
report("lstm", [s.total_params, s.total_mult_adds, len(str(s))])
e = torch.nn.Transformer(16, 2, 1, 1, 32, batch_first=True)
s = summary(e, input_data=[torch.randn(2, 3, 16), torch.randn(2, 3, 16)], verbose=0, depth=5)
report("transformer", [s.total_params, s.total_mult_adds, len(str(s))])
