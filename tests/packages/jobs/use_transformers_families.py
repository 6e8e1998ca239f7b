"""Small models of other families: losses, gradients, greedy and sampled tokens."""

import torch
import transformers
from report import report

ids = torch.tensor([[5, 9, 3, 17, 2, 8], [4, 4, 11, 1, 7, 6]])
mask = torch.tensor([[1] * 6, [0, 0, 1, 1, 1, 1]])
plain = {
    "vocab_size": 32, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "head_dim": 8,
}  # fmt: skip
without = ("num_key_value_heads", "head_dim")
encoder = {name: value for name, value in plain.items() if name not in without}
picture = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "image_size": 16, "patch_size": 4,
}  # fmt: skip
speech = {
    "vocab_size": 32, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48, "num_mel_bins": 8, "max_source_positions": 20,
    "max_target_positions": 32, "begin_suppress_tokens": None, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2,
}  # fmt: skip


def train(name: str, model, inputs: dict, kept: dict) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for _ in range(2):
        loss = model(**inputs).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(f"{name} loss", loss)
    norms = [p.grad.norm() for p in model.parameters() if p.grad is not None]
    report(f"{name} gradients", norms, 1e-3)
    model.eval()
    if kept:
        how = {"max_new_tokens": 5, "pad_token_id": 0, "eos_token_id": None}
        report(f"{name} greedy", model.generate(**kept, **how, do_sample=False), 0)
        torch.manual_seed(1)
        report(f"{name} sampled", model.generate(**kept, **how, do_sample=True, top_p=0.9), 0)


state = {"vocab_size": 32, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8}
text = {"input_ids": ids, "attention_mask": mask}
for family, config in (
    ("Mistral", {**plain, "sliding_window": 4}),
    ("Qwen2", plain),
    ("Gemma", plain),
    ("Mixtral", {**plain, "num_local_experts": 4, "num_experts_per_tok": 2}),
    ("GPTNeoX", encoder),
    ("Mamba", state),
):
    torch.manual_seed(0)
    made = getattr(transformers, f"{family}Config")(**config)
    model = transformers.AutoModelForCausalLM.from_config(made)
    train(family, model, {**text, "labels": ids}, text)
numbers = torch.Generator().manual_seed(5)
pixels = torch.randn(2, 3, 16, 16, generator=numbers)
sound = torch.randn(2, 8, 40, generator=numbers)
torch.manual_seed(0)
vit = transformers.ViTForImageClassification(transformers.ViTConfig(**picture))
train("ViT", vit, {"pixel_values": pixels, "labels": torch.tensor([0, 1])}, {})
clip = transformers.CLIPModel(
    transformers.CLIPConfig(
        text_config={**encoder, "eos_token_id": 8}, vision_config=picture, projection_dim=16
    )
)
train("CLIP", clip, {"input_ids": ids, "pixel_values": pixels, "return_loss": True}, {})
whisper = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**speech))
train("Whisper", whisper, {"input_features": sound, "labels": ids}, {"input_features": sound})
