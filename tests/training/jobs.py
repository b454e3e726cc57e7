"""Small trainings, in this process or in one that may be killed."""

import math
import multiprocessing
import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.utils.tensorboard  # the fork server has it then
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from contiformer.backbones.base import Backbone
from contiformer.data import Series, SeriesSet
from contiformer.tasks import InputOptions, Inputs, Task
from contiformer.tasks.base import series_weights
from contiformer.training import TrainingOptions, callbacks, rounds, train
from contiformer.training.tree import read_tree, write_tree

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.training.jobs"])


class Small(Backbone):
    """Where the loop is tested, any backbone will do that has a vector field, which learns slower, and dropout."""

    def __init__(self, size, dropout):
        super().__init__()
        self.d_model = 8
        self.first, self.some_field = nn.Linear(size + 1, 8), nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.dropout = nn.Dropout(dropout)

    def forward(self, batch, query_times=None):
        seen = torch.cat([batch.values, batch.times.unsqueeze(-1).to(batch.values)], -1)
        return self.dropout(self.some_field(self.first(seen)).cumsum(1))


class WhichKind(Task):
    """The smallest task with everything that may go wrong: thinning, weights, metrics over series of all processes."""

    def __init__(self, dropout, keep):
        inputs = Inputs(InputOptions(channels=1))
        super().__init__(Small(inputs.size, dropout), inputs)
        self.keep = keep
        self.head = nn.Linear(8, 1)

    def forward(self, batch):
        known = batch.mask.unsqueeze(-1)
        return self.head((self.states(batch) * known).sum(1) / known.sum(1)).squeeze(-1)

    def losses(self, batch):
        return binary_cross_entropy_with_logits(self(batch), batch.label.float(), reduction="none")

    def loss_terms(self, batch):
        seen = torch.where(torch.rand(batch.values.shape) < self.keep, batch.values, 0.0)
        weight = series_weights(batch)
        return (weight * self.losses(replace(batch, values=seen))).sum(), weight.sum()

    def judge(self, batch):
        return {"loss": self.losses(batch), "right": (self(batch) > 0) == batch.label}

    def metrics(self, judged):
        return {
            "loss": float(judged["loss"].mean()),
            "accuracy": float(judged["right"].mean()),
            "judged": float(len(judged["loss"])),
        }


def two_kinds(count, seed=0):
    draw = np.random.default_rng(seed)
    series = []
    for n in range(count):
        times = np.sort(draw.random(draw.integers(3, 9)))
        values = np.sin(6 * times + 2 * (n % 2)) + 0.3 * draw.normal(size=len(times))
        series.append(Series.of(times, values[:, None], id=n, label=n % 2))
    return SeriesSet(series, classes=[0, 1])


def new_task(dropout=0.1, keep=0.75):
    torch.manual_seed(1)
    return WhichKind(dropout, keep)


def options(**given):
    common = {"max_epochs": 6, "min_steps": 0, "batch_size": 4, "learning_rate": 0.01, "patience": 1.0, "verbose": 0}
    return TrainingOptions(**{**common, **given})


def run(folder=None, *, series=23, checked=9, task=None, **given):
    """Train here; what the task learned is in it."""
    task = task or new_task()
    outcome = train(task, two_kinds(series), two_kinds(checked, seed=1), options(**given), folder)
    return task, outcome


def job(folder, result, longest, die_at, after, given):
    """In a process of its own: train, and write down what came out. It kills itself at a move of a file, if asked to."""
    torch.set_num_threads(1)
    rounds.LONGEST = longest
    if die_at:
        callbacks.CHECKPOINT_SHARE = math.inf
        moves, move = iter(range(1, die_at + 1)), Path.replace

        def move_or_die(path, target):
            number = next(moves)
            if number == die_at and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            moved = move(path, target)
            if number == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return moved

        Path.replace = move_or_die
    task, outcome = run(folder, **given)
    write_tree(result, {"best": task.state_dict(), "history": outcome.history, "messages": outcome.messages})


def start(folder, result, *, longest=500, die_at=0, after=False, **given):
    process = PROCESSES.Process(target=job, args=(folder, result, longest, die_at, after, given))
    process.start()
    return process


def finished(folder, result, **given):
    """Run to the end: what came out, and what was in the folder."""
    process = start(folder, result, **given)
    process.join(120)
    assert process.exitcode == 0
    return result_of(folder, result)


def result_of(folder, result):
    last = read_tree(folder / "checkpoints" / "last.safetensors")
    # the parts that cannot depend on when it was killed: weights, optimizer, schedule, order and history
    state = {name: last[name] for name in ("state_dict", "optimizer_states", "lr_schedulers", "global_step", "callbacks")}
    state["callbacks"] = {name.split("{")[0]: value for name, value in state["callbacks"].items()}
    return {**read_tree(result), "last": state, "csv": (folder / "history.csv").read_text()}


def same(one, other):
    """Equal to the bit."""
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other
