"""What sandboxes see of a host that changes while it is looked at."""

from __future__ import annotations

import shutil

import pytest

from agentrl_local import view


@pytest.fixture
def etc(tmp_path):
    folder = tmp_path / "etc"
    folder.mkdir()
    for name in ("hosts", "passing.new", "resolv.conf"):
        (folder / name).write_text(name)
    return folder


def test_a_file_that_goes_away_leaves_no_half_made_snapshot(etc, tmp_path, monkeypatch):
    copy = shutil.copy2

    def copy2(source, target):
        (etc / "passing.new").unlink(missing_ok=True)
        return copy(source, target)

    monkeypatch.setattr(view.shutil, "copy2", copy2)
    with pytest.raises(FileNotFoundError):
        view.snapshot(etc, tmp_path / "store")
    assert not list((tmp_path / "store").iterdir())
    made = view.snapshot(etc, tmp_path / "store")
    assert sorted(path.name for path in made.iterdir()) == ["hosts", "resolv.conf"]


def test_the_host_is_looked_at_again(tmp_path, monkeypatch):
    looks = []

    def snapshot(source, store):
        looks.append(source)
        if len(looks) < 3:
            raise FileNotFoundError(2, "it was there a moment ago", "/etc/x.dpkg-new")
        return tmp_path

    monkeypatch.setattr(view, "snapshot", snapshot)
    monkeypatch.setattr(view, "LOOK_AGAIN_SEC", 0.0)
    assert ("/etc", (tmp_path,)) in view.survey(["/etc"], tmp_path).overlays
    assert len(looks) == 3
    looks.clear()
    monkeypatch.setattr(view, "LOOKS", 2)
    with pytest.raises(FileNotFoundError):
        view.survey(["/etc"], tmp_path)
