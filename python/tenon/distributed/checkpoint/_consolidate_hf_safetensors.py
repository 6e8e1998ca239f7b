"""Files of safetensors made one."""

from tenon.distributed._absent import absent

_MODULE = "torch.distributed.checkpoint._consolidate_hf_safetensors"
consolidate_safetensors_files = absent(_MODULE, "consolidate_safetensors_files")
consolidate_safetensors_files_on_every_rank = absent(
    _MODULE, "consolidate_safetensors_files_on_every_rank"
)

__all__ = ["consolidate_safetensors_files", "consolidate_safetensors_files_on_every_rank"]
