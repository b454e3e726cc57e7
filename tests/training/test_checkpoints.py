"""Checkpoints: failed writes, damaged files, refusal of other trainings."""

import math
import random

import pytest

from contiformer.data import DataError
from contiformer.training import callbacks, checkpoints
from contiformer.training.checkpoints import fingerprint_of, read_checkpoint
from tests.training.jobs import new_task, options, run, same, two_kinds

DAMAGE = {
    "truncated": lambda data: data[: len(data) // 2],
    "flipped bit": lambda data: data[:-9] + bytes([data[-9] ^ 4]) + data[-8:],
    "empty": lambda data: b"",
    "random bytes": lambda data: random.Random(0).randbytes(len(data)),
}


@pytest.fixture(autouse=True)
def _a_checkpoint_after_every_round(monkeypatch):
    monkeypatch.setattr(callbacks, "CHECKPOINT_SHARE", math.inf)


@pytest.fixture(scope="module")
def whole():
    task, outcome = run(max_epochs=3)
    return dict(task.state_dict()), outcome.history


@pytest.fixture
def stopped(tmp_path, monkeypatch):
    """A run that died in its third round."""
    save = checkpoints.write_checkpoint

    def fails_later(path, state):
        if state["epoch"] == 2:
            raise OSError("the disk is gone")
        save(path, state)

    monkeypatch.setattr("contiformer.training.checkpoints.write_checkpoint", fails_later)
    with pytest.raises(OSError, match="the disk is gone"):
        run(tmp_path, max_epochs=3)
    monkeypatch.undo()
    monkeypatch.setattr(callbacks, "CHECKPOINT_SHARE", math.inf)
    return tmp_path


def test_a_failed_write_keeps_both_earlier_checkpoints(stopped, whole):
    places = stopped / "checkpoints"
    assert [read_checkpoint(places / f"{name}.safetensors")["epoch"] for name in ("last", "previous")] == [1, 0]
    task, outcome = run(stopped, max_epochs=3)
    assert outcome.resumed == 2
    assert same((dict(task.state_dict()), outcome.history), whole)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_last_checkpoint_falls_back_to_the_previous(damage, stopped, whole, capfd):
    last = stopped / "checkpoints" / "last.safetensors"
    last.write_bytes(DAMAGE[damage](last.read_bytes()))
    task, outcome = run(stopped, max_epochs=3, verbose=1)
    assert outcome.resumed == 1
    assert "last.safetensors is" in outcome.messages[0]
    assert "previous.safetensors" in outcome.messages[1]
    shown = capfd.readouterr().err
    assert all(message in shown for message in outcome.messages)
    assert same((dict(task.state_dict()), outcome.history), whole)


def test_a_damaged_checkpoint_never_replaces_a_good_one(stopped, monkeypatch):
    last, previous = (stopped / "checkpoints" / f"{name}.safetensors" for name in ("last", "previous"))
    last.write_bytes(b"")
    good = previous.read_bytes()
    seen = []
    move = type(last).replace
    monkeypatch.setattr(type(last), "replace", lambda *pair: (seen.append(previous.read_bytes()), move(*pair))[1])
    run(stopped, max_epochs=3)
    # from the new file to the last one, in round 2; afterwards the last one is good
    assert seen[0] == seen[1] == good
    assert read_checkpoint(previous)["epoch"] == 1


def test_training_starts_anew_if_both_checkpoints_are_damaged(stopped, whole):
    for name in ("last", "previous"):
        (stopped / "checkpoints" / f"{name}.safetensors").write_bytes(b"?")
    task, outcome = run(stopped, max_epochs=3)
    assert outcome.resumed == 0
    assert len(outcome.messages) == 3
    assert "starts anew" in outcome.messages[-1]
    assert same((dict(task.state_dict()), outcome.history), whole)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"learning_rate": 0.02}, r"learning_rate 0\.01 instead of 0\.02; resume with"),
        ({"seed": 3, "batch_size": 5}, "batch_size 4 instead of 5, seed 0 instead of 3"),
        ({"series": 22}, "other training data"),
        ({"checked": 8}, "other validation data"),
        ({"task": lambda: new_task(dropout=0.2)}, r"dropout\.p 0\.1 instead of 0\.2"),
        ({"task": lambda: new_task(keep=0.5)}, r"keep 0\.75 instead of 0\.5"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(change, words, stopped):
    made = {name: value() if callable(value) else value for name, value in change.items()}
    with pytest.raises(DataError, match=words):
        run(stopped, **{"max_epochs": 3, **made})


def test_fingerprint_changes_with_one_value():
    data, task = two_kinds(3), new_task()
    before = fingerprint_of(options(), data, data, task)
    data[1].values[0, 0] += 1e-6
    after = fingerprint_of(options(), data, data, task)
    assert {name for name in before if before[name] != after[name]} == {"training data", "validation data"}


def test_resuming_with_other_workers_or_accelerator_is_allowed(stopped, whole):
    _, outcome = run(stopped, max_epochs=3, num_workers=1, accelerator="cpu")
    assert outcome.resumed == 2
    assert outcome.history == whole[1]


def test_short_epochs_are_not_checkpointed_each(tmp_path, monkeypatch):
    monkeypatch.setattr(callbacks, "CHECKPOINT_SHARE", 1e-9)
    saved = []
    save = checkpoints.write_checkpoint
    monkeypatch.setattr(
        "contiformer.training.checkpoints.write_checkpoint", lambda p, s: (saved.append(s["epoch"]), save(p, s))
    )
    _, outcome = run(tmp_path, max_epochs=6)
    assert saved == [0, 5]
    assert len(outcome.history) == 6
