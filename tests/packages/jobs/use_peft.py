"""LoRA on a small GPT-2: training, merging."""

import torch
from peft import LoraConfig, get_peft_model
from report import report
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
base = GPT2LMHeadModel(
    GPT2Config(
        vocab_size=32,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=32,
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
    )
)
model = get_peft_model(
    base,
    LoraConfig(r=4, lora_alpha=8, target_modules=["c_attn"], lora_dropout=0.0, fan_in_fan_out=True),
)
report("trainable", [p.numel() for p in model.parameters() if p.requires_grad])
ids = torch.randint(0, 32, (4, 8))
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
for _ in range(5):
    loss = model(ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    report("loss", loss)
merged = model.merge_and_unload().eval()
report("merged", merged(ids).logits)
