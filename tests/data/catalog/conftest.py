import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Nothing is found but what a test puts there."""
    folder = tmp_path / "cache" / "contiformer"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CONTIFORMER_DATA", raising=False)
    return folder
