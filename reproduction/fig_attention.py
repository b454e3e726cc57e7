"""The paper's picture of attention over continuous time, on UWaveGestureLibrary: TST, mTAN and ContiFormer.

Two test series of different classes, the same for all models. Attention that depends on times alone is the same for
both; attention that knows the input is not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from contiformer import Classifier
from contiformer.backbones import MTAN, EncoderLayer, MultiTimeAttention
from contiformer.data import SeriesSet
from contiformer.data.catalog import drop_points, load_uea
from contiformer.plots import new_figure, save
from reproduction import uea
from reproduction.experiments import Budget, Cell, Experiment, Metric, Outcome, Protocol, configuration, not_here

DATA = "UWaveGestureLibrary"
MODELS = {"tst": "TST", "mtan": "mTAN", "contiformer": "ContiFormer"}
DROP, QUERIES = 0.3, 64


def _run(cell: Cell, budget: Budget, verbose: int) -> Outcome:
    train, test = (drop_points(load_uea(DATA, part), DROP, cell.seed) for part in ("train", "test"))
    options = uea.QUICK if budget == "quick" else {}
    model = (
        Classifier.from_options(backbone=cell.model, seed=cell.seed, verbose=verbose, **options)
        .fit(train)
        .require_complete()
    )
    shown = of_two_classes(test)
    pictures = [
        {"points": one.times.tolist(), "weights": [[float(f"{x:.3g}") for x in row] for row in weights]}
        for one, weights in zip(shown, attention_over_time(model, shown), strict=True)
    ]
    return Outcome(model.evaluate(test), configuration(model), {"pictures": pictures})


def of_two_classes(data: SeriesSet) -> SeriesSet:
    """The first series, and the first of another class: no choice by result."""
    labels = list(data.labels)
    other = next(n for n, label in enumerate(labels) if label != labels[0])
    return data.select(np.array([0, other]))


def attention_over_time(model: Classifier, data: SeriesSet) -> list[Float[np.ndarray, "query points"]]:
    """Attention of evenly spaced query times to each point: the last layer, mean over the heads."""
    times = [np.linspace(one.times[0], one.times[-1], QUERIES) for one in data]
    found = []
    for one, when in zip(data, times, strict=True):
        single = SeriesSet([one], schema=data.schema)
        if model.backbone == "contiformer":
            found.append(model.explain(single, "attention", at=[when]).weights[0].mean(0))
        else:
            found.append(_given_to_layer(model, single, when))
    return found


@torch.no_grad()
def _given_to_layer(
    model: Classifier, single: SeriesSet, when: Float[np.ndarray, " query"]
) -> Float[np.ndarray, "query points"]:
    backbone = model.tasks_[0].backbone
    # mTAN's first attention is from its reference times, evenly spaced as well, to the points; TST's last to the points
    layer = backbone.attention if isinstance(backbone, MTAN) else _last_layer(backbone)
    given: list[tuple[Any, ...]] = []
    hook = layer.register_forward_pre_hook(lambda module, args: given.append(args))
    try:
        model.embed(single, at=[when])
    finally:
        hook.remove()
    weights = _weights(layer, *given[-1])[0].mean(0)
    return weights.numpy() if isinstance(backbone, MTAN) else weights[-len(when) :].numpy()


def _last_layer(backbone: nn.Module) -> EncoderLayer:
    return [module for module in backbone.modules() if isinstance(module, EncoderLayer)][-1]


def _weights(layer: nn.Module, *given: Any) -> Float[Tensor, "batch heads query points"]:
    if isinstance(layer, MultiTimeAttention):
        query_times, times, _, observed, *_ = given
        scores = layer.scores(query_times, times).masked_fill(~observed.any(-1)[:, None, None], -torch.inf)
        return scores.softmax(-1)
    assert isinstance(layer, EncoderLayer)
    tokens, observations = given
    keys, _ = layer.key_value(observations.x).chunk(2, dim=-1)
    queries, keys = (x.unflatten(-1, (layer.n_heads, -1)).transpose(1, 2) for x in (layer.query(tokens.x), keys))
    scores = queries @ keys.mT / keys.shape[-1] ** 0.5
    return scores.masked_fill(~tokens.sees.unsqueeze(1), -torch.inf).softmax(-1)


def draw(rows: list[dict[str, Any]], path: Path) -> Path:
    """A column for each model, a row for each series; panels show query time against observation time."""
    found = {row["model"]: row for row in rows}
    names = [name for name in MODELS if name in found]
    figure = new_figure(3.4 * max(1, len(names)), 6)
    panels = figure.subplots(2, max(1, len(names)), squeeze=False)
    for column, name in enumerate(names):
        for line, picture in enumerate(found[name]["details"]["pictures"]):
            points, weights = np.array(picture["points"]), np.array(picture["weights"])
            when = np.linspace(points[0], points[-1], len(weights))
            mesh = panels[line][column].pcolormesh(points, when, weights, cmap="magma_r", vmin=0, rasterized=True)
            figure.colorbar(mesh, ax=panels[line][column])
            panels[line][column].set_title(f"{MODELS[name]}, series {'AB'[line]}", loc="left", fontsize=10)
    for panel in panels[1]:
        panel.set_xlabel("time of the observation")
    for line in panels:
        line[0].set_ylabel("time of the question")
    return save(figure, path)


def _grid(protocol: Protocol) -> list[Cell]:
    return [Cell("fig-attention", DATA, "drop30", model, 0, protocol) for model in MODELS]


EXPERIMENT = Experiment(
    name="fig-attention",
    title="Picture: attention over continuous time",
    metrics=(Metric("accuracy", "accuracy", "max"),),
    grid=_grid,
    run=_run,
    absent=not_here,
    draw=draw,
)
