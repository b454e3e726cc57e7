"""Conformance of all event models by name; a new one is tested as soon as it is in ``EVENT_MODELS``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from contiformer.data import EventScaling, EventSequence, EventSet, collate_events
from contiformer.tasks.events import IntegralRule, draw_next, expect, intervals, log_likelihood
from contiformer.tasks.events.build import CONTINUOUS, EVENT_MODELS, STATE_INTENSITIES, WHOLE, build_model
from tests.problems import largest

TYPES = 3
CASES = [
    *((name, "auto") for name in EVENT_MODELS),
    *((name, CONTINUOUS) for name in EVENT_MODELS if name not in WHOLE),
    *(("transformer", intensity) for intensity in STATE_INTENSITIES),
]
every_model = pytest.mark.parametrize(("name", "intensity"), CASES, ids=["-".join(case) for case in CASES])


def draw_events(seed=0, lengths=(8, 5, 2)):
    """Sequences of several lengths, with ties."""
    rng = np.random.default_rng(seed)
    waits = [rng.exponential(size=n) * (rng.random(n) > 0.2) for n in lengths]
    sequences = [EventSequence.of(np.cumsum(wait), rng.integers(0, TYPES, len(wait))) for wait in waits]
    return EventSet(sequences, num_types=TYPES)


SCALING = EventScaling.fit(draw_events(1, (9,) * 20))


def make(name, intensity, seed=0):
    torch.manual_seed(seed)
    options = {"d_model": 8, "n_layers": 1, "dropout": 0.0}
    model = build_model(name, intensity, SCALING, options)
    with torch.no_grad():
        for parameter in model.parameters():  # no start, such as zero, hides what a parameter is for
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.double().eval()


def batch_of(data):
    return collate_events(list(SCALING.apply(data)))


def moments(events, count=5):
    return torch.linspace(0, 2, count, dtype=torch.float64).expand(*events.times.shape, -1)


@every_model
@torch.no_grad()
def test_intensities_are_positive_below_their_bound_and_add_up(name, intensity):
    model, events = make(name, intensity), batch_of(draw_events())
    memory, elapsed = model.remember(events), moments(events)
    rates = model.rates(memory, elapsed)
    assert rates.shape == (*elapsed.shape, TYPES)
    assert rates.isfinite().all()
    assert (rates > 0).all()
    assert largest(model.log_rates(memory, elapsed).exp() / rates - 1) < 1e-9
    assert largest(model.total(memory, elapsed) / rates.sum(-1) - 1) < 1e-9
    bound = model.bound(memory, elapsed[..., 0], elapsed[..., -1])
    assert (rates.sum(-1) <= bound.unsqueeze(-1) * (1 + 1e-9)).all()


@every_model
@torch.no_grad()
def test_later_events_change_nothing(name, intensity):
    model, events = make(name, intensity), batch_of(draw_events())
    types = events.types.clone()
    types[:, 3:] = (types[:, 3:] + 1) % TYPES
    before, after = (model.rates(model.remember(e), moments(e)) for e in (events, replace(events, types=types)))
    # the resolution of continuous attention is finite
    assert largest(before[:, :3] - after[:, :3]) < 1e-5
    assert largest(before[0, 3:] - after[0, 3:]) > 1e-6


@every_model
@torch.no_grad()
def test_batch_mates_change_nothing(name, intensity):
    model, data = make(name, intensity), draw_events()
    together = batch_of(data)
    scores = log_likelihood(model, intervals(model, together))
    for row, sequence in enumerate(data):
        one = batch_of(EventSet([sequence], num_types=TYPES))
        assert largest(log_likelihood(model, intervals(model, one))[0] - scores[row, : len(sequence) - 1]) < 1e-5


@every_model
@torch.no_grad()
def test_closed_integrals_are_those_of_quadrature(name, intensity):
    model = make(name, intensity)
    scored = intervals(model, batch_of(draw_events()))
    exact, fine = (log_likelihood(model, scored, IntegralRule(rule, 64)) for rule in ("closed", "gauss"))
    # the hazard has kinks, which quadrature does not know
    assert largest(exact - fine) < 0.01


@every_model
@torch.no_grad()
def test_stream_is_equal_to_a_pass_over_the_whole_sequence(name, intensity):
    model, events = make(name, intensity), batch_of(draw_events(lengths=(5,)))
    times, types = events.times[0].tolist(), events.types[0].tolist()
    stream = model.stream()
    for count in range(1, len(times) + 1):
        memory = stream.append(times[:count], types[:count])
    whole = model.remember(events).take(events.lengths[:, None] - 1)
    elapsed = moments(events)[:, -1:]
    assert largest(model.rates(memory, elapsed) - model.rates(whole, elapsed)) < 1e-5


@every_model
@torch.no_grad()
def test_next_events_are_predicted_and_drawn(name, intensity):
    model, events = make(name, intensity), batch_of(draw_events())
    last = model.remember(events).take(events.lengths[:, None] - 1)
    said = expect(model, last)
    assert said.mean.isfinite().all()
    assert (said.mean > 0).all()
    assert largest(said.kinds.sum(-1) - 1) < 1e-9
    wait, kind, came = draw_next(model, last, until=torch.full((3,), 50.0), generator=torch.Generator().manual_seed(0))
    assert (wait[came] > 0).all()
    assert ((kind >= 0) & (kind < TYPES)).all()


@every_model
@torch.no_grad()
def test_saved_and_loaded_it_gives_the_same(name, intensity):
    model, other, events = make(name, intensity), make(name, intensity, seed=1), batch_of(draw_events())
    # copies, because intensities may share the encoder's embedding
    other.load_state_dict(load(save({key: weight.clone() for key, weight in model.state_dict().items()})))
    assert torch.equal(
        model.rates(model.remember(events), moments(events)), other.rates(other.remember(events), moments(events))
    )
