"""The endpoints of the explorer page."""

import time

import numpy as np
import polars as pl
import pytest

pytest.importorskip("fastapi")

from fastapi.testclient import TestClient

from contiformer.data import EventSet, SeriesSet
from contiformer.data.events import EventSequence
from contiformer.serving import create_app
from contiformer.serving.edited import rounded
from contiformer.serving.explorer import STATIC, as_json
from tests.serving.problems import days, orders, waves

EMPTY = {"times": [], "points": [], "static": []}


def explored(models):
    """New series with answers, for every model that has a use for them."""
    table = pl.DataFrame(waves(9, seed=1))
    dated = pl.DataFrame(days(3, seed=1)).with_columns(pl.col("date").str.to_datetime())
    found = {name: models[name]._read_whole(table) for name in ("classes", "sizes", "targets", "curves")}
    found["loads"] = models["loads"]._read_whole(dated)
    found["orders"] = models["orders"]._read(pl.DataFrame(orders(6, seed=1))).data
    return found


@pytest.fixture(scope="module")
def data(models):
    return explored(models)


@pytest.fixture(scope="module")
def page(runs, data):
    with TestClient(create_app(list(runs.values()), data=data), base_url="http://localhost") as found:
        yield found


def ask(page, path, body=None, **parameters):
    answer = (
        page.get(f"/explore/{path}", params=parameters)
        if body is None
        else page.post(f"/explore/{path}", params=parameters, json=body)
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


def body_of(one):
    """A series as the page sends it."""
    return {name: as_json(one)[name] for name in ("times", "points", "static")}


def finished(page, model):
    """The first page of the list, once all surprise is known."""
    for _ in range(200):
        found = ask(page, "series", model=model)
        if found["review"]["done"] == found["review"]["total"] or found["review"]["error"]:
            return found
        time.sleep(0.05)
    raise AssertionError("the review does not end")


@pytest.mark.parametrize(
    ("model", "asked"), [("curves", "hidden values"), ("targets", "the targets"), ("loads", "the last steps")]
)
def test_surprise_says_of_which_values_it_is(page, model, asked):
    assert f"of {asked}," in ask(page, "series", model=model)["review"]["meaning"]


def test_the_page_and_its_files_are_served(page):
    index = page.get("/")
    assert index.status_code == 200
    assert "script-src 'self'" in index.headers["content-security-policy"]
    assert "<script>" not in index.text
    for path in STATIC.rglob("*.*"):
        if path.suffix != ".md":
            assert page.get(f"/static/{path.relative_to(STATIC).as_posix()}").status_code == 200, path


@pytest.mark.parametrize("path", ["../explorer.py", "%2e%2e/explorer.py", "js/none.js", "vendor/README.md", ""])
def test_other_files_are_not_served(page, path):
    assert page.get(f"/static/{path}").status_code == 404


def test_nothing_is_loaded_from_elsewhere():
    for path in STATIC.glob("**/*.*"):
        if path.parent.name != "vendor" and path.suffix in (".html", ".css", ".js"):
            text = path.read_text(encoding="utf-8")
            assert "://" not in text.replace("http://www.w3.org/2000/svg", ""), path
            assert "innerHTML" not in text, path


def test_models_are_described(page):
    found = {one["name"]: one for one in ask(page, "models")["models"]}
    assert found["classes"]["classes"] == ["down", "up"]
    assert [one["name"] for one in found["classes"]["channels"]] == ["x", "<script>"]
    assert found["classes"]["layers"] == ["attribution", "attention"]
    assert found["curves"]["outputs"] == ["x", "<script>"]
    assert found["curves"]["band"] == "90 % interval"
    assert found["targets"]["outputs"] == ["later"]
    assert found["loads"]["time"]["kind"] == "dates"
    assert found["loads"]["time"]["horizon"] == pytest.approx(4 * 3600)
    assert found["orders"]["types"] == ["buy", "sell"]
    assert found["plain"]["count"] is None


def test_the_list_is_searched_sorted_and_paged(page):
    first = finished(page, "classes")
    assert first["total"] == 9
    assert [one["id"] for one in ask(page, "series", model="classes", search="P3")["items"]] == ["p3"]
    some = ask(page, "series", model="classes", sort="id", descending=True, offset=1, limit=2)
    assert [one["id"] for one in some["items"]] == ["p7", "p6"]
    surprise = [one["surprise"] for one in ask(page, "series", model="classes", sort="surprise")["items"]]
    assert surprise == sorted(surprise)


def test_surprise_of_classes_is_the_negative_log_likelihood(page, models, data):
    items = {one["n"]: one for one in finished(page, "classes")["items"]}
    probability = models["classes"].predict_proba(data["classes"])
    for n, one in enumerate(data["classes"]):
        own = probability[n, ["down", "up"].index(one.label)]
        assert items[n]["surprise"] == pytest.approx(-np.log(own), rel=1e-4)
        assert items[n]["label"] == one.label


def test_surprise_of_numbers_is_the_error(page, models, data):
    items = finished(page, "sizes")["items"]
    said = models["sizes"].predict(data["sizes"])
    assert [one["surprise"] for one in items] == pytest.approx([abs(said[n] - n) for n in range(9)], rel=1e-4)


@pytest.mark.parametrize("model", ["targets", "curves", "loads"])
def test_surprise_of_values_is_known(page, model):
    found = finished(page, model)
    assert found["review"]["error"] is None
    assert all(one["surprise"] > 0 for one in found["items"])


def test_surprise_of_events_is_the_likelihood_per_event(page, models, data):
    items = finished(page, "orders")["items"]
    likelihood = models["orders"].log_likelihood(data["orders"])
    expected = [-total / (len(one) - 1) for total, one in zip(likelihood, data["orders"], strict=True)]
    assert [one["surprise"] for one in items] == pytest.approx(expected, rel=1e-4)


def test_a_series_goes_to_the_page_and_back(page, models, data):
    for n in (0, 3):
        item = ask(page, "item", model="classes", number=n)
        body = {name: item[name] for name in ("times", "points", "static")}
        said = ask(page, "answer", body, model="classes")["probabilities"]
        assert said == pytest.approx(models["classes"].predict_proba(data["classes"][n : n + 1])[0], rel=1e-4)
        assert item["label"] == data["classes"][n].label


def test_the_model_is_shown_what_is_known_by_then(page, models, data):
    one = data["classes"][0]
    until = float(one.times[3])
    known = SeriesSet([one.points(slice(4))], schema=data["classes"].schema)
    said = ask(page, "answer", body_of(one) | {"until": until}, model="classes")["probabilities"]
    assert said == pytest.approx(models["classes"].predict_proba(known)[0], rel=1e-4)
    over = ask(page, "over-time", body_of(one), model="classes")
    assert over["times"] == one.times.tolist()
    assert [answers[3] for answers in over["answers"]] == pytest.approx(said, rel=1e-3)
    assert ask(page, "answer", body_of(one) | {"until": float(one.times[0]) - 1}, model="classes") == {"known": False}


def test_numbers_and_values_at_times(page, models, data):
    one = data["sizes"][2]
    found = ask(page, "answer", body_of(one), model="sizes")
    assert found["value"] == pytest.approx(models["sizes"].predict(data["sizes"][2:3])[0], rel=1e-4)
    for model, outputs in (("curves", 2), ("targets", 1)):
        curve = ask(page, "answer", body_of(one) | {"start": 0.0, "end": 12.0}, model=model)["curve"]
        assert len(curve["middle"]) == outputs
        assert (curve["times"][0], curve["times"][-1]) == (0.0, 12.0)
        assert all(low < high for low, high in zip(curve["low"][0], curve["high"][0], strict=True))


def test_forecasts_follow_what_is_known(page, models, data):
    one = data["loads"][1]
    until = float(one.times[20])
    curve = ask(page, "answer", body_of(one) | {"until": until}, model="loads")["curve"]
    assert curve["times"] == pytest.approx([until + 3600 * k for k in range(1, 5)])
    known = SeriesSet([one.points(slice(21))], schema=data["loads"].schema)
    said = models["loads"].predict(known, quantiles=[0.5])[0].values[:, 0]
    assert curve["middle"][0] == pytest.approx(said, rel=1e-4)


def test_layers(page, models, data):
    one = data["classes"][0]
    found = ask(page, "layer", body_of(one), model="classes", name="attribution", target=1)
    shown = models["classes"].explain(data["classes"][:1], "occlusion", target="up").attributions[0]
    assert found["signed"]
    known = ~np.isnan(shown)
    got = np.array([[np.nan if x is None else x for x in row] for row in found["weights"]])
    assert got[known] == pytest.approx(shown[known], rel=1e-3, abs=1e-6)
    attention = ask(page, "layer", body_of(one), model="classes", name="attention", at=float(one.times[2]))
    assert np.sum(attention["weights"]) == pytest.approx(1, abs=1e-3)
    value = ask(page, "layer", body_of(one), model="curves", name="attribution", target=1, at=5.0)
    assert "<script>" in value["unit"]
    assert len(value["weights"]) == len(one)


def test_attributions_of_a_forecast_stand_at_the_points_that_it_goes_by(page, models, data):
    one = data["loads"][0]
    found = ask(page, "layer", body_of(one), model="loads", name="attribution")["weights"]
    shown = models["loads"].explain(data["loads"][:1], "occlusion").attributions[0][:, 0]
    assert len(shown) == 12 < len(one) == len(found)
    assert [row for row in found[:-12] if row != [None]] == []
    assert [row[0] for row in found[-12:]] == pytest.approx(shown, rel=1e-3, abs=1e-6)


def test_events_and_the_next_one(page, models, data):
    one = data["orders"][0]
    body = {"times": one.times.tolist(), "types": one.types.tolist()}
    found = ask(page, "events", body, model="orders")
    said = models["orders"].predict_next(data["orders"][:1], probabilities=True)
    assert found["next"]["expected"] == pytest.approx(said["expected_time"][0], rel=1e-4)
    assert found["next"]["probabilities"] == pytest.approx(
        [said["probability_buy"][0], said["probability_sell"][0]], 1e-3
    )
    at = found["intensity"]["times"]
    rates = models["orders"].intensity_at(one, at)
    np.testing.assert_allclose(np.array(found["intensity"]["rates"]).T, rates, rtol=1e-3)
    layer = ask(page, "event-layer", body, model="orders")
    assert len(layer["weights"]) == len(one)
    assert ask(page, "events", {"times": [], "types": []}, model="orders") == {"known": False}


def test_intensities_of_a_stretch_are_as_many_as_of_the_whole(page, models, data):
    one = data["orders"][0]
    body = {"times": one.times.tolist(), "types": one.types.tolist()}
    start, end = float(one.times[1]), float(one.times[3])
    part = ask(page, "events", body | {"start": start, "end": end}, model="orders")["intensity"]
    assert start <= min(part["times"])
    assert max(part["times"]) <= end
    assert len(part["times"]) > 400
    expected = models["orders"].intensity_at(one, part["times"])
    np.testing.assert_allclose(np.array(part["rates"]).T, expected, rtol=1e-3)


def test_the_next_event_is_after_the_time_that_is_known(page, data):
    """The longer nothing happens, the later the next event; just after the last one nothing has changed."""
    one = data["orders"][0]
    body = {"times": one.times.tolist(), "types": one.types.tolist()}
    last = float(one.times[-1])
    now = ask(page, "events", body, model="orders")["next"]
    soon = ask(page, "events", body | {"until": last + 1e-9}, model="orders")["next"]
    assert soon["expected"] - last == pytest.approx(now["expected"] - last, rel=0.02)
    assert soon["median"] - last == pytest.approx(now["median"] - last, rel=0.02)
    assert soon["probabilities"] == pytest.approx(now["probabilities"], abs=0.02)
    later = ask(page, "events", body | {"until": last + 5}, model="orders")["next"]
    assert later["median"] > last + 5


def test_reports(page):
    for model in ("classes", "sizes", "curves", "loads", "targets", "orders"):
        finished(page, model)
    found = ask(page, "report", model="classes")
    assert np.sum(found["report"]["confusion"]) == 9
    assert found["report"]["metrics"]["accuracy"] == pytest.approx(np.trace(found["report"]["confusion"]) / 9)
    assert sum(found["report"]["reliability"]["series"]) == 9
    assert found["facts"]["channels"] == "x, <script>"
    cell = np.argwhere(np.array(found["report"]["confusion"]) > 0)[0].tolist()
    inside = ask(page, "series", model="classes", true=cell[0], predicted=cell[1])
    assert inside["total"] == found["report"]["confusion"][cell[0]][cell[1]]
    assert {one["label"] for one in inside["items"]} == {["down", "up"][cell[0]]}
    assert len(ask(page, "report", model="sizes")["report"]["pairs"]["true"]) == 9
    for model in ("curves", "targets", "loads"):
        report = ask(page, "report", model=model)["report"]
        assert sum(report["channels"]["values"]) > 0
        assert report["metrics"]["rmse"] > 0
    events = ask(page, "report", model="orders")["report"]
    assert np.sum(events["confusion"]) == 6 * 9
    assert len(events["residuals"]["found"]) == 6 * 9
    assert ask(page, "report", model="plain")["report"] == {}


def test_learning_curves_of_a_run(runs, page, tmp_path):
    found = ask(page, "report", model="classes")
    assert found["history"] == []  # saved without a run folder
    (runs["sizes"] / "checkpoints").mkdir(exist_ok=True)
    (runs["sizes"] / "history.csv").write_text("round,train_loss,mse\n0,1.5,2.0\n1,1.0,nan\n")
    rows = ask(page, "report", model="sizes")["history"][0]
    assert rows == [{"round": 0.0, "train_loss": 1.5, "mse": 2.0}, {"round": 1.0, "train_loss": 1.0, "mse": None}]


def test_pasted_tables(page):
    good = page.post(
        "/explore/paste", params={"model": "classes"}, content="who,t,x,<script>\na,0,1,2\na,1,2,\nb,0,1,1\n"
    )
    assert [item["id"] for item in good.json()["items"]] == ["a", "b"]
    assert good.json()["items"][0]["points"] == [[0, 0, 1.0], [0, 1, 2.0], [1, 0, 2.0]]
    bad = page.post("/explore/paste", params={"model": "classes"}, content="who,t,x,<script>\na,0,1,2\na,noon,1,2\n")
    assert bad.status_code == 422
    assert "row 3, column 't'" in bad.json()["detail"]
    events = page.post("/explore/paste", params={"model": "orders"}, content="user,hour,action\nu,1,buy\nu,2,sell\n")
    assert events.json()["items"][0]["types"] == [0, 1]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"times": [0.0], "points": [[0, 7, 1.0]], "static": []}, "channel 7"),
        ({"times": [0.0], "points": [[3, 0, 1.0]], "static": []}, "row 3"),
        ({"times": [0.0], "points": [[0, 0, 1e300]], "static": []}, "standard deviations away"),
        ({"times": [0.0], "points": [], "static": [], "more": 1}, "more"),
    ],
)
def test_series_that_do_not_fit_are_refused(page, body, said):
    answer = page.post("/explore/answer", params={"model": "curves"}, json=body)
    assert answer.status_code == 422
    assert said in answer.json()["detail"]


def test_unknown_models_series_and_types_are_refused(page):
    assert page.get("/explore/item", params={"model": "classes", "number": 99}).status_code == 404
    assert page.get("/explore/series", params={"model": "none"}).status_code == 404
    assert page.post("/explore/events", params={"model": "classes"}, json={"times": [], "types": []}).status_code == 422
    assert page.post("/explore/answer", params={"model": "orders"}, json=EMPTY).status_code == 422
    answer = page.post("/explore/events", params={"model": "orders"}, json={"times": [1.0], "types": [5]})
    assert answer.json()["row"] == 1


def test_numbers_are_short_and_json_has_no_nan():
    assert rounded(np.array([[1 / 3, np.nan], [123456.7, 0.0]])) == [[0.33333, None], [123460.0, 0.0]]


def test_features_and_labels_of_sequences_reach_the_page():
    one = EventSequence.of([1.0, 2.0], [0, 1], features=[[1.5], [np.nan]], label="x", id=3)
    found = as_json(EventSet([one])[0])
    assert found == {"id": 3, "label": "x", "times": [1.0, 2.0], "types": [0, 1], "features": [[1.5], [None]]}
