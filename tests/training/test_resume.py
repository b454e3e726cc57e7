import os
import random
import signal
import time

import pytest
import torch

from tests.training.jobs import finished, new_task, result_of, run, same, start

#: Early stopping, the last weights, rounds shorter than an epoch, readers ahead; dropout and thinning are always on.
CASES = {
    "plain": {},
    "stops early": {"max_epochs": 9, "patience": 0.1, "learning_rate": 0.3, "averaging": 0.0},
    "keeps the last": {"keep": "last", "averaging": 0.5},
    "short rounds": {"longest": 4, "max_epochs": 4},
    "readers ahead": {"num_workers": 2, "max_epochs": 2},
}


def killed_and_resumed(folder, result, moments, **given):
    """Kill after so many seconds each, then let it finish. How often it really was killed."""
    kills = 0
    for moment in moments:
        process = start(folder, result, **given)
        time.sleep(moment)
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
        process.join()
        kills += process.exitcode == -signal.SIGKILL
    process = start(folder, result, **given)
    process.join(120)
    assert process.exitcode == 0
    return kills


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Uninterrupted trainings, and how long they took."""
    done = {}

    def of(case):
        if case not in done:
            folder = tmp_path_factory.mktemp("whole")
            began = time.perf_counter()
            done[case] = finished(folder, folder / "result", **CASES[case]), time.perf_counter() - began
        return done[case]

    return of


@pytest.mark.parametrize("case", CASES)
def test_killed_at_random_moments(case, whole, tmp_path):
    expected, seconds = whole(case)
    draw = random.Random(case)
    kills = killed_and_resumed(tmp_path, tmp_path / "result", [draw.uniform(0.2, 0.9) * seconds], **CASES[case])
    found = result_of(tmp_path, tmp_path / "result")
    assert kills or seconds < 1
    assert same(found, expected)


def test_the_cases_are_what_they_are_called(whole):
    stopped = whole("stops early")[0]["history"]
    assert len(stopped) < 9
    assert stopped[-1]["loss"] > min(row["loss"] for row in stopped)
    assert [row["step"] for row in whole("short rounds")[0]["history"]] == [4, 8, 12, 16, 20, 24]


# each checkpoint moves three files: its own into being, the last to the previous, and itself to the last
@pytest.mark.parametrize(("move", "after"), [(2, False), (2, True), (4, False), (5, False), (5, True), (6, True)])
def test_killed_between_two_files(move, after, whole, tmp_path):
    process = start(tmp_path, tmp_path / "result", die_at=move, after=after)
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    found = finished(tmp_path, tmp_path / "result")
    assert same(found, whole("plain")[0])
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.parametrize("case", ["plain", "stops early"])
def test_killed_right_after_the_last_checkpoint(case, whole, tmp_path):
    expected, _ = whole(case)
    # the first checkpoint moves no last one
    process = start(tmp_path, tmp_path / "result", die_at=3 * len(expected["history"]) - 1, after=True, **CASES[case])
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    (tmp_path / "history.csv").unlink()
    assert same(finished(tmp_path, tmp_path / "result", **CASES[case]), expected)


def test_a_finished_training_is_not_repeated(tmp_path):
    first, outcome = run(tmp_path, max_epochs=2)
    again, nothing = run(tmp_path, max_epochs=2)
    assert nothing.resumed == len(outcome.history) == 2
    assert nothing.history == outcome.history
    assert same(dict(again.state_dict()), dict(first.state_dict()))


def test_draws_of_the_user_are_left_alone():
    task = new_task()
    torch.manual_seed(5)
    run(task=task, max_epochs=1)
    drawn = torch.rand(1)
    torch.manual_seed(5)
    assert torch.rand(1) == drawn
