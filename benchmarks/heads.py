"""How many heads ContiFormer should have: cross-validation within the training parts of two sets, test data unread.

Run as ``python benchmarks/heads.py``; it takes about ten minutes on one core and prints a line of JSON for each case.
"""

import json

from sklearn.model_selection import StratifiedKFold

from contiformer import Classifier
from contiformer.data.catalog.drop import drop_points
from contiformer.data.catalog.uea import load_uea

FOLDS = 3


def held_out_accuracy(name: str, drop: float, heads: int) -> float:
    """Share of the series that is classified rightly by a model that has not seen them."""
    data = drop_points(load_uea(name, "train"), drop, 0)
    kinds = [str(label) for label in data.labels]
    right = 0.0
    for fold, (train, held_out) in enumerate(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(kinds, kinds)):
        # the last weights: nothing is chosen by what is held out
        model = Classifier(backbone_options={"n_heads": heads}, keep="last", seed=fold, verbose=0)
        right += model.fit(data.select(list(train))).score(data.select(list(held_out))) * len(held_out)
    return right / len(kinds)


if __name__ == "__main__":
    for name in ("RacketSports", "Libras"):
        for drop in (0.3, 0.5):
            for heads in (4, 8):
                accuracy = round(held_out_accuracy(name, drop, heads), 4)
                print(json.dumps({"data": name, "drop": drop, "heads": heads, "accuracy": accuracy}), flush=True)
