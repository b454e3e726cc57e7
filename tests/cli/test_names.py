"""Names from data and model folders: no control characters in errors and summaries, escaped in Markdown."""

import numpy as np
import polars as pl
import pytest

from contiformer import Classifier, EventPredictor, TrainingOptions
from contiformer.data import DataError, Series, SeriesSet
from contiformer.estimators.model_card import in_markdown
from contiformer.plots import curves
from tests.cli.conftest import run
from tests.estimators.problems import waves

EVIL = "x\x1b[2J\x1b]0;owned\x07\u202eabc|<img src=x onerror=alert(1)>`$\\frac$`\n# title"
QUICK = TrainingOptions(max_epochs=1, verbose=0)


def is_safe(text):
    return all(line.isprintable() for line in text.splitlines())


def test_errors_and_summaries_have_no_control_characters():
    data = SeriesSet([Series.of([0.0, 1.0], [[1.0], [2.0]], id=EVIL, label=EVIL)], channels=[EVIL])
    assert is_safe(str(data.summary()))
    assert is_safe(str(DataError(f"bad {EVIL}", file=EVIL, column=EVIL, remedy=EVIL)))
    assert "\n" not in str(DataError(EVIL))
    model = EventPredictor(backbone="hp", training=QUICK).fit([([0.0, 1.0, 2.0], [0, 1, 0])] * 4)
    model.type_names_ = (EVIL, "b")
    with pytest.raises(DataError) as caught:
        model.stream().append(0.0, "nothing")
    assert is_safe(str(caught.value))


def test_names_are_escaped_in_the_model_card(tmp_path):
    X, _ = waves(n=12, channels=1)
    data = SeriesSet([Series.of(t, v, label=EVIL if n % 2 else "b") for n, (t, v) in enumerate(X)], channels=[EVIL])
    Classifier(d_model=8, training=QUICK).fit(data).save(tmp_path)
    card = (tmp_path / "README.md").read_text()
    assert is_safe(card)
    assert "<img" not in card
    assert "\n# title" not in card
    rows = [line for line in card.splitlines() if line.startswith("| channels")]
    assert len(rows) == 1
    assert rows[0].replace("\\|", "").count("|") == 3
    assert in_markdown("a_b*c") == "a_b\\*c"


def test_names_with_dollars_are_drawn_as_they_are(tmp_path):
    nothing = (np.zeros(0), np.zeros(0))
    curve = curves.Curve("$\\frac{$", nothing, nothing, False, np.arange(3.0), np.arange(3.0))
    assert curves.draw_curves([[curve]], tmp_path / "x.png", title="$\\nonsense$").exists()


def test_predictions_can_be_escaped_for_spreadsheets(classified, table, tmp_path):
    rows = pl.read_csv(table).with_columns(who="=cmd|" + pl.col("who"))
    rows.write_csv(tmp_path / "given.csv")
    plain = run("predict", classified[0], "--input", tmp_path / "given.csv").stdout
    assert "\n=cmd|p0," in plain
    escaped = run("predict", classified[0], "--input", tmp_path / "given.csv", "--escape-formulas").stdout
    assert "\n'=cmd|p0," in escaped
    assert "\n=" not in escaped
