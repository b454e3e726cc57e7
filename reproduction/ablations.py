"""The paper's ablations of continuous attention, on events."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reproduction import events
from reproduction.experiments import Budget, Cell, Experiment, Outcome, Protocol, not_here

DATA = ("MIMIC-II", "Neonate", "Synthetic", "BookOrder")
Options = dict[str, Any]


def _attention(scores: bool, values: bool) -> Options:
    return {"backbone_options": {"continuous_scores": scores, "continuous_values": values}}


def _normalisation(scores: bool, values: bool) -> Options:
    return {"backbone_options": {"normalize_scores": scores, "normalize_values": values}}


#: Of all variants: with the paper's own intensity, which reads the state at the last event only, attention has to do
#: the work.
COMMON: Options = {"backbone": "contiformer", "intensity": "thp"}
#: The paper's algorithm at its step sizes.
STEPS: dict[str, Options] = {
    f"step{size}": {"backbone_options": {"method": "pairwise", "rule": "linear", "step_size": size}}
    for size in (0.5, 0.1, 0.05, 0.01, 0.005)
}
#: Variants by ablation: parameters of EventPredictor. The first is the paper's default, or the exact one.
VARIANTS: dict[str, dict[str, Options]] = {
    "attention": {
        "continuous scores, continuous values": _attention(True, True),
        "continuous scores, static values": _attention(True, False),
        "static scores, continuous values": _attention(False, True),
        "static scores, static values": _attention(False, False),
    },
    "quadrature": {
        "exact": {"backbone_options": {"rule": "exact"}},
        "linear": {"backbone_options": {"rule": "linear"}},
        **{f"gauss{points}": {"backbone_options": {"rule": "gauss", "points": points}} for points in (2, 3, 4, 5)},
    },
    "step-size": {"exact": {"backbone_options": {"method": "spectral"}}, **STEPS},
    "field": {
        f"{field} {activation}": {"backbone_options": {"field": field, "activation": activation}}
        for field in ("concatnorm", "concat")
        for activation in ("tanh", "sigmoid")
    },
    "dropout": {f"dropout{share:g}": {"dropout": share} for share in (0.1, 0.0, 0.3, 0.5)},
    "time-normalisation": {
        "normalized scores, normalized values": _normalisation(True, True),
        "normalized scores, unnormalized values": _normalisation(True, False),
        "unnormalized scores, normalized values": _normalisation(False, True),
        "unnormalized scores, unnormalized values": _normalisation(False, False),
    },
}
#: The variant of each that is the default in everything.
DEFAULTS = {table: next(iter(VARIANTS[table])) for table in VARIANTS if table != "dropout"}
_TITLES = {
    "attention": "continuous or static attention scores and values",
    "quadrature": "exact integrals against the paper's rules for them",
    "step-size": "exact trajectories against the paper's algorithm (one ODE per pair, RK4) at its step sizes",
    "field": "the vector field of keys and values",
    "dropout": "share of dropout",
    "time-normalisation": "division of the integrals by the time difference",
}


def _grid(table: str, protocol: Protocol) -> list[Cell]:
    of_each = {data: events.repeats(data) for data in DATA}
    return [
        Cell(table, data, f"fold{of_each[data][number][0]}", variant, of_each[data][number][1], protocol)
        for number in range(max(map(len, of_each.values())))
        for data in DATA
        if number < len(of_each[data])
        for variant in VARIANTS[table]
    ]


def options_of(table: str, variant: str) -> Options:
    """Parameters of EventPredictor."""
    return {**COMMON, **VARIANTS[table][variant]}


def _run(cell: Cell, budget: Budget, verbose: int) -> Outcome:
    return events.train(cell, options_of(cell.table, cell.model), budget, verbose)


def _twins(cell: Cell) -> list[Cell]:
    """The default variant of every ablation, and THP's row of the events table: one training serves all."""
    if cell.model != DEFAULTS.get(cell.table):
        return []
    rows = {"events": "contiformer:thp", **DEFAULTS}
    return [replace(cell, table=table, model=model) for table, model in rows.items() if table != cell.table]


def _experiment(table: str) -> Experiment:
    return Experiment(
        name=table,
        title=f"Ablation: {_TITLES[table]}",
        metrics=events.METRICS,
        grid=lambda protocol: _grid(table, protocol),
        run=_run,
        version=events.VERSION,
        absent=not_here,
        twins=_twins,
        repeats=True,
        ours=next(iter(VARIANTS[table])),
        note="ContiFormer with THP's intensity, as in the paper; everything else by default.",
    )


ATTENTION, QUADRATURE, STEP_SIZE, FIELD, DROPOUT, TIME_NORMALISATION = map(_experiment, VARIANTS)
