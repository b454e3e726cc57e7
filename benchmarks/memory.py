"""Peak memory of a call above that of the import, measured in a process of its own.

The high-water mark of a process (``VmHWM`` in /proc/self/status) is read after the import, where it is reset through
/proc/self/clear_refs, and again after the call. ``ru_maxrss`` would not do on Linux: a child starts with its
parent's. Elsewhere it is all there is. Where neither exists, the peak is None.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from math import inf
from pathlib import Path
from statistics import median

from benchmarks.contenders import Contender, Shape, make_call
from benchmarks.timing import timed
from contiformer.machine import available_mb, read_kilobytes

#: A measured process may use at most this share of the memory that is free.
SHARE_OF_FREE = 0.7
#: How often ours is timed before each repeat of a call that it is compared with.
OURS_BETWEEN = 15
#: A single call of a rival that allocates gigabytes may take twice as long as the next.
MIN_REPEATS = 3
#: Length of the sequence that tells the memory of a pair in the paper's algorithm: fits anywhere.
PROBE_LENGTH = 40
TOO_LARGE = "more memory than there is"
TOO_SLOW = "more time than allowed"


@dataclass(frozen=True)
class Cost:
    """The cost of one call: seconds (the median of its repeats) and megabytes (2^20), or why it is not known.

    ``ours_seconds`` is the median time of ours in between, where the job asks for it.
    """

    seconds: float | None
    peak_mb: float | None
    ours_seconds: float | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Job:
    """A measurement for a fresh process: one call, repeated while ``budget`` seconds last.

    ``against_ours`` makes a comparison of it: a warm-up first, because fresh memory is slow (on a virtual machine as
    slow as the call itself), and ours at the same shape before every repeat.
    """

    contender: Contender
    shape: Shape
    training: bool = True
    at_once: int | None = None
    budget: float = 0.0
    against_ours: bool = False
    threads: int | None = None


def cost_in_fresh_process(job: Job, *, timeout: float = 600.0) -> Cost:
    """Run the job in a process of its own."""
    source = str(Path(__file__).resolve().parents[1])
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "benchmarks.memory", json.dumps(asdict(job))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return Cost(None, None, problem=TOO_SLOW)
    if done.returncode < 0:  # ended by the system, which does so when memory runs out
        return Cost(None, None, problem=TOO_LARGE)
    if done.returncode:
        raise RuntimeError(f"measuring {job} failed:\n{done.stderr}")
    return Cost(**json.loads(done.stdout.splitlines()[-1]))


def peak_mb() -> float | None:
    """Largest resident memory of this process so far."""
    kilobytes = read_kilobytes(Path("/proc/self/status"), "VmHWM")
    if kilobytes is not None:
        return kilobytes / 1024
    try:
        import resource  # noqa: PLC0415
    except ImportError:
        return None
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def forget_peak() -> None:
    """Make the high-water mark the memory that is used now, where the system can do so."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _limit_memory() -> None:
    """Fail with an exception rather than drive the machine out of memory."""
    free = available_mb()
    if free is not None:
        import resource  # noqa: PLC0415

        limit = int(free * SHARE_OF_FREE * 2**20)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def measure_here(job: Job) -> Cost:
    """The cost of a job in this process, which has done nothing else."""
    # of the import: torch loads sympy and more at its first gradient
    import torch._dynamo  # noqa: F401, PLC0415

    forget_peak()
    before = peak_mb()
    try:
        seconds, ours = _repeat(job)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "memory" not in str(error):
            raise
        return Cost(None, None, problem=TOO_LARGE)
    after = peak_mb()
    peak = None if before is None or after is None else after - before
    return Cost(median(seconds), peak, median(ours) if ours else None)


def _repeat(job: Job) -> tuple[list[float], list[float]]:
    """Times of the job's call, and of ours in between if they are compared."""
    call = make_call(job.contender, job.shape, training=job.training, at_once=job.at_once)
    rival = make_call("ours", job.shape) if job.against_ours else None
    if rival is not None:
        # the first call of a compiled module compiles it
        portion = replace(job.shape, batch=job.at_once or job.shape.batch)
        (call if "compiled" in job.contender else make_call(job.contender, portion, training=job.training))()
        rival()
    seconds: list[float] = []
    ours: list[float] = []
    while len(seconds) < (MIN_REPEATS if job.budget else 1) or sum(seconds) + min(seconds) < job.budget:
        if rival is not None:
            ours += [timed(rival) for _ in range(OURS_BETWEEN)]
        seconds.append(timed(call))
    return seconds, ours


@dataclass(frozen=True)
class PairwiseCost:
    """Time and memory; ``at_once`` sequences were worked on at a time (the whole batch: its size)."""

    cost: Cost
    at_once: int


@dataclass(frozen=True)
class PairwiseRunner:
    """The paper's algorithm, which needs gigabytes, in fresh processes on as many sequences at a time as fit."""

    mb_per_pair: float
    threads: int | None = None

    @classmethod
    def probe(cls, threads: int | None = None) -> PairwiseRunner:
        """Learn from a small problem how much memory a pair takes."""
        shape = Shape(1, PROBE_LENGTH)
        peak = cost_in_fresh_process(Job("pairwise", shape, threads=threads)).peak_mb
        return cls((peak or 0.0) / shape.pairs, threads)

    def fits(self, shape: Shape) -> int:
        """Number of sequences of this length that fit in memory at a time, at most all."""
        free = available_mb()
        one = self.mb_per_pair * shape.length**2
        most = inf if free is None or one == 0 else SHARE_OF_FREE * free // one
        return int(min(most, shape.batch))

    def measure(
        self, shape: Shape, budget: float = 0.0, timeout: float = 600.0, contender: Contender = "pairwise"
    ) -> PairwiseCost:
        """Forward and backward of the whole batch, in portions if it must be."""
        at_once = max(1, self.fits(shape))
        while True:
            job = Job(contender, shape, at_once=at_once, budget=budget, against_ours=True, threads=self.threads)
            cost = cost_in_fresh_process(job, timeout=timeout)
            if cost.peak_mb is not None or cost.seconds is not None or at_once == 1:
                return PairwiseCost(cost, at_once)
            at_once //= 2


def main(text: str) -> None:
    """Entry of the fresh process."""
    import torch  # noqa: PLC0415

    fields = json.loads(text)
    job = Job(**{**fields, "shape": Shape(**fields["shape"])})
    if job.threads is not None:
        torch.set_num_threads(job.threads)
    _limit_memory()
    print(json.dumps(asdict(measure_here(job))))


if __name__ == "__main__":
    main(sys.argv[1])
