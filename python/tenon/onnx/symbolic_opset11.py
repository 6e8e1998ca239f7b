"""Rules of PyTorch's exporter of scripts, which packages build theirs of: there are none here."""
