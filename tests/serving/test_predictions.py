"""Answers over HTTP are those of the estimators, for every task, in every form of request."""

import numpy as np
import polars as pl
import pytest
from fastapi.testclient import TestClient

from contiformer import Blend, Classifier, load
from contiformer.serving import create_app
from contiformer.serving.messages import AtAnswers, PredictAnswers
from tests.serving.conftest import URL
from tests.serving.problems import days, of, orders, waves, without


def ask(client, path, model, status=200, **body):
    found = client.post(path, params={"model": model}, json=body)
    assert found.status_code == status, found.text
    return found.json()


def predictions(client, model, rows, path="/predict", **more):
    said = ask(client, path, model, records=rows, **more)
    (PredictAnswers if path == "/predict" else AtAnswers).model_validate(said)
    assert said["model"] == model
    return said["predictions"]


def test_classes_and_probabilities(client, models, rows):
    said = predictions(client, "classes", rows)
    table = models["classes"].predict_proba(pl.DataFrame(rows))
    assert list(said) == table["who"].to_list()
    for row in table.iter_rows(named=True):
        found = said[row.pop("who")]
        assert found["probabilities"] == pytest.approx(row)
        assert found["label"] == max(row, key=row.get)


def test_blend_is_served_like_any_model(rows, tmp_path):
    members = [Classifier(backbone=name) for name in ("boosting", "rocket")]
    roles = {"id": "who", "time": "t", "values": ["x", "<script>"], "label": "kind"}
    Blend(members, folds=2, run_dir=tmp_path / "blend").fit(pl.DataFrame(waves()), **roles)
    with TestClient(create_app([tmp_path / "blend"]), base_url=URL) as client:
        said = predictions(client, "blend", rows)
        expected = load(tmp_path / "blend").predict_proba(pl.DataFrame(rows))
        assert said["p1"]["probabilities"] == pytest.approx(expected.drop("who").row(1, named=True))
        assert predictions(client, "blend", rows, "/at", at=[4.0, 100.0])["p1"]["labels"][1] == said["p1"]["label"]
        described = client.get("/schema").json()["models"]["blend"]
        assert (described["estimator"], described["backbone"]) == ("Blend", "a blend of boosting, rocket")
        assert client.get("/explore/report").status_code == 200


def test_numbers(client, models, rows):
    said = predictions(client, "sizes", rows)
    table = models["sizes"].predict(pl.DataFrame(rows))
    assert {name: one["value"] for name, one in said.items()} == pytest.approx(dict(table.iter_rows()))


@pytest.mark.parametrize("name", ["curves", "targets"])
@pytest.mark.parametrize("at", [None, [-1.0, 0.25, 30.0]])
def test_values_and_standard_deviations(client, models, rows, name, at):
    said = predictions(client, name, rows) if at is None else predictions(client, name, rows, "/at", at=at)
    mean, std = models[name].predict(pl.DataFrame(rows), at=at, return_std=True)
    for key, found in said.items():
        for part, table in (("values", mean), ("std", std)):
            expected = table.filter(who=key)
            assert found["times"] == expected["t"].to_list()
            for channel in models[name]._outputs:
                assert found[part][channel] == pytest.approx(expected[channel].to_list())
        assert "quantiles" not in found


def test_quantiles(client, models, rows):
    said = predictions(client, "curves", rows, "/at", at=[1.0, 2.0], quantiles=[0.1, 0.9])
    table = models["curves"].predict(pl.DataFrame(rows), at=[1.0, 2.0], quantiles=[0.1, 0.9])
    for key, found in said.items():
        for level in ("0.1", "0.9"):
            for channel in ("x", "<script>"):
                expected = table.filter(who=key)[f"{channel}_q{level}"].to_list()
                assert found["quantiles"][level][channel] == pytest.approx(expected)


def test_times_of_each_series(client, models, rows):
    at = {f"p{n}": [float(n), n + 0.5][: 1 + n % 2] for n in range(5)}
    said = predictions(client, "curves", rows, "/at", at=at)
    assert {name: found["times"] for name, found in said.items()} == at
    mean = models["curves"].predict(pl.DataFrame(rows), at=at)
    assert said["p3"]["values"]["x"] == pytest.approx(mean.filter(who="p3")["x"].to_list())


def test_classes_at_times_are_those_of_the_observations_until_then(client, models, rows):
    times = [-1.0, 4.0, 4.0, 100.0]
    said = predictions(client, "classes", rows, "/at", at=times)
    for name, found in said.items():
        own = of(rows, who=name)
        assert found["labels"][0] is None
        assert found["probabilities"]["up"][0] is None
        for n, time in enumerate(times[1:], 1):
            before = pl.DataFrame([row for row in own if row["t"] <= time], infer_schema_length=None)
            expected = models["classes"].predict_proba(before)["up"][0]
            assert found["probabilities"]["up"][n] == pytest.approx(expected)
            assert found["labels"][n] == ("up" if expected > 0.5 else "down")


def test_numbers_at_times(client, models, rows):
    said = predictions(client, "sizes", of(rows, who="p0"), "/at", at=[-1.0, 100.0])
    whole = models["sizes"].predict(pl.DataFrame(of(rows, who="p0")))["size"][0]
    assert said["p0"]["value"] == [None, pytest.approx(whole)]


def test_forecasts_with_dates_and_learned_quantiles(client, models):
    given = days(2, 20, seed=3)
    said = predictions(client, "loads", given)
    table = pl.DataFrame(given).with_columns(pl.col("date").str.to_datetime())
    mean, model = models["loads"].predict(table), models["loads"]
    levels = model.predict(table, quantiles=model.quantiles)
    for key in (1, 2):
        expected = mean.filter(meter=key)
        found = said[str(key)]
        assert found["times"] == [date.isoformat() for date in expected["date"]]
        assert found["values"]["load"] == pytest.approx(expected["load"].to_list())
        assert list(found["quantiles"]) == [f"{level:g}" for level in model.quantiles]
        assert found["quantiles"]["0.9"]["load"] == pytest.approx(levels.filter(meter=key)["load_q0.9"].to_list())


def test_times_beyond_the_horizon_are_warned_of(small):
    body = {"records": days(1, 20), "at": ["2024-01-01T20:00:00", "2024-01-02T01:00:00"]}
    assert "as far as the horizon" in ask(small, "/at", "loads", **body)["warnings"][0]
    # every time, not only the first
    assert ask(small, "/at", "loads", **body)["warnings"]
    body["at"] = ["2030-01-01T00:00:00"]
    assert "times the horizon" in ask(small, "/at", "loads", status=422, **body)["detail"]


def test_next_events(client, models):
    given = orders(3, seed=4)
    said = predictions(client, "orders", given)
    table = models["orders"].predict_next(pl.DataFrame(given), probabilities=True)
    for row in table.iter_rows(named=True):
        found = said[row["user"]]
        shares = found.pop("probabilities")
        assert found == pytest.approx({name: row[name] for name in found})
        assert shares == pytest.approx({name: row[f"probability_{name}"] for name in shares})


def test_intensities_at_times(client, models):
    given = orders(2, seed=4)
    said = predictions(client, "orders", given, "/at", at=[50.0, 60.5])
    for key, found in said.items():
        table = models["orders"].intensity_at(pl.DataFrame(of(given, user=key)), [50.0, 60.5])
        assert found["times"] == [50.0, 60.5]
        for name, rates in found["intensities"].items():
            assert rates == pytest.approx(table[name].to_list())


def test_models_of_lists_have_columns_of_their_own(client, models):
    rows = [{"time": t, "channel_0": 1.0, "channel_1": None if t else 2.0} for t in (0.0, 1.0, 2.0)]
    expected = models["plain"].predict_proba([([0.0, 1.0, 2.0], [[1, 2], [1, np.nan], [1, np.nan]])])[0]
    said = predictions(client, "plain", rows)
    assert list(said["0"]["probabilities"].values()) == pytest.approx(expected.tolist())
    named = predictions(client, "plain", [{"id": 7, **row} for row in rows])
    assert named["7"] == said["0"]


@pytest.mark.parametrize("name", ["classes", "curves", "orders", "loads"])
def test_csv_gives_the_same_as_records(client, name, rows):
    given = orders(2, seed=5) if name == "orders" else days(1, 20, seed=5) if name == "loads" else rows
    body = pl.DataFrame(given, infer_schema_length=None).write_csv()
    for lines in (body, "\ufeff" + body, body.replace("\n", "\r\n")):
        head = {"Content-Type": "text/csv; charset=utf-8"}
        found = client.post("/predict", params={"model": name}, content=lines.encode(), headers=head)
        assert found.status_code == 200, found.text
        assert found.json()["predictions"] == predictions(client, name, given)


def test_csv_with_times_in_the_query(client, rows):
    body = pl.DataFrame(rows, infer_schema_length=None).write_csv().encode()
    head = {"Content-Type": "text/csv"}
    asked = {"model": "curves", "at": "0.5, 3", "quantiles": "0.25,0.5"}
    found = client.post("/at", params=asked, content=body, headers=head)
    assert found.status_code == 200, found.text
    expected = predictions(client, "curves", rows, "/at", at=[0.5, 3.0], quantiles=[0.25, 0.5])
    assert found.json()["predictions"] == expected
    assert client.post("/at", params={"model": "curves"}, content=body, headers=head).status_code == 422


def test_other_columns_are_ignored_and_missing_keys_are_missing_values(client, rows):
    expected = predictions(client, "classes", rows)
    bare = [{name: x for name, x in row.items() if x is not None} for row in rows]
    assert predictions(client, "classes", bare) == expected
    more = [{**row, "kind": "up", "note": [1, {"deep": "thing"}]} for row in rows]
    assert predictions(client, "classes", more) == expected


def test_the_order_of_records_does_not_matter(client, rows):
    assert predictions(client, "classes", rows[::-1]) == predictions(client, "classes", rows)


def test_words_that_are_numbers(client, rows):
    words = [{**row, "x": str(row["x"]), "t": str(row["t"])} for row in rows]
    assert predictions(client, "classes", words) == predictions(client, "classes", rows)


def test_the_only_model_needs_no_name(alone, rows):
    assert alone.post("/predict", json={"records": rows}).status_code == 200
    several = without(rows, "who")
    assert alone.post("/predict", json={"records": several}).status_code == 422
