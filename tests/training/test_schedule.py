"""The learning rate over the steps of a training."""

import pytest

from contiformer.training import TrainingOptions
from contiformer.training.lightning_task import LightningTask
from tests.training.jobs import new_task

STEPS = 10


def rates(**options) -> list[float]:
    """The share of the peak at each step."""
    chosen = TrainingOptions(learning_rate=0.5, **options).with_defaults()
    found = LightningTask(new_task(), chosen, STEPS).configure_optimizers()["lr_scheduler"]["scheduler"]
    return [found.lr_lambdas[0](step) for step in range(STEPS + 1)]


def test_the_cosine_ends_at_zero():
    found = rates(warmup=0.0)
    assert found[0] == 1
    assert found[-1] == pytest.approx(0)
    assert found == sorted(found, reverse=True)


def test_a_constant_rate_stays_after_the_warm_up():
    assert rates(warmup=0.0, schedule="constant") == [1.0] * (STEPS + 1)
    assert rates(warmup=0.4, schedule="constant")[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_unknown_schedules_are_rejected():
    with pytest.raises(ValueError, match=r"schedule must be 'cosine' or 'constant', got 'linear'"):
        rates(schedule="linear")
