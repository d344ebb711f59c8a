"""Places where files of the package are looked for."""

from autorl.core import shipped


def test_an_installation_comes_before_a_checkout(tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "_PACKAGE", tmp_path / "autorl")
    assert shipped.shipped_folder("search_spaces") is None
    checkout = tmp_path / "search_spaces"
    checkout.mkdir()
    assert shipped.shipped_folder("search_spaces") == checkout
    installed = tmp_path / "autorl" / "_shipped" / "search_spaces"
    installed.mkdir(parents=True)
    assert shipped.shipped_folder("search_spaces") == installed
    assert shipped.shipped_folder("landscapes") is None
