"""Explanation: attributions of the answers of a model to its observations, as a table and as a picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

Method = Literal["occlusion", "gradients", "attention"]
Hidden = Literal["observation", "time", "channel"]


@dataclass(frozen=True)
class Explanation:
    """Attributions of the answer of a model to the observations of each series, in the times and units of the data.

    Attributes:
        method: "occlusion": the answer as it is, minus the answer with an observation hidden. "gradients": integrated
            gradients from the training mean of every channel; they sum to ``answers - references``. "attention":
            weights of the last layer, mean over heads and query times.
        unit: of answers and attributions, such as "log-odds of 'sick'".
        ids: names of the series.
        points: times of the observations [N] of each series.
        values: observations [N, C] of each series, NaN where a channel is missing.
        attributions: [N, C] of each series, NaN where nothing was observed; [N, 1] where they belong to times and not
            to channels (attention, ``hide="time"``). Positive: the observation raises the answer.
        channel_names: C names; of event sequences the types.
        channel_units: their units, None where unknown.
        channel_attributions: [n, C], the change when all of a channel is hidden; for gradients the sum over its times.
        answers: [n], the answer for each series.
        references: [n], the answer with everything hidden; for gradients that for the baseline.
        targets: what is explained for each series: its class, channel or type.
        at: the time that is explained for each series, where answers have one.
        evaluations: how many copies of a series went through the model, the cost of the explanation.
        notes: limits of this explanation, such as windows of time that were hidden in place of observations.
        weights: of attention: [heads, Q, N] of each series; they sum to 1 over the points.
        query_times: of attention: [Q] of each series.
        pooling: of attention: pooling weights [queries, N] of each series, which sum to 1 over the points; None for a
            model that answers at query times and pools nothing.
        dates: times are seconds since 1970.
        events: the series are event sequences, and values say nothing.

    Example:
        >>> from contiformer import Classifier, TrainingOptions
        >>> X = [([0, 0.4, 1.0], [[n], [-n], [n]]) for n in (1.0, 2.0, 3.0, -1.0, -2.0, -3.0)]
        >>> quick = TrainingOptions(max_epochs=1, validation=0.5, verbose=0)
        >>> clf = Classifier(training=quick).fit(X, [0, 0, 0, 1, 1, 1])
        >>> reasons = clf.explain(X[:1])
        >>> reasons.attributions[0].shape, reasons.unit
        ((3, 1), 'log-odds of the predicted class')
    """

    method: Method
    unit: str
    ids: list[Any]
    points: list[NDArray[np.float64]]
    values: list[NDArray[np.floating[Any]]]
    attributions: list[Float[np.ndarray, "_points _channels"]]
    channel_names: tuple[str, ...]
    channel_units: tuple[str | None, ...] = ()
    channel_attributions: Float[np.ndarray, "n channels"] | None = None
    answers: NDArray[np.float64] | None = None
    references: NDArray[np.float64] | None = None
    targets: list[Any] | None = None
    at: list[float] | None = None
    evaluations: int = 0
    notes: tuple[str, ...] = ()
    weights: list[Float[np.ndarray, "heads _query _points"]] = field(default_factory=list)
    query_times: list[NDArray[np.float64]] = field(default_factory=list)
    pooling: list[Float[np.ndarray, "queries _points"]] | None = None
    dates: bool = False
    events: bool = False
    #: Columns by name, and the names of ids and times among them, to a DataFrame in the form of X.
    frame: Callable[[dict[str, Any]], Any] = field(default=dict, repr=False, compare=False)
    #: Names of the columns of id, time and channel.
    names: tuple[str | None, str, str] = ("id", "time", "channel")

    @property
    def by_channel(self) -> bool:
        """Whether attributions tell channels apart."""
        return self.channel_attributions is not None

    def position(self, series: Any) -> int:
        """The position of a series, given that or its id."""
        words = [str(name) for name in self.ids]
        if isinstance(series, str) and series in words:
            return words.index(series)
        if isinstance(series, int | np.integer) and 0 <= series < len(self.ids):
            return int(series)
        if isinstance(series, str):
            raise ValueError(f"series must be an id, got {series!r}; there are {', '.join(words[:8])}")
        raise ValueError(f"series must be from 0 to {len(self.ids) - 1}, got {series}")

    def table(self, series: Any = None) -> Any:
        """A row for each observation: id, time, channel, value, attribution, and rank within its series.

        Rank 1 is the largest attribution, whatever its sign. Where attributions belong to times, there is a row for
        each time and no channel. The table is of pandas where X was, and of polars otherwise.
        """
        which = range(len(self.ids)) if series is None else [self.position(series)]
        id, time, channel = self.names
        columns: dict[str, list[Any]] = {name: [] for name in ("series", "time", "channel", "value", "parts", "rank")}
        for n in which:
            found = self.attributions[n]
            rows, cells = np.nonzero(~np.isnan(found))
            parts = found[rows, cells]
            rank = np.empty(len(parts), np.int64)
            rank[np.argsort(-np.abs(parts), kind="stable")] = np.arange(1, len(parts) + 1)
            entries = (np.full(len(rows), n), self.points[n][rows], cells, None, parts, rank)
            for column, entry in zip(columns.values(), entries, strict=True):
                column.append(entry)
            if self.by_channel:
                columns["value"][-1] = np.asarray(self.values[n])[rows, cells]
        joined = {name: np.concatenate(x) for name, x in columns.items() if x and x[0] is not None}
        if not joined:
            joined = dict.fromkeys(columns, np.zeros(0))
        out: dict[str, Any] = {}
        if id is not None:
            out[id] = [self.ids[n] for n in joined["series"].astype(int)]
        out[time] = joined["time"]
        if self.by_channel:
            names = joined["channel"].astype(int)
            out[_free(channel, out)] = [self.channel_names[c] for c in names]
            if not self.events:
                out[_free("value", out)] = joined["value"]
                if any(self.channel_units):
                    out[_free("unit", out)] = [self.channel_units[c] for c in names]
        out[_free("attribution", out)] = joined["parts"]
        out[_free("rank", out)] = joined["rank"].astype(np.int64)
        return self.frame(out)

    def channels(self, series: Any = None) -> Any:
        """Channels (types of events) by their total |attribution|, the largest first, over all series or one of them.

        The columns are the channel, its unit where known, "total" (the sum of |attribution| over its observations),
        "whole" (the mean over the series of the change when the whole channel is hidden; for gradients of the sum of
        its attributions), and rank.
        """
        totals, whole = self._totals(series)
        order = np.argsort(-totals, kind="stable")
        out: dict[str, Any] = {self.names[2]: [self.channel_names[c] for c in order]}
        if any(self.channel_units):
            out["unit"] = [self.channel_units[c] for c in order]
        return self.frame(out | {"total": totals[order], "whole": whole[order], "rank": np.arange(1, len(order) + 1)})

    def ranked(self, series: Any = None) -> list[str]:
        """Names of the channels by their total |attribution|."""
        return [self.channel_names[c] for c in np.argsort(-self._totals(series)[0], kind="stable")]

    def _totals(self, series: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if self.channel_attributions is None:
            raise ValueError("these attributions belong to times: use method='occlusion' or 'gradients' for channels")
        which = list(range(len(self.ids))) if series is None else [self.position(series)]
        zeros = np.zeros(len(self.channel_names))
        totals = sum((np.nansum(np.abs(self.attributions[n]), 0) for n in which), zeros)
        return totals, self.channel_attributions[which].mean(0) if which else zeros

    def plot(self, path: str | Path | None = None, *, series: Any = 0, most: int = 8) -> Any:
        """Draw one series: a panel for each channel, ranked, with observations coloured by their attribution.

        The explanation by attention has a picture of its own: the weights of all query times below the observations.

        Args:
            path: file to write, of a type that matplotlib knows; None: only the figure is returned.
            series: its position, or its id.
            most: channels to show.
        """
        from contiformer.plots.attributions import draw_attention, draw_attributions  # noqa: PLC0415

        n = self.position(series)
        figure = draw_attention(self, n) if self.method == "attention" else draw_attributions(self, n, most)
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure


def _free(name: str, taken: dict[str, Any]) -> str:
    """The name, with underscores where the table has a column of that name."""
    while name in taken:
        name += "_"
    return name
