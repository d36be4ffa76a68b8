"""Fetching files of a package with an npm that is a script of ours."""

from __future__ import annotations

import io
import os
import tarfile
from concurrent.futures import ThreadPoolExecutor

import pytest

from agentrl.errors import HarnessError
from agentrl.tools.npm import fetch_npm, npm_missing

NPM = """#!/bin/sh
# npm pack PACKAGE --silent --pack-destination FOLDER
echo "$2" >> "$NPM_LOG"
cp "$NPM_PACKAGE" "$5/package.tgz" || { echo "no such package" >&2; exit 1; }
"""
MEMBERS = {"bin/tool": "vendor/x/bin/tool", "meta.json": "package.json"}


@pytest.fixture
def npm(tmp_path, monkeypatch):
    """Puts the script on the path; the file that it writes its calls to."""
    packed = tmp_path / "tool.tgz"
    with tarfile.open(packed, "w:gz") as archive:
        for name in ("package.json", "vendor/x/bin/tool", "vendor/x/bin/other"):
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(name)
            archive.addfile(member, io.BytesIO(name.encode()))
    script = tmp_path / "bin" / "npm"
    script.parent.mkdir()
    script.write_text(NPM)
    script.chmod(0o755)
    log = tmp_path / "log"
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("NPM_LOG", str(log))
    monkeypatch.setenv("NPM_PACKAGE", str(packed))
    return log


def test_it_is_fetched_once_however_many_ask(tmp_path, npm):
    folder = tmp_path / "cache" / "1.0"
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(lambda _: fetch_npm("@a/tool@1.0", MEMBERS, folder), range(4)))
    assert found == {folder}
    assert npm.read_text() == "@a/tool@1.0\n"
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert files == ["bin/tool", "meta.json"]
    assert (folder / "bin/tool").read_text() == "vendor/x/bin/tool"
    assert os.access(folder / "bin/tool", os.X_OK)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["1.0", "1.0.lock"]


def test_a_package_that_is_not_there_is_an_error_with_its_name(tmp_path, npm, monkeypatch):
    monkeypatch.setenv("NPM_PACKAGE", str(tmp_path / "absent"))
    with pytest.raises(HarnessError, match=r"(?s)tool@2.*no such package"):
        fetch_npm("tool@2", MEMBERS, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_a_package_that_is_packed_differently_leaves_nothing_half_done(tmp_path, npm):
    with pytest.raises(HarnessError, match="does not hold package/elsewhere"):
        fetch_npm("tool@2", {**MEMBERS, "more": "elsewhere"}, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_without_npm_it_says_what_to_install_unless_all_is_here(tmp_path, npm, monkeypatch):
    folder = fetch_npm("tool@1", MEMBERS, tmp_path / "cache")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "apt-get install npm" in (npm_missing() or "")
    assert fetch_npm("tool@1", MEMBERS, folder) == folder
    with pytest.raises(HarnessError, match="apt-get install npm"):
        fetch_npm("tool@1", MEMBERS, tmp_path / "absent")
