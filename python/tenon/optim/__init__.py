"""Optimizers and schedules of learning rates."""

from tenon._help import describe
from tenon._submodules import on_demand
from tenon.optim import lr_scheduler, swa_utils
from tenon.optim._adafactor import Adafactor
from tenon.optim._muon import Muon
from tenon.optim._rules import ASGD, Adadelta, Adagrad, Adamax, NAdam, RAdam, RMSprop, Rprop
from tenon.optim._sparse_adam import SparseAdam
from tenon.optim._steps import SGD, Adam, AdamW
from tenon.optim.lbfgs import LBFGS
from tenon.optim.optimizer import Optimizer

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SparseAdam",
    "lr_scheduler",
    "swa_utils",
]
describe(*(globals()[name] for name in __all__))
describe(*vars(lr_scheduler).values())

on_demand(globals())
