"""Tables of metrics."""

from __future__ import annotations

from collections.abc import Mapping

#: What the names of metrics mean, where they do not say it themselves.
_MEANING = {
    "loss": "mean negative log-likelihood",
    "ece": "expected calibration error",
    "auroc": "area under the ROC curve",
    "score": "what was chosen by",
    "nll": "mean negative log-likelihood",
    "coverage90": "share within the 90 % intervals",
    "r2": "R², 1 is perfect",
}


def show_metrics(title: str, columns: Mapping[str, Mapping[str, float]]) -> None:
    """One row for each metric, one column for each part of the data."""
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(title=title, title_justify="left")
    table.add_column("metric")
    for part in columns:
        table.add_column(part, justify="right")
    table.add_column("", style="dim")
    names = dict.fromkeys(name for metrics in columns.values() for name in metrics)
    for name in names:
        numbers = (f"{metrics[name]:.4g}" if name in metrics else "" for metrics in columns.values())
        table.add_row(name, *numbers, _MEANING.get(name, ""))
    Console(highlight=False).print(table)
