"""``contiformer report``: structure, escaping, intervals, and nothing from elsewhere."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import polars as pl
import pytest

from contiformer.cli.report import intervals
from contiformer.estimators import Classifier
from tests.cli.conftest import TINY, run
from tests.cli.test_events import ordered, orders, sequences  # noqa: F401  fixtures

pytest.importorskip("matplotlib")


class Page(HTMLParser):
    """The tags, the text, and a check that what is opened is closed."""

    VOID = ("meta", "img", "br")

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.text = [], [], ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def written(*words):
    result = run("report", *words)
    assert result.exit_code == 0, result.output
    text = (words[0] / "report.html").read_text(encoding="utf-8")
    assert result.stdout.strip() == str(words[0] / "report.html")
    assert "://" not in text
    assert not re.search(r'(src|href)="(?!#|data:)', text)
    return text, Page(text)


def test_report_of_a_classification(classified):
    folder, _, _ = classified
    text, page = written(folder)
    assert "Classification of waves with contiformer" in page.text
    saved = json.loads((folder / "metrics.json").read_text())["test"]
    assert f"test accuracy{saved['accuracy']:.4g}" in page.text
    assert "95 % interval" in page.text
    for word in ("Data:", "Classes:", "Calibration:", "Training:", "6 test series", "Wrong answers", "recall"):
        assert word in page.text
    assert "Not a test" not in page.text
    assert page.tags.count("svg") == 3
    assert page.tags.count("script") == 1
    assert page.tags.count("details") >= 4
    assert text.index("Data:") < text.index("<svg") < text.index("<table")


def test_report_without_a_test_part_says_so(interpolated, table, tmp_path):
    text, page = written(interpolated)
    assert "Not a test: the model was chosen by these series" in page.text
    assert "the 90 % intervals hold" in page.text
    assert "RMSE of each channel on the validation series" in page.text
    assert "95 % interval" in page.text
    assert text.count("<svg") == 2
    wrong = run("report", interpolated, "--output", tmp_path / "a.pdf")
    assert wrong.exit_code == 2
    assert "has to end in .html" in wrong.stderr


def test_report_of_events(ordered):  # noqa: F811
    _, page = written(ordered[0])
    assert "test log likelihood" in page.text
    assert "from the unit exponential law" in page.text
    assert page.tags.count("svg") == 5


def test_report_of_a_regression_and_a_forecast(tmp_path):
    draw = np.random.default_rng(0)
    rows = [
        {"id": n, "t": float(t), "x": float(np.sin(t) * n + draw.normal()), "y": float(n)}
        for n in range(20)
        for t in range(12)
    ]
    pl.DataFrame(rows).write_csv(tmp_path / "numbers.csv")
    columns = ("--data", tmp_path / "numbers.csv", "--id", "id", "--time", "t", "--values", "x")
    words = ("train", "regression", *columns, "--label", "y", "--test", "0.3", *TINY, "--output", tmp_path / "a")
    assert run(*words).exit_code == 0
    _, page = written(tmp_path / "a")
    assert "R² is" in page.text
    assert "Largest errors (6)" in page.text
    words = ("train", "forecasting", *columns, "--set", "horizon=2", *TINY, "--output", tmp_path / "b")
    assert run(*words).exit_code == 0
    _, page = written(tmp_path / "b")
    assert "RMSE of each channel" in page.text


def test_names_are_escaped(tmp_path):
    evil, worse = "<script>alert(1)</script>", "<img src=x onerror=alert(2)>"
    draw = np.random.default_rng(0)
    rows = [
        {"who": f"<i>{n}</i>", "t": float(t), evil: float(draw.normal()), "$x$": 1.0, "kind": (worse, "b")[n % 2]}
        for n in range(16)
        for t in range(5)
    ]
    pl.DataFrame(rows).write_csv(tmp_path / "evil.csv")
    columns = ("--data", tmp_path / "evil.csv", "--id", "who", "--time", "t", "--label", "kind", "--test", "0.5")
    result = run("train", "classification", *columns, *TINY, "--output", tmp_path / "run")
    assert result.exit_code == 0, result.output
    text, page = written(tmp_path / "run")
    assert text.count("<script>") == 1
    assert "<img" not in text
    assert "<i>1" not in text.replace("<i>-", "")
    assert evil in page.text
    assert worse in page.text


def test_intervals_hold_the_figure_and_shrink_with_more_series():
    model = Classifier.from_options(**{"d_model": 8, "max_epochs": 1, "verbose": 0})
    X = [([0.0, 1.0], [[n], [-n]]) for n in range(8)]
    model.fit(X, [0, 1] * 4)
    draw = np.random.default_rng(0)
    widths = []
    for count in (40, 4000):
        label = draw.integers(0, 2, count)
        own = draw.beta(4, 2, count)
        probability = np.stack([np.where(label, 1 - own, own), np.where(label, own, 1 - own)], 1)
        judged = [{"probability": probability, "label": label}]
        found, scores = intervals(model, judged), model.scores(judged)
        for name in ("accuracy", "loss", "auroc"):
            assert found[name][0] <= scores[name] <= found[name][1]
        widths.append(found["accuracy"][1] - found["accuracy"][0])
        share = scores["accuracy"]
        assert widths[-1] == pytest.approx(2 * 1.96 * (share * (1 - share) / count) ** 0.5, rel=0.1)
    assert widths[0] > 8 * widths[1]
    sure = [{"probability": np.eye(2)[[0, 1] * 10], "label": np.array([0, 1] * 10)}]
    low, high = intervals(model, sure)["accuracy"]
    assert low < 0.9
    assert high == pytest.approx(1.0)
    assert intervals(model, [{"probability": np.eye(2)[:1], "label": np.array([0])}]) == {}
