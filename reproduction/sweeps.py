"""Sweeps: one trained model judged under many samplings, as tables, paired differences and curves with bands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from contiformer.plots import Entry, Sheet, new_figure, save
from reproduction.comparison import Spread, spread
from reproduction.experiments import STATIC_TWIN, Metrics
from reproduction.results import Results

MODELS = ("contiformer", STATIC_TWIN, "transformer", "mtan", "ode_rnn", "s5", "neural_cde")
#: ContiFormer is compared with these, seed by seed.
OURS, CONTROLS = "contiformer", (STATIC_TWIN, "transformer")
#: Layers of the models with attention; others have as many as their papers.
LAYERS = dict.fromkeys(("contiformer", "transformer"), 2)


@dataclass(frozen=True)
class Sweep:
    """Errors under other samplings than that of the training.

    Attributes:
        axis: of the values.
        title: the error that is shown, for readers.
        values: the sampling of each value of the axis, and the region of the target times that counts.
    """

    axis: str
    title: str
    values: Mapping[float, tuple[Any, str]]

    @property
    def heads(self) -> list[str]:
        """The values as the results name them."""
        return [f"{x:g}" for x in self.values]


Sweeps = Mapping[str, Sweep]
#: Data set and setting.
Where = tuple[str, str]


def swept(sweeps: Sweeps, errors: Mapping[Any, Metrics]) -> dict[str, dict[str, Metrics]]:
    """The errors of each sampling by sweep and value, for JSON."""
    return {
        name: {f"{x:g}": errors[sampling] for x, (sampling, _) in sweep.values.items()}
        for name, sweep in sweeps.items()
    }


def samplings_of(sweeps: Sweeps) -> list[Any]:
    """All samplings, each once."""
    return list(dict.fromkeys(sampling for sweep in sweeps.values() for sampling, _ in sweep.values.values()))


def _places(rows: Sequence[dict[str, Any]]) -> list[Where]:
    return list(dict.fromkeys((row["data"], row["setting"]) for row in rows))


def _found(rows: Sequence[dict[str, Any]], where: Where, name: str, sweep: Sweep) -> dict[str, dict[int, list[float]]]:
    """Errors by model and seed, one for each value of the sweep; NaN where no target time is in the region."""
    return {
        model: {
            row["seed"]: [
                row["details"]["sweeps"][name][head].get(region, np.nan)
                for head, (_, region) in zip(sweep.heads, sweep.values.values(), strict=True)
            ]
            for row in rows
            if (row["data"], row["setting"]) == where and row["model"] == model
        }
        for model in MODELS
        if any((row["data"], row["setting"]) == where and row["model"] == model for row in rows)
    }


def paired(found: Mapping[str, Mapping[int, Sequence[float]]], control: str) -> list[Spread]:
    """ContiFormer's errors minus those of a control with the same seed; empty where no seed has both."""
    if OURS not in found or control not in found:
        return []
    seeds = [seed for seed in found[OURS] if seed in found[control]]
    columns = zip(*(np.subtract(found[OURS][seed], found[control][seed]) for seed in seeds), strict=True)
    return [spread([float(x) for x in column]) for column in columns]


def sweep_sheets(results: Results, sweeps: Sweeps) -> list[Sheet]:
    """One table for each place and sweep, with ContiFormer's paired differences from its controls."""
    rows, sheets = list(results.comparable.rows.values()), []
    for where in _places(rows):
        for name, sweep in sweeps.items():
            found = _found(rows, where, name, sweep)
            spreads = {
                model: list(map(spread, zip(*of_seeds.values(), strict=True))) for model, of_seeds in found.items()
            }
            best = [min(one.mean for one in column) for column in zip(*spreads.values(), strict=True)]
            lines = [
                (
                    Entry(f"{model} ({own[0].n})"),
                    *(Entry(_said(one), strong=one.mean == least) for one, least in zip(own, best, strict=True)),
                )
                for model, own in spreads.items()
            ]
            for control in CONTROLS:
                if differences := paired(found, control):
                    label = Entry(f"{OURS} - {control} ({differences[0].n})")
                    lines.append((label, *(Entry(_difference(one)) for one in differences)))
            sheets.append(
                Sheet(f"{' '.join(where)}: {sweep.title}, by {sweep.axis}", ("model", *sweep.heads), tuple(lines))
            )
    return sheets


def metric_sheets(results: Results) -> list[Sheet]:
    """ContiFormer's paired differences from its controls, then one table for each place with all models and metrics."""
    results = results.comparable
    return [
        *_difference_sheets(results),
        *(_metric_sheet(results, where) for where in _places([*results.rows.values()])),
    ]


def _metric_sheet(results: Results, where: Where) -> Sheet:
    """Means of all metrics over the seeds of each model."""
    metrics = results.experiment.metrics
    own = [row for row in results.rows.values() if (row["data"], row["setting"]) == where]
    spreads = {
        model: [spread([row["metrics"][metric.key] for row in own if row["model"] == model]) for metric in metrics]
        for model in MODELS
        if any(row["model"] == model for row in own)
    }
    best = [min(one.mean for one in column) for column in zip(*spreads.values(), strict=True)]
    lines = tuple(
        (
            Entry(model),
            Entry(str(of[0].n)),
            *(Entry(_said(x), strong=x.mean == y) for x, y in zip(of, best, strict=True)),
        )
        for model, of in spreads.items()
    )
    title = f"{' '.join(where)}: mean ± standard error over seeds (lower is better)"
    return Sheet(title, ("model", "seeds", *(metric.label for metric in metrics)), lines)


def _difference_sheets(results: Results) -> list[Sheet]:
    """ContiFormer's metrics minus those of its controls, seed by seed."""
    rows, lines = list(results.rows.values()), []
    for where in _places(rows):
        for metric in results.experiment.metrics:
            found = {
                model: {
                    row["seed"]: [row["metrics"][metric.key]]
                    for row in rows
                    if (row["data"], row["setting"]) == where and row["model"] == model
                }
                for model in (OURS, *CONTROLS)
            }
            differences = [paired(found, control) for control in CONTROLS]
            if not all(differences):
                continue
            ours = spread([one for (one,) in found[OURS].values()])
            texts = (f"{_difference(one)} ({one.n})" for (one,) in differences)
            lines.append((Entry(" ".join(where)), Entry(metric.label), Entry(f"{ours.mean:.3f}"), *map(Entry, texts)))
    if not lines:
        return []
    heads = ("data", "error", OURS, *(f"minus {control}" for control in CONTROLS))
    note = "Mean of the paired differences ± its standard error (seeds); below zero ContiFormer is better."
    return [Sheet("ContiFormer minus its controls, seed by seed", heads, tuple(lines), names=2, notes=(note,))]


def _said(one: Spread) -> str:
    return f"{one.mean:.3f}" + ("" if one.error is None else f" ±{one.error:.3f}")


def _difference(one: Spread) -> str:
    return f"{one.mean:+.3f}" + ("" if one.error is None else f" ±{one.error:.3f}")


def draw_sweeps(rows: Sequence[dict[str, Any]], sweeps: Sweeps, path: Path) -> Path:
    """Error against the value of each sweep, mean over seeds, with a band of one standard error."""
    shown = _places(rows)
    figure = new_figure(2.7 * len(sweeps), 2.5 * len(shown) + 0.5)
    panels = figure.subplots(len(shown), len(sweeps), squeeze=False)
    for line, where in zip(panels, shown, strict=True):
        for panel, (name, sweep) in zip(line, sweeps.items(), strict=True):
            for model, of_seeds in _found(rows, where, name, sweep).items():
                spreads = [spread(column) for column in zip(*of_seeds.values(), strict=True)]
                mean = np.array([one.mean for one in spreads])
                error = np.array([one.error or 0.0 for one in spreads])
                colour = f"C{MODELS.index(model)}"
                style = {"color": colour, "linewidth": 2.2 if model == OURS else 1.2, "label": model}
                panel.plot(list(sweep.values), mean, marker="o", markersize=3, **style)
                panel.fill_between(
                    list(sweep.values), mean - error, mean + error, color=colour, alpha=0.18, linewidth=0
                )
            panel.set_xlabel(fill(sweep.axis, 30), fontsize=9)
            panel.set_title(sweep.title, fontsize=9)
            panel.tick_params(labelsize=8)
        line[0].set_ylabel("\n".join(where), fontsize=10)
    named: dict[str, Any] = {}
    for panel in panels.flat:
        named |= {label: handle for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    found = [model for model in MODELS if model in named]
    figure.legend([named[model] for model in found], found, loc="outside lower center", ncols=len(found), frameon=False)
    return save(figure, path)
