"""The page that lies beside a saved model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contiformer import __version__

if TYPE_CHECKING:
    from contiformer.estimators.learner import Learner


def card(estimator: Learner) -> str:
    """A model card in Markdown: what it is, what it was trained on, how well it did, how to use it."""
    name = type(estimator).__name__
    weights = sum(p.numel() for task in estimator.tasks_ for p in task.parameters())
    lines = [
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
        f"| series to learn from | {estimator.metrics_.get('training_series', '?')} |",
    ]
    lines += [f"| {name} | {value} |" for name, value in estimator._facts().items()]
    lines += [
        "",
        "On the validation series, which were used to choose the epoch (not a test):",
        "",
        "| metric | value |",
    ]
    lines += ["|---|---|"]
    lines += [f"| {key} | {value:.4g} |" for key, value in estimator.metrics_.get("validation", {}).items()]
    lines += [
        "",
        "```python",
        f"from contiformer import {name}",
        f'model = {name}.load("this folder")',
        "model.predict(X)",
        "```",
        "",
    ]
    return "\n".join(lines)
