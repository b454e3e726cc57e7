"""Cross-validation of ContiFormer's defaults for classification, within training parts; test data unread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold

from contiformer import Classifier, TrainingOptions
from contiformer.data.catalog import drop_points, load_uea

FOLDS = 3
#: Series of a large set that are used.
MOST = 900
PAPER: dict[str, Any] = {"norm": "end", "encoding_scale": 1.0}
#: Variants of each default, and the sets and shares of dropped points to compare them on.
CHOICES: dict[str, tuple[dict[str, dict[str, Any]], list[tuple[str, float]]]] = {
    "heads": (
        {"4 heads": {**PAPER, "n_heads": 4}, "8 heads": {**PAPER, "n_heads": 8}},
        [(name, drop) for name in ("RacketSports", "Libras") for drop in (0.3, 0.5)],
    ),
    "layers": (
        {
            "as in the paper": PAPER,
            "norm at the entry": {"norm": "entry", "encoding_scale": 1.0},
            "norm at the entry, encoding 0.3": {"norm": "entry", "encoding_scale": 0.3},
        },
        [
            *((name, drop) for name in ("RacketSports", "Libras") for drop in (0.3, 0.5)),
            *((name, 0.3) for name in ("LSST", "PenDigits", "JapaneseVowels", "Handwriting")),
        ],
    ),
}


def held_out_scores(name: str, drop: float, options: dict[str, Any]) -> dict[str, float]:
    """Accuracy and mean negative log-likelihood on held-out folds."""
    data = drop_points(load_uea(name, "train"), drop, 0)
    if len(data) > MOST:
        data = data.select(list(np.random.default_rng(0).permutation(len(data))[:MOST]))
    kinds = [str(label) for label in data.labels]
    sums = {"accuracy": 0.0, "loss": 0.0}
    for fold, (train, held_out) in enumerate(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(kinds, kinds)):
        # the last weights: nothing is chosen by what is held out
        training = TrainingOptions(keep="last", seed=fold, verbose=0)
        model = Classifier(backbone_options=options, training=training).fit(data.select(list(train)))
        scores = model.evaluate(data.select(list(held_out)))
        sums = {key: total + scores[key] * len(held_out) for key, total in sums.items()}
    return {key: round(total / len(kinds), 4) for key, total in sums.items()}


def compare(choice: str) -> Iterator[dict[str, Any]]:
    """Scores of each variant of a default on each set, one after the other."""
    variants, places = CHOICES[choice]
    for name, drop in places:
        for variant, options in variants.items():
            yield {"data": name, "drop": drop, "variant": variant, **held_out_scores(name, drop, options)}
