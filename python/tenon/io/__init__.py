"""Files: checkpoints, safetensors, arrays. Readers execute nothing that a file contains."""
