"""The model card beside a saved model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contiformer import __version__

if TYPE_CHECKING:
    from contiformer.estimators.learner import Learner


def model_card(estimator: Learner) -> str:
    """A model card in Markdown: what it is, what it was trained on, how well it did, how to use it."""
    name = type(estimator).__name__
    weights = sum(p.numel() for task in estimator.tasks_ for p in task.parameters())
    facts = {"series to learn from": estimator.metrics_.get("training_series", "?"), **estimator._facts()}
    metrics = estimator.metrics_.get("validation", {})
    return "\n".join(
        [
            "---",
            "library_name: contiformer",
            "tags: [time-series, irregular-time-series, contiformer]",
            "---",
            "",
            f"# {name}, backbone {estimator.config_['backbone']}",
            "",
            f"Trained with contiformer {__version__}: {weights:,} weights in {len(estimator.tasks_)} model(s), "
            f"seed {estimator.seed}.",
            "",
            "| | |",
            "|---|---|",
            *(f"| {fact} | {value} |" for fact, value in facts.items()),
            "",
            "On the validation series, which were used to choose the epoch (not a test):",
            "",
            "| metric | value |",
            "|---|---|",
            *(f"| {metric} | {value:.4g} |" for metric, value in metrics.items()),
            "",
            "```python",
            f"from contiformer import {name}",
            f'model = {name}.load("this folder")',
            "model.predict(X)",
            "```",
            "",
        ]
    )
