"""The description inside an exported file: inputs, outputs, units, channels, classes and the meaning of times."""

from __future__ import annotations

from typing import Any

from contiformer import __version__
from contiformer.data.conversion import DATES, ZONED, plain
from contiformer.integrations.graph import SeriesGraph
from contiformer.nn.attention import AUTO_DEGREES, CAUSAL_DEGREE, ContinuousAttention

FORMAT = 1
_DTYPES = {"lengths": "int64", "probabilities": "float32"}
_SHAPES = {
    "times": ["batch", "points"],
    "values": ["batch", "points", "channels"],
    "lengths": ["batch"],
    "static": ["batch", "static features"],
    "query_times": ["batch", "queries"],
    "probabilities": ["batch", "classes"],
    "prediction": ["batch"],
    "mean": ["batch", "queries", "outputs"],
    "std": ["batch", "queries", "outputs"],
    "quantiles": ["batch", "queries", "outputs", "levels"],
}


def describe(estimator: Any, graph: SeriesGraph) -> dict[str, Any]:
    """Everything that a user of the file has to know, for JSON."""
    schema = estimator.schema_
    units = dict(zip(schema.channels, schema.units, strict=False))
    facts: dict[str, Any] = {
        "format": FORMAT,
        "contiformer": __version__,
        "estimator": type(estimator).__name__,
        "task": estimator.task_name,
        "backbone": estimator.config_["backbone"],
        "members": len(estimator.tasks_),
        "time": _time(schema),
        "channels": [{"name": name, "unit": units.get(name)} for name in schema.channels],
        "static": list(schema.static),
        "inputs": [_entry(name, _INPUTS[name]) for name in graph.inputs],
        "outputs": [_entry(name, _OUTPUTS[name]) for name in graph.outputs],
    }
    if schema.categories:
        facts["categories"] = {
            "columns": {column: list(known) for column, known in schema.categories},
            "meaning": "the channel or static feature 'column=category' is 1 in that category, 0 in the others, and "
            "NaN where the column is missing",
        }
    if schema.classes is not None:
        facts["classes"] = [plain(name) for name in schema.classes]
    if graph.asked:
        names = schema.targets or schema.channels
        facts["output_channels"] = [{"name": name, "unit": units.get(name)} for name in names]
    if graph.law == "quantiles":
        facts["quantile_levels"] = list(graph.tasks[0].head.quantiles)  # type: ignore[union-attr, arg-type]
    if graph.history is not None:
        facts["forecast"] = {
            "history": graph.history,
            "step": estimator.step_,
            "horizon": estimator.horizon,
            "meaning": "the last 'history' points of each series are used; ask for times after the last point: "
            "usually last time + step · (1, ..., horizon), at most twice as far",
        }
    attention = _attention(graph)
    if attention:
        facts["attention"] = attention
    return facts


def _entry(name: str, meaning: str) -> dict[str, Any]:
    return {"name": name, "shape": _SHAPES[name], "dtype": _DTYPES.get(name, "float64"), "meaning": meaning}


_INPUTS = {
    "times": "times of the points, as 'time' says, not decreasing within a series; padding may be anything finite",
    "values": "in the unit of each channel, in the order of 'channels', NaN where not observed; padding is ignored",
    "lengths": "number of points of each series, 1 or more; rows behind them are padding",
    "static": "features that do not change, in the order of 'static', NaN where unknown",
    "query_times": "when to answer, as 'time' says, in any order; repeat one of them where a series has fewer",
}
_OUTPUTS = {
    "probabilities": "calibrated probabilities, in the order of 'classes', the mean over the members",
    "prediction": "in the unit of the label",
    "mean": "in the unit of each channel, in the order of 'output_channels'",
    "std": "calibrated standard deviation, in the unit of each channel",
    "quantiles": "in the unit of each channel, at 'quantile_levels'",
}


def _time(schema: Any) -> dict[str, Any]:
    """The kind of the times, and how to make numbers of them."""
    kind = schema.kind
    if kind in DATES:
        clock = "in UTC" if kind == ZONED else "on the clock of the training data, taken as if it were UTC"
        meaning = f"seconds since 1970-01-01T00:00:00, {clock}; from nanoseconds: divide the integer by 1e9"
    elif kind == "durations":
        meaning = "seconds"
    else:
        meaning = "numbers as in the training data"
    return {"kind": kind, "unit": "s" if kind != "numbers" else schema.time_unit, "meaning": meaning}


def _attention(graph: SeriesGraph) -> dict[str, Any]:
    """Sizes of continuous-time attention that the graph fixes."""
    layers = [module for module in graph.modules() if isinstance(module, ContinuousAttention)]
    if not layers or layers[0].shapes is None:
        return {}
    layer, shapes = layers[0], layers[0].shapes
    degrees: list[int] = list(AUTO_DEGREES)[: shapes.levels]
    if layer.degree != "auto":
        degrees = [int(layer.degree)]
    elif layer.rule.causal:
        degrees = [CAUSAL_DEGREE]
    longest = shapes.pieces * layer.piece(at_points=not graph.asked) * graph.unit
    return {
        "pieces": shapes.pieces,
        "degrees": degrees,
        "longest_window": longest,
        "meaning": "series that last longer than 'longest_window' (from the first to the last point or query time, in "
        "the unit of 'time') are answered less accurately: export again with such series to check on",
    }
