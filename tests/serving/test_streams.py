"""Streams of events: appended one by one, answers as those of the estimator's own stream."""

import pytest

from contiformer.serving.messages import NextEvent, StreamIntensity, StreamState
from tests.serving.problems import orders

EVENTS = [(row["hour"], row["action"]) for row in orders(1, seed=7)]


def append(client, stream, time, kind, status=200, **params):
    found = client.post(f"/events/{stream}", json={"time": time, "type": kind}, params=params)
    assert found.status_code == status, found.text
    return found.json()


def test_answers_are_those_of_the_estimator(small, models):
    own = models["orders"].stream()
    for n, (time, kind) in enumerate(EVENTS, 1):
        own.append(time, kind)
        said = append(small, "s", time, kind)
        StreamState.model_validate(said)
        assert said == {"stream": "s", "model": "orders", "events": n}
        following = small.get("/events/s", params={"within": "2.5"}).json()
        NextEvent.model_validate(following)
        expected = own.predict_next(within=2.5)
        for name in ("expected_time", "median_time", "probability", "within", "probabilities"):
            assert following[name] == pytest.approx(expected[name])
        assert following["type"] == expected["type"]
    later = [time + 0.5, time + 3.0]
    rates = small.get("/events/s/intensity", params={"at": ",".join(map(str, later))}).json()
    StreamIntensity.model_validate(rates)
    assert rates["times"] == later
    expected = own.intensity(later)
    for n, name in enumerate(own.type_names):
        assert rates["intensities"][name] == pytest.approx(expected[:, n].tolist())


def test_streams_are_apart_and_deleted(small):
    append(small, "a", 1.0, "buy")
    append(small, "a", 2.0, "buy")
    assert append(small, "b", 0.5, "sell")["events"] == 1
    assert small.delete("/events/a").status_code == 204
    assert small.delete("/events/a").status_code == 404
    assert small.get("/events/a").status_code == 404
    assert small.get("/events/b").json()["events"] == 1
    assert append(small, "a", 0.1, "buy")["events"] == 1


def test_wrong_events_change_nothing(small):
    assert "first event makes one" in small.get("/events/new").json()["detail"]
    assert "no type 'steal'" in append(small, "new", 1.0, "steal", 422)["detail"]
    assert small.get("/events/new").status_code == 404
    append(small, "new", 5.0, "buy")
    assert "after a later one" in append(small, "new", 4.0, "buy", 422)["detail"]
    for time in ("noon", "2024-01-01", None, [1], True):
        append(small, "new", time, "buy", 422)
    append(small, "new", 6.0, None, 422)
    assert small.get("/events/new").json()["events"] == 1
    assert "before the last event" in small.get("/events/new/intensity", params={"at": "4"}).json()["detail"]
    for at in ("", "x", ",", "1e999"):
        assert small.get("/events/new/intensity", params={"at": at}).status_code == 422
    for within in ("x", "-1", "01:00", ""):
        assert small.get("/events/new", params={"within": within}).status_code == 422


def test_a_stream_belongs_to_one_model(small):
    assert append(small, "s", 1.0, "buy", model="orders")["model"] == "orders"
    assert append(small, "s", 2.0, "buy", 409, model="classes")
    assert small.get("/events/s", params={"model": "classes"}).status_code == 409
    assert small.delete("/events/s", params={"model": "classes"}).status_code == 409
    assert "not of events" in append(small, "t", 1.0, "buy", 422, model="classes")["detail"]
    assert append(small, "t", 1.0, "buy", 404, model="nobody")


def test_the_stream_that_was_idle_longest_goes_first(small):
    for name in ("a", "b", "c"):
        append(small, name, 1.0, "buy")
    assert small.get("/events/a").status_code == 200
    # a bad first event pushes nobody out
    append(small, "d", 1.0, "steal", 422)
    assert 'contiformer_streams{model="orders"} 3' in small.get("/metrics").text
    append(small, "d", 1.0, "buy")
    assert [small.get(f"/events/{name}").status_code for name in "abcd"] == [200, 404, 200, 200]
    assert 'contiformer_streams{model="orders"} 3' in small.get("/metrics").text


def test_streams_have_a_largest_length(small):
    for n in range(30):
        append(small, "s", float(n), "buy")
    assert "events" in append(small, "s", 31.0, "buy", 413)["detail"]
    assert small.get("/events/s").json()["events"] == 30


def test_names_are_plain(small):
    for name in ("a b", "%2e%2e%2fsecret", "x" * 129, "%00", "%3Cscript%3E", "a%0ab"):
        found = small.post(f"/events/{name}", json={"time": 1.0, "type": "buy"})
        assert found.status_code in (404, 422)
