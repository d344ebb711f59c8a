"""A folder in which no landscape and no prior is found."""

import pytest


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder without landscapes, where the package has none either."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("autorl.optimizers.priors.sources.shipped_root", lambda: None)
    monkeypatch.setattr("autorl.optimizers.priors.sources.shipped_folder", lambda kind: None)
    monkeypatch.setattr("autorl.landscapes.library.shipped_root", lambda: None)
    return tmp_path
