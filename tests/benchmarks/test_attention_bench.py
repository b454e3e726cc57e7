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

from benchmarks import attention, growth, memory, resolution
from benchmarks.__main__ import app
from benchmarks.contenders import Contender, Data, Shape, make_call, make_module, output_error
from benchmarks.memory import TOO_LARGE, Cost, Job, cost_in_fresh_process, measure_here
from benchmarks.timing import Timings, interleave
from contiformer.nn import attention as layers

TINY = Shape(2, 8)


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
    monkeypatch.setattr(attention, "SHAPES", {TINY: ("ours", "headwise", "listing")})
    monkeypatch.setattr(attention, "SEEDS", 2)
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
    @pytest.mark.parametrize("contender", ["listing", "pairwise"])
    def test_algorithms_share_the_weights(self, contender: Contender) -> None:
        ours, other = make_module("ours", TINY), make_module(contender, TINY)
        assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), other.parameters(), strict=True))
        assert ours.training

    def test_data_are_the_same_every_time_and_sorted(self) -> None:
        first, second = Data.of(TINY), Data.of(TINY)
        assert torch.equal(first.x, second.x)
        assert torch.equal(first.times, second.times)
        assert (first.times.diff(dim=1) > 0).all()

    def test_a_seed_is_one_module_and_one_batch(self) -> None:
        assert not torch.equal(Data.of(TINY, 1).x, Data.of(TINY, 2).x)
        first, second = (make_module("ours", TINY, seed).state_dict() for seed in (1, 2))
        assert not torch.equal(first["q_proj.weight"], second["q_proj.weight"])

    def test_building_leaves_the_random_state_alone(self) -> None:
        before = torch.get_rng_state()
        make_call("layer", TINY)
        assert torch.equal(before, torch.get_rng_state())

    @pytest.mark.parametrize("at_once", [None, 1])
    def test_every_contender_runs(self, at_once: int | None) -> None:
        for contender in ("ours", "headwise", "listing", "layer", "pairwise"):
            make_call(contender, Shape(2, 3), at_once=at_once)()
            make_call(contender, Shape(2, 3), at_once=at_once, training=False)()

    def test_listing_is_timed_without_the_kernel(self, monkeypatch: pytest.MonkeyPatch) -> None:
        listed: list[Any] = []
        real = layers.attend
        monkeypatch.setattr(layers, "attend", lambda *given, **named: listed.append(1) or real(*given, **named))
        make_call("listing", TINY)()
        assert listed

    @pytest.mark.parametrize("contender", ["ours", "headwise", "listing"])
    def test_output_error(self, contender: Contender) -> None:
        # longer than the rows that are judged
        assert 0 < output_error(contender, Shape(1, 230), 1) < 1e-3

    @pytest.mark.parametrize("text", ["", "4", "4x", "0x5", "4x-1", "4x5x6", "4x5x6x7x8", "4x5x10x4"])
    def test_shapes_that_are_rejected(self, text: str) -> None:
        with pytest.raises(ValueError, match="BATCHxLENGTH"):
            Shape.parse(text)

    def test_shapes_that_are_accepted(self) -> None:
        assert Shape.parse("4x100") == Shape(4, 100)
        assert Shape.parse("32x200x128x8") == Shape(32, 200, 128, 8)
        assert str(Shape(32, 200, 128, 8)) == "32 x 200, width 128"


class TestRows:
    def test_measured_rows(self) -> None:
        rows = attention.measure_speed(TINY, ("ours", "headwise"), (1, 2, 3), budget=0.0)
        assert [row.contender for row in rows] == ["ours", "headwise"]
        for row in rows:
            assert row.shape == TINY
            assert row.output_error is not None
            assert 0 < row.output_error < 1e-3
            for speed in (row.training, row.inference):
                assert speed is not None
                assert min(speed.ms, speed.layer_ms, speed.ratio) > 0
                assert speed.worst >= 1

    def test_worst_seed_beside_the_median(self) -> None:
        times = {f"{name} training {seed}": [1.0] for name in ("ours", "layer") for seed in range(3)}
        speed = attention._speed(Timings(times | {"ours training 2": [3.0]}), "ours", "training", range(3))
        assert speed == attention.Speed(1000.0, 1000.0, 1.0, 3.0)

    def test_compiled_is_measured_once_and_its_compilation_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made: list[tuple[str, int, bool]] = []

        def call(contender: Contender, shape: Shape, *, seed: int, training: bool) -> Any:
            made.append((contender, seed, training))
            return lambda: None

        monkeypatch.setattr(attention, "make_call", call)
        (row,) = attention.measure_speed(TINY, ("compiled",), (1, 2), budget=0.0)
        assert [one for one in made if one[0] == "compiled"] == [("compiled", 1, True)]
        assert row.compile_seconds is not None
        assert row.inference is None

    def test_pairwise_in_portions_says_so(self, monkeypatch: pytest.MonkeyPatch, no_processes: list[Job]) -> None:
        monkeypatch.setattr(memory, "available_mb", lambda: 100.0)
        (row,) = attention.measure_speed(TINY, ("ours",), (1,), budget=0.0)
        runner = memory.PairwiseRunner(mb_per_pair=1.0)
        row, note = attention.with_pairwise(row, runner, 0.0)
        assert no_processes[-1].at_once == 1
        assert note is not None
        assert "1 of its 2 sequences" in note
        assert row.pairwise_ms == 1.0
        assert row.speedup_over_pairwise == 2.0
        assert row.compiled_pairwise_ms is None
        row, note = attention.with_pairwise(row, runner, 0.0, "compiled pairwise")
        assert no_processes[-1].contender == "compiled pairwise"
        assert note is not None
        assert note.startswith("compiled pairwise at")
        assert (row.compiled_pairwise_ms, row.speedup_over_compiled_pairwise) == (1.0, 2.0)

    def test_pairwise_that_does_not_fit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        tried: list[int | None] = []

        def fail(job: Job, *, timeout: float = 0.0) -> Cost:
            tried.append(job.at_once)
            return Cost(None, None, problem=TOO_LARGE)

        monkeypatch.setattr(memory, "cost_in_fresh_process", fail)
        row = attention.Row("ours", 4, 8, 32, 4, attention.Speed(1.0, 1.0, 1.0, 1.0))
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
        assert measure_here(Job("layer", TINY, training=False, budget=0.01)).problem is None

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


class TestResolution:
    def test_resolved_sequences_are_accurate(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(resolution, "SHAPES", (Shape(2, 20, 16, 2),))
        lines = resolution.measure(seeds=2)
        assert [line.degree for line in lines] == [7, 15, "auto"]
        assert all(line.largest_error < resolution.LIMIT for line in lines)
        by_degree = [line.errors[1] for line in lines[:2]]
        assert by_degree == sorted(by_degree, reverse=True)
        assert lines[1].resolved > lines[0].resolved > 0
        assert all(line.safe_tail is None or line.safe_tail > (line.tolerance or 0.0) for line in lines)

    @pytest.mark.parametrize(("error", "code"), [(9e-4, 0), (2e-3, 1)])
    def test_command_fails_beyond_the_limit(self, error: float, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
        line = resolution.Resolution(5, 3e-3, (0.0,) * 5, (error,) * 5, 1.0, error, None)
        monkeypatch.setattr(resolution, "measure", lambda *_: [line])
        result = CliRunner().invoke(app, ["attention", "--resolution", "--quick"])
        assert result.exit_code == code
        assert "0.003" in result.output


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
        assert [row["contender"] for row in document["rows"]] == ["ours", "headwise", "listing"]
        assert {"ms", "layer_ms", "ratio", "worst"} == set(document["rows"][0]["training"])
        assert document["machine"]["threads"] == 1
        assert {"cpu", "torch", "python", "date", "commit"} <= set(document["machine"])
        assert document["protocol"]
        assert document["rows"][0]["output_error"] < 1e-3
        assert {point["contender"] for point in document["growth"]} == {"ours", "layer"}

    def test_everything_is_shown_and_written(self, short: list[Job], tmp_path: Path) -> None:
        pytest.importorskip("matplotlib")
        result = self.run("--output", str(tmp_path))
        assert "memory, 2 x 8, d_model 32, inference: " in result.stdout
        assert "headwise" in result.stdout
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
        document = json.loads(self.run("--json", "--shape", "1x3", "--shape", "2x4x16x2").stdout)
        shapes = [(row["batch"], row["length"], row["d_model"], row["n_heads"]) for row in document["rows"]]
        assert shapes[::2] == shapes[1::2] == [(1, 3, 32, 4), (2, 4, 16, 2)]
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
