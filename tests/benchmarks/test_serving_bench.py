"""The load on the server: a short run of the whole measurement."""

import pytest

from benchmarks import serving

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")


def test_a_short_load():
    said = []
    document = serving.run(0.3, clients=(1, 3), notify=said.append)
    assert len(said) == 5
    assert set(document["clients"]) == {"1", "3"}
    for found in (*document["clients"].values(), *document["direct"].values()):
        assert found["errors"] == 0
        assert found["requests"] >= 1
        assert 0 < found["p50_ms"] <= found["p99_ms"] <= found["max_ms"]
        assert found["series_per_second"] > 0
    assert (
        document["direct"]["batches of 64"]["series_per_second"] > document["direct"]["one by one"]["series_per_second"]
    )
    lines = serving.rows(document)
    assert [line[0] for line in lines[:4]] == [
        "direct, one by one",
        "direct, batches of 64",
        "server, 1 clients",
        "server, 3 clients",
    ]
    assert set(document["memory_mb"]) == {"1", "3"}
    assert all(low <= high for low, high in serving.extremes(document["memory_mb"]).values())
