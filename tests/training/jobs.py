"""Small trainings, in this process or in one that may be killed."""

import math
import multiprocessing
import os
import signal
import time
from dataclasses import replace
from itertools import count

import numpy as np
import torch
import torch.utils.tensorboard  # the fork server has it then
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from contiformer.backbones import make_backbone
from contiformer.backbones.base import Backbone
from contiformer.data import Series, SeriesSet
from contiformer.tasks import InputOptions, Inputs
from contiformer.tasks.base import SeriesTask, series_weights
from contiformer.training import TrainingOptions, callbacks, checkpoints, train
from contiformer.training.checkpoints import read_checkpoint, write_checkpoint

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


class WhichKind(SeriesTask):
    """The smallest task with everything that may go wrong: thinning, weights, metrics over series of all processes."""

    def __init__(self, dropout, keep, backbone):
        inputs = Inputs(InputOptions(channels=1))
        small = Small(inputs.size, dropout)
        super().__init__(
            make_backbone(backbone, inputs.size, d_model=8, dropout=dropout) if backbone else small, inputs
        )
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


def new_task(dropout=0.1, keep=0.75, backbone=""):
    torch.manual_seed(1)
    return WhichKind(dropout, keep, backbone)


def options(**given):
    common = {
        "max_epochs": 6,
        "min_steps": 0,
        "batch_size": 4,
        "keep": "best",
        "learning_rate": 0.01,
        "patience": 1.0,
        "verbose": 0,
    }
    return TrainingOptions(**{**common, **given})


def run(folder=None, *, series=23, checked=9, task=None, **given):
    """Train here; what the task learned is in it."""
    task = task or new_task()
    outcome = train(task, two_kinds(series), two_kinds(checked, seed=1), options(**given), folder)
    return task, outcome


def job(folder, result, given, *, longest=500, die_at=0, after=False, rank=0, world=1, port=0, task):
    """In a process of its own: train, and write down what came out; die at a move of a file, if asked to."""
    # not "forkserver" as in this process: readers would import everything anew
    multiprocessing.set_start_method("fork", force=True)
    torch.set_num_threads(1)
    checkpoints.LONGEST_ROUND = longest
    if world > 1:
        # what torchrun says to the processes that it starts
        words = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "GROUP_RANK": 0}
        words |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "test"}
        os.environ.update({name: str(value) for name, value in words.items()})
    if die_at:
        callbacks.CHECKPOINT_SHARE = math.inf
        die_at_a_move(die_at, after)
    trained, outcome = run(folder, task=new_task(**task), **given)
    write_checkpoint(result, {"best": trained.state_dict(), "history": outcome.history, "messages": outcome.messages})


def die_at_a_move(number, after):
    """SIGKILL right before or after a file is moved for the given time."""
    numbers, move = count(1), os.replace

    def move_or_die(path, target):
        this = next(numbers)
        if this == number and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        moved = move(path, target)
        if this == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return moved

    os.replace = move_or_die


_OF_THE_JOB = {"longest", "die_at", "after", "rank", "world", "port"}


def start(folder, result, task=None, **given):
    """A process at work."""
    own = {name: given.pop(name) for name in _OF_THE_JOB & given.keys()}
    process = PROCESSES.Process(target=job, args=(folder, result, given), kwargs={**own, "task": task or {}})
    process.start()
    return process


def wait_for_rounds(folder, number, process):
    """Until the history has so many rows, or the process has ended."""
    path = folder / "history.csv"
    while process.is_alive() and not (path.exists() and len(path.read_text().splitlines()) > number):
        time.sleep(0.005)


def finished(folder, result, **given):
    """Run to the end: what came out, and what was in the folder."""
    process = start(folder, result, **given)
    process.join(120)
    assert process.exitcode == 0
    return result_of(folder, result)


def result_of(folder, result):
    last = read_checkpoint(folder / "checkpoints" / "last.safetensors")
    # the parts that cannot depend on when it was killed: weights, optimizer, schedule, order and history
    state = {
        name: last[name] for name in ("state_dict", "optimizer_states", "lr_schedulers", "global_step", "callbacks")
    }
    state["callbacks"] = {name.split("{")[0]: value for name, value in state["callbacks"].items()}
    return {**read_checkpoint(result), "last": state, "csv": (folder / "history.csv").read_text()}


def same(one, other):
    """Equal to the bit."""
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other
