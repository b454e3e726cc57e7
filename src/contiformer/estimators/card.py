"""The page that lies beside a saved model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contiformer import __version__

if TYPE_CHECKING:
    from contiformer.estimators.base import Estimator


def card(estimator: Estimator) -> str:
    """A model card in Markdown: what it is, what it was trained on, how well it did, how to use it."""
    name, schema = type(estimator).__name__, estimator.schema_
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
        f"| channels | {', '.join(schema.channels)} |",
    ]
    if schema.static:
        lines.append(f"| static features | {', '.join(schema.static)} |")
    if schema.classes is not None:
        lines.append(f"| classes | {', '.join(map(str, schema.classes))} |")
    lines.append(f"| time unit of the model | {estimator.scaling_.unit:g} |")
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
