"""Identity of the code that made the data: packages, this package's files, its commit."""

import hashlib
import importlib.metadata
import shutil
import subprocess

import pytest

import autorl
from autorl.store import provenance


@pytest.fixture(autouse=True)
def _nothing_cached():
    caches = (provenance.own_source, provenance.source_sha256, provenance._recorded_hash)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


def test_a_package_has_the_hash_of_what_was_installed():
    distribution = importlib.metadata.distribution("pluggy")
    listed = []
    for file in distribution.files:
        metadata = ".dist-info" in str(file).split("/", maxsplit=1)[0]
        if file.hash is not None and not metadata and not str(file).endswith(".pyc"):
            listed.append(f"{file} {file.hash.value}")
    assert len(listed) > 3
    digest = hashlib.sha256("\n".join(sorted(listed)).encode()).hexdigest()
    version = distribution.version
    assert provenance.package("pluggy", version) == {"version": version, "sha256": digest}


def test_another_version_and_an_unknown_package_have_no_hash():
    assert provenance.package("pluggy", "0.0.0") == {"version": "0.0.0"}
    assert provenance.package("no-such-package", "1.0") == {"version": "1.0"}


def test_the_source_is_hashed_by_path_and_text(monkeypatch, tmp_path):
    (tmp_path / "autorl" / "deep").mkdir(parents=True)
    (tmp_path / "autorl" / "__init__.py").write_bytes(b"a = 1\n")
    (tmp_path / "autorl" / "deep" / "b.py").write_bytes(b"b = 2\n")
    (tmp_path / "autorl" / "notes.txt").write_bytes(b"no source")
    monkeypatch.setattr(autorl, "__file__", str(tmp_path / "autorl" / "__init__.py"))
    digest = hashlib.sha256(b"__init__.py\0a = 1\ndeep/b.py\0b = 2\n").hexdigest()
    assert provenance.source_sha256() == digest
    # There is no checkout around it: nothing is said of a commit.
    assert provenance.checkout_commit() == ""
    assert provenance.own_source() == {"sha256": digest}


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_checkout_says_its_commit_and_whether_files_differ(monkeypatch, tmp_path):
    (tmp_path / "autorl").mkdir()
    file = tmp_path / "autorl" / "__init__.py"
    file.write_bytes(b"")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    git += ["-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "text"], ["tag", "v1"]):
        subprocess.run([*git, *command], check=True, capture_output=True)
    monkeypatch.setattr(autorl, "__file__", str(file))
    commit = provenance.checkout_commit()
    assert len(commit) == 40
    assert provenance.own_source()["commit"] == commit
    file.write_bytes(b"changed = 1\n")
    assert provenance.checkout_commit() == f"{commit}-dirty"
    monkeypatch.setenv("PATH", str(tmp_path))  # no git there
    assert provenance.checkout_commit() == ""
