"""Signals during training."""

import os
import signal
import threading

import pytest

from contiformer.training import Interrupted
from contiformer.training.lightning_task import LightningTask
from tests.training.jobs import new_task, run, same


def signals_at(monkeypatch, step, *numbers):
    """The process gets signals within a step."""
    train = LightningTask.training_step

    def hit(self, batch, index):
        if self.trainer.global_step == step:
            for number in numbers:
                os.kill(os.getpid(), number)
        return train(self, batch, index)

    monkeypatch.setattr(LightningTask, "training_step", hit)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_checkpoints_and_the_next_run_resumes(number, tmp_path, monkeypatch):
    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)]
    expected, whole = run(max_epochs=4)
    with monkeypatch.context() as patch:
        signals_at(patch, 14, number)
        again = rf"stopped after (2|3) of 4 epochs; the same call with {tmp_path} goes on"
        with pytest.raises(Interrupted, match=again) as stopped:
            run(tmp_path, max_epochs=4)
    assert handlers == [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)]
    task, outcome = run(tmp_path, max_epochs=4)
    # what it said that it had is what was there
    assert f"after {outcome.resumed} of" in str(stopped.value)
    assert outcome.history == whole.history
    assert same(dict(task.state_dict()), dict(expected.state_dict()))


def test_a_signal_without_run_dir_keeps_the_best_weights(monkeypatch):
    expected, _ = run(max_epochs=4, min_steps=0)
    signals_at(monkeypatch, 14, signal.SIGINT)
    task, outcome = run(max_epochs=4)
    assert outcome.interrupted
    assert len(outcome.history) == 2
    assert not task.training
    assert not same(dict(task.state_dict()), dict(expected.state_dict()))
    assert not same(dict(task.state_dict()), dict(new_task().state_dict()))


def test_a_signal_in_the_first_epoch_raises_interrupted(monkeypatch):
    signals_at(monkeypatch, 2, signal.SIGINT)
    with pytest.raises(Interrupted, match=r"stopped after 0 of 4 epochs$"):
        run(max_epochs=4)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_stops_within_the_step(number, tmp_path, monkeypatch):
    finished = []
    signals_at(monkeypatch, 14, number, number)
    step = LightningTask.training_step
    monkeypatch.setattr(
        LightningTask, "training_step", lambda *a: (step(*a), finished.append(a[0].trainer.global_step))[0]
    )
    with pytest.raises(KeyboardInterrupt, match="at once"):
        run(tmp_path, max_epochs=4)
    assert finished[-1] == 13
    monkeypatch.undo()
    assert len(run(tmp_path, max_epochs=4)[1].history) == 4


def test_training_runs_outside_the_main_thread(tmp_path):
    expected, whole = run(max_epochs=2)
    found = []
    thread = threading.Thread(target=lambda: found.append(run(tmp_path, max_epochs=2)))
    thread.start()
    thread.join()
    task, outcome = found[0]
    assert outcome.history == whole.history
    assert same(dict(task.state_dict()), dict(expected.state_dict()))
