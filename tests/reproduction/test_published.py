"""Models of a regular grid, trained as their papers do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from contiformer.backbones import BACKBONES
from contiformer.data import Schema, Series, SeriesSet, collate
from reproduction.published import Recipe, Trained, evenly, train_published

REGULAR = [name for name, kind in BACKBONES.items() if kind.fixed_window]
OWN = {"timesnet": {"n_kernels": 2, "periods": 2}}
HOUR, HISTORY, HORIZON = 3600.0, 12, 4
#: Mean squared errors on the last windows of the two waves, of ``Forecaster(as_published=True)`` at commit 8bb031d.
REFERENCE = {
    "autoformer": 1.106701061268073,
    "dlinear": 1.036365303284713,
    "fedformer": 2.129326294650647,
    "informer": 0.9582328658179904,
    "reformer": 1.2354561722410315,
    "timesnet": 1.0419158742235075,
}


def windows(rows: int = 200, *, dates: bool = True, history: int = HISTORY) -> SeriesSet:
    """All windows of two waves."""
    times = HOUR * np.arange(rows)
    values = np.stack([np.sin(np.arange(rows) / 3), np.cos(np.arange(rows) / 4)], axis=1).astype("f4")
    cuts = [(slice(n, n + history), slice(n + history, n + history + HORIZON)) for n in range(rows - history - HORIZON)]
    series = [Series(times[a], values[a], target_times=times[b], target_values=values[b]) for a, b in cuts]
    return SeriesSet(series, schema=Schema(channels=("a", "b"), targets=("a", "b"), dates=dates))


def fit(backbone: str, data: SeriesSet | None = None, **options) -> Trained:
    data = windows() if data is None else data
    recipe = Recipe(**{"backbone": backbone, "d_model": 8, "max_epochs": 1, "backbone_options": OWN.get(backbone, {})})
    border = 3 * len(data) // 4
    learning, validation = data.select(range(border)), data.select(range(border, len(data)))
    return train_published(replace(recipe, **options), learning, validation)


def forecast(model: Trained, one: Series) -> np.ndarray:
    batch = collate([model.scaling.apply_to(one)])
    return model.task(batch, batch.target_times)[0, :, :, 0].detach().numpy()


@pytest.mark.parametrize("backbone", REGULAR)
def test_trained_as_the_estimator_did(backbone):
    model = fit(backbone)
    assert model.evaluate(windows().select(range(170, 184)))["mse"] == pytest.approx(REFERENCE[backbone], rel=1e-5)


def test_dlinear_is_its_two_maps_and_no_head():
    """The forecast is what the backbone says of the window, and nothing else has a weight."""
    model, last = fit("dlinear"), windows()[-1]
    assert {name.split(".")[0] for name, _ in model.task.named_parameters()} == {"backbone"}
    expected = model.task.backbone.ahead(torch.tensor(last.values)[None])[0, :, :2].detach().numpy()
    np.testing.assert_allclose(forecast(model, last), expected, rtol=1e-5, atol=1e-6)


def test_timesnet_is_a_linear_map_of_states_of_a_normalised_window():
    model, last = fit("timesnet", windows(dates=False)), windows(dates=False)[-1]
    window = torch.tensor(last.values)[None]
    mean, spread = window.mean(1, keepdim=True), (window.var(1, keepdim=True, correction=0) + 1e-5).sqrt()
    states = model.task.backbone.ahead((window - mean) / spread)
    expected = model.task.head.from_state(states) * spread + mean
    np.testing.assert_allclose(forecast(model, last), expected[0].detach().numpy(), rtol=1e-4, atol=1e-5)


def test_training_is_plain():
    options = Recipe(backbone="dlinear", learning_rate=0.01).options(seed=3)
    assert (options.weight_decay, options.warmup, options.averaging, options.gradient_clip) == (0, 0, 0, 0)
    assert (options.batch_size, options.learning_rate, options.min_steps, options.seed) == (32, 0.01, 0, 3)


@pytest.mark.parametrize(("backbone", "more"), [("informer", 2), ("autoformer", 2), ("dlinear", 0)])
def test_the_calendar_is_shown_where_the_paper_has_it(backbone, more):
    model = fit(backbone)
    assert model.task.inputs.options.channels == 2 + more, "day, sine and cosine"
    assert fit(backbone, windows(dates=False)).task.inputs.options.channels == 2, "times that are no dates"


def test_it_learns_a_wave():
    """Near the continuation, which was not seen, by its own forecasts alone."""
    data = windows(400, history=24)
    model = fit("dlinear", data, max_epochs=12, learning_rate=0.01)
    later = data.select(range(300, len(data)))
    held = np.mean([(one.values[-1] - one.target_values) ** 2 for one in later])
    assert model.evaluate(later)["mse"] < 0.05 * held


def test_validation_takes_as_many_windows_as_it_is_told():
    data = windows()
    assert len(evenly(data, 7)) == 7
    assert evenly(data, 7)[-1] is data[-1]
    assert evenly(data, None) is data


@pytest.mark.parametrize("backbone", ["contiformer", "transformer", "dliner"])
def test_backbone_that_is_no_published_forecaster_is_rejected(backbone):
    with pytest.raises(ValueError, match=rf"{backbone} is no forecaster of regular grids: choose among autoformer"):
        fit(backbone)
