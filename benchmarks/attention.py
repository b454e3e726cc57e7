"""Speed and memory of continuous attention beside torch's transformer layer and the paper's algorithm."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from shutil import which
from statistics import median
from typing import Any

import torch

from benchmarks.contenders import SEED, Contender, Shape, make_call, output_error
from benchmarks.growth import FULL_GROWTH, QUICK_GROWTH, GrowthPoint, measure_growth
from benchmarks.machine import machine_facts
from benchmarks.memory import Job, PairwiseRunner, cost_in_fresh_process
from benchmarks.timing import Timings, interleave, timed
from contiformer.machine import busy

#: Seconds to spend on the repeats at one shape.
BUDGET, QUICK_BUDGET, PAIRWISE_BUDGET = 12.0, 1.0, 5.0
#: A seed is one module and one batch.
SEEDS, QUICK_SEEDS = 8, 2
#: Repeats of every seed, however long they take.
AT_LEAST = 2
#: The paper's algorithm is timed up to so many pairs; beyond so many the error is that of the first seed.
PAIRWISE_PAIRS, QUICK_PAIRWISE_PAIRS, ORACLE_PAIRS = 200_000, 20_000, 10_000_000

Notify = Callable[[str], None]

PROTOCOL = (
    "training: one forward and one backward pass (gradients of the input and of all parameters, from a random gradient "
    "of the output) in training mode; inference: one forward pass in evaluation mode under no_grad. float32, dropout "
    "0, times sorted uniform in [0, 1]. ours: ContinuousAttention(d_model, n_heads) at its defaults; headwise: with "
    "field='headwise'; listing: ours under use_kernels(False); compiled: ours under torch.compile(fullgraph=True), "
    "without its refinement of the degree, with the first seed only. Beside torch.nn.TransformerEncoderLayer(d_model, "
    "n_heads, 4 d_model, dropout=0.0, batch_first=True). A seed is one module and one batch. All contenders and seeds "
    "take turns after a warm-up. A seed's ratio is the median of the ratios within each repeat; ms, layer_ms and "
    "ratio are medians over the seeds, worst is the largest ratio of a seed divided by their median. pairwise: the "
    "weights of ours (first seed) with method='pairwise', rule='linear', step_size=0.1, in PyTorch, as the authors' "
    "code is, in a fresh process after a warm-up, the median of its repeats (three or more); speedup_over_pairwise is "
    "that divided by the median time of ours in the same process, taken before each repeat; compiled_pairwise: the "
    "same with its two fields, not the solver around them, under torch.compile(fullgraph=True), after the first call. "
    "output_error: largest "
    "difference from float64 at degree 24 divided by the largest output (of at most 4 sequences, at 100 of their "
    f"observations), the largest over the seeds (beyond {ORACLE_PAIRS} pairs of the first). peak_mb: most memory (2^20 "
    "bytes) of a training pass above the import, in a fresh process."
)


@dataclass(frozen=True)
class Speed:
    """Time beside torch's layer: medians over the seeds, and the worst seed's ratio divided by the median."""

    ms: float
    layer_ms: float
    ratio: float
    worst: float


@dataclass(frozen=True)
class Row:
    """Measurements of one contender at one shape; None where there is none."""

    contender: Contender
    batch: int
    length: int
    d_model: int
    n_heads: int
    training: Speed
    inference: Speed | None = None
    output_error: float | None = None
    peak_mb: float | None = None
    pairwise_ms: float | None = None
    speedup_over_pairwise: float | None = None
    compiled_pairwise_ms: float | None = None
    speedup_over_compiled_pairwise: float | None = None
    compile_seconds: float | None = None

    @property
    def shape(self) -> Shape:
        """Shape of the problem."""
        return Shape(self.batch, self.length, self.d_model, self.n_heads)


#: Contenders at each shape.
SHAPES: dict[Shape, tuple[Contender, ...]] = {
    Shape(16, 30): ("ours",),
    Shape(4, 100): ("ours", "headwise", "listing", "compiled"),
    Shape(4, 200): ("ours",),
    Shape(4, 500): ("ours",),
    Shape(4, 1000): ("ours",),
    Shape(1, 8000): ("ours",),
    Shape(32, 200, 128, 8): ("ours", "headwise"),
}


@dataclass(frozen=True)
class MemoryUse:
    """Peak memory of one large problem in several processes.

    Several, because the allocator's fragmentation can make the same call take a gigabyte one time and three the next.
    """

    batch: int
    length: int
    d_model: int
    training: bool
    peaks_mb: tuple[float, ...]

    @property
    def peak_mb(self) -> float | None:
        """The largest; None where it cannot be measured."""
        return max(self.peaks_mb, default=None)


MEMORY_REPEATS = 3
#: Large problems: shape, and whether with the backward pass.
MEMORY_SHAPES = ((Shape(4, 2000, 64), True), (Shape(1, 8000), False))


@dataclass(frozen=True)
class Plan:
    """Measurements to take, and the time for each."""

    shapes: Mapping[Shape, tuple[Contender, ...]]
    seeds: int
    pairwise_pairs: int
    budget: float
    pairwise_budget: float
    growth_lengths: tuple[int, ...]
    growth_pairwise: bool
    memory_shapes: tuple[tuple[Shape, bool], ...]
    threads: int | None = None
    compiles: bool = False

    @property
    def steps(self) -> int:
        """Number of steps that :func:`run` announces."""
        return 2 * len(self.shapes) + len(self.growth_lengths) + len(self.memory_shapes)


def plan(
    *, quick: bool = False, pairwise: bool = True, threads: int | None = None, shapes: Sequence[Shape] = ()
) -> Plan:
    """The table of speed, growth and memory; a sample of them if ``quick``; or only the given shapes."""
    chosen: dict[Shape, tuple[Contender, ...]] = dict.fromkeys(shapes, ("ours", "headwise")) or SHAPES
    if quick and not shapes:
        chosen = {shape: names for shape, names in chosen.items() if shape.length <= 200}
    compiles = not quick and which("c++") is not None
    if not compiles:
        chosen = {shape: tuple(name for name in names if name != "compiled") for shape, names in chosen.items()}
    return Plan(
        shapes=chosen,
        seeds=QUICK_SEEDS if quick else SEEDS,
        pairwise_pairs=0 if not pairwise else QUICK_PAIRWISE_PAIRS if quick else PAIRWISE_PAIRS,
        budget=QUICK_BUDGET if quick else BUDGET,
        pairwise_budget=0.0 if quick else PAIRWISE_BUDGET,
        growth_lengths=() if shapes else QUICK_GROWTH if quick else FULL_GROWTH,
        growth_pairwise=pairwise and not quick,
        memory_shapes=() if quick or shapes else MEMORY_SHAPES,
        threads=threads,
        compiles=compiles,
    )


@dataclass(frozen=True)
class Results:
    """Everything that one run measured."""

    machine: dict[str, Any]
    seeds: int
    rows: tuple[Row, ...]
    growth: tuple[GrowthPoint, ...] = ()
    memory: tuple[MemoryUse, ...] = ()
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """The results for JSON."""
        return {
            "machine": self.machine,
            "seeds": list(range(SEED, SEED + self.seeds)),
            "protocol": PROTOCOL,
            "notes": list(self.notes),
            "rows": [asdict(row) for row in self.rows],
            "growth": [asdict(point) for point in self.growth],
            "memory": [{**asdict(use), "peak_mb": use.peak_mb} for use in self.memory],
        }


def run(plan: Plan, notify: Notify = lambda _: None) -> Results:
    """Carry out the plan; ``notify`` is told each step before it begins."""
    if plan.threads is not None:
        torch.set_num_threads(plan.threads)
    facts = machine_facts()
    notes = [f"the machine was busy before this began (load {facts['load']}): the times mean little"] if busy() else []
    rows: list[Row] = []
    # the paper's algorithm last: memory that it was given makes the machine slower for a while
    for shape, names in plan.shapes.items():
        notify(f"{shape}: time")
        rows += measure_speed(shape, names, range(SEED, SEED + plan.seeds), plan.budget)
    growth = measure_growth(plan.growth_lengths, plan.growth_pairwise, plan.threads, notify)
    memory = tuple(measure_memory(*one, plan.threads, notify) for one in plan.memory_shapes)
    runner = None
    for number, row in enumerate(rows):
        if row.contender not in ("ours", "headwise"):
            continue
        if row.contender == "ours":
            notify(f"{row.shape}: memory, pairwise")
        peak = cost_in_fresh_process(Job(row.contender, row.shape, threads=plan.threads)).peak_mb
        rows[number] = replace(row, peak_mb=peak)
        if row.contender == "ours" and row.shape.pairs <= plan.pairwise_pairs:
            runner = runner or PairwiseRunner.probe(plan.threads)
            for contender in ("pairwise", "compiled pairwise") if plan.compiles else ("pairwise",):
                rows[number], note = with_pairwise(rows[number], runner, plan.pairwise_budget, contender)
                notes += [note] if note else []
    return Results(facts, plan.seeds, tuple(rows), growth, memory, tuple(notes))


def measure_speed(shape: Shape, names: Sequence[Contender], seeds: Sequence[int], budget: float) -> list[Row]:
    """Time the contenders and torch's layer in turn, in training and in inference."""
    calls: dict[str, Callable[[], None]] = {}
    for seed in seeds:
        for mode in ("training", "inference"):
            for name in (*names, "layer"):
                if name != "compiled" or (mode, seed) == ("training", seeds[0]):
                    calls[f"{name} {mode} {seed}"] = make_call(name, shape, seed=seed, training=mode == "training")
    # the first call compiles: in full, whatever an earlier run has left
    uncached = torch.compiler.config.patch(force_disable_caches=True)  # type: ignore[attr-defined]
    with warnings.catch_warnings(action="ignore"), uncached:
        compiling = [timed(call) for name, call in calls.items() if name.startswith("compiled")]
    timings = interleave(calls, budget=budget, at_least=AT_LEAST, warm_up=1)
    rows = []
    for name in names:
        if name == "compiled":
            speed = _speed(timings, name, "training", seeds[:1])
            rows.append(Row(name, **asdict(shape), training=speed, compile_seconds=sum(compiling)))
            continue
        judged = seeds if shape.pairs <= ORACLE_PAIRS else seeds[:1]
        error = max(output_error(name, shape, seed) for seed in judged)
        training, inference = (_speed(timings, name, mode, seeds) for mode in ("training", "inference"))
        rows.append(Row(name, **asdict(shape), training=training, inference=inference, output_error=error))
    return rows


def _speed(timings: Timings, name: str, mode: str, seeds: Sequence[int]) -> Speed:
    ratios = [timings.ratio(f"{name} {mode} {seed}", to=f"layer {mode} {seed}") for seed in seeds]
    ours, layer = (median(timings.milliseconds(f"{one} {mode} {seed}") for seed in seeds) for one in (name, "layer"))
    return Speed(ours, layer, median(ratios), max(ratios) / median(ratios))


def with_pairwise(
    row: Row, runner: PairwiseRunner, budget: float, contender: Contender = "pairwise"
) -> tuple[Row, str | None]:
    """The row with the paper's algorithm beside it, and a note on how it was run."""
    result = runner.measure(row.shape, budget, contender=contender)
    cost = result.cost
    if cost.seconds is None or cost.ours_seconds is None:
        return row, f"{contender} at {row.shape}: {cost.problem}"
    note = None
    if result.at_once < row.batch:
        note = (
            f"{contender} at {row.shape}: the whole batch does not fit in memory, so {result.at_once} of its "
            f"{row.batch} sequences were run at a time ({cost.peak_mb or 0:.0f} MB); its time is that of all of them"
        )
    milliseconds, speedup = 1000 * cost.seconds, cost.seconds / cost.ours_seconds
    if contender == "pairwise":
        return replace(row, pairwise_ms=milliseconds, speedup_over_pairwise=speedup), note
    return replace(row, compiled_pairwise_ms=milliseconds, speedup_over_compiled_pairwise=speedup), note


def measure_memory(
    shape: Shape, training: bool, threads: int | None = None, notify: Notify = lambda _: None
) -> MemoryUse:
    """Peak memory of ours at a large shape, :data:`MEMORY_REPEATS` times."""
    notify(f"{shape}: memory")
    job = Job("ours", shape, training, threads=threads)
    peaks = [cost_in_fresh_process(job).peak_mb for _ in range(MEMORY_REPEATS)]
    known = tuple(peak for peak in peaks if peak is not None)
    return MemoryUse(shape.batch, shape.length, shape.d_model, training, known)
