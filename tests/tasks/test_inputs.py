"""Backbone inputs: values, masks, local and static features."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from contiformer.data import Series, collate
from contiformer.tasks import InputOptions, Inputs
from tests.tasks.problems import some_series

OPTIONS = InputOptions(channels=2, static=2, window=2, spacing=0.1, gaps=True)


def with_static(series):
    return [replace(one, static=np.array([1.0, np.nan])) for one in series]


@pytest.mark.parametrize("causal", [False, True])
def test_input_size_matches_the_options(causal):
    inputs = Inputs(replace(OPTIONS, causal=causal))
    shown = inputs(collate(with_static(some_series())))
    assert shown.values.shape[-1] == inputs.size == 2 * (3 if causal else 5) + 2 + 2
    assert torch.equal(shown.observed[..., :2], collate(some_series()).observed)
    assert InputOptions.from_dict(inputs.options.to_dict()) == inputs.options


def test_plain_inputs_are_the_values():
    batch = collate(some_series())
    shown = Inputs(InputOptions(channels=2))(batch)
    assert torch.equal(shown.values, batch.values)
    assert torch.equal(shown.observed, batch.observed)


def test_hidden_values_do_not_leak():
    batch = collate(with_static(some_series()))
    hidden = batch.observed.clone()
    hidden[:, 2:4] = False
    seen = replace(batch, observed=batch.observed & ~hidden, values=torch.where(hidden, 0.0, batch.values))
    other = replace(seen, values=torch.where(hidden, 0.0, seen.values))
    shown = Inputs(OPTIONS)(other)
    blank = ~seen.observed.any(-1)
    assert not shown.observed[blank].any()
    assert not shown.values[blank].any()
    assert not shown.values[~shown.observed].any()


def test_a_causal_input_does_not_see_the_future():
    inputs = Inputs(replace(OPTIONS, causal=True, static=0))
    series = some_series(n=1, seed=3)[0]
    whole = inputs(collate([series]))
    for n in range(1, len(series)):
        part = inputs(collate([series.points(slice(0, n))]))
        known = part.observed[0] & whole.observed[0, :n]
        torch.testing.assert_close(part.values[0][known], whole.values[0, :n][known])


def test_gradients_reach_the_frame_encoder():
    inputs = Inputs(InputOptions(channels=12, window=1, spacing=0.1, frames=(3, 4), frame_features=5))
    draw = np.random.default_rng(0)
    shown = inputs(collate([Series.of(np.arange(4) / 4, draw.random((4, 12)))]))
    assert shown.values.shape[-1] == inputs.size == 15
    shown.values[..., 5:].sum().backward()
    assert all(parameter.grad is not None for parameter in inputs.encoder.parameters())
    assert any(parameter.grad.any() for parameter in inputs.encoder.parameters())


def test_masks_of_causal_inputs_do_not_look_ahead():
    inputs = Inputs(InputOptions(channels=2, window=2, spacing=1.0, causal=True))
    one = Series.of([0.0, 1.0, 2.0], [[1.0, np.nan], [1.0, np.nan], [1.0, np.nan]])
    other = replace(one, values=np.array([[1.0, np.nan], [1.0, np.nan], [1.0, 7.0]]))
    first, second = (inputs(collate([series])) for series in (one, other))
    assert torch.equal(first.observed[:, :2], second.observed[:, :2])
    assert torch.equal(first.values[:, :2], second.values[:, :2])
