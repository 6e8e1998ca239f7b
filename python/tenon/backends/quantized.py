"""Which kernels compute with whole numbers: Tenon's own, whatever the engine is called."""

engine = "x86"
supported_engines = ["qnnpack", "onednn", "x86", "fbgemm"]
