"""Streaming of a causal layer against the pass over the whole sequence."""

from __future__ import annotations

import pytest
import torch

from contiformer import ContiFormer
from contiformer.backbones.contiformer import ContiFormerStream
from contiformer.nn.layer import ContiFormerLayer
from contiformer.nn.stream import LayerStream
from tests.problems import largest, normal, sorted_times

WIDTH, CHANNELS, LENGTH = 8, 3, 12


def make_model(n_layers=1, **options):
    torch.manual_seed(0)
    model = ContiFormer(CHANNELS, WIDTH, n_heads=2, n_layers=n_layers, causal=True, degree=24, **options)
    return model.double().eval()


def streamed(model, values, times):
    stream = ContiFormerStream(model)
    return stream, torch.stack([stream.append(x, float(t)) for x, t in zip(values, times, strict=True)])


@pytest.mark.parametrize("n_layers", [1, 2])
@pytest.mark.parametrize("field", ["concatnorm", "concat", "headwise", "linear"])
@pytest.mark.parametrize("norm", ["end", "entry"])
def test_states_are_those_of_a_pass_over_everything(n_layers, field, norm):
    model = make_model(n_layers, field=field, norm=norm, encoding_scale=0.5)
    values, times = normal(1, LENGTH, CHANNELS), 1.5 * sorted_times(1, LENGTH)
    _, states = streamed(model, values[0], times[0])
    # heads of four channels are nearly singular where their norm is small, and resolved later
    assert largest(states - model(values, times)[0]) < (1e-6 if field == "headwise" else 1e-7)


@pytest.mark.parametrize("n_layers", [1, 2])
@pytest.mark.parametrize("norm", ["end", "entry"])
def test_states_at_later_times_are_those_of_a_query(n_layers, norm):
    model = make_model(n_layers, norm=norm)
    values, times = normal(1, LENGTH, CHANNELS), sorted_times(1, LENGTH)
    stream, _ = streamed(model, values[0], times[0])
    later = times[0, -1] + torch.tensor([0.0, 0.1, 0.7], dtype=torch.float64)
    expected = model(values, times, query_times=later[None])[0]
    assert largest(torch.stack([stream.at(float(t)) for t in later]) - expected) < 1e-7


def test_queries_do_not_change_the_stream():
    model = make_model()
    values, times = normal(1, LENGTH, CHANNELS), sorted_times(1, LENGTH)
    stream = ContiFormerStream(model)
    states = []
    for x, t in zip(values[0], times[0], strict=True):
        states.append(stream.append(x, float(t)))
        stream.at(float(t) + 0.5)
    assert torch.equal(torch.stack(states), streamed(model, values[0], times[0])[1])


def test_state_before_the_first_event_is_that_of_an_empty_sequence():
    model = make_model()
    at = torch.tensor([[0.3]], dtype=torch.float64)
    empty = torch.zeros(1, 1, CHANNELS, dtype=torch.float64)
    expected = model(empty, at, torch.zeros(1, 1, CHANNELS, dtype=torch.bool), query_times=at)
    assert largest(ContiFormerStream(model).at(0.3) - expected[0, 0]) < 1e-12


def test_earlier_times_are_refused():
    stream = ContiFormerStream(make_model())
    stream.append(torch.zeros(CHANNELS, dtype=torch.float64), 1.0)
    with pytest.raises(ValueError, match=r"must not decrease: got 0\.5 after 1"):
        stream.append(torch.zeros(CHANNELS, dtype=torch.float64), 0.5)


@pytest.mark.parametrize(
    "options", [{}, {"causal": True, "interpolation": "hermite"}, {"causal": True, "rule": "linear"}], ids=str
)
def test_layers_that_are_not_causal_are_refused(options):
    layer = ContiFormerLayer(WIDTH, 2, **options)
    with pytest.raises(ValueError, match="only a causal layer"):
        LayerStream(layer)
