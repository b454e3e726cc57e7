"""Exact resumption of killed trainings."""

import random
import signal
import time

import pytest
import torch

from tests.training.jobs import finished, new_task, run, same, start, wait_for_rounds

#: Early stopping, the last weights, rounds shorter than an epoch, readers ahead; dropout and thinning are always on.
CASES = {
    "plain": {},
    "stops early": {"max_epochs": 9, "patience": 0.1, "learning_rate": 0.3, "averaging": 0.0},
    "keeps the last": {"keep": "last", "averaging": 0.5},
    "short rounds": {"longest": 4, "max_epochs": 4},
    "readers ahead": {"num_workers": 2, "max_epochs": 2},
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Uninterrupted trainings."""
    done = {}

    def of(case):
        if case not in done:
            folder = tmp_path_factory.mktemp("whole")
            done[case] = finished(folder, folder / "result", **CASES[case])
        return done[case]

    return of


@pytest.mark.parametrize("case", CASES)
def test_resumes_exactly_when_killed_at_random_moments(case, whole, tmp_path):
    draw = random.Random(case)
    early = max(1, len(whole(case)["history"]) // 2)
    for rounds in sorted(draw.choices(range(early), k=2)):
        process = start(tmp_path, tmp_path / "result", **CASES[case])
        wait_for_rounds(tmp_path, rounds, process)
        time.sleep(draw.uniform(0, 0.01))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    assert same(finished(tmp_path, tmp_path / "result", **CASES[case]), whole(case))


def test_resume_cases_stop_early_and_have_short_epochs(whole):
    stopped = whole("stops early")["history"]
    assert len(stopped) < 9
    assert stopped[-1]["loss"] > min(row["loss"] for row in stopped)
    assert [row["step"] for row in whole("short rounds")["history"]] == [4, 8, 12, 16, 20, 24]


# each checkpoint moves three files: its own into being, the last to the previous, and itself to the last
@pytest.mark.parametrize(("move", "after"), [(1, False), (2, False), (4, False), (5, False), (5, True)])
def test_resumes_exactly_when_killed_between_two_files(move, after, whole, tmp_path):
    process = start(tmp_path, tmp_path / "result", die_at=move, after=after)
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    found = finished(tmp_path, tmp_path / "result")
    assert same(found, whole("plain"))
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.parametrize("case", ["plain", "stops early"])
def test_resumes_exactly_when_killed_after_the_last_checkpoint(case, whole, tmp_path):
    expected = whole(case)
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


def test_training_leaves_the_global_random_state_alone():
    task = new_task()
    torch.manual_seed(5)
    run(task=task, max_epochs=1)
    drawn = torch.rand(1)
    torch.manual_seed(5)
    assert torch.rand(1) == drawn
