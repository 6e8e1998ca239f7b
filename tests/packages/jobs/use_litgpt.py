"""Language models by configuration: training, generating with a cache, adapters of low rank."""

import torch
from litgpt import GPT, Config
from litgpt.generate.base import generate
from litgpt.lora import GPT as LoraGPT
from litgpt.lora import Config as LoraConfig
from litgpt.lora import mark_only_lora_as_trainable, merge_lora_weights
from litgpt.utils import chunked_cross_entropy, num_parameters
from report import report

for name in (
    "pythia-14m",
    "Llama-3.2-1B",
    "gemma-2b",
    "phi-2",
    "Qwen2.5-0.5B",
    "Mixtral-8x7B-v0.1",
    "Gemma-2-2b",
):
    torch.manual_seed(0)
    small = {
        "n_layer": 2,
        "n_embd": 32,
        "n_head": 4,
        "n_query_groups": 2,
        "head_size": 8,
        "padded_vocab_size": 60,
        "intermediate_size": 48,
        "block_size": 32,
    }
    model = GPT(Config.from_name(name, **small))
    report(f"{name}, size", num_parameters(model))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    x = torch.randint(60, (2, 17))
    for _ in range(3):
        loss = chunked_cross_entropy(model(x[:, :-1]), x[:, 1:], chunk_size=8)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(f"{name}, loss", loss)
    model.eval()
    with torch.no_grad():
        model.set_kv_cache(batch_size=1)
    report(f"{name}, written", generate(model, x[0, :5], 20, temperature=0.8, top_k=5).float())
torch.manual_seed(0)
model = LoraGPT(
    LoraConfig.from_name(
        "pythia-14m",
        n_layer=2,
        n_embd=32,
        n_head=4,
        padded_vocab_size=60,
        lora_r=4,
        lora_alpha=8,
        lora_query=True,
        lora_value=True,
        lora_projection=True,
    )
)
mark_only_lora_as_trainable(model)
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.5)
for _ in range(3):
    loss = chunked_cross_entropy(model(x[:, :-1]), x[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    report("lora", loss)
merge_lora_weights(model)
report("merged", model(x[:1]), 1e-3)
