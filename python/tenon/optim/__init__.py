"""Optimizers and schedules of learning rates."""

from tenon.optim import lr_scheduler, swa_utils
from tenon.optim._rules import ASGD, Adadelta, Adagrad, Adamax, NAdam, RAdam, RMSprop, Rprop
from tenon.optim._steps import SGD, Adam, AdamW
from tenon.optim.lbfgs import LBFGS
from tenon.optim.optimizer import Optimizer

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "lr_scheduler",
    "swa_utils",
]
