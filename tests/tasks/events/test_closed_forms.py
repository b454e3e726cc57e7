"""The likelihood code and the Hawkes model against processes whose likelihood is known."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

from contiformer.data import DataError, EventSequence, EventSet
from contiformer.data.batch import collate_events
from contiformer.data.scaling import EventScaling
from contiformer.data.synthetic import Hawkes, Poisson, hawkes_set, poisson_set
from contiformer.tasks.events import EventTask, IntegralRule, IntensityModel, Memory, intervals, log_likelihood
from contiformer.tasks.events.encoder import LastStateModel
from contiformer.tasks.events.hawkes import HawkesModel
from contiformer.tasks.events.hawkes_fit import fit_hawkes
from contiformer.tasks.events.nhp import NeuralHawkesModel
from contiformer.tasks.events.rmtpp import ExponentialIntensity, RMTPPEncoder
from contiformer.tasks.events.sahp import ConvergingIntensity, SAHPEncoder

MIXED = Hawkes(
    mu=[0.2, 0.4, 0.0],
    alpha=[[0.5, 0.1, 0.4], [0.0, 1.0, 0.2], [0.6, 0.0, 0.3]],
    beta=[[1, 2, 3], [4, 2, 1], [2, 5, 1]],
)
EVEN = Hawkes(mu=[0.3, 0.15], alpha=[[0.8, 0.3], [0.6, 0.6]], beta=2.0)
UNEVEN = Hawkes(mu=[0.3, 0.15], alpha=[[0.8, 0.3], [0.6, 0.6]], beta=[[2.0, 3.0], [1.5, 2.5]])


def in_data_units(model, scaling, data, rule=None):
    """The log-likelihood of each sequence in the data's time."""
    batch = collate_events(list(scaling.apply(data)))
    with torch.no_grad():
        each = log_likelihood(model, intervals(model, batch), rule)
    assert each.dtype == next(model.parameters()).dtype
    return each.double().sum(1).numpy() - batch.mask[:, 1:].sum(1).numpy() * np.log(scaling.unit)


def known(process, scaling, decay):
    """The model that is the process, in scaled time."""
    beta = process.beta if decay == "pair" else process.beta[0, 0]
    model = HawkesModel(scaling, decay=decay).double()
    return model.set(process.mu * scaling.unit, process.alpha * scaling.unit, beta * scaling.unit)


class Constant(IntensityModel):
    """Rates that never change, with no closed form of the integral."""

    def __init__(self, rates):
        super().__init__()
        self.num_types, self.level = len(rates), nn.Parameter(torch.tensor(rates, dtype=torch.float64))

    def remember(self, events):
        return Memory({"time": events.times})

    def rates(self, memory, elapsed):
        return self.level.expand(*elapsed.shape, -1)

    def bound(self, memory, low, high):
        return self.level.sum().expand_as(low)


@pytest.mark.parametrize(("process", "decay"), [(MIXED, "pair"), (EVEN, "pair"), (EVEN, "shared")])
@pytest.mark.parametrize("rule", [IntegralRule("closed"), IntegralRule("gauss", 64)], ids=["closed", "gauss"])
def test_hawkes_likelihood_is_the_true_one(process, decay, rule):
    data = hawkes_set(6, end=40.0, process=process, seed=5)
    scaling = EventScaling.fit(data)
    model = known(process, scaling, decay)
    expected = [process.log_likelihood(sequence) for sequence in data]
    assert len({len(s) for s in data}) > 1  # padding is in it
    np.testing.assert_allclose(in_data_units(model, scaling, data, rule), expected, atol=1e-6, rtol=0)


def test_hawkes_intensity_is_the_true_one_between_events():
    data = hawkes_set(1, end=40.0, process=MIXED, seed=1)
    scaling, sequence = EventScaling.fit(data), data[0]
    model = known(MIXED, scaling, "pair")
    batch = collate_events(list(scaling.apply(data)))
    elapsed = torch.tensor([0.3, 0.9], dtype=torch.float64)[None, None] * batch.times.diff(dim=1)[..., None]
    rates = model.rates(model.remember(batch).cut(slice(None, -1)), elapsed)[0] / scaling.unit
    times = sequence.times[:-1, None] + elapsed[0].numpy() * scaling.unit
    expected = MIXED.intensity(sequence, times.ravel()).reshape(*times.shape, 3)
    np.testing.assert_allclose(rates.detach().numpy(), expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize("rule", [IntegralRule("closed"), IntegralRule("gauss", 2), IntegralRule("monte carlo", 3)])
def test_constant_rates_are_a_poisson_process(rule):
    process = Poisson([0.7, 0.2, 1.1])
    data = poisson_set(8, end=15.0, process=process)
    scaling = EventScaling.fit(data)
    expected = [process.log_likelihood(sequence) for sequence in data]
    model = Constant((process.rate * scaling.unit).tolist())
    np.testing.assert_allclose(in_data_units(model, scaling, data, rule), expected, atol=1e-6, rtol=0)
    no_causes = HawkesModel(scaling).double().set(process.rate * scaling.unit, np.zeros((3, 3)), 1.0)
    np.testing.assert_allclose(in_data_units(no_causes, scaling, data, rule), expected, atol=1e-6, rtol=0)


@cache
def simulated(seed, n=40):
    # the first 100 events: that they end at an event must not be a choice of the process
    data = hawkes_set(n, end=400.0, process=UNEVEN, seed=seed).map(lambda s: s.events(slice(100)))
    assert {len(s) for s in data} == {100}
    return data


@cache
def fitted(decay):
    data = simulated(0)
    scaling = EventScaling.fit(data)
    return scaling, fit_hawkes(scaling.apply(data), decay=decay)


def standard_errors(model, batch):
    """Of the parameters, from the observed information."""
    names, sizes = zip(*((name, p.numel()) for name, p in model.named_parameters()), strict=True)
    parameters = dict(model.named_parameters())

    def loss(flat):
        parts = {n: x.view_as(parameters[n]) for n, x in zip(names, flat.split(sizes), strict=True)}
        with torch.nn.utils.stateless._reparametrize_module(model, parts):
            return -log_likelihood(model, intervals(model, batch)).sum()

    flat = torch.cat([p.detach().flatten() for p in parameters.values()])
    errors = torch.autograd.functional.hessian(loss, flat).inverse().diagonal().sqrt() * flat.exp()
    return {n: x.view_as(parameters[n]) for n, x in zip(names, errors.split(sizes), strict=True)}


def test_fit_recovers_the_parameters():
    scaling, fit = fitted("pair")
    assert fit.converged
    assert fit.events == 40 * 99
    errors = standard_errors(fit.model, collate_events(list(scaling.apply(simulated(0)))))
    for name, true in (("mu", UNEVEN.mu), ("alpha", UNEVEN.alpha), ("beta", UNEVEN.beta)):
        found, error = getattr(fit.model, name).detach().numpy(), errors[f"log_{name}"].numpy()
        true_here = true * scaling.unit
        assert (np.abs(found - true_here) < 3 * error).all(), (name, found, true_here, error)
        assert (error < 0.6 * true_here).all(), (name, error)  # else anything would do


def test_fit_is_a_maximum_of_the_model_s_likelihood():
    scaling, fit = fitted("pair")
    data = simulated(0)
    batch = collate_events(list(scaling.apply(data)))
    total = log_likelihood(fit.model, intervals(fit.model, batch)).sum()
    assert total.item() == pytest.approx(fit.log_likelihood, abs=1e-6)
    slopes = torch.autograd.grad(total, list(fit.model.parameters()))
    assert max(float(slope.abs().max()) for slope in slopes) < 1e-5 * fit.events
    true = sum(UNEVEN.log_likelihood(sequence) for sequence in data) + fit.events * np.log(scaling.unit)
    assert true < fit.log_likelihood < true + 25  # half a chi-square of ten parameters


def test_shared_decay_is_a_special_case():
    scaling, pair = fitted("pair")
    _, shared = fitted("shared")
    assert shared.converged
    assert shared.log_likelihood < pair.log_likelihood
    batch = collate_events(list(scaling.apply(simulated(0))))
    total = log_likelihood(shared.model, intervals(shared.model, batch)).sum()
    assert total.item() == pytest.approx(shared.log_likelihood, abs=1e-6)


def trained(name, scaling, data, steps=40):
    torch.manual_seed(0)
    if name == "nhp":
        model = NeuralHawkesModel(scaling, 16, dropout=0.0)
    elif name == "rmtpp":
        model = LastStateModel(RMTPPEncoder(scaling, 16, dropout=0.0), ExponentialIntensity(16, scaling))
    else:
        model = LastStateModel(SAHPEncoder(scaling, 16, dropout=0.0), ConvergingIntensity(16, scaling))
    task = EventTask(model, unit=scaling.unit, time_weight=0.0, type_weight=0.0)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    batch = collate_events(list(scaling.apply(data)))
    losses = []
    for _ in range(steps):
        total, weight = task.loss_terms(batch)
        optimiser.zero_grad()
        (total / weight).backward()
        optimiser.step()
        losses.append(float(total.detach() / weight))
    assert losses[-1] < losses[0] - 0.02
    return model.double().eval()


@pytest.mark.parametrize("name", ["pair", "shared", "nhp", "rmtpp", "sahp"])
def test_no_fitted_model_beats_the_truth_on_new_data(name):
    data, new = simulated(0).map(lambda s: s.events(slice(40))), simulated(77, 60)
    scaling = EventScaling.fit(data)
    if name in ("pair", "shared"):
        scaling, fit = fitted(name)
        model = fit.model
    else:
        model = trained(name, scaling, data)
    true = np.array([UNEVEN.log_likelihood(sequence) for sequence in new])
    gain = in_data_units(model, scaling, new, IntegralRule("closed", 16)) - true
    error = gain.std(ddof=1) / np.sqrt(len(gain))
    assert gain.mean() < 3 * error, (gain.mean(), error)
    assert gain.mean() / 99 > -0.3  # nor is it far away
    if name == "pair":
        assert gain.mean() / 99 > -0.005


def test_fit_with_many_types_of_which_most_are_rare_or_never_seen():
    rng = np.random.default_rng(0)
    kinds = [np.minimum(rng.geometric(0.15, size=4) - 1, 60) for _ in range(60)]
    data = EventSet([EventSequence.of(np.cumsum(rng.exponential(size=4)), k) for k in kinds], num_types=75)
    scaling = EventScaling.fit(data)
    fit = fit_hawkes(scaling.apply(data), decay="shared")
    assert fit.converged
    assert all(bool(p.isfinite().all()) for p in fit.model.parameters())
    everything = EventSet([EventSequence.of(np.arange(75) * 0.1, np.arange(75))], num_types=75)
    assert np.isfinite(in_data_units(fit.model, scaling, everything)).all()
    assert fit.model.mu.min().item() >= 0.5 / 180 * 0.999


def test_fit_with_events_at_one_time_and_one_type():
    times = [[0, 0, 1, 1, 1, 3], [0, 2, 2, 5], [1.0], []]
    data = EventSet([EventSequence.of(t) for t in times], num_types=1)
    fit = fit_hawkes(data)
    assert np.isfinite(fit.log_likelihood)
    batch = collate_events(list(data))
    assert log_likelihood(fit.model, intervals(fit.model, batch)).sum().item() == pytest.approx(fit.log_likelihood)
    with pytest.raises(DataError, match="two events"):
        fit_hawkes(EventSet([EventSequence.of([1.0])]))


def test_a_fit_that_is_cut_short_says_so():
    scaling, _ = fitted("pair")
    with pytest.warns(UserWarning, match="did not converge"):
        fit = fit_hawkes(scaling.apply(simulated(0)), max_iterations=2)
    assert not fit.converged
