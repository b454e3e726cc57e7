"""Cells of costs, and the figure that is drawn from them. No test here asks how fast anything is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.backbones import Row as Measured
from benchmarks.growth import GrowthPoint
from reproduction import efficiency
from reproduction.efficiency import EXPERIMENT, curve
from reproduction.store import Store

pytest.importorskip("matplotlib")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What was asked for; an epoch of every model is as long as S5's, of ContiFormer's two thirds of it."""
    asked: dict[str, Any] = {}

    def measure(name: str, models: tuple[str, ...], *, rounds: int, memory: bool) -> list[Measured]:
        asked.update(name=name, rounds=rounds, memory=memory)
        mb = 9.0 if memory else None
        return [Measured(name, m, 30.0, 2 / 3 if m == "contiformer" else 1.0, {}, mb, 5) for m in models]

    def grow(lengths: tuple[int, ...]) -> tuple[GrowthPoint, ...]:
        asked.update(lengths=lengths)
        ours = [GrowthPoint("ours", n, n / 10, n / 100) for n in lengths]
        return (*ours, GrowthPoint("pairwise", lengths[0], 50.0, None))

    monkeypatch.setattr(efficiency, "measure", measure)
    monkeypatch.setattr(efficiency, "measure_growth", grow)
    return asked


def row(cell: Any, budget: Any = "full") -> dict[str, Any]:
    outcome = EXPERIMENT.run(cell, budget, 0)
    return {"table": cell.table, "data": cell.data, "metrics": outcome.metrics}


def test_grid() -> None:
    cells = EXPERIMENT.cells()
    assert [cell.data for cell in cells][:1] == ["RacketSports"]
    assert {cell.data for cell in cells} == {*efficiency.DATA, "generated"}
    assert len({cell.path for cell in cells}) == len(cells)


def test_sets_that_are_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(efficiency, "not_here", lambda cell: "no data")
    assert [EXPERIMENT.absent(cell) for cell in EXPERIMENT.cells()] == ["no data"] * 6 + [None]


@pytest.mark.parametrize("budget", ["full", "quick"])
def test_metrics_of_a_set(budget: Any, measured: dict[str, Any]) -> None:
    outcome = EXPERIMENT.run(EXPERIMENT.cells()[0], budget, 0)
    assert outcome.metrics["contiformer_time"] == pytest.approx(2 / 3)
    assert outcome.metrics["neural_cde_ms"] == 30.0
    assert ("s5_mb" in outcome.metrics) == (budget == "full")
    assert measured["rounds"] == (efficiency.ROUNDS if budget == "full" else efficiency.QUICK_ROUNDS)
    assert isinstance(outcome.details["busy"], bool)


def test_metrics_of_growth(measured: dict[str, Any]) -> None:
    metrics = row(EXPERIMENT.cells()[-1])["metrics"]
    assert curve(metrics, "spectral", "ms")[:2] == [(30, 3.0), (60, 6.0)]
    assert curve(metrics, "pairwise", "ms") == [(30, 50.0)]
    assert curve(metrics, "pairwise", "mb") == []
    row(EXPERIMENT.cells()[-1], "quick")
    assert measured["lengths"] == efficiency.QUICK_LENGTHS


def test_cells_can_be_stored_and_drawn(measured: dict[str, Any], tmp_path: Path) -> None:
    store = Store(tmp_path)
    for cell in EXPERIMENT.cells():
        store.write(cell, {"metrics": row(cell)["metrics"]})
    path = efficiency.draw(store.rows("efficiency"), tmp_path / "figures" / "cost.png")
    assert path.read_bytes().startswith(b"\x89PNG")


class TestFigure:
    @pytest.fixture
    def drawn(self, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
        figures: list[Any] = []
        monkeypatch.setattr(efficiency, "save", lambda figure, path: figures.append(figure) or path)
        return figures

    def test_shows_the_numbers_of_the_cells(self, drawn: list[Any], measured: dict[str, Any]) -> None:
        efficiency.draw([row(cell) for cell in EXPERIMENT.cells()], Path("x.png"))
        time, memory, models = drawn[0].axes
        assert list(time.lines[0].get_ydata()) == [50.0]
        assert list(time.lines[1].get_xdata()) == list(efficiency.FULL_GROWTH)
        assert len(memory.lines) == 1
        here, paper = (list(line.get_xdata()) for line in models.lines[1:3])
        assert here.count(pytest.approx(2 / 3)) == len(efficiency.DATA)
        assert 1.87 in paper
        assert len(paper) == 5 * len(efficiency.DATA)

    def test_what_was_not_run_is_said(self, drawn: list[Any], measured: dict[str, Any]) -> None:
        efficiency.draw([row(EXPERIMENT.cells()[0])], Path("x.png"))
        assert [text.get_text() for text in drawn[0].axes[0].texts] == ["not run yet"]
        assert not drawn[0].axes[2].texts
        efficiency.draw([row(EXPERIMENT.cells()[-1])], Path("x.png"))
        assert [text.get_text() for text in drawn[1].axes[2].texts] == ["not run yet"]

    def test_nothing_to_draw(self) -> None:
        with pytest.raises(ValueError, match="reproduction efficiency"):
            efficiency.draw([], Path("x.png"))
