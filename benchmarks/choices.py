"""What ContiFormer should be like for classification: cross-validation within training parts, test data unread.

Run as ``python benchmarks/choices.py heads`` (ten minutes on one core) or ``python benchmarks/choices.py layers``
(twenty); each prints a line of JSON for each case.
"""

import json
import sys
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold

from contiformer import Classifier
from contiformer.data.catalog.drop import drop_points
from contiformer.data.catalog.uea import load_uea

FOLDS = 3
#: Series of a large set that are looked at.
MOST = 900
PAPER: dict[str, Any] = {"norm": "end", "encoding_scale": 1.0}
#: What is compared, and where.
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
    """Accuracy and mean negative log-likelihood of series that a model has not seen."""
    data = drop_points(load_uea(name, "train"), drop, 0)
    if len(data) > MOST:
        data = data.select(list(np.random.default_rng(0).permutation(len(data))[:MOST]))
    kinds = [str(label) for label in data.labels]
    sums = {"accuracy": 0.0, "loss": 0.0}
    for fold, (train, held_out) in enumerate(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(kinds, kinds)):
        # the last weights: nothing is chosen by what is held out
        model = Classifier(backbone_options=options, keep="last", seed=fold, verbose=0).fit(data.select(list(train)))
        scores = model.evaluate(data.select(list(held_out)))
        sums = {key: total + scores[key] * len(held_out) for key, total in sums.items()}
    return {key: round(total / len(kinds), 4) for key, total in sums.items()}


if __name__ == "__main__":
    variants, places = CHOICES[sys.argv[1]]
    for name, drop in places:
        for variant, options in variants.items():
            scores = held_out_scores(name, drop, options)
            print(json.dumps({"data": name, "drop": drop, "variant": variant, **scores}), flush=True)
