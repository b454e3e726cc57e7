"""Train, dev and test out of whole sets and of sets with a test part of their own."""

from __future__ import annotations

from contiformer.data.errors import DataError
from contiformer.data.events import EventSet

PARTS = ("train", "dev", "test")
DEV_SHARE = 0.1


def of_whole(data: EventSet, k: int, fold: int, split: str, seed: int) -> EventSet:
    """Fold number ``fold`` (from 1) of ``k`` is the test part; the rest is train and dev.

    The sequences are shuffled with the seed, once for all folds, and each is in the test part of exactly one.
    """
    rest, test = data.k_fold(k, seed=seed)[fold - 1]
    return test if split == "test" else held_out(rest, split, seed)


def held_out(train: EventSet, split: str, seed: int) -> EventSet:
    """A tenth of the sequences, drawn with the seed, is the dev part (``dev``); the others are ``train``."""
    left, dev = train.split(1 - DEV_SHARE, DEV_SHARE, seed=seed)
    return dev if split == "dev" else left


def check(name: str, folds: int, fold: int, split: str) -> None:
    """Raise DataError for a fold or a part that there is not."""
    if split not in PARTS:
        raise DataError(f"{name} has no part {split!r}", remedy=f"pass one of {', '.join(PARTS)}")
    if not 1 <= fold <= folds:
        which = f"a fold from 1 to {folds}" if folds > 1 else "fold=1: this set has one split, as published"
        raise DataError(f"{name} has no fold {fold}", remedy=f"pass {which}")
