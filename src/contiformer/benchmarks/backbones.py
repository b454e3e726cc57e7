"""What a training epoch of each backbone costs, beside S5: the paper's table of efficiency.

Everything is as ``Classifier(backbone=...)`` trains it at its defaults: the same series, the same batches, the same
view of the points at each step, the same optimiser. An epoch is timed over forward, backward, clipping and the
optimiser's step of all its batches; the contenders take turns, see :mod:`contiformer.benchmarks.timing`.
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

from contiformer.backbones import BACKBONES, make_backbone
from contiformer.benchmarks.machine import busy, machine_facts
from contiformer.benchmarks.memory import forget_peak, peak_mb
from contiformer.benchmarks.timing import interleave
from contiformer.data.batch import Batch
from contiformer.data.catalog import registry, store
from contiformer.data.catalog.uea import load_uea
from contiformer.data.errors import did_you_mean
from contiformer.data.loader import Loader
from contiformer.data.series_set import SeriesSet
from contiformer.estimators import Classifier
from contiformer.estimators.labels import with_labels
from contiformer.experiments.paper import printed
from contiformer.tasks.base import Task
from contiformer.training.allocation import keep_freed_memory

Notify = Callable[[str], None]

#: In the paper's table.
DATA = ("BasicMotions", "JapaneseVowels", "Libras", "RacketSports", "NATOPS", "PEMS-SF")
MODELS = ("contiformer", "tst", "s5", "ode_rnn", "neural_cde")
UNIT = "s5"
#: An epoch of ContiFormer in epochs of these, at most.
BARS = {"tst": 4.0, "s5": 1.0, "ode_rnn": 1.0, "neural_cde": 1.0}
ROUNDS = 7
SEED = 0
NO_DATA = "no data"


@dataclass(frozen=True)
class Row:
    """What one model costs on one set.

    Attributes:
        data, model: of which.
        milliseconds: an epoch, the median over the rounds.
        relative: the median over the rounds of its epoch in S5's.
        relative_to: the same in epochs of the others, for ContiFormer.
        paper: what the paper says of ``relative``, None where it says nothing.
        peak_mb: the most memory (2^20 bytes) of a training step above the model and the data; None: not measured.
        weights: numbers that are learned.
        accuracy, training_seconds: of a whole training, None without one.
    """

    data: str
    model: str
    milliseconds: float
    relative: float
    relative_to: dict[str, float]
    paper: float | None
    peak_mb: float | None
    weights: int
    accuracy: float | None = None
    training_seconds: float | None = None


@dataclass(frozen=True)
class Verdict:
    """Whether an epoch of ContiFormer takes at most ``bar`` epochs of another model."""

    data: str
    rival: str
    ratio: float
    bar: float

    @property
    def met(self) -> bool:
        """Whether it does."""
        return self.ratio <= self.bar

    def __str__(self) -> str:
        """In a line."""
        word = "met" if self.met else "missed"
        return f"{self.data}: contiformer takes {self.ratio:.2f} x {self.rival}, at most {self.bar:g}: {word}"


@dataclass(frozen=True)
class Training:
    """A task with new weights, and the batches of an epoch in a new order each time."""

    task: Task
    loader: Loader
    clip: float

    @classmethod
    def of(cls, data: SeriesSet, backbone: str) -> Training:
        """As a Classifier begins it."""
        keep_freed_memory()
        model, data = Classifier(backbone=backbone, seed=SEED, verbose=0), with_labels(data, None, classes=True)
        series, _ = model._parts(data, 0)
        model.scaling_ = model._fit_scaling(series)
        model.config_ = model._describe(data)
        options = model._training_options()
        loader = Loader(model.scaling_.apply(series), options.batch_for(len(series)), seed=SEED)
        task = model._new_task(SEED).train()
        task.plan(options, options.epochs_for(len(loader)) * len(loader))
        return cls(task, loader, options.gradient_clip)

    @property
    def weights(self) -> int:
        """How many numbers are learned."""
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
        planned = self.task.configure_optimizers()
        optimizer, scheduler = planned["optimizer"], planned["lr_scheduler"]["scheduler"]
        parameters = list(self.task.parameters())

        def step(batch: Any) -> None:
            optimizer.zero_grad()
            self.task.training_step(batch, 0).backward()
            torch.nn.utils.clip_grad_norm_(parameters, self.clip)
            optimizer.step()
            scheduler.step()

        return step


def check_model(name: str) -> str:
    """The name, if it is that of a backbone for irregular series.

    Raises:
        ValueError: it is not.
    """
    if name not in BACKBONES:
        raise ValueError(f"there is no backbone {name!r}; {did_you_mean(name, BACKBONES)}")
    if not make_backbone(name, 1).capabilities.irregular:
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
    here = [name for name in data if store.presence(registry.get(name)) != "no"]
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
        "verdicts": [{**asdict(verdict), "met": verdict.met} for verdict in verdicts(rows)],
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
            whole = Classifier(backbone=model, seed=SEED, verbose=0).fit(train).whole()
            reached, seconds = whole.score(load_uea(name, "test")), whole.metrics_["seconds"]
        rivals = [rival for rival in chosen if model == "contiformer" and rival != model]
        rows.append(
            Row(
                name,
                model,
                timings.milliseconds(model),
                timings.ratio(model, UNIT),
                {rival: timings.ratio(model, rival) for rival in rivals},
                in_the_paper(name, model),
                peak,
                training.weights,
                reached,
                seconds,
            )
        )
    return rows


def in_the_paper(data: str, model: str) -> float | None:
    """The paper's relative time; models that solve equations have steps of 0.1 there, which are their defaults here."""
    for name in (model, f"{model} step 0.1"):
        found = printed("efficiency", data, "drop0", name, "time")
        if found is not None:
            return found.value
    return None


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """What ContiFormer has to reach, against each model that was measured beside it."""
    return [
        Verdict(row.data, rival, row.relative_to[rival], bar)
        for row in rows
        for rival, bar in BARS.items()
        if rival in row.relative_to
    ]


def lines(document: dict[str, Any]) -> list[tuple[str, ...]]:
    """The table as text: set, model, ms per epoch, in S5's, in the paper, MB, weights, accuracy."""
    found = [
        (
            row["data"],
            row["model"],
            f"{row['milliseconds']:.0f}",
            f"{row['relative']:.2f}",
            _or_nothing(row["paper"], ".2f"),
            _or_nothing(row["peak_mb"], ".0f"),
            f"{row['weights']:,}",
            _or_nothing(row["accuracy"], ".3f"),
        )
        for row in document["rows"]
    ]
    return found + [(name, NO_DATA, *[""] * 6) for name in document["no_data"]]


def verdict_lines(document: dict[str, Any]) -> list[str]:
    """A line for each bar, and one more if the machine was busy."""
    said = [str(Verdict(*(found[key] for key in ("data", "rival", "ratio", "bar")))) for found in document["verdicts"]]
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
    source = str(Path(__file__).resolve().parents[2])
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "contiformer.benchmarks.backbones", data, model, str(torch.get_num_threads())]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(f"measuring the memory of {model} on {data} failed:\n{done.stderr}")
    peak: float | None = json.loads(done.stdout.splitlines()[-1])
    return peak


def peak_here(data: SeriesSet, model: str) -> float | None:
    """The same in this process, of which nothing else has been asked."""
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
    """What the fresh process does."""
    torch.set_num_threads(int(threads))
    print(json.dumps(peak_here(load_uea(data, "train"), model)))


if __name__ == "__main__":
    main(*sys.argv[1:])
