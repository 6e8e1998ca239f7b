"""Embeddings of a graph's facts: models trained and ranked on a data set in the package."""

import torch
from pykeen.datasets import Nations
from pykeen.evaluation import RankBasedEvaluator
from pykeen.models import model_resolver
from pykeen.training import LCWATrainingLoop, SLCWATrainingLoop
from report import report

facts = Nations()
for name in (
    "TransE",
    "DistMult",
    "ComplEx",
    "RotatE",
    "HolE",
    "TransH",
    "SimplE",
    "TuckER",
    "ConvKB",
    "NTN",
    "MuRE",
    "QuatE",
):
    model = model_resolver.make(
        name, triples_factory=facts.training, random_seed=1, embedding_dim=8
    )
    torch.manual_seed(2)
    report(f"scores {name}", model.score_hrt(facts.training.mapped_triples[:20]), 1e-3)
    loop = (LCWATrainingLoop if name in ("DistMult", "SimplE") else SLCWATrainingLoop)(
        model=model,
        triples_factory=facts.training,
        optimizer=torch.optim.Adam(model.parameters(), 1e-2),
    )
    losses = loop.train(facts.training, num_epochs=2, batch_size=256, use_tqdm=False)
    report(f"losses {name}", losses, 1e-3)
    if name in ("TransE", "ComplEx"):
        ranked = RankBasedEvaluator().evaluate(
            model,
            facts.testing.mapped_triples,
            additional_filter_triples=[facts.training.mapped_triples],
            use_tqdm=False,
        )
        report("ranks", [ranked.get_metric(m) for m in ("mrr", "hits@10", "mean_rank")], 1e-2)
    report("parts", [p.norm() for p in model.parameters()], 1e-3)
