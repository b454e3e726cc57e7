"""The table of costs: cells that measure several models at once, since times can be compared only within one run."""

from __future__ import annotations

from contiformer.experiments.results import Place, Results
from contiformer.experiments.store import Row
from contiformer.reports.sheet import Entry, Sheet

#: The experiment that is shown so.
TABLE = "efficiency"
_MISSING = Entry("-", faint=True)


def cost_sheets(results: Results) -> list[Sheet]:
    """A training epoch of each model beside S5's, and how time and memory grow with the length of a series."""
    from contiformer.experiments.efficiency import ALGORITHMS, ALL, GENERATED, curve  # noqa: PLC0415

    sets = {cell.data: row for cell, row in results.rows.items() if cell.data != GENERATED}
    models = list(dict.fromkeys(model for row in sets.values() for model in row["configuration"]["models"]))
    lines = []
    for place in results.places:
        if place[0] == GENERATED:
            continue
        row = sets.get(place[0])
        missing = Entry("not run" if results.progress_at(place, ALL).runnable else "no data", faint=True)
        lines.append(
            (Entry(place[0]), *(missing if row is None else _cost(results, place, row, model) for model in models))
        )
    title = "Time of a training epoch in epochs of S5 (lower is better); milliseconds; peak memory"
    sheets = [Sheet(title, ("data", *models), tuple(lines), notes=_busy(sets))] if sets else []
    for cell, row in results.rows.items():
        if cell.data == GENERATED:
            found = {
                (name, unit): dict(curve(row["metrics"], name, unit)) for name in ALGORITHMS.values() for unit in _UNITS
            }
            lengths = sorted({length for own in found.values() for length in own})
            body = tuple((Entry(str(n)), *(_number(own.get(n)) for own in found.values())) for n in lengths)
            heads = ("length", *(f"{name}, {_UNITS[unit]}" for name, unit in found))
            title = "Forward and backward of one series against its length"
            sheets.append(Sheet(title, heads, body, notes=_busy({GENERATED: row})))
    return sheets


_UNITS = {"ms": "ms", "mb": "MB"}


def _busy(rows: dict[str, Row]) -> tuple[str, ...]:
    names = [name for name, row in rows.items() if row["details"].get("busy")]
    whose = "its" if len(names) == 1 else "their"
    said = f"The machine was busy with other work at {', '.join(names)}: {whose} times mean little."
    return (said,) if names else ()


def _cost(results: Results, place: Place, row: Row, model: str) -> Entry:
    figures = row["metrics"]
    if f"{model}_time" not in figures:
        return _MISSING
    # models that solve equations have steps of 0.1 in the paper
    said = results.printed(place, model, "time") or results.printed(place, f"{model} step 0.1", "time")
    text = f"{figures[f'{model}_time']:.2f}" + ("" if said is None else f"\npaper {said.value:.2f}")
    units = [f"{figures[f'{model}_{key}']:.0f} {unit}" for key, unit in _UNITS.items() if f"{model}_{key}" in figures]
    return Entry("\n".join([text, *units]))


def _number(value: float | None) -> Entry:
    return _MISSING if value is None else Entry(f"{value:.3g}")
