"""A bi-encoder built from a small BERT: embeddings, similarities, a loss."""

import tempfile

import torch
from report import report
from sentence_transformers import SentenceTransformer, util
from sentence_transformers import models as parts
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

text = ["the cat sat on the mat", "a dog ran to the cat", "the mat is on the dog"]
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
torch.manual_seed(0)
bert = BertModel(
    BertConfig(
        vocab_size=len(fast),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=32,
    )
)
with tempfile.TemporaryDirectory() as folder:
    bert.save_pretrained(folder)
    fast.save_pretrained(folder)
    word = parts.Transformer(folder, max_seq_length=16)
    model = SentenceTransformer(modules=[word, parts.Pooling(32)], device="cpu")
a = model.encode(text, convert_to_tensor=True)
report("embeddings", a)
report("similarities", util.cos_sim(a, a))
model.train()
for m in model.modules():
    if isinstance(m, torch.nn.Dropout):
        m.p = 0.0
rows = model(model.tokenize(text))["sentence_embedding"]
loss = torch.nn.functional.mse_loss(util.cos_sim(rows, rows), torch.eye(3))
loss.backward()
report("loss", loss)
