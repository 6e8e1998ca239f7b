"""Small BERT, GPT-2 and Llama: losses, gradients, generation."""

import torch
from report import report
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    get_linear_schedule_with_warmup,
)

ids = torch.tensor([[5, 9, 3, 17, 2, 8], [4, 4, 11, 1, 7, 6]])
torch.manual_seed(0)
bert = BertForSequenceClassification(
    BertConfig(
        vocab_size=32,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=16,
    )
)
optimizer = torch.optim.AdamW(bert.parameters(), lr=1e-3)
schedule = get_linear_schedule_with_warmup(optimizer, 2, 6)
mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
for _ in range(4):
    loss = bert(ids, attention_mask=mask, labels=torch.tensor([0, 1])).loss
    loss.backward()
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    report("bert", loss)
torch.manual_seed(1)
gpt = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_embd=32, n_layer=2, n_head=4, n_positions=32))
out = gpt(ids, labels=ids)
out.loss.backward()
report("gpt2", out.loss)
report("gpt2 gradient", gpt.transformer.h[0].attn.c_attn.weight.grad)
gpt.eval()
report("greedy", gpt.generate(ids, max_new_tokens=6, do_sample=False, pad_token_id=0))
report("beams", gpt.generate(ids, max_new_tokens=6, num_beams=3, do_sample=False, pad_token_id=0))
torch.manual_seed(2)
report("sampled", gpt.generate(ids, max_new_tokens=6, do_sample=True, top_k=8, pad_token_id=0))
torch.manual_seed(3)
llama = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=32,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=48,
        max_position_embeddings=64,
    )
).eval()
out = llama(ids, labels=ids)
report("llama", out.loss)
report("llama logits", out.logits)
report("llama greedy", llama.generate(ids, max_new_tokens=5, do_sample=False, pad_token_id=0))
torch.manual_seed(4)
t5 = T5ForConditionalGeneration(
    T5Config(
        vocab_size=32,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        pad_token_id=0,
        decoder_start_token_id=0,
    )
).eval()
report("t5", t5(input_ids=ids, labels=ids).loss)
