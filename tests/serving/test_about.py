"""Health, schema, metrics, and the OpenAPI document."""

import pytest

from contiformer import __version__
from contiformer.data import DataError
from contiformer.serving.messages import Health, ServerSchema
from contiformer.serving.models import load_models


def test_health(client):
    assert Health.model_validate(client.get("/health").json()).models == 7


def test_schema(client, models):
    found = ServerSchema.model_validate(client.get("/schema").json())
    assert found.contiformer == __version__
    assert set(found.models) == set(models)
    classes, loads, orders = found.models["classes"], found.models["loads"], found.models["orders"]
    assert [(one.name, one.role) for one in classes.columns] == [
        ("who", "id"),
        ("t", "time"),
        ("x", "channel"),
        ("<script>", "channel"),
    ]
    assert classes.classes == ["down", "up"]
    assert classes.facts["series trained on"] == str(models["classes"].metrics_["training_series"])
    assert (loads.time_kind, loads.horizon, loads.step, loads.bands) == ("dates", 4, 3600.0, "quantiles")
    assert orders.types == ["buy", "sell"]
    assert found.models["targets"].outputs == ["later"]
    assert found.limits["body_bytes"] == 16 * 2**20
    only = client.get("/schema", params={"model": "classes"}).json()["models"]
    assert list(only) == ["classes"]
    assert client.get("/schema", params={"model": "nobody"}).status_code == 404


def test_examples_of_the_schema_are_answered(client):
    for name, model in client.get("/schema").json()["models"].items():
        found = client.post("/predict", params={"model": name}, json={"records": model["example"]})
        assert found.status_code == 200, found.text


def test_metrics_count(alone, rows):
    alone.post("/predict", json={"records": rows})
    alone.post("/predict", json={})
    lines = alone.get("/metrics").text.splitlines()
    for line in (
        'contiformer_requests_total{route="/predict",status="200"} 1',
        'contiformer_requests_total{route="/predict",status="422"} 1',
        'contiformer_errors_total{route="/predict",status="422"} 1',
        'contiformer_request_seconds_count{route="/predict"} 2',
        'contiformer_batch_series_bucket{model="classes",le="8"} 1',
        'contiformer_batch_series_bucket{model="classes",le="4"} 0',
        'contiformer_batch_series_sum{model="classes"} 5',
        'contiformer_series_total{model="classes"} 5',
        'contiformer_queue_length{model="classes"} 0',
    ):
        assert line in lines
    # every sample belongs to a metric that was described before
    described = set()
    for line in lines:
        if line.startswith("# TYPE"):
            described.add(line.split()[2])
        elif not line.startswith("#"):
            name = line.partition("{")[0]
            assert any(name.removesuffix(end) in described for end in ("", "_bucket", "_sum", "_count")), line


def test_the_openapi_document_describes_every_endpoint(client):
    document = client.get("/openapi.json").json()
    assert {
        "/predict",
        "/at",
        "/events/{stream}",
        "/events/{stream}/intensity",
        "/schema",
        "/health",
        "/metrics",
    } <= set(document["paths"])
    predict = document["paths"]["/predict"]["post"]
    assert set(predict["requestBody"]["content"]) == {"application/json", "text/csv"}
    assert predict["requestBody"]["content"]["application/json"]["schema"]["properties"]["records"]["examples"]
    for path in ("/predict", "/at"):
        responses = document["paths"][path]["post"]["responses"]
        assert {"200", "401", "404", "408", "413", "415", "422", "503", "504"} <= set(responses)
        assert responses["200"]["content"]["application/json"]["schema"]["$ref"].endswith("Answers")
        assert responses["422"]["content"]["application/json"]["schema"]["$ref"].endswith("Problem")


def test_models_are_named_by_their_folders(runs, tmp_path):
    other = tmp_path / "other" / "classes"
    other.parent.mkdir()
    other.symlink_to(runs["classes"])
    copied = tmp_path / "more" / "classes"
    copied.mkdir(parents=True)
    for file in runs["classes"].iterdir():
        (copied / file.name).write_bytes(file.read_bytes())
    assert list(load_models([runs["classes"], runs["sizes"]])) == ["classes", "sizes"]
    found = load_models([runs["classes"], copied])
    assert list(found) == [f"{runs['classes'].parent.name}/classes", "more/classes"]
    with pytest.raises(DataError, match="given twice"):
        load_models([runs["classes"], other])
    with pytest.raises(DataError, match="no such folder"):
        load_models([tmp_path / "nothing"])
    with pytest.raises(DataError, match="no models"):
        load_models([])
