import pytest

from contiformer import Classifier, Interpolator, Regressor
from tests.estimators.problems import TINY, numbers, waves


@pytest.fixture(scope="session")
def X():
    return waves()[0]


@pytest.fixture(scope="session")
def y():
    return waves()[1]


@pytest.fixture(scope="session")
def classifier(X, y):
    return Classifier(**TINY).fit(X, y)


@pytest.fixture(scope="session")
def regressor(X):
    return Regressor(**TINY).fit(X, numbers(X))


@pytest.fixture(scope="session")
def interpolator(X):
    return Interpolator(**TINY).fit(X)
