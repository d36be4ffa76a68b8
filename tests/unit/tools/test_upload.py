"""Files of the host in a real sandbox, bigger than a part."""

from __future__ import annotations

import hashlib
import random

import pytest

from agentrl.errors import FileIsDirectory
from agentrl.tools import upload
from agentrl.types import Layer


async def test_a_file_of_several_parts_arrives_whole_and_replaces_the_old_one(sandbox, tmp_path, monkeypatch):
    monkeypatch.setattr(upload, "PART_BYTES", 1000)
    source = tmp_path / "source"
    source.write_bytes(random.Random(0).randbytes(2500))
    path = "/opt/with space/and 'quote'/program"
    await sandbox.write_file(path, b"something else, and longer than a part" * 100)
    before = await sandbox.exec(["ls", "/tmp"], timeout_sec=60)
    await upload.upload_file(sandbox, source, path, mode=0o755)
    assert await sandbox.read_file(path) == source.read_bytes()
    mode = await sandbox.exec(["stat", "-c", "%a", path], timeout_sec=60)
    assert mode.stdout == b"755\n"
    assert (await sandbox.exec(["ls", "/tmp"], timeout_sec=60)).stdout == before.stdout


async def test_an_empty_file_is_a_file(sandbox, tmp_path):
    (tmp_path / "empty").touch()
    await upload.upload_file(sandbox, tmp_path / "empty", "/opt/empty")
    assert await sandbox.read_file("/opt/empty") == b""


async def test_a_folder_in_the_way_is_an_error(sandbox, tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(FileIsDirectory):
        await upload.upload_file(sandbox, tmp_path / "file", "/opt")


async def test_a_layer_of_both_kinds_of_files(sandbox, tmp_path):
    (tmp_path / "big").write_bytes(b"#!/bin/sh\necho fetched\n")
    made = Layer("both", files={"/opt/a": b"#!/bin/sh\necho given\n"}, fetched={"/opt/b": lambda: tmp_path / "big"})
    await upload.write_layer(sandbox, made)
    result = await sandbox.exec("/opt/a && /opt/b", timeout_sec=60)
    assert result.stdout == b"given\nfetched\n"


def test_a_digest_tells_layers_apart_without_fetching(tmp_path):
    def never():
        raise AssertionError("fetched")

    layers = [
        Layer("a"),
        Layer("b"),
        Layer("a", ("true",)),
        Layer("a", files={"/x": b"1"}),
        Layer("a", files={"/x": b"2"}),
        Layer("a", fetched={"/x": never}),
        Layer("a", fetched={"/y": never}),
    ]
    assert len({layer.digest for layer in layers}) == len(layers)
    assert all(len(layer.digest) == hashlib.sha256().digest_size * 2 for layer in layers)
