"""Summary of a set: counts, quantiles of lengths and gaps, missing shares, labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from contiformer.data.errors import printable

if TYPE_CHECKING:
    from rich.table import Table

    from contiformer.data.collection import Collection

QUANTILES = (0.0, 0.05, 0.5, 0.95, 1.0)
#: Quantiles of the gaps come from every k-th item where all of them together have more points than this.
MOST_GAPS = 5_000_000


@dataclass(frozen=True)
class Summary:
    """Counts and quantiles of a set.

    Attributes:
        points: times in all of them.
        lengths, gaps, spans: minimum, 5 %, median, 95 %, maximum; empty where there is none.
        missing: for each channel the share of the points at which it was not observed.
        labels: how often each label occurs.
        notes: what was skipped or merged while reading.
    """

    items: int
    points: int
    lengths: tuple[float, ...]
    gaps: tuple[float, ...]
    spans: tuple[float, ...]
    missing: dict[str, float] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    notes: dict[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def rows(self) -> list[tuple[str, str]]:
        """Name and text, line by line."""
        rows = [("series", f"{self.items:,}"), ("points", f"{self.points:,}")]
        for name in ("lengths", "gaps", "spans"):
            values = getattr(self, name)
            if values:
                low, few, middle, many, high = (f"{value:.4g}" for value in values)
                rows.append((name, f"median {middle}, 5-95 % {few} to {many}, all {low} to {high}"))
        shown = list(self.missing.items())
        rows += [(f"missing: {name}", f"{100 * share:.1f} %") for name, share in shown[:40]]
        if len(shown) > 40:
            rows.append(("missing: other channels", f"{len(shown) - 40} more, see to_dict()"))
        if self.labels:
            listed = [f"{label} {count:,}" for label, count in list(self.labels.items())[:30]]
            rest = len(self.labels) - 30
            rows.append(("labels", ", ".join(listed) + (f" and {rest} more" if rest > 0 else "")))
        rows += [(f"note: {what}", f"{count:,}") for what, count in self.notes.items()]
        return [(printable(name), printable(text)) for name, text in rows]

    def table(self, title: str | None = None) -> Table:
        """For rich."""
        from rich.markup import escape  # noqa: PLC0415 - rich is not needed to compute
        from rich.table import Table  # noqa: PLC0415

        table = Table("", "value", title=title, show_header=False)
        for name, text in self.rows():
            table.add_row(escape(name), escape(text))
        return table

    def __str__(self) -> str:
        rows = self.rows()
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {text}" for name, text in rows)


def summarize(data: Collection[Any], channels: Sequence[str], notes: Mapping[str, int]) -> Summary:
    """One pass over the set."""
    lengths = data.lengths
    every = max(1, -(-int(lengths.sum()) // MOST_GAPS))
    gaps, spans = [], []
    observed = np.zeros(len(channels), np.int64)
    labels: Counter[str] = Counter()
    points = 0
    for n, item in enumerate(data):
        points += len(item)
        if n % every == 0:
            gaps.append(np.diff(item.times))
        if len(item):
            spans.append(item.times[-1] - item.times[0])
        if len(channels):
            observed += (~np.isnan(item.values)).sum(0)
        if item.label is not None:
            labels[str(item.label)] += 1
    missing = {name: 1 - int(seen) / max(1, points) for name, seen in zip(channels, observed, strict=True)}
    known = dict(sorted(labels.items())) if len(labels) <= max(50, len(data) // 20) else {}
    every_gap = np.concatenate(gaps) if gaps else np.zeros(0)
    quantiles = (_quantiles(lengths), _quantiles(every_gap), _quantiles(np.asarray(spans)))
    return Summary(len(data), points, *quantiles, missing, known, dict(notes))


def _quantiles(values: np.ndarray[Any, Any]) -> tuple[float, ...]:
    return tuple(float(q) for q in np.quantile(values, QUANTILES)) if len(values) else ()
