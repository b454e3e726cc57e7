"""Export of trained estimators to ONNX and pt2: one graph, checked against the estimator before it is written."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from contiformer.data.errors import DataError
from contiformer.data.files import write_bytes
from contiformer.estimators.base import Estimator
from contiformer.estimators.blend import Blend
from contiformer.integrations.examples import Example, batches, chosen, difference, examples, generated
from contiformer.integrations.formats import FORMATS, Runner, trace
from contiformer.integrations.graph import SeriesGraph, is_exportable_task
from contiformer.integrations.metadata import describe
from contiformer.nn.attention import AUTO_DEGREES, ContinuousAttention, FixedShapes
from contiformer.paths.trajectories import ResolutionWarning
from contiformer.tasks.baselines.rocket import Rocket

#: The largest difference between a file and its estimator, as a share of the output's scale.
LIMIT = 1e-4
#: Pieces of time in a graph, at most: it has a step of the solver for each.
MOST_PIECES = 32
_GENERATED = "series generated from the statistics of the training data"


@dataclass(frozen=True)
class Exported:
    """An exported file.

    Attributes:
        path: where it is.
        difference: the largest between the file and the estimator's own predictions, as a share of the output's scale:
            1 for probabilities, otherwise the standard deviation of the label or channel in training.
        series: how many series that was measured on.
        data: which.
        metadata: the description in the file.
    """

    path: Path
    difference: float
    series: int
    data: str
    metadata: dict[str, Any]


def export(estimator: Any, path: str | Path, X: Any = None, *, data: str = "the series in X") -> Exported:
    """Write a fitted estimator of series to ``path``, which ends in .onnx or .pt2.

    Args:
        estimator: a Classifier, Regressor, Interpolator or Forecaster.
        path: the file; its ending decides on the format.
        X: series to compare file and estimator on, in any form that ``predict`` takes; None: series that are generated
            from the statistics of the training data.
        data: what X is, for the description.

    Raises:
        ValueError: the model cannot be exported, or file and estimator differ by more than :data:`LIMIT`; nothing is
            written then.
    """
    target = Path(path)
    kind = target.suffix.removeprefix(".")
    if kind not in FORMATS:
        raise ValueError(f"path must end in {' or '.join(f'.{name}' for name in FORMATS)}, got {str(path)!r}")
    if not target.absolute().parent.is_dir():
        raise DataError("there is no such folder", file=target.absolute().parent, remedy="make it first")
    if isinstance(estimator, Blend):
        estimator.export()
    if not isinstance(estimator, Estimator):
        raise ValueError(
            f"{type(estimator).__name__} cannot be exported: its predictions integrate until they are accurate "
            "enough, which is no fixed graph; load it with contiformer where it is used"
        )
    estimator._check_fitted()
    if not is_exportable_task(estimator.tasks_[0]):
        raise ValueError(f"there is no graph of a {type(estimator.tasks_[0]).__name__}")
    writer = FORMATS[kind]()
    graph = SeriesGraph(estimator, FixedShapes())
    found = estimator._read(X)[0] if X is not None else generated(estimator)
    found = chosen(found, graph.history)
    if not len(found):
        raise DataError("there is no series with points to compare on", remedy="give some, or none at all")
    checked = examples(estimator, found, graph)
    scales = _scales(estimator, graph)
    _choose_shapes(graph, checked, scales)
    name = estimator.config_["backbone"]
    given = next(given for given, some in batches(checked, 3) if len(some) > 1 or len(checked) == 1)
    try:
        program = writer.convert(trace(graph, _example(given), _free(graph), writer.tracing()), graph.outputs)
    except Exception as error:
        raise ValueError(_refusal(name, kind, error)) from error
    facts = describe(estimator, graph)
    run = writer.run(writer.write(program, facts))
    gap = _largest(run, checked, scales)
    if not gap <= LIMIT:
        raise ValueError(
            f"the exported graph differs from the estimator by {gap:.1e} of the output's scale, more than {LIMIT:g}: "
            f"nothing is written. {_advice(graph)}"
        )
    where = data if X is not None else _GENERATED
    facts["check"] = {"data": where, "series": len(checked), "largest_difference": gap, "limit": LIMIT}
    write_bytes(target, writer.write(program, facts))
    return Exported(target, gap, len(checked), where, facts)


def _largest(run: Runner, checked: list[Example], scales: Mapping[str, Any]) -> float:
    return float(np.max([difference(run(given), some, dict(scales)) for given, some in batches(checked)]))


def _scales(estimator: Any, graph: SeriesGraph) -> dict[str, Any]:
    """The scale of each output, which differences are divided by."""
    if not graph.asked:
        return {name: getattr(graph.tasks[0], "std", 1.0) for name in graph.outputs}
    std = graph.target_scale.std.numpy()
    return {name: std[:, None] if name == "quantiles" else std for name in graph.outputs}


def _choose_shapes(graph: SeriesGraph, checked: list[Example], scales: Mapping[str, Any]) -> None:
    """Set the number of pieces and degrees of continuous-time attention that the series need."""
    layers = [module for module in graph.modules() if isinstance(module, ContinuousAttention)]
    if not layers:
        return
    pieces = _pieces_needed(graph, layers, checked)
    if pieces > MOST_PIECES:
        raise ValueError(
            f"the series last so long that attention needs {pieces} pieces of time, more than the {MOST_PIECES} of a "
            "graph: nothing is written. Give shorter series, or load the model with contiformer where it is used"
        )
    for levels in range(1, len(AUTO_DEGREES) + 1):
        graph.set_shapes(FixedShapes(pieces, levels))
        if _largest(_eagerly(graph), checked, scales) <= LIMIT / 4:
            return


def _pieces_needed(graph: SeriesGraph, layers: list[ContinuousAttention], checked: list[Example]) -> int:
    counts = [1]

    def count(layer: Any, given: tuple[Any, ...]) -> None:
        layer.shapes = None
        counts.append(layer.pieces_for(*given))

    hooks = [layer.register_forward_pre_hook(count) for layer in layers]
    try:
        _largest(_eagerly(graph), checked, {})
    finally:
        for hook in hooks:
            hook.remove()
    return max(counts)


def _eagerly(graph: SeriesGraph) -> Runner:
    def run(given: Mapping[str, Any]) -> dict[str, Any]:
        with torch.no_grad(), warnings.catch_warnings():
            # whether the degrees do is what this is run for
            warnings.simplefilter("ignore", ResolutionWarning)
            said = graph(**{name: torch.from_numpy(x) for name, x in given.items()})
        return {name: x.numpy() for name, x in said.items()}

    return run


def _example(given: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Inputs to trace with: two series or more, of two points and times or more, so that no size is taken for fixed."""
    tensors = {}
    for name, x in given.items():
        several = np.concatenate([x, x]) if len(x) < 2 else x
        if name in ("times", "values", "query_times") and x.shape[1] < 4:
            several = np.concatenate([several] * 4, 1)
        tensors[name] = torch.from_numpy(several)
    return tensors


def _free(graph: SeriesGraph) -> dict[str, Any]:
    """The free dimensions of each input, by their names."""
    batch, points, queries = (torch.export.Dim(name) for name in ("batch", "points", "queries"))
    second = {"times": points, "values": points, "query_times": queries}
    return {name: {0: batch, **({1: second[name]} if name in second else {})} for name in graph.inputs}


def _refusal(backbone: str, kind: str, error: Exception) -> str:
    """A sentence about an error of the exporters."""
    fixed = re.search(r"Constraints violated \(([^)]*)\)", str(error))
    if fixed is not None:
        why = f"its operations are others for another number of {fixed[1]}"
    elif "data-dependent" in str(error):
        why = "which operations it needs depends on the values of the data"
    else:
        cause = error.__cause__ or error
        why = (str(cause).strip().splitlines() or [type(cause).__name__])[0][:200]
    remedy = "use one that can be, such as 'contiformer', or load the model with contiformer where it is used"
    return f"the backbone {backbone!r} cannot be exported to {kind} ({why}): {remedy}"


def _advice(graph: SeriesGraph) -> str:
    if any(isinstance(module, Rocket) for module in graph.modules()):
        return "Thresholds of random convolutions amplify rounding: export to .pt2, or train with beside=None"
    layers = [module for module in graph.modules() if isinstance(module, ContinuousAttention)]
    if layers and layers[0].degree == "auto" and not layers[0].rule.causal:
        return 'Fit with a fixed degree, such as backbone_options={"degree": 15}, or check with other series'
    return "Check with other series, or load the model with contiformer where it is used"
