import json

import polars as pl

from tests.cli.conftest import run
from tests.estimators.test_baselines import problem


def test_models_are_compared_on_a_table_and_again_from_the_folder(tmp_path):
    data = problem(40, classes=2)
    rows = [(s.id, t, *v, "yn"[s.label]) for s in data for t, v in zip(s.times, s.values, strict=True)]
    pl.DataFrame(rows, schema=["who", "when", "a", "b", "died"], orient="row").write_csv(tmp_path / "stays.csv")
    named = ("--data", str(tmp_path / "stays.csv"), "--id", "who", "--time", "when", "--label", "died")
    named = ("compare", *named, "--models", "boosting", "--folds", "2", "--output", str(tmp_path / "out"))
    result = run(*named)
    assert result.exit_code == 0, result.output
    assert "Use boosting" in result.stdout
    assert (tmp_path / "out" / "comparison.png").is_file()
    again = run(*named, "--json")
    assert json.loads(again.stdout)["rows"][0]["model"] == "boosting"
    assert run("compare", "--data", str(tmp_path / "stays.csv"), "--models", "bosting").exit_code == 2


def test_forecasts_and_events_are_compared(table, tmp_path):
    columns = ("--id", "who", "--time", "t", "--values", "x")
    words = ("compare", "--task", "forecasting", "--data", table, *columns, "--set", "horizon=2", "--folds", "2")
    result = run(*words, "--models", "last-value,linear", "--output", tmp_path)
    assert result.exit_code == 0, result.output
    assert "rmse" in result.stdout
    assert "Use " in result.stdout
    events = ("compare", "--task", "events", "--data", "poisson", "--models", "poisson,renewal", "--folds", "2")
    told = json.loads(run(*events, "--json").stdout)
    assert {row["model"] for row in told["rows"]} == {"poisson", "renewal"}
    assert told["metric"] == "log_likelihood"
    assert run(*events, "--label", "x").exit_code == 2
