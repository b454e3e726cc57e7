"""Models of a regular grid, trained as their papers do."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from contiformer import Forecaster
from contiformer.backbones import BACKBONES
from contiformer.backbones.informer import Informer
from contiformer.backbones.regular import RegularBackbone
from contiformer.backbones.timesnet import Inception
from contiformer.data import DataError, Series, SeriesSet, collate
from contiformer.data.cuts import cut_windows
from contiformer.tasks.forecasting import Forecasting
from contiformer.tasks.heads import ValueHead
from contiformer.tasks.inputs import InputOptions, Inputs

REGULAR = [name for name, kind in BACKBONES.items() if issubclass(kind, RegularBackbone)]
SMALL = {"d_model": 8, "max_epochs": 1, "horizon": 4, "history": 12, "verbose": 0, "as_published": True}
OWN = {"timesnet": {"n_kernels": 2, "periods": 2}}


def two_waves(length: int = 60) -> list[tuple[np.ndarray, np.ndarray]]:
    times = np.arange(float(length))
    return [(times, np.stack([np.sin(times / 3), np.cos(times / 4)], axis=1))]


def fit(backbone: str, X=None, **options) -> Forecaster:
    options = {**SMALL, "backbone_options": OWN.get(backbone), **options}
    return Forecaster(backbone=backbone, **options).fit(two_waves() if X is None else X)


@pytest.mark.parametrize("backbone", REGULAR)
def test_every_regular_model_is_trained_saved_and_loaded(backbone, tmp_path):
    model = fit(backbone)
    said = model.predict(two_waves())[0]
    assert said.shape == (4, 2)
    assert np.isfinite(said).all()
    model.save(tmp_path)
    loaded = Forecaster.load(tmp_path)
    assert loaded.as_published
    np.testing.assert_array_equal(loaded.predict(two_waves())[0], said)


def test_dlinear_is_its_two_maps_and_no_head():
    """The forecast is what the backbone says of the standardised window, and nothing else has a weight."""
    model = fit("dlinear")
    (task,) = model.tasks_
    assert {name.split(".")[0] for name, _ in task.named_parameters()} == {"backbone"}
    X = two_waves()
    mean, std = (np.array(part) for part in (model.scaling_.mean, model.scaling_.std))
    window = torch.tensor((X[0][1][-12:] - mean) / std, dtype=torch.float32)[None]
    expected = task.backbone.ahead(window)[0, :, :2].detach().numpy() * std + mean
    np.testing.assert_allclose(model.predict(X)[0], expected, rtol=1e-5, atol=1e-6)


def test_timesnet_is_a_linear_map_of_states_of_a_normalised_window():
    model = fit("timesnet", scaling="none")
    (task,) = model.tasks_
    values = two_waves()[0][1]
    window = torch.tensor(values[-12:], dtype=torch.float32)[None]
    mean, spread = window.mean(1, keepdim=True), (window.var(1, keepdim=True, correction=0) + 1e-5).sqrt()
    states = task.backbone.ahead((window - mean) / spread)
    expected = task.head.from_state(states) * spread + mean
    np.testing.assert_allclose(model.predict(two_waves())[0], expected[0].detach().numpy(), rtol=1e-4, atol=1e-5)


def test_only_full_windows_and_all_channels():
    model = fit("dlinear")
    windows = model._cut(model_data(two_waves()))
    assert {len(one) for one in windows} == {12}
    assert windows.lengths.min() == 12
    as_usual = Forecaster(**{**SMALL, "as_published": False}, step=1.0)
    as_usual.step_ = 1.0
    assert {len(one) for one in as_usual._cut(model_data(two_waves()))} > {2, 12}
    assert model.config_["task"]["outputs"] == 2
    assert model.config_["inputs"]["channels"] == 2
    assert model.config_["inputs"]["window"] == 0


def model_data(pairs) -> SeriesSet:
    return SeriesSet([Series.of(*pair) for pair in pairs])


def test_training_is_plain():
    model = Forecaster(backbone="dlinear", as_published=True, weight_decay=0.3, warmup=0.5, learning_rate=0.01)
    options = model._training_options()
    assert (options.weight_decay, options.warmup, options.averaging, options.gradient_clip) == (0, 0, 0, 0)
    assert (options.batch_size, options.learning_rate, options.min_steps) == (32, 0.01, 0)
    assert model.set_params(batch_size=8)._training_options().batch_size == 8
    assert model.set_params(as_published=False)._training_options().weight_decay == 0.3


def test_the_calendar_is_shown_where_the_paper_has_it():
    dates = pd.date_range("2024-01-01", periods=24 * 15, freq="h")
    frame = pd.DataFrame({"at": dates, "x": np.sin(np.arange(24 * 15) / 5), "y": np.arange(24 * 15) % 7})
    for backbone, more in (("informer", 4), ("autoformer", 4), ("dlinear", 0)):
        model = Forecaster(backbone=backbone, **SMALL, batch_size=64).fit(frame, time="at")
        assert model.config_["inputs"]["channels"] == 2 + more, "day and week, sine and cosine"
        assert model.tasks_[0].backbone(collate([row_of(2 + more)])).shape == (1, 12, 8)
        assert model.predict(frame).shape == (4, 3)


def row_of(channels: int) -> Series:
    return Series.of(range(12), np.zeros((12, channels)))


def test_phases_are_those_of_the_rows():
    seen = []

    class Watching(nn.Module):
        d_model = 1

        def forward(self, batch, query_times):
            seen.append(batch)
            return torch.zeros(*query_times.shape, 1)

        def extra_loss(self):
            return None

    options = {"seasons": [8.0], "start": 3.0, "unit": 2.0, "calendar": True, "past": 0, "reads": "forecasts"}
    task = Forecasting(Watching(), Inputs(InputOptions(3)), reach=1.0, outputs=1, separate=False, **options)
    batch = collate([Series.of([0.5, 1.0, 1.5], [[1.0], [2.0], [4.0]]), Series.of([0.5], [[1.0]])])
    task(batch, torch.tensor([[2.0], [2.0]], dtype=torch.float64))
    turns = 2 * np.pi * (3.0 + 2.0 * np.array([0.5, 1.0, 1.5])) / 8.0
    np.testing.assert_allclose(seen[0].values[0, :, 1:], np.stack([np.sin(turns), np.cos(turns)], 1), atol=1e-6)
    assert seen[0].observed[0].all()
    assert not seen[0].observed[1, 1:].any()
    assert (seen[0].values[1, 1:] == 0).all()


def test_it_learns_a_wave():
    """Near the continuation, which was not seen, by its own forecasts alone."""
    times, values = two_waves(360)[0]
    model = fit("dlinear", [(times[:300], values[:300])], history=24, max_epochs=12, learning_rate=0.01)
    windows = cut_windows(model_data([(times[300:], values[300:])]), 24, 4.01, least=24)
    miss = misses(model.predict_windows(windows), windows)
    held = misses([one.values[-1] for one in windows], windows)
    assert (miss**2).mean() < 0.05 * (held**2).mean()


def misses(said, windows) -> np.ndarray:
    return np.concatenate([(a - one.target_values).ravel() for a, one in zip(said, windows, strict=True)])


def test_validation_takes_as_many_windows_as_it_is_told():
    X = model_data(two_waves(400))
    model = fit("dlinear", X, most_validated=7)
    windows = model._cut(X)
    assert len(model._validation_form(windows)) == 7
    assert len(model.set_params(most_validated=None)._validation_form(windows)) == len(windows) > 300
    with pytest.raises(ValueError, match="most_validated must be positive or None, got 0"):
        fit("dlinear", most_validated=0)


def test_values_are_taken_as_they_come_without_scaling():
    X = [(two_waves()[0][0], 5 + 3 * two_waves()[0][1])]
    model = fit("dlinear", X, scaling="none")
    assert model.scaling_.mean == model.scaling_.target_mean == (0.0, 0.0)
    assert model.scaling_.std == model.scaling_.target_std == (1.0, 1.0)
    windows = model._cut(model_data(X))
    pooled = float((misses(model.predict_windows(windows), windows) ** 2).mean())
    assert model.evaluate(X)["mse"] == pytest.approx(pooled, rel=1e-5)
    with pytest.raises(ValueError, match="scaling must be one of 'standard', 'none', got 'normal scores'"):
        fit("dlinear", scaling="normal scores")


@pytest.mark.parametrize("backbone", ["contiformer", "transformer"])
def test_backbone_that_is_no_published_forecaster_is_refused(backbone):
    with pytest.raises(ValueError, match=rf"as_published must be False for backbone='{backbone}'.*choose among auto"):
        fit(backbone)
    with pytest.raises(ValueError, match="there is no backbone 'dliner'"):
        fit("dliner")


def test_series_shorter_than_a_window_is_refused():
    with pytest.raises(DataError, match="no series is long enough to learn 4 steps of 1 ahead from 12 points"):
        fit("dlinear", two_waves(12))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"reads": "forecasts", "law": "gaussian"}, "law must be 'point' where a head reads forecasts"),
        ({"reads": "states", "features": 2}, "reads must be 'hidden' where there are features"),
        ({"reads": "minds"}, "reads must be one of hidden, states, forecasts, got 'minds'"),
    ],
)
def test_heads_that_make_no_sense(options, words):
    with pytest.raises(ValueError, match=words):
        ValueHead(4, 2, **options)


def test_informer_without_its_novelties_is_a_transformer():
    """Encoder and decoder with full attention: PyTorch's, given the same weights."""
    torch.manual_seed(0)
    model = Informer(2, 8, n_heads=2, n_layers=2, dropout=0.0, history=6, horizon=3, factor=None, distil=False).eval()
    window = torch.randn(3, 6, 2)
    encoded = model.embedding(window)
    for layer in model.encoder:
        encoded = as_torch(layer, nn.TransformerEncoderLayer)(encoded)
    encoded = model.encoder_norm(encoded)
    x = model.decoder_embedding(torch.cat([window[:, -3:], torch.zeros(3, 3, 2)], 1))
    mask = torch.full((6, 6), -torch.inf).triu(1)
    x = as_torch(model.decoder[0], nn.TransformerDecoderLayer)(x, encoded, tgt_mask=mask)
    torch.testing.assert_close(model.ahead(window), model.decoder_norm(x)[:, -3:], atol=1e-5, rtol=1e-5)


def as_torch(layer, kind):
    theirs = kind(8, 2, 32, dropout=0.0, activation="gelu", batch_first=True).eval()
    attentions = [theirs.self_attn, getattr(theirs, "multihead_attn", None)]
    for mine, their in zip(layer.attentions, attentions, strict=False):
        their.in_proj_weight.data = torch.cat([mine.query.weight, mine.key_value.weight])
        their.in_proj_bias.data = torch.cat([mine.query.bias, mine.key_value.bias])
        their.out_proj.load_state_dict(mine.out.state_dict())
    theirs.linear1.load_state_dict(layer.widen.state_dict())
    theirs.linear2.load_state_dict(layer.narrow.state_dict())
    for n, norm in enumerate(layer.norms):
        getattr(theirs, f"norm{n + 1}").load_state_dict(norm.state_dict())
    return theirs


@pytest.mark.parametrize("size", [(1, 9), (2, 3), (7, 1), (8, 9)])
def test_kernels_cut_to_the_picture_change_nothing(size):
    torch.manual_seed(0)
    inception = Inception(2, 3, 4).double()
    picture = torch.randn(2, 2, *size, dtype=torch.float64)
    whole = nn.functional.conv2d(picture, inception.kernel(), inception.bias, padding=3)
    torch.testing.assert_close(inception(picture), whole)
