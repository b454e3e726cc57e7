"""Forecasting task: linear part, equivariance and seasons."""

import pytest
import torch

from contiformer.backbones import make_backbone
from contiformer.data import Series, collate
from contiformer.tasks import Forecasting, InputOptions, Inputs
from contiformer.tasks.forecasting import LinearPast


def task_of(**options):
    inputs = Inputs(InputOptions(channels=1, window=1, spacing=0.1))
    return Forecasting(make_backbone("contiformer", inputs.size, d_model=8), inputs, outputs=1, reach=0.5, **options)


def windows(shift=0.0, level=0.0, scale=1.0):
    torch.manual_seed(3)
    made = []
    for n in (7, 4):
        times = torch.rand(n).sort().values.double().numpy() + shift
        values = level + scale * torch.randn(n, 2).double().numpy()
        made.append(Series.of(times, values, target_times=times[-1:] + 0.3, target_values=[[0.0, 0.0]]))
    return collate(made)


def test_untrained_forecast_is_the_last_value():
    task = task_of().eval()
    batch = windows()
    said = task(batch, batch.target_times)[..., 0]
    last = batch.values[torch.arange(2), batch.lengths - 1].unsqueeze(1)
    torch.testing.assert_close(said, last, atol=1e-5, rtol=1e-5)


def trained(**options):
    task = task_of(**options).eval()
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in task.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return task


@pytest.mark.parametrize("law", ["point", "gaussian", "quantiles"])
def test_forecasts_are_equivariant_to_shifts_of_time_and_level(law):
    """Later windows get the same forecast, and windows at another level one at that level."""
    task = trained(law=law, quantiles=(0.1, 0.9) if law == "quantiles" else ())
    batch = windows()
    said = task(batch, batch.target_times)
    later = windows(shift=1000.0)
    torch.testing.assert_close(task(later, later.target_times), said, atol=1e-4, rtol=1e-4)
    higher = windows(level=5.0)
    raised = task(higher, higher.target_times)
    torch.testing.assert_close(raised[..., 0], said[..., 0] + 5, atol=1e-4, rtol=1e-4)
    if law == "gaussian":
        torch.testing.assert_close(raised[..., 1], said[..., 1], atol=1e-4, rtol=1e-4)
    if law == "quantiles":
        torch.testing.assert_close(raised[..., 1:], said[..., 1:] + 5, atol=1e-4, rtol=1e-4)


def test_channels_are_forecast_independently():
    task = trained()
    batch = windows()
    said = task(batch, batch.target_times)
    batch.values[..., 1] += torch.randn_like(batch.values[..., 1]) * batch.observed[..., 1]
    torch.testing.assert_close(task(batch, batch.target_times)[..., 0, :], said[..., 0, :])


def test_forecasts_are_periodic_in_the_season():
    task = trained(seasons=[0.25], unit=1.0, start=0.1)
    batch = windows()
    said = task(batch, batch.target_times)
    round_later, between = windows(shift=10 * 0.25), windows(shift=0.1)
    torch.testing.assert_close(task(round_later, round_later.target_times), said, atol=1e-4, rtol=1e-4)
    assert (task(between, between.target_times) - said).abs().max() > 1e-3


def test_linear_part_can_be_a_mean_over_a_past_interval():
    past = LinearPast(4, reach=1.0)
    with torch.no_grad():
        past.weight.zero_()
        past.weight[:, 1] = 1.0
    # on a line, the mean over [-0.75, -0.5] is the value in its middle
    times = torch.linspace(-1, 0, 11, dtype=torch.float64)
    batch = collate([Series.of(times.numpy(), (3 * times + 1).numpy())])
    lead = torch.tensor([[0.2, 0.7]], dtype=torch.float64)
    torch.testing.assert_close(past(batch, lead, torch.zeros(1, 0)), torch.full((1, 2, 1), 1 - 3 * 0.625))


def test_an_empty_window_gives_a_finite_forecast():
    batch = collate([Series.of([], torch.zeros(0, 2).numpy(), target_times=[1.0], target_values=[[0.0, 0.0]])])
    assert torch.isfinite(task_of().eval()(batch, batch.target_times)).all()


def test_unknown_normalization_is_refused():
    with pytest.raises(ValueError, match="normalize"):
        task_of(normalize="week")
