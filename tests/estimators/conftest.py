"""Fitted estimators shared by the tests."""

import pytest

from contiformer import Classifier, EventPredictor, Interpolator, Regressor
from contiformer.data.synthetic import hawkes_set
from tests.estimators.problems import TINY, TINY_EVENTS, numbers, waves


@pytest.fixture(scope="session")
def X():
    return waves()[0]


@pytest.fixture(scope="session")
def y():
    return waves()[1]


@pytest.fixture(scope="session")
def classifier(X, y):
    return Classifier.from_options(**TINY).fit(X, y)


@pytest.fixture(scope="session")
def regressor(X):
    return Regressor.from_options(**TINY).fit(X, numbers(X))


@pytest.fixture(scope="session")
def interpolator(X):
    return Interpolator.from_options(**TINY).fit(X)


@pytest.fixture(scope="session")
def event_sequences():
    return [(one.times[:12], one.types[:12]) for one in hawkes_set(8, seed=3)]


@pytest.fixture(scope="session")
def event_model(event_sequences):
    return EventPredictor.from_options(**TINY_EVENTS).fit(event_sequences)
