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
