"""The benchmark measures what it says, on shapes too small to take time. No test here asks how fast anything is."""

from __future__ import annotations

import builtins
import csv
import json
import warnings
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from benchmarks import attention, growth, memory
from benchmarks.__main__ import app
from benchmarks.breakdown import PHASES, Ledger, ProductCounter, break_down, watched
from benchmarks.contenders import Data, Shape, make_call, make_module
from benchmarks.memory import TOO_LARGE, Cost, Job, cost_in_fresh_process, measure_here
from benchmarks.timing import Timings, interleave
from contiformer.nn import attention as layers

TINY = Shape(2, 8)
KEYS = [
    *("batch", "length", "d_model", "n_heads", "ours_ms", "layer_ms", "pairwise_ms"),
    *("ratio_to_layer", "speedup_over_pairwise", "output_error", "peak_mb"),
]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def no_processes(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Jobs cost what they would, without a process for each: a millisecond, and a megabyte for a thousand pairs."""
    asked: list[Job] = []

    def cost(job: Job, *, timeout: float = 0.0) -> Cost:
        asked.append(job)
        return Cost(0.001, job.shape.pairs / 1000, ours_seconds=0.0005)

    for module in (attention, growth, memory):
        monkeypatch.setattr(module, "cost_in_fresh_process", cost)
    return asked


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch, no_processes: list[Job]) -> list[Job]:
    """The whole benchmark on one tiny shape and two lengths."""
    monkeypatch.setattr(attention, "SHAPES", (TINY,))
    monkeypatch.setattr(attention, "FULL_GROWTH", (4, 8))
    monkeypatch.setattr(attention, "QUICK_GROWTH", (4,))
    monkeypatch.setattr(attention, "MEMORY_SHAPES", ((TINY, False),))
    for module, name in ((attention, "BUDGET"), (attention, "QUICK_BUDGET"), (growth, "BUDGET")):
        monkeypatch.setattr(module, name, 0.0)
    return no_processes


def ticking(*durations: float) -> Any:
    """A clock that shows each of the durations between two looks at it."""
    moments = [0.0]
    for duration in durations:
        moments += [moments[-1] + duration, moments[-1] + duration]
    looks = iter(moments)
    return lambda: next(looks)


class TestTiming:
    def test_takes_turns_and_turns_round(self) -> None:
        calls: list[str] = []
        contenders = {name: lambda name=name: calls.append(name) for name in "abc"}
        interleave(contenders, budget=0.0, at_least=2, warm_up=1, clock=count().__next__)
        assert calls == list("abc" + "abc" + "cba")

    def test_ratio_is_the_median_within_repeats(self) -> None:
        # a, b | b, a | a, b: the second repeat is disturbed as a whole, the third only in a
        clock = ticking(2.0, 1.0, 50.0, 100.0, 9.0, 1.0)
        nothing = {"a": lambda: None, "b": lambda: None}
        timings = interleave(nothing, budget=0.0, at_least=3, warm_up=0, clock=clock)
        assert timings.seconds == {"a": [2.0, 100.0, 9.0], "b": [1.0, 50.0, 1.0]}
        assert timings.ratio("a", to="b") == 2.0
        assert timings.milliseconds("a") == 9000.0
        assert timings.fastest_milliseconds("b") == 1000.0

    @pytest.mark.parametrize(("budget", "repeats"), [(0.0, 2), (7.0, 7), (7.9, 7), (1e6, 20)])
    def test_budget_sets_the_repeats(self, budget: float, repeats: int) -> None:
        clock = count().__next__  # every call takes one second
        timings = interleave({"a": lambda: None}, budget=budget, at_least=2, at_most=20, clock=clock)
        assert timings.repeats == repeats

    def test_nothing_timed(self) -> None:
        assert Timings({}).repeats == 0


class TestContenders:
    def test_ours_and_pairwise_share_weights(self) -> None:
        ours, pairwise = make_module("ours", TINY), make_module("pairwise", TINY)
        assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), pairwise.parameters(), strict=True))
        assert ours.training

    def test_data_are_the_same_every_time_and_sorted(self) -> None:
        first, second = Data.of(TINY), Data.of(TINY)
        assert torch.equal(first.x, second.x)
        assert torch.equal(first.times, second.times)
        assert (first.times.diff(dim=1) > 0).all()

    def test_building_leaves_the_random_state_alone(self) -> None:
        before = torch.get_rng_state()
        make_call("layer", TINY)
        assert torch.equal(before, torch.get_rng_state())

    @pytest.mark.parametrize("at_once", [None, 1])
    def test_every_contender_runs(self, at_once: int | None) -> None:
        for contender in ("ours", "ours_layer", "layer", "pairwise"):
            make_call(contender, Shape(2, 3), at_once=at_once)()

    @pytest.mark.parametrize("text", ["", "4", "4x", "0x5", "4x-1", "4x5x6"])
    def test_shapes_that_are_none(self, text: str) -> None:
        with pytest.raises(ValueError, match="BATCHxLENGTH"):
            Shape.parse(text)

    def test_shapes_that_are(self) -> None:
        assert Shape.parse("4x100") == Shape(4, 100)


class TestRows:
    def test_measured_row(self) -> None:
        row, spread = attention.measure_speed(TINY, budget=0.0)
        assert row.shape == TINY
        assert min(row.ours_ms, row.layer_ms, row.ours_layer_ms, row.ratio_to_layer) > 0
        assert 0 < row.output_error < 1e-3
        assert spread["repeats"] >= 1

    def test_keys(self) -> None:
        assert [key for key in attention.ROW_KEYS if key != "ours_layer_ms"] == KEYS

    def test_pairwise_in_portions_says_so(self, monkeypatch: pytest.MonkeyPatch, no_processes: list[Job]) -> None:
        monkeypatch.setattr(memory, "available_mb", lambda: 100.0)
        row, _ = attention.measure_speed(TINY, budget=0.0)
        runner = memory.PairwiseRunner(mb_per_pair=1.0)
        row, note = attention.with_pairwise(row, runner, 0.0)
        assert no_processes[-1].at_once == 1
        assert note is not None
        assert "1 of its 2 sequences" in note
        assert row.pairwise_ms == 1.0
        assert row.speedup_over_pairwise == 2.0

    def test_pairwise_that_does_not_fit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        tried: list[int | None] = []

        def fail(job: Job, *, timeout: float = 0.0) -> Cost:
            tried.append(job.at_once)
            return Cost(None, None, problem=TOO_LARGE)

        monkeypatch.setattr(memory, "cost_in_fresh_process", fail)
        row = attention.Row(4, 8, 32, 4, 1.0, 1.0, None, 1.0, None, 0.0, None, 1.0)
        same, note = attention.with_pairwise(row, memory.PairwiseRunner(0.0), 0.0)
        assert tried == [4, 2, 1]
        assert same == row
        assert note == f"pairwise at 4 x 8: {TOO_LARGE}"


class TestMemory:
    def test_fresh_process(self) -> None:
        cost = cost_in_fresh_process(Job("ours", TINY, threads=1))
        assert cost.seconds is not None
        assert cost.seconds > 0
        assert cost.peak_mb is None or cost.peak_mb > 0

    def test_here_and_repeated(self) -> None:
        assert measure_here(Job("layer", TINY, backward=False, budget=0.01)).problem is None

    def test_against_ours(self) -> None:
        cost = measure_here(Job("pairwise", TINY, at_once=1, against_ours=True))
        assert cost.ours_seconds is not None
        assert cost.ours_seconds > 0

    def test_out_of_memory_is_a_result(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def full() -> None:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

        monkeypatch.setattr("benchmarks.memory.make_call", lambda *_, **__: full)
        assert measure_here(Job("layer", TINY)).problem == TOO_LARGE

    def test_other_errors_are_errors(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken() -> None:
            raise RuntimeError("shapes do not match")

        monkeypatch.setattr("benchmarks.memory.make_call", lambda *_, **__: broken)
        with pytest.raises(RuntimeError, match="shapes"):
            measure_here(Job("layer", TINY))


class TestMemoryUse:
    def test_the_largest_of_several_counts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        peaks = iter([100.0, 3000.0, 200.0])
        monkeypatch.setattr(attention, "cost_in_fresh_process", lambda _: Cost(1.0, next(peaks)))
        use = attention.measure_memory(TINY, True)
        assert use.peaks_mb == (100.0, 3000.0, 200.0)
        assert use.peak_mb == 3000.0

    def test_unknown(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(attention, "cost_in_fresh_process", lambda _: Cost(1.0, None))
        assert attention.measure_memory(TINY, True).peak_mb is None


class TestGrowth:
    @pytest.mark.parametrize(("lengths", "followed"), [((2, 4, 8), [2, 4, 8]), ((2, 4, 1000), [2, 4])])
    def test_pairwise_while_it_can(
        self, lengths: tuple[int, ...], followed: list[int], monkeypatch: pytest.MonkeyPatch, no_processes: list[Job]
    ) -> None:
        monkeypatch.setattr(growth, "BUDGET", 0.0)
        points = growth.measure_growth(lengths)
        assert [p.length for p in points if p.contender == "pairwise"] == followed
        assert [p.length for p in points if p.contender == "ours"] == list(lengths)

    def test_pairwise_not_beyond_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(memory, "available_mb", lambda: 100.0)
        runner = memory.PairwiseRunner(mb_per_pair=1.0)
        assert growth.can_follow([], Shape(1, 5), runner)
        assert not growth.can_follow([], Shape(1, 50), runner)


class TestBreakdown:
    def test_phases_add_up(self) -> None:
        part = break_down(Shape(2, 80), limit_gflops=100.0, budget=0.0)
        assert [cost.phase for cost in part.phases] == list(PHASES)
        assert all(cost.milliseconds >= 0 and cost.gflop >= 0 for cost in part.phases)
        assert part.total.gflop == pytest.approx(sum(cost.gflop for cost in part.phases))
        by_phase = {cost.phase: cost for cost in part.phases}
        assert by_phase["ODE"].gflop > 0
        # operations are counted in the listing, whose backward pass autograd makes without names
        assert sum(cost.gflop for phase, cost in by_phase.items() if phase.startswith("backward")) > 0

    def test_implementation_is_put_back(self) -> None:
        before = layers.attend
        with watched(Ledger(count().__next__)):
            assert layers.attend is not before
        assert layers.attend is before

    def test_innermost_phase_gains(self) -> None:
        ledger = Ledger(count().__next__)
        inner = ledger.wrap(lambda: None, "inner")
        ledger.wrap(inner, "outer")()
        assert ledger.gained["inner"] == 1
        assert ledger.gained["outer"] == 2

    def test_products_are_counted(self) -> None:
        a, b = torch.rand(3, 4), torch.rand(4, 5)
        with ProductCounter() as counter:
            a @ b
            torch.rand(2, 3, 5).baddbmm_(a.expand(2, -1, -1), b.expand(2, -1, -1))
            a @ b[:, 0]
        assert counter.operations == 2 * (60 + 120 + 12)


class TestCommand:
    def run(self, *arguments: str) -> Any:
        result = CliRunner().invoke(app, ["attention", *arguments])
        assert result.exit_code == 0, result.output
        return result

    def test_json_is_all_of_stdout(self, short: list[Job]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            result = self.run("--json", "--quick", "--threads", "1")
        document = json.loads(result.stdout)
        assert [list(row) for row in document["rows"]] == [[*KEYS, "ours_layer_ms"]]
        assert document["machine"]["threads"] == 1
        assert {"cpu", "torch", "python", "date", "commit"} <= set(document["machine"])
        assert document["protocol"]
        assert document["rows"][0]["output_error"] < 1e-3
        assert {point["contender"] for point in document["growth"]} == {"ours", "layer"}

    def test_everything_is_shown_and_written(self, short: list[Job], tmp_path: Path) -> None:
        pytest.importorskip("matplotlib")
        result = self.run("--output", str(tmp_path), "--breakdown")
        assert "memory, 2 x 8, d_model 32, forward: " in result.stdout
        assert "backward: ODE" in result.stdout
        assert sorted(path.name for path in tmp_path.iterdir()) == ["attention.json", "growth.csv", "growth.png"]
        document = json.loads((tmp_path / "attention.json").read_text())
        assert len(document["memory"]) == 1
        with (tmp_path / "growth.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert {row["contender"] for row in rows} == {"ours", "layer", "pairwise"}
        assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")

    def test_without_matplotlib(self, short: list[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        real = builtins.__import__

        def refuse(name: str, *rest: Any, **named: Any) -> Any:
            if name.startswith("matplotlib"):
                raise ModuleNotFoundError(name)
            return real(name, *rest, **named)

        monkeypatch.setattr(builtins, "__import__", refuse)
        result = self.run("--quick", "--no-pairwise", "--output", str(tmp_path))
        assert "contiformer[plot]" in result.stderr.replace("\n", "")
        assert not (tmp_path / "growth.png").exists()
        assert all(job.contender != "pairwise" for job in short)

    def test_busy_machine_is_noted(self, short: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(attention, "busy", lambda: True)
        document = json.loads(self.run("--json", "--shape", "1x3").stdout)
        assert "busy" in document["notes"][0]

    def test_own_shapes_write_nothing(self, short: list[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        document = json.loads(self.run("--json", "--shape", "1x3", "--shape", "2x4").stdout)
        assert [(row["batch"], row["length"]) for row in document["rows"]] == [(1, 3), (2, 4)]
        assert not document["growth"]
        assert not list(tmp_path.iterdir())

    def test_bad_shape(self) -> None:
        result = CliRunner().invoke(app, ["attention", "--shape", "many"])
        assert result.exit_code == 2
        assert "BATCHxLENGTH" in result.output

    def test_help_and_version(self) -> None:
        for arguments in (["--help"], ["attention", "--help"]):
            assert CliRunner().invoke(app, arguments).exit_code == 0
        assert "attention" in CliRunner().invoke(app, []).output
