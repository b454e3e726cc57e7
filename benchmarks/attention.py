"""Speed and memory of continuous attention beside torch's transformer layer and the paper's algorithm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import torch

from benchmarks.breakdown import Breakdown, break_down, matmul_gflops
from benchmarks.contenders import SEED, Shape, make_call, output_error
from benchmarks.growth import FULL_GROWTH, QUICK_GROWTH, GrowthPoint, measure_growth
from benchmarks.machine import machine_facts
from benchmarks.memory import Job, PairwiseRunner, cost_in_fresh_process
from benchmarks.timing import interleave
from contiformer.machine import busy

#: Seconds to spend on the repeats at one shape.
BUDGET, QUICK_BUDGET, PAIRWISE_BUDGET = 8.0, 1.0, 5.0

Notify = Callable[[str], None]

PROTOCOL = (
    "One forward and one backward pass (gradients of the input and of all parameters, from a random gradient of the "
    "output) in training mode, float32, dropout 0, times sorted uniform in [0, 1]. ours: ContinuousAttention(d_model, "
    "n_heads) at its defaults. layer: torch.nn.TransformerEncoderLayer(d_model, n_heads, 4 d_model, dropout=0.0, "
    "batch_first=True). ours_layer: ContiFormerLayer with the same feed-forward block, so like against like. These "
    "three take turns after a warm-up; times are medians over the repeats, ratio_to_layer is the median of the ratios "
    "within each repeat. pairwise: the weights of ours with method='pairwise', rule='linear', step_size=0.1, in "
    "PyTorch without the kernel for it, as the authors' code is, in a fresh process after a warm-up, the median of its "
    "repeats (three or more); speedup_over_pairwise is that divided by the median time of ours in the same process, "
    "taken before each repeat. "
    "output_error: largest difference from float64 at degree 24 divided by the largest output. peak_mb: most memory "
    "(2^20 bytes) of ours above the import, in a fresh process."
)


@dataclass(frozen=True)
class Row:
    """Measurements at one shape; None where there is none."""

    batch: int
    length: int
    d_model: int
    n_heads: int
    ours_ms: float
    layer_ms: float
    pairwise_ms: float | None
    ratio_to_layer: float
    speedup_over_pairwise: float | None
    output_error: float
    peak_mb: float | None
    ours_layer_ms: float

    @property
    def shape(self) -> Shape:
        """Shape of the problem."""
        return Shape(self.batch, self.length, self.d_model, self.n_heads)


SHAPES = (Shape(16, 30), Shape(4, 100), Shape(4, 200), Shape(4, 500), Shape(4, 1000))


@dataclass(frozen=True)
class MemoryUse:
    """Peak memory of one large problem in several processes.

    Several, because the allocator's fragmentation can make the same call take a gigabyte one time and three the next.
    """

    batch: int
    length: int
    d_model: int
    backward: bool
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

    shapes: tuple[Shape, ...]
    pairwise_shapes: frozenset[Shape]
    budget: float
    pairwise_budget: float
    growth_lengths: tuple[int, ...]
    growth_pairwise: bool
    memory_shapes: tuple[tuple[Shape, bool], ...]
    threads: int | None = None

    @property
    def steps(self) -> int:
        """Number of steps that :func:`run` announces."""
        return 3 * len(self.shapes) + len(self.growth_lengths) + len(self.memory_shapes)


def plan(
    *, quick: bool = False, pairwise: bool = True, threads: int | None = None, shapes: tuple[Shape, ...] = ()
) -> Plan:
    """The table of speed, growth and memory; a sample of them if ``quick``; or only the given shapes."""
    chosen = shapes or SHAPES
    with_pairwise = [shape for shape in chosen if shape.length <= 200] if pairwise else []
    if quick and not shapes:
        with_pairwise = with_pairwise[:1]
    return Plan(
        shapes=chosen,
        pairwise_shapes=frozenset(with_pairwise),
        budget=QUICK_BUDGET if quick else BUDGET,
        pairwise_budget=0.0 if quick else PAIRWISE_BUDGET,
        growth_lengths=() if shapes else QUICK_GROWTH if quick else FULL_GROWTH,
        growth_pairwise=pairwise and not quick,
        memory_shapes=() if quick or shapes else MEMORY_SHAPES,
        threads=threads,
    )


@dataclass(frozen=True)
class Results:
    """Everything that one run measured."""

    machine: dict[str, Any]
    rows: tuple[Row, ...]
    spreads: tuple[dict[str, Any], ...]
    growth: tuple[GrowthPoint, ...] = ()
    memory: tuple[MemoryUse, ...] = ()
    breakdown: tuple[Breakdown, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def document(self) -> dict[str, Any]:
        """The results for JSON."""
        return {
            "machine": self.machine,
            "seed": SEED,
            "protocol": PROTOCOL,
            "notes": list(self.notes),
            "rows": [asdict(row) for row in self.rows],
            "spreads": list(self.spreads),
            "growth": [asdict(point) for point in self.growth],
            "memory": [{**asdict(use), "peak_mb": use.peak_mb} for use in self.memory],
            "breakdown": [part.document() for part in self.breakdown],
        }


def run(plan: Plan, notify: Notify = lambda _: None) -> Results:
    """Carry out the plan; ``notify`` is told each step before it begins."""
    if plan.threads is not None:
        torch.set_num_threads(plan.threads)
    facts = machine_facts()
    rows, spreads = [], []
    notes = [f"the machine was busy before this began (load {facts['load']}): the times mean little"] if busy() else []
    runner = None
    for shape in plan.shapes:
        row, spread = measure_speed(shape, plan.budget, notify)
        notify(f"{shape}: memory")
        row = replace(row, peak_mb=cost_in_fresh_process(Job("ours", shape, threads=plan.threads)).peak_mb)
        notify(f"{shape}: pairwise" if shape in plan.pairwise_shapes else f"{shape}: done")
        if shape in plan.pairwise_shapes:
            runner = runner or PairwiseRunner.probe(plan.threads)
            row, note = with_pairwise(row, runner, plan.pairwise_budget)
            notes += [note] if note else []
        rows.append(row)
        spreads.append(spread)
    growth = measure_growth(plan.growth_lengths, plan.growth_pairwise, plan.threads, notify)
    memory = tuple(measure_memory(*one, plan.threads, notify) for one in plan.memory_shapes)
    return Results(facts, tuple(rows), tuple(spreads), growth, memory, notes=tuple(notes))


def measure_speed(shape: Shape, budget: float, notify: Notify = lambda _: None) -> tuple[Row, dict[str, Any]]:
    """Time ours, our whole layer and torch's in turn; also how much the times of each scatter."""
    notify(f"{shape}: time")
    timings = interleave(
        {
            "ours": make_call("ours", shape),
            "layer": make_call("layer", shape),
            "ours_layer": make_call("ours_layer", shape),
        },
        budget=budget,
    )
    row = Row(
        **asdict(shape),
        ours_ms=timings.milliseconds("ours"),
        layer_ms=timings.milliseconds("layer"),
        pairwise_ms=None,
        ratio_to_layer=timings.ratio("ours", "layer"),
        speedup_over_pairwise=None,
        output_error=output_error(shape),
        peak_mb=None,
        ours_layer_ms=timings.milliseconds("ours_layer"),
    )
    fastest = {f"{name}_fastest_ms": timings.fastest_milliseconds(name) for name in timings.seconds}
    spread = {**asdict(shape), "repeats": timings.repeats, **fastest}
    return row, spread | {"layer_ratio_to_layer": timings.ratio("ours_layer", "layer")}


def with_pairwise(row: Row, runner: PairwiseRunner, budget: float) -> tuple[Row, str | None]:
    """The row with the paper's algorithm beside it, and a note on how it was run."""
    result = runner.measure(row.shape, budget)
    cost = result.cost
    if cost.seconds is None or cost.ours_seconds is None:
        return row, f"pairwise at {row.shape}: {cost.problem}"
    note = None
    if result.at_once < row.batch:
        note = (
            f"pairwise at {row.shape}: the whole batch does not fit in memory, so {result.at_once} of its {row.batch} "
            f"sequences were worked on at a time ({cost.peak_mb or 0:.0f} MB); its time is that of all of them"
        )
    speedup = cost.seconds / cost.ours_seconds
    return replace(row, pairwise_ms=1000 * cost.seconds, speedup_over_pairwise=speedup), note


def measure_memory(
    shape: Shape, backward: bool, threads: int | None = None, notify: Notify = lambda _: None
) -> MemoryUse:
    """Peak memory of ours at a large shape, :data:`MEMORY_REPEATS` times."""
    notify(f"{shape}, d_model {shape.d_model}: memory")
    job = Job("ours", shape, backward, threads=threads)
    peaks = [cost_in_fresh_process(job).peak_mb for _ in range(MEMORY_REPEATS)]
    known = tuple(peak for peak in peaks if peak is not None)
    return MemoryUse(shape.batch, shape.length, shape.d_model, backward, known)


def with_breakdown(results: Results, plan: Plan, notify: Notify = lambda _: None) -> Results:
    """The results with the time of each phase at every shape."""
    limit = matmul_gflops()
    parts = []
    for shape in plan.shapes:
        notify(f"{shape}: breakdown")
        parts.append(break_down(shape, limit, plan.budget / 4))
    return replace(results, breakdown=tuple(parts))


ROW_KEYS = tuple(f.name for f in fields(Row))
