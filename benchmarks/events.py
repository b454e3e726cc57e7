"""The cost of event models: a training epoch against THP's, the likelihood's share of it, and an event of a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.machine import machine_facts
from benchmarks.timing import interleave
from contiformer import EventPredictor, TrainingOptions
from contiformer.data import (
    EventBatch,
    EventScaling,
    EventSequence,
    EventSet,
    Loader,
    collate_events,
    without_features,
)
from contiformer.data.catalog import load_events
from contiformer.tasks.events import EventTask, Intervals, Memory, build_model, intervals, log_likelihood

WIDTH, BATCH, HISTORY = 32, 16, 1000
#: Sequences of each set; None: the whole training part.
SETS: dict[str, int | None] = {"MIMIC-II": None, "StackOverflow": 64}


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
    """The training part of the first fold, or a sample spread over it."""
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
    training = TrainingOptions(max_epochs=1, verbose=0)
    predictor = EventPredictor(d_model=WIDTH, n_layers=1, training=training).fit(same)
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


def rows(document: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Measurement, our time, the other time and the ratio, as text."""
    lines = []
    for name, found in document["epochs"].items():
        what, ours = f"{name}, {found['sequences']} sequences", f"{found['contiformer_ms']:.0f} ms"
        lines.append((f"epoch of {what}", ours, f"thp {found['thp_ms']:.0f} ms", f"{found['epoch_ratio']:.3g}"))
        share = f"{found['likelihood_ms']:.0f} ms"
        lines.append(("its likelihood alone", share, f"epoch {ours}", f"{found['likelihood_share']:.3g}"))
    stream = document["stream"]
    append, whole = f"{stream['append_ms']:.2f} ms", f"full pass {stream['pass_ms']:.1f} ms"
    return [*lines, (f"append at history {stream['history']:,}", append, whole, f"{stream['ratio']:.3g}")]
