"""Which kernels compute with whole numbers: Tenon's own, whatever the engine is called."""

engine = "fbgemm"
supported_engines = ["qnnpack", "none", "onednn", "x86", "fbgemm"]
