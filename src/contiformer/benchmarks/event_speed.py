"""The cost of event models: a training epoch against THP's, the likelihood's share of it, and an event of a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from contiformer.benchmarks.machine import machine_facts
from contiformer.benchmarks.timing import interleave
from contiformer.data.catalog.events import load_events
from contiformer.data.event_batch import EventBatch, collate_events
from contiformer.data.event_scaling import EventScaling
from contiformer.data.events import EventSequence, EventSet, without_features
from contiformer.data.loader import Loader
from contiformer.estimators import EventPredictor
from contiformer.tasks.events.build import build_model
from contiformer.tasks.events.likelihood import Intervals, intervals, log_likelihood
from contiformer.tasks.events.memory import Memory
from contiformer.tasks.events.task import EventTask

WIDTH, BATCH, HISTORY = 32, 16, 1000
#: Sequences of each set; None: the whole training part.
SETS: dict[str, int | None] = {"MIMIC-II": None, "StackOverflow": 64}
#: Contiformer's epoch in THP's, the likelihood's share of a step, an append in full passes.
BARS = {"epoch": 4.0, "likelihood": 0.2, "append": 0.05}


def run(budget: float = 30.0, history: int = HISTORY, sets: dict[str, int | None] | None = None) -> dict[str, Any]:
    """All ratios, each within one run.

    Args:
        budget: seconds for each of the comparisons.
        history: of the stream.
        sets: names of sets, and how many sequences of them.
    """
    parts = {name: training_part(name, count) for name, count in (SETS if sets is None else sets).items()}
    return {
        "machine": machine_facts(),
        "width": WIDTH,
        "epochs": {name: bench_epoch(part, budget) for name, part in parts.items()},
        "stream": bench_stream(history, budget / 3),
    }


def training_part(name: str, count: int | None) -> EventSet:
    """Of the first fold; a sample is spread over the set."""
    data = load_events(name).map(without_features)
    chosen = len(data) if count is None else min(count, len(data))
    return data.select(np.linspace(0, len(data) - 1, chosen).astype(int))


def bench_epoch(data: EventSet, budget: float) -> dict[str, Any]:
    """An epoch of ContiFormer and one of THP, of one layer each, and the likelihood alone on the same batches."""
    scaling = EventScaling.fit(data)
    batches: list[EventBatch] = list(Loader(scaling.apply(data), BATCH, shuffle=False))  # type: ignore[arg-type]
    ours, theirs = (_task(backbone, scaling) for backbone in ("contiformer", "thp"))
    calls = {
        "contiformer": _epoch(ours, batches),
        "thp": _epoch(theirs, batches),
        "likelihood": _likelihoods(ours, batches),
    }
    timings = interleave(calls, budget=budget, at_least=3, warm_up=1)
    return {
        "sequences": len(data),
        "events": int(data.lengths.sum()),
        **{f"{name}_ms": timings.milliseconds(name) for name in calls},
        "epoch_ratio": timings.ratio("contiformer", "thp"),
        "likelihood_share": timings.ratio("likelihood", "contiformer"),
        "repeats": timings.repeats,
    }


def _task(backbone: str, scaling: EventScaling) -> EventTask:
    options = {"d_model": WIDTH, "n_layers": 1, "dropout": EventPredictor().dropout}
    return EventTask(build_model(backbone, "auto", scaling, options), unit=scaling.unit).train()


def _epoch(task: EventTask, batches: list[EventBatch]) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(task.parameters(), lr=1e-6)

    def epoch() -> None:
        for batch in batches:
            optimizer.zero_grad()
            total, count = task.loss_terms(batch)
            (total / count).backward()
            optimizer.step()

    return epoch


def _likelihoods(task: EventTask, batches: list[EventBatch]) -> Callable[[], None]:
    """Forward and backward from given states on: what the encoder costs is left out."""
    prepared = [_cut_off(intervals(task.model, batch)) for batch in batches]

    def likelihoods() -> None:
        for scored in prepared:
            log_likelihood(task.model, scored, task.rule).sum().backward()

    return likelihoods


def _cut_off(scored: Intervals) -> Intervals:
    rows = {name: x.detach().requires_grad_(x.is_floating_point()) for name, x in scored.memory.rows.items()}
    return Intervals(Memory(rows, scored.memory.whole), scored.wait, scored.kind, scored.known)


@torch.no_grad()
def bench_stream(history: int, budget: float) -> dict[str, Any]:
    """One more event after a long history, and a pass over that history."""
    rng = np.random.default_rng(0)
    times, types = np.cumsum(rng.exponential(size=history)), rng.integers(0, 4, history)
    whole = EventSequence.of(times, types)
    # learned from sequences as long as the history: a pass over what is longer than all of them costs more
    same = EventSet([whole] * 2, num_types=4)
    predictor = EventPredictor(d_model=WIDTH, n_layers=1, max_epochs=1, min_steps=0, verbose=0).fit(same)
    batch = collate_events([predictor.scaling_.apply_to(whole)])
    model = predictor.tasks_[0].model.eval()
    stream = predictor.stream()
    for time, kind in zip(times, types, strict=True):
        stream.append(float(time), int(kind))
    last = float(times[-1])

    def append() -> None:
        nonlocal last
        last += float(rng.exponential())
        stream.append(last, 1)

    timings = interleave({"append": append, "pass": lambda: model.remember(batch)}, budget=budget, at_most=50)
    return {
        "history": history,
        "append_ms": timings.milliseconds("append"),
        "pass_ms": timings.milliseconds("pass"),
        "ratio": timings.ratio("append", "pass"),
        "repeats": timings.repeats,
    }


def rows(document: dict[str, Any]) -> list[tuple[str, str, str, str, str]]:
    """What, our time, the other time, the ratio and its bar, as text."""
    lines = []
    for name, found in document["epochs"].items():
        what = f"{name}, {found['sequences']} sequences"
        ours = f"{found['contiformer_ms']:.0f} ms"
        lines.append(
            _line(f"epoch of {what}", ours, f"thp {found['thp_ms']:.0f} ms", found["epoch_ratio"], BARS["epoch"])
        )
        share = f"{found['likelihood_ms']:.0f} ms"
        lines.append(
            _line("its likelihood alone", share, f"epoch {ours}", found["likelihood_share"], BARS["likelihood"])
        )
    stream = document["stream"]
    what = f"append at history {stream['history']:,}"
    ours, whole = f"{stream['append_ms']:.2f} ms", f"full pass {stream['pass_ms']:.1f} ms"
    return [*lines, _line(what, ours, whole, stream["ratio"], BARS["append"])]


def _line(what: str, ours: str, other: str, ratio: float, bar: float) -> tuple[str, str, str, str, str]:
    return what, ours, other, f"{ratio:.3g}", f"≤ {bar:g} {'✓' if ratio <= bar else '✗'}"
