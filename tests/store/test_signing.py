import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from autorl.store import signing


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def test_what_was_signed_here_is_known_again_and_nothing_else(home):
    signature = signing.sign("purpose", b"data")
    assert signing.is_signed("purpose", b"data", signature)
    assert not signing.is_signed("purpose", b"other", signature)
    assert not signing.is_signed("another purpose", b"data", signature)
    assert not signing.is_signed("purpose", b"data", "")


def test_the_key_is_the_user_s_alone_and_stays(home):
    first = signing.sign("purpose", b"data")
    key = home / "autorl" / "key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.parent.stat().st_mode & 0o777 == 0o700
    assert len(key.read_bytes()) == 32
    assert signing.sign("purpose", b"data") == first
    assert [path.name for path in key.parent.iterdir()] == ["key"]


def test_another_key_signs_otherwise(home, monkeypatch, tmp_path):
    signature = signing.sign("purpose", b"data")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "other"))
    assert not signing.is_signed("purpose", b"data", signature)
    assert not (tmp_path / "other").exists(), "looking at a signature makes no key"


@pytest.mark.parametrize(
    "spoil", [lambda key: key.chmod(0o644), lambda key: key.write_bytes(b"short")]
)
def test_a_key_that_others_can_read_or_that_is_torn_signs_nothing(home, spoil):
    signature = signing.sign("purpose", b"data")
    spoil(home / "autorl" / "key")
    assert signing.sign("purpose", b"data") is None
    assert not signing.is_signed("purpose", b"data", signature)


def test_without_a_place_for_a_key_nothing_is_signed(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    assert signing.sign("purpose", b"data") is None


def test_a_relative_folder_of_configuration_is_ignored(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert signing.key_file() == tmp_path / ".config" / "autorl" / "key"


def test_threads_that_begin_at_once_have_one_key(home):
    with ThreadPoolExecutor(8) as pool:
        signatures = set(pool.map(lambda _: signing.sign("purpose", b"data"), range(32)))
    assert len(signatures) == 1
    assert os.listdir(home / "autorl") == ["key"]
