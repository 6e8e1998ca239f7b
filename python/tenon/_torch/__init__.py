"""What `tenon run` shows beside Tenon's own names: modules whose names in PyTorch start with an
underscore, and that programs and packages import all the same.

`torch.NAME` is `tenon.NAME` where that is there, else `tenon._torch.NAME`. Nothing here computes:
the files hold names for what Tenon has elsewhere, and settings of compilers that it does not have.
"""
