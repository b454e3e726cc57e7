"""Means, ranks and tests, against numbers worked out by hand and against scipy."""

from dataclasses import replace
from math import nan, sqrt

import numpy as np
import pytest
from scipy import stats

from reproduction import comparison
from reproduction.comparison import cliques, draw_critical_difference
from reproduction.experiments import Cell
from reproduction.paper import Printed
from reproduction.results import Results, better_or_equal
from reproduction.tables import (
    average_sheets,
    main_sheets,
    paper_verdict,
    rival_sheets,
    t_test_sheets,
    verdict,
    verdict_counts,
)
from tests.reproduction import toy


def _results(values, *, metric=toy.ACCURACY, repeats=False, ours="ours"):
    """From {(data, setting, model): figures of the seeds}."""
    rows = {
        Cell("toy", data, setting, model, seed): toy.row(Cell("toy", data, setting, model, seed), **{metric.key: value})
        for (data, setting, model), figures in values.items()
        for seed, value in enumerate(figures)
        if value is not None
    }
    cells = [Cell("toy", *names, seed) for names, figures in values.items() for seed in range(len(figures))]
    experiment = replace(toy.EXPERIMENT, metrics=(metric,), repeats=repeats, ours=ours, grid=lambda protocol: cells)
    return Results(experiment, "honest", tuple(cells), rows)


@pytest.fixture
def paper(monkeypatch):
    """What the paper prints, to be filled by a test."""
    said = {}
    monkeypatch.setattr(
        "reproduction.results.printed",
        lambda table, data, setting, model, metric: said.get((data, setting, model)),
    )
    return said


def test_spread_by_hand():
    found = comparison.spread([0.8, 0.9, 1.0])
    assert found.mean == pytest.approx(0.9)
    assert found.std == pytest.approx(0.1)
    assert found.error == pytest.approx(0.1 / sqrt(3))
    assert found.n == 3
    assert comparison.spread([0.5]) == comparison.Spread(0.5, None, None, 1)


def test_ties_have_the_lowest_rank_and_what_is_no_number_the_last():
    assert comparison.ranks({"a": 0.9, "b": 0.7, "c": 0.9, "d": nan}, toy.ACCURACY) == {"a": 1, "b": 3, "c": 1, "d": 4}
    assert comparison.ranks({"a": 0.9, "b": 0.7, "c": 0.9, "d": nan}, toy.ERROR) == {"a": 2, "b": 1, "c": 2, "d": 4}


def test_averages_are_over_common_cells_and_the_paper_over_the_same(paper):
    results = _results(
        {
            ("north", "drop30", "ours"): [0.9, 0.7],
            ("north", "drop30", "rival"): [0.6, 0.6],
            ("south", "drop30", "ours"): [0.5, 0.3],
            ("south", "drop30", "rival"): [0.7, None],  # only the first repeat is common
            ("south", "drop50", "ours"): [1.0, 1.0],
            ("south", "drop50", "rival"): [None, None],
        }
    )
    paper |= {("north", "drop30", "ours"): Printed(0.8, None), ("north", "drop30", "rival"): Printed(0.9, None)}
    paper |= {("south", "drop30", "ours"): Printed(0.4, None), ("south", "drop30", "rival"): Printed(0.2, None)}
    paper |= {("south", "drop50", "ours"): Printed(0.0, None), ("south", "drop50", "rival"): Printed(1.0, None)}
    models = results.ranked_models(toy.ACCURACY)
    places = results.common_places(models, toy.ACCURACY)
    assert places == [("north", "drop30"), ("south", "drop30")]
    ours, rival = comparison.averages(results, toy.ACCURACY, models, places)
    assert (ours.mean, rival.mean) == (pytest.approx((0.8 + 0.5) / 2), pytest.approx((0.6 + 0.7) / 2))
    assert (ours.rank, rival.rank) == (1.5, 1.5)
    assert (ours.paper_mean, rival.paper_mean) == (pytest.approx(0.6), pytest.approx(0.55))
    assert (ours.paper_rank, rival.paper_rank) == (1.5, 1.5)


def test_without_a_number_of_the_paper_there_is_no_mean_and_no_rank_of_it(paper):
    results = _results({("north", "drop30", "ours"): [0.9], ("north", "drop30", "rival"): [0.6]})
    paper[("north", "drop30", "rival")] = Printed(0.5, None)
    ours, rival = comparison.averages(results, toy.ACCURACY, ["ours", "rival"], results.places)
    assert (ours.paper_mean, rival.paper_mean) == (None, 0.5)
    assert ours.paper_rank is rival.paper_rank is None


def test_equal_means_in_another_order_are_equal():
    figures = [0.1, 0.2, 0.3, 0.7]
    results = _results({("north", "a", "ours"): figures, ("north", "a", "rival"): figures[::-1]})
    assert np.mean(figures) == pytest.approx(np.mean(figures[::-1]))
    assert [one.rank for one in comparison.averages(results, toy.ACCURACY, ["ours", "rival"], results.places)] == [1, 1]
    assert verdict(results, ("north", "a"), toy.ACCURACY) == "best"


def test_folds_are_repeats():
    results = _results(
        {
            ("north", "fold1", "ours"): [0.9, 0.8],
            ("north", "fold2", "ours"): [0.1],
            ("north", "fold2", "rival"): [0.2],
        },
        repeats=True,
    )
    assert results.places == [("north", "")]
    assert results.values(("north", ""), "ours", toy.ACCURACY) == {
        ("fold1", 0): 0.9,
        ("fold1", 1): 0.8,
        ("fold2", 0): 0.1,
    }
    assert results.common(("north", ""), ["ours", "rival"], toy.ACCURACY) == {"ours": [0.1], "rival": [0.2]}
    assert verdict(results, ("north", ""), toy.ACCURACY) == "behind rival by 0.1000 (over 1 repeat that all have)"


def test_budgets_do_not_mix():
    results = _results({("north", "a", "ours"): [0.9, 0.8]})
    rows = {cell: row | {"budget": "quick" if cell.seed else "full"} for cell, row in results.rows.items()}
    with pytest.raises(ValueError, match="different budgets cannot be compared: full, quick"):
        replace(results, rows=rows)


def test_signed_ranks_are_those_of_scipy_over_data_sets():
    draw = np.random.default_rng(0)
    values = {
        (f"set{n}", setting, model): draw.uniform(size=3).tolist()
        for n in range(7)
        for setting in ("drop30", "drop50")
        for model in ("ours", "rival")
    }
    (found,) = comparison.comparisons(_results(values), toy.ACCURACY)

    def means(model):
        return [np.mean([values[(f"set{n}", setting, model)] for setting in ("drop30", "drop50")]) for n in range(7)]

    assert found.p == pytest.approx(stats.wilcoxon(means("ours"), means("rival")).pvalue)
    assert (found.cells, found.sets, found.wins + found.losses) == (14, 7, 14)
    assert found.mean == pytest.approx(np.mean(means("ours")))
    assert found.rival_mean == pytest.approx(np.mean(means("rival")))


def test_tests_with_too_little_to_go_on_have_no_p():
    assert comparison.signed_rank_p([0.1] * 5) is None
    assert comparison.signed_rank_p([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]) == pytest.approx(2 / 2**6)
    assert comparison.signed_rank_p([0.0] * 8) == 1.0
    assert comparison.signed_rank_p([nan] * 8) is None
    assert comparison.paired_p([0.5], [0.4]) is None
    assert comparison.paired_p([0.5, 0.5], [0.25, 0.25]) is None
    assert comparison.paired_p([0.7, 0.8], [0.5, 0.6]) is None
    assert comparison.paired_p([0.5, nan], [0.25, 0.2]) is None


def test_paired_t_test_is_that_of_scipy_over_common_repeats():
    ours, rival = [0.9, 0.8, 0.7, 0.9, 0.6, 0.1], [0.8, 0.8, 0.6, 0.7, 0.5, None]
    results = _results({("north", "a", "ours"): ours, ("north", "a", "rival"): rival})
    p = stats.ttest_rel(ours[:5], rival[:5]).pvalue
    (sheet,) = t_test_sheets(results)
    assert sheet.lines[0][1].text == f"{p:.2g} (5)"


def test_friedman_and_nemenyi():
    draw = np.random.default_rng(1)
    columns = {name: draw.uniform(size=6) for name in "abcdefghi"}
    found = comparison.friedman(columns, toy.ACCURACY)
    assert found.p == pytest.approx(stats.friedmanchisquare(*columns.values()).pvalue)
    # 3.102 is the critical value for nine models at 5 % in Demsar (2006), table 5
    assert found.difference == pytest.approx(3.102 * sqrt(9 * 10 / (6 * 6)), rel=1e-3)
    assert sum(found.ranks.values()) == pytest.approx(45)
    tied = comparison.friedman({"a": [1.0, 1.0], "b": [1.0, 1.0], "c": [0.0, 0.0]}, toy.ACCURACY)
    assert tied.ranks == {"a": 1.5, "b": 1.5, "c": 3.0}
    assert comparison.friedman({"a": [1.0, 1.0], "b": [1.0, 1.0], "c": [1.0, 1.0]}, toy.ACCURACY).p == 1.0


def test_critical_difference_takes_each_data_set_once():
    values = {
        (f"set{n}", setting, model): [0.1 * n + 0.01 * order]
        for n in range(3)
        for setting in ("drop30", "drop50")
        for order, model in enumerate(("rival", "other", "ours"))
    }
    found = comparison.critical_difference(_results(values), toy.ACCURACY)
    assert (found.sets, found.ranks) == (3, {"rival": 3.0, "other": 2.0, "ours": 1.0})
    two_models = {key: value for key, value in values.items() if key[2] != "other"}
    assert comparison.critical_difference(_results(two_models), toy.ACCURACY) is None
    two_sets = {key: value for key, value in values.items() if key[0] != "set2"}
    assert comparison.critical_difference(_results(two_sets), toy.ACCURACY) is None


def test_cliques_are_the_longest_runs():
    assert cliques({"a": 1.0, "c": 3.0, "b": 2.0, "d": 6.0}, 1.5) == [("a", "b"), ("b", "c")]
    assert cliques({"a": 1.0, "b": 2.0, "c": 3.0}, 5.0) == [("a", "c")]
    assert cliques({"a": 1.0, "b": 2.0}, 0.5) == []


def test_the_plot_of_critical_differences_is_a_picture(tmp_path):
    pytest.importorskip("matplotlib")
    ranks = {f"model{n}": 1.0 + n for n in range(9)}
    path = draw_critical_difference(ranks, 2.5, tmp_path / "new" / "cd.png", ours="model0", title="toy")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_no_name_is_cut_off_at_the_edge_of_the_picture(tmp_path):
    pytest.importorskip("matplotlib")
    image = pytest.importorskip("PIL.Image")
    names = [f"{a} scores, {b} values" for a in ("normalized", "unnormalized") for b in ("normalized", "unnormalized")]
    title = "Mean rank by log-likelihood over 4 data sets, honest protocol; Friedman's test p = 0.42"
    ranks = {name: 1.75 + n / 4 for n, name in enumerate(names)}
    path = draw_critical_difference(ranks, 2.35, tmp_path / "cd.png", ours=names[1], title=title)
    pixels = np.asarray(image.open(path).convert("L"))
    assert (np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]]) > 250).all()


@pytest.mark.parametrize(
    ("ours", "rival", "words"),
    [
        ([0.9, 0.8], [0.7, 0.7], "best"),
        ([0.7, 0.7], [0.7, 0.7], "best"),
        # the rival's mean is 0.75 with a standard error of 0.05
        ([0.7, 0.72], [0.7, 0.8], "within one standard error of the best, rival"),
        ([0.6, 0.6], [0.7, 0.8], "behind rival by 0.1500"),
        ([0.6], [0.7], "behind rival by 0.1000"),
        # the mean of the rival that is shown is that of two
        ([0.6, None], [0.5, 0.9], "best (over 1 repeat that all have)"),
        ([0.6], [None], "alone so far"),
        ([None], [0.6], "-"),
    ],
)
def test_verdicts(ours, rival, words):
    results = _results({("north", "a", "ours"): ours, ("north", "a", "rival"): rival})
    assert verdict(results, ("north", "a"), toy.ACCURACY) == words


@pytest.mark.parametrize(
    ("metric", "value", "words"),
    [
        (toy.ACCURACY, 0.85, "at or above the paper"),
        (toy.ACCURACY, 0.79996, "at or above the paper"),
        (toy.ACCURACY, 0.7, "below the paper by 0.1000"),
        (toy.ERROR, 0.7, "at or below the paper"),
        (toy.ERROR, 0.9, "above the paper by 0.100"),
    ],
)
def test_verdicts_against_the_paper(paper, metric, value, words):
    paper[("north", "a", "ours")] = Printed(0.8, None)
    results = _results({("north", "a", "ours"): [value]}, metric=metric)
    assert paper_verdict(results, ("north", "a"), metric) == words
    counts = verdict_counts(results, metric)
    assert (counts.alone, counts.reached, counts.printed) == (1, int(words.startswith("at")), 1)


def test_our_model_beside_the_paper_over_its_cells(paper):
    paper |= {(data, "a", "ours"): Printed(0.8, None) for data in ("north", "south", "east", "west")}
    values = {"north": [0.9], "south": [0.79996], "east": [0.5, 0.7], "elsewhere": [0.1], "west": [None]}
    results = _results({(data, "a", "ours"): figures for data, figures in values.items()})
    found = comparison.against_paper(results, toy.ACCURACY, "ours")
    assert (found.cells, found.sets, found.reached, found.matched) == (3, 3, 2, 1)
    assert found.mean == pytest.approx((0.9 + 0.79996 + 0.6) / 3)
    assert found.paper_mean == pytest.approx(0.8)
    (sheet,) = rival_sheets(results)
    assert [entry.text for entry in sheet.lines[0][:4]] == ["ours in the paper", "3", "3", "1 / 1 / 1"]


def test_no_number_is_never_good_enough():
    assert not better_or_equal(toy.ERROR, nan, 1.0)
    assert better_or_equal(toy.ERROR, 1.0, nan)


def test_means_over_data_sets_only_where_they_mean_something():
    def values(figure):
        return {(data, "a", model): [figure] for data in ("north", "south") for model in ("ours", "rival")}

    (accuracy,) = average_sheets(_results(values(0.5)))
    assert accuracy.columns == ("model", "all (2): mean", "all (2): rank")
    (error,) = average_sheets(_results(values(0.5), metric=toy.ERROR))
    assert error.columns == ("model", "all (2): rank")
    (rivals,) = rival_sheets(_results(values(0.5), metric=toy.ERROR))
    assert len(rivals.columns) == len(rivals.lines[0])
    assert [entry.text for entry in rivals.lines[0]] == ["rival", "2", "2", "0 / 2 / 0", "-", "-", "-", "-"]


def test_a_metric_that_a_data_set_does_not_have_is_not_called_missing():
    results = _results({("north", "a", "ours"): [0.5], ("south", "a", "ours"): [0.5]})
    for cell, row in results.rows.items():
        if cell.data == "south":
            row["metrics"] = {"loss": 1.0}
    (sheet,) = main_sheets(results)
    assert [(line[0].text, line[2].text) for line in sheet.lines] == [("north", "0.5000 (1)")]
    assert sheet.notes == ("Without this figure: south.",)


def test_models_that_are_no_rivals_get_no_verdict():
    results = _results({("north", "a", "this"): [0.5], ("north", "a", "that"): [0.7]}, ours="")
    (sheet,) = main_sheets(results)
    assert sheet.columns == ("data", "setting", "this", "that")
    assert [entry.text for entry in sheet.lines[0]] == ["north", "a", "0.5000 (1)", "0.7000 (1)"]
    assert sheet.is_number(3)
    assert rival_sheets(results) == []
    assert t_test_sheets(results) == []


def test_variants_are_shown_and_not_ranked():
    """One that was run in a single place would leave nothing in common with the others."""
    values = {("a", "s", "ours"): [0.8, 0.8], ("a", "s", "rival"): [0.7, 0.7], ("a", "s", "rival:other"): [0.9]}
    results = _results(values)
    assert results.ranked_models(toy.ACCURACY) == ["ours", "rival"]
    assert verdict(results, ("a", "s"), toy.ACCURACY) == "best"
    assert "rival:other" in main_sheets(results)[0].columns
