"""Wrong requests are answered with a status, a text, and the row and column."""

import json

import pytest

from contiformer.serving.errors import Problem
from tests.serving.problems import days, of, orders


def refused(client, status, path="/predict", model="classes", body=None, **request):
    given = request if body is None else {"json": body, **request}
    found = client.post(path, params={"model": model}, **given)
    assert found.status_code == status, found.text
    return Problem.model_validate(found.json())


def with_cell(rows, n, column, value):
    return {"records": [{**row, column: value} if k == n else row for k, row in enumerate(rows)]}


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("t", None, "the time is missing"),
        ("t", "noon", "is a word, and those above are numbers"),
        ("t", [1], "a list"),
        ("x", {"a": 1}, "a nested object"),
        ("x", "high", "is a word"),
        ("x", 10**400, "too large"),
        ("who", None, "is missing"),
        ("who", 3, "is a number, and those above are words"),
        ("who", "\ud800", "no valid Unicode"),
    ],
)
def test_bad_cells_are_named_by_record_and_column(client, rows, column, value, said):
    body = json.dumps(with_cell(rows, 6, column, value))
    found = refused(client, 422, content=body, headers={"Content-Type": "application/json"})
    assert (found.row, found.column) == (7, column)
    assert said in found.detail
    assert f"row 7, column {column!r}" in found.detail


def test_bad_cells_of_csv_are_named_by_line_and_column(client):
    body = "who,t,x,<script>\na,0,1,2\na,1,high,2\n"
    found = refused(client, 422, content=body, headers={"Content-Type": "text/csv"})
    assert (found.row, found.column) == (3, "x")
    assert "'high' is not a number" in found.detail
    for body, said in (
        ("", "empty"),
        ("who,t,x,<script>\n", "no rows"),
        ("who,t,t\n", "name"),
        ("who,t,x,<script>\na,0,1\n", "fields"),
        ("who,t,x\na,0,1\n", "'<script>'"),
        (b"who,t,x,<script>\n\xff,0,1,1\n", ""),
        (b'who,t,x,<script>\n"a,0,1,1\n', ""),
        (b"\x00\x01\x02", ""),
    ):
        assert said in refused(client, 422, content=body, headers={"Content-Type": "text/csv"}).detail


def test_unknown_columns_get_a_suggestion(client, rows):
    renamed = [{("xx" if name == "x" else name): value for name, value in row.items()} for row in rows]
    assert "there is no column 'x'" in refused(client, 422, body={"records": renamed}).detail


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"records": []}, "there are no records"),
        ({}, "records: Field required"),
        ({"records": 3}, "records"),
        ({"records": [3]}, "records.0"),
        ({"records": [], "recs": 1}, "recs"),
        ([], "body"),
        (None, "body"),
    ],
)
def test_bodies_of_another_form(client, body, said):
    raw = json.dumps(body)
    assert said in refused(client, 422, content=raw, headers={"Content-Type": "application/json"}).detail


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff", b'{"records": [{"t": NaN}]}', b'{"records": [{"t": -Infinity}]}'])
def test_bodies_that_are_no_json(client, raw):
    assert "JSON" in refused(client, 422, content=raw, headers={"Content-Type": "application/json"}).detail


def test_infinite_numbers_are_rejected(client, rows):
    raw = json.dumps(with_cell(rows, 2, "x", 12345)).replace("12345", "1e999")
    found = refused(client, 422, content=raw, headers={"Content-Type": "application/json"})
    assert (found.row, found.column) == (3, "x")


def test_values_that_no_model_can_take(client, rows):
    found = refused(client, 422, model="curves", body=with_cell(rows, 2, "x", 1e30))
    assert "standard deviations away" in found.detail
    assert "series 'p0'" in found.detail
    assert refused(client, 422, body=with_cell(rows, 2, "t", 1e300)).detail


def test_content_types(client):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-16", ""):
        found = refused(client, 415, content=b"{}", headers={"Content-Type": kind})
        assert "Content-Type" in found.detail
    assert client.post("/predict?model=classes").status_code == 415


def test_models_are_found_by_name(client, rows):
    assert "did you mean 'classes'" in refused(client, 404, model="classe", body={"records": rows}).detail
    found = client.post("/predict", json={"records": rows})
    assert found.status_code == 422
    assert "which model" in found.json()["detail"]
    assert refused(client, 404, model="../classes", body={"records": rows})
    assert refused(client, 404, model="", body={"records": rows})


@pytest.mark.parametrize(
    ("model", "more", "said"),
    [
        ("curves", {"at": []}, "no times"),
        ("curves", {"at": [1, "2"]}, "numbers and words"),
        ("curves", {"at": ["noon"]}, "not a time"),
        ("curves", {"at": ["2024-01-01"]}, "trained on numbers"),
        ("curves", {"at": {"p0": [1.0]}}, "no times for the series 'p1'"),
        ("curves", {"at": {"nobody": [1.0]}}, "'nobody'"),
        ("curves", {"at": [1e300]}, "units of time"),
        ("curves", {"at": [1.0], "quantiles": [2.0]}, "between 0 and 1"),
        ("curves", {"at": [1.0], "quantiles": []}, "between 0 and 1"),
        ("targets", {"at": [1.0], "quantiles": [0.5]}, "no quantiles"),
        ("curves", {}, "at: Field required"),
    ],
)
def test_bad_times_and_levels(client, rows, model, more, said):
    assert said in refused(client, 422, "/at", model, body={"records": rows, **more}).detail


def test_times_of_another_kind(client):
    rows = [{**row, "date": float(n)} for n, row in enumerate(days(1, 20))]
    assert "trained on dates" in refused(client, 422, model="loads", body={"records": rows}).detail
    zoned = [{**row, "date": row["date"] + "Z"} for row in days(1, 20)]
    assert "zone" in refused(client, 422, model="loads", body={"records": zoned}).detail
    assert (
        "is known until"
        in refused(client, 422, "/at", "loads", body={"records": days(1, 20), "at": ["2024-01-01T02:00:00"]}).detail
    )


def test_unknown_types_of_events(client):
    rows = of(orders(1), user="u0")
    found = refused(client, 422, model="orders", body=with_cell(rows, 3, "action", "steal"))
    assert (found.row, found.column) == (4, "action")
    assert "'steal' was not there in training" in found.detail


def test_unknown_paths_and_methods(client):
    assert client.get("/nothing").status_code == 404
    assert Problem.model_validate(client.get("/nothing").json())
    assert client.get("/predict").status_code == 405
    assert client.put("/schema").status_code == 405


class TestTooMuch:
    """What exceeds the limits of ``small``."""

    def test_rows_series_and_lengths(self, small, rows):
        assert "records" in refused(small, 413, body={"records": rows * 4}).detail
        many = [{**row, "who": f"w{n}"} for n, row in enumerate(rows[:20])]
        assert "series" in refused(small, 413, body={"records": many}).detail
        long = [{**rows[0], "t": float(n)} for n in range(40)]
        assert "points" in refused(small, 413, body={"records": long}).detail
        lines = "who,t,x,<script>\n" + "a,0,1,1\n" * 200
        assert "rows" in refused(small, 413, content=lines, headers={"Content-Type": "text/csv"}).detail

    def test_times(self, small, rows):
        body = {"records": rows, "at": [float(n) for n in range(30)]}
        assert "times" in refused(small, 413, "/at", "curves", body=body).detail
        body["at"] = {f"p{n}": [1.0] * 30 for n in range(5)}
        assert "times" in refused(small, 413, "/at", "curves", body=body).detail
        body = {"records": rows, "at": [1.0], "quantiles": [0.5] * 101}
        assert "quantiles" in refused(small, 413, "/at", "curves", body=body).detail

    def test_parts_of_series(self, small, rows):
        """Each time of its own makes a classifier read the series until there once more."""
        body = {"records": rows, "at": [float(n) for n in range(10)]}
        assert "parts of series" in refused(small, 413, "/at", "classes", body=body).detail
        body["at"] = [100.0] * 10
        assert small.post("/at", params={"model": "classes"}, json=body).status_code == 200

    def test_bytes(self, small, rows):
        padded = json.dumps({"records": rows[:1]}) + " " * 30_000
        head = {"Content-Type": "application/json"}
        assert "bytes" in refused(small, 413, content=padded, headers=head).detail
        # without a length, found out while reading
        chunks = iter([padded[:10_000].encode(), padded[10_000:].encode(), b" " * 10**6])
        assert "bytes" in refused(small, 413, content=chunks, headers=head).detail
