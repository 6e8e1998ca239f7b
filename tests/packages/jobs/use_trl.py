"""SFT, DPO and reward trainers, GRPO's and other losses on a small model."""

import tempfile

import torch
from datasets import Dataset
from report import report
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

words = "<pad> <eos> the cat sat on a mat dog ran fast good bad yes no ? .".split()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, "<pad>")),
    pad_token="<pad>",
    eos_token="<eos>",
)
tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()


def small():
    torch.manual_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(words),
            n_embd=16,
            n_layer=2,
            n_head=2,
            n_positions=32,
            resid_pdrop=0,
            embd_pdrop=0,
            attn_pdrop=0,
            bos_token_id=1,
            eos_token_id=1,
            pad_token_id=0,
        )
    )


def settings(kind, folder, **more):
    return kind(
        output_dir=folder,
        per_device_train_batch_size=2,
        max_steps=3,
        learning_rate=1e-2,
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        bf16=False,
        fp16=False,
        disable_tqdm=True,
        seed=1,
        **more,
    )


with tempfile.TemporaryDirectory() as folder:
    lines = ["the cat sat on a mat .", "a dog ran fast .", "the dog sat .", "a cat ran ."]
    trainer = SFTTrainer(
        model=small(),
        args=settings(SFTConfig, folder, max_length=16),
        train_dataset=Dataset.from_dict({"text": lines}),
        processing_class=tokenizer,
    )
    trainer.train()
    for line in trainer.state.log_history[:-1]:
        report("sft", [line["loss"], line["grad_norm"]], 1e-3)
    pairs = Dataset.from_dict(
        {
            "prompt": ["the cat ?", "a dog ?", "the mat ?", "a cat ?"],
            "chosen": [" good .", " yes .", " good yes .", " yes ."],
            "rejected": [" bad .", " no no .", " bad .", " no ."],
        }
    )
    for loss in ("sigmoid", "ipo", "hinge"):
        trainer = DPOTrainer(
            model=small(),
            ref_model=small(),
            args=settings(DPOConfig, folder, beta=0.5, loss_type=loss, max_length=16),
            train_dataset=pairs,
            processing_class=tokenizer,
        )
        trainer.train()
        for line in trainer.state.log_history[:-1]:
            report(loss, [line["loss"], line["grad_norm"], line["rewards/margins"]], 1e-3)
