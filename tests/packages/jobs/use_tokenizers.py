"""A tokenizer trained here, in pipelines with small models."""

import tempfile

import torch
from report import report
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
    pipeline,
)

text = ["the cat sat on the mat", "a dog ran to the cat", "the mat is on the dog"] * 3
tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
tokenizer.train_from_iterator(text, trainers.WordLevelTrainer(special_tokens=special))
tokenizer.post_processor = processors.TemplateProcessing(
    single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
)
fast = PreTrainedTokenizerFast(
    tokenizer_object=tokenizer,
    pad_token="[PAD]",
    unk_token="[UNK]",
    cls_token="[CLS]",
    sep_token="[SEP]",
    mask_token="[MASK]",
)
config = BertConfig(
    vocab_size=len(fast),
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=48,
    max_position_embeddings=32,
)
batch = fast(text[:3], padding=True, return_tensors="pt")
report("ids", batch["input_ids"])
torch.manual_seed(0)
model = BertForSequenceClassification(config).eval()
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    pipe = pipeline("text-classification", model=folder, tokenizer=folder, device="cpu")
    report("scores", [r["score"] for r in pipe(text[:3])])
filler = pipeline("fill-mask", model=BertForMaskedLM(config).eval(), tokenizer=fast, device="cpu")
report("filled", [r["score"] for r in filler("the [MASK] sat", top_k=3)])
