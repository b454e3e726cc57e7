"""The model card beside a saved model."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

from contiformer import __version__
from contiformer.data.errors import printable

if TYPE_CHECKING:
    from contiformer.estimators.learner import Learner


def kept_weights(estimator: Learner) -> list[str]:
    """The kept epoch, the reason for it, and its score before calibration."""
    metrics = estimator.metrics_
    kept, epochs = metrics.get("kept_epochs"), metrics.get("epochs")
    if not kept or not epochs:
        return []
    numbers = ", ".join(f"{one} of {all_}" for one, all_ in zip(kept, epochs, strict=False))
    count = metrics["validation_series"]
    last = estimator.training_options().keeping(count).keep == "last"
    monitor = estimator.tasks_[0].monitor
    rule = f"the last one, with {count:,} validation series" if last else f"the best by validation {monitor}"
    lines = [f"Kept epoch {numbers} ({rule})."]
    before, after = metrics["before_calibration"][monitor], metrics["validation"][monitor]
    if abs(before - after) > 1e-6 * abs(before):
        lines.append(
            f"Before calibration the validation {monitor} was {before:.4g}, as in the history; now {after:.4g}."
        )
    return lines


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def in_markdown(text: str) -> str:
    """A name as plain text in a table of Markdown, which may become HTML.

    Example:
        >>> from contiformer.estimators.model_card import in_markdown
        >>> print(in_markdown("a|b <img src=x>"))
        a\\|b &lt;img src=x&gt;
    """
    return re.sub(r"([\\`*\[\]|$])", r"\\\1", escape(printable(text), quote=False))


def facts_of(estimator: Learner) -> dict[str, str]:
    """Facts about the training data, by what they are."""
    counts = {"trained on": "training_series", "validated on": "validation_series"}
    numbers = {f"series {what}": str(estimator.metrics_.get(name, "?")) for what, name in counts.items()}
    return numbers | estimator._facts()


def number_of_weights(estimator: Learner) -> int:
    """The parameters of all members."""
    return sum(p.numel() for task in estimator.tasks_ for p in task.parameters())


def size_of(estimator: Learner) -> str:
    """The number of weights, and of members where there are several."""
    members = f" in {len(estimator.tasks_)} members" if len(estimator.tasks_) > 1 else ""
    return f"{number_of_weights(estimator):,} weights{members}"


def model_card(estimator: Learner) -> str:
    """Model card in Markdown: model, training data, metrics and usage."""
    name = type(estimator).__name__
    metrics, meanings = estimator.metrics_.get("validation", {}), estimator.metric_meanings()
    return "\n".join(
        [
            "---",
            "library_name: contiformer",
            "tags: [time-series, irregular-time-series, contiformer]",
            "---",
            "",
            f"# {name}, backbone {estimator.config_['backbone']}",
            "",
            f"Trained with contiformer {__version__}: {size_of(estimator)}, seed {estimator.seed}.",
            "",
            "| training data | |",
            "|---|---|",
            *(f"| {fact} | {in_markdown(str(value))} |" for fact, value in facts_of(estimator).items()),
            "",
            *kept_weights(estimator),
            "Metrics on the validation series, not on test data:",
            "",
            "| metric | value | meaning |",
            "|---|---|---|",
            *(
                f"| {in_markdown(metric)} | {value:.4g} | {meanings.get(metric, '')} |"
                for metric, value in metrics.items()
                if _is_number(value)
            ),
            "",
            "```python",
            f"from contiformer import {name}",
            f'model = {name}.load("this folder")',
            "model.predict(X)",
            "```",
            "",
        ]
    )
