"""Whisper of small dimensions: spectrograms, logits, decoding, transcription, training."""

import numpy as np
import torch
import whisper
from report import report
from whisper.audio import log_mel_spectrogram, mel_filters, pad_or_trim
from whisper.decoding import DecodingOptions, decode
from whisper.model import ModelDimensions, Whisper
from whisper.timing import dtw, median_filter

time = np.arange(16000 * 3, dtype=np.float32) / 16000
sound = torch.from_numpy(np.sin(2 * np.pi * 440 * time * (1 + 0.1 * time)).astype(np.float32))
mel = log_mel_spectrogram(pad_or_trim(sound, 16000 * 30))
report("mel", mel[:, :200:5])
report("filters", mel_filters("cpu", 80).sum(1))
torch.manual_seed(0)
model = Whisper(
    ModelDimensions(
        n_mels=80,
        n_audio_ctx=1500,
        n_audio_state=16,
        n_audio_head=2,
        n_audio_layer=2,
        n_vocab=51865,
        n_text_ctx=64,
        n_text_state=16,
        n_text_head=2,
        n_text_layer=2,
    )
)
torch.nn.init.normal_(model.decoder.positional_embedding, std=0.5)
model.eval()
report("dims", [model.dims.n_vocab, model.num_languages, model.is_multilingual])
audio = model.embed_audio(mel[None])
report("audio", audio[:, ::100], 1e-3)
tokens = torch.tensor([[50258, 50259, 50359, 50363, 17, 170]])
logits = model.logits(tokens, audio)
report("logits", logits[:, :, ::500], 1e-3)
language, chances = model.detect_language(mel)
report("language", [language, chances["en"]], 1e-3)
for options in (
    DecodingOptions(language="en", fp16=False, sample_len=6),
    DecodingOptions(language="en", fp16=False, sample_len=5, beam_size=3, patience=1.5),
    DecodingOptions(
        language="en", fp16=False, sample_len=5, without_timestamps=True, task="translate"
    ),
):
    said = decode(model, mel, options)
    report("tokens", said.tokens)
    report("said", [said.avg_logprob, said.no_speech_prob, said.compression_ratio], 1e-3)
torch.manual_seed(5)
said = decode(
    model, mel, DecodingOptions(language="en", fp16=False, sample_len=5, temperature=1.0, best_of=2)
)
report("drawn", said.tokens)
said = whisper.transcribe(
    model, sound, language="en", fp16=False, temperature=0.0, sample_len=8, logprob_threshold=None
)
report("segments", [len(said["segments"]), *(s["start"] for s in said["segments"])])
report("median", median_filter(torch.randn(1, 2, 9, generator=torch.Generator().manual_seed(0)), 3))
report("dtw", dtw(torch.randn(5, 7, generator=torch.Generator().manual_seed(1)).double())[1])
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    out = model(mel[None], tokens[:, :-1])
    loss = torch.nn.functional.cross_entropy(out[0], tokens[0, 1:])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    report("loss", loss)
