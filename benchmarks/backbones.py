"""The cost of a training epoch of each backbone, in epochs of S5.

Everything is as ``Classifier(backbone=...)`` trains it at its defaults: the same series, batches, augmentation and
optimiser. An epoch is timed over forward, backward, clipping and the
optimiser's step of all its batches; the contenders take turns, see :mod:`benchmarks.timing`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.machine import machine_facts
from benchmarks.memory import forget_peak, peak_mb
from benchmarks.timing import interleave
from contiformer import Classifier, TrainingOptions
from contiformer.backbones import backbone_class
from contiformer.data import Batch, Loader, SeriesSet
from contiformer.data.catalog import dataset_info, load_uea, presence
from contiformer.machine import busy
from contiformer.tasks import Task
from contiformer.training import LightningTask, keep_freed_memory

Notify = Callable[[str], None]

#: Sets and models of the paper's table of efficiency.
DATA = ("BasicMotions", "JapaneseVowels", "Libras", "RacketSports", "NATOPS", "PEMS-SF")
MODELS = ("contiformer", "tst", "s5", "ode_rnn", "neural_cde")
UNIT = "s5"
ROUNDS = 7
SEED = 0
NO_DATA = "no data"


@dataclass(frozen=True)
class Row:
    """The cost of one model on one set.

    Attributes:
        data, model: set and model.
        milliseconds: an epoch, the median over the rounds.
        relative: the median over the rounds of its epoch in S5's.
        relative_to: the same in epochs of the others, for ContiFormer.
        peak_mb: the most memory (2^20 bytes) of a training step above the model and the data; None: not measured.
        weights: numbers that are learned.
        accuracy, training_seconds: of a whole training, None without one.
    """

    data: str
    model: str
    milliseconds: float
    relative: float
    relative_to: dict[str, float]
    peak_mb: float | None
    weights: int
    accuracy: float | None = None
    training_seconds: float | None = None


@dataclass(frozen=True)
class Training:
    """A task with new weights, and the batches of an epoch in a new order each time."""

    task: Task
    module: LightningTask
    loader: Loader
    clip: float

    @classmethod
    def of(cls, data: SeriesSet, backbone: str) -> Training:
        """The training that ``Classifier(backbone=...)`` begins with."""
        keep_freed_memory()
        job = Classifier(backbone=backbone, training=TrainingOptions(seed=SEED, verbose=0)).prepare(data)
        loader = Loader(job.training, job.options.batch_for(len(job.training)), seed=SEED)
        steps = job.options.epochs_for(len(loader)) * len(loader)
        module = LightningTask(job.task.train(), job.options, steps)
        return cls(job.task, module, loader, job.options.gradient_clip)

    @property
    def weights(self) -> int:
        """Number of trainable parameters."""
        return sum(p.numel() for p in self.task.parameters() if p.requires_grad)

    def epoch(self) -> Callable[[], None]:
        """A call that takes all steps of the next epoch."""
        step = self.step()

        def epoch() -> None:
            for batch in self.loader:
                step(batch)

        return epoch

    def step(self) -> Callable[[Any], None]:
        """A call that takes one step."""
        planned = self.module.configure_optimizers()
        optimizer, scheduler = planned["optimizer"], planned["lr_scheduler"]["scheduler"]
        parameters = list(self.task.parameters())

        def step(batch: Any) -> None:
            optimizer.zero_grad()
            self.module.training_step(batch, 0).backward()
            torch.nn.utils.clip_grad_norm_(parameters, self.clip)
            optimizer.step()
            scheduler.step()

        return step


def check_model(name: str) -> str:
    """The name, if it is that of a backbone for irregular series.

    Raises:
        ValueError: it is not.
    """
    if not backbone_class(name).capabilities.irregular:
        raise ValueError(f"{name!r} needs a regular grid, and a training step shows a random part of the points")
    return name


def run(
    data: Sequence[str] = DATA,
    models: Sequence[str] = MODELS,
    *,
    rounds: int = ROUNDS,
    threads: int | None = None,
    memory: bool = True,
    accuracy: bool = False,
    notify: Notify = lambda _: None,
) -> dict[str, Any]:
    """The whole table as a document for JSON.

    Args:
        data: sets of the UEA archive; those that are not here are named as such.
        models: backbones; S5, in whose epochs times are given, comes in any case.
        rounds: how often each epoch is timed.
        threads: of torch; None: as torch chooses.
        memory: measure it, in a process for each model.
        accuracy: train each model to its end, and look at the test data.
        notify: told what is measured next.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    facts, occupied = machine_facts(), busy()
    here = [name for name in data if presence(dataset_info(name)) != "no"]
    rows: list[Row] = []
    for name in here:
        rows += measure(name, models, rounds=rounds, memory=memory, accuracy=accuracy, notify=notify)
    return {
        "machine": facts,
        "busy": occupied,
        "rounds": rounds,
        "seed": SEED,
        "rows": [asdict(row) for row in rows],
        "no_data": [name for name in data if name not in here],
    }


def measure(
    name: str,
    models: Sequence[str] = MODELS,
    *,
    rounds: int = ROUNDS,
    memory: bool = True,
    accuracy: bool = False,
    notify: Notify = lambda _: None,
) -> list[Row]:
    """All models on one set, with all of its points."""
    chosen = list(dict.fromkeys([*models, UNIT]))
    train = load_uea(name, "train")
    trainings = {model: Training.of(train, model) for model in chosen}
    notify(f"{name}: time")
    calls = {model: training.epoch() for model, training in trainings.items()}
    timings = interleave(calls, budget=0.0, at_least=rounds, at_most=rounds, warm_up=1)
    rows = []
    for model, training in trainings.items():
        peak = None
        if memory:
            notify(f"{name}: memory of {model}")
            peak = peak_in_fresh_process(name, model)
        reached, seconds = None, None
        if accuracy:
            notify(f"{name}: training of {model}")
            trained = Classifier(backbone=model, training=TrainingOptions(seed=SEED, verbose=0)).fit(train)
            reached = trained.require_complete().score(load_uea(name, "test"))
            seconds = trained.metrics_["seconds"]
        rivals = [rival for rival in chosen if model == "contiformer" and rival != model]
        rows.append(
            Row(
                name,
                model,
                timings.milliseconds(model),
                timings.ratio(model, UNIT),
                {rival: timings.ratio(model, rival) for rival in rivals},
                peak,
                training.weights,
                reached,
                seconds,
            )
        )
    return rows


def lines(document: dict[str, Any]) -> list[tuple[str, ...]]:
    """The table as text: set, model, ms per epoch, in epochs of S5, MB, weights, accuracy."""
    found = [
        (
            row["data"],
            row["model"],
            f"{row['milliseconds']:.0f}",
            f"{row['relative']:.2f}",
            _or_nothing(row["peak_mb"], ".0f"),
            f"{row['weights']:,}",
            _or_nothing(row["accuracy"], ".3f"),
        )
        for row in document["rows"]
    ]
    return found + [(name, NO_DATA, *[""] * 5) for name in document["no_data"]]


def ratio_lines(document: dict[str, Any]) -> list[str]:
    """An epoch of ContiFormer in epochs of each other model, and a line if the machine was busy."""
    said = [
        f"{row['data']}: an epoch of contiformer takes {ratio:.2f} of {rival}"
        for row in document["rows"]
        for rival, ratio in row["relative_to"].items()
    ]
    if document["busy"]:
        load = document["machine"]["load"]
        said.append(f"the machine was busy before this began (load {load}): the times mean little")
    return said


def _or_nothing(value: float | None, form: str) -> str:
    return "" if value is None else f"{value:{form}}"


def peak_in_fresh_process(data: str, model: str) -> float | None:
    """The most memory (2^20 bytes) of a training step, above what there was before it.

    In a process of its own, because memory that was freed is not given back to the system.
    """
    source = str(Path(__file__).resolve().parents[1])
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "benchmarks.backbones", data, model, str(torch.get_num_threads())]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(f"measuring the memory of {model} on {data} failed:\n{done.stderr}")
    peak: float | None = json.loads(done.stdout.splitlines()[-1])
    return peak


def peak_here(data: SeriesSet, model: str) -> float | None:
    """The same in this process, which has done nothing else."""
    training = Training.of(data, model)
    step = training.step()
    batches = [batch for batch in training.loader if isinstance(batch, Batch)]
    # libraries that load at the first step, and the optimiser's state, are not the step's
    step(next(iter(Loader(training.loader.data, 1))))
    forget_peak()
    before = peak_mb()
    step(max(batches, key=lambda batch: batch.times.numel()))
    after = peak_mb()
    return None if before is None or after is None else after - before


def main(data: str, model: str, threads: str) -> None:
    """Entry of the fresh process."""
    torch.set_num_threads(int(threads))
    print(json.dumps(peak_here(load_uea(data, "train"), model)))


if __name__ == "__main__":
    main(*sys.argv[1:])
