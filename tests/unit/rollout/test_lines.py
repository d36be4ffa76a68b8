"""Append-only JSON lines: whole lines survive, torn ones do not."""

from agentrl.rollout.lines import Lines, read_lines


def test_appends_across_openings(tmp_path):
    for value in (1, 2):
        lines = Lines(tmp_path / "deep" / "x.jsonl")
        lines.append({"value": value})
        lines.close()
    assert [row["value"] for row in read_lines(tmp_path / "deep" / "x.jsonl")] == [1, 2]


def test_a_torn_last_line_is_dropped_and_not_glued_to_the_next(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"value":1}\n{"value":' + b"9" * 200_000)
    assert [row["value"] for row in read_lines(path)] == [1]
    lines = Lines(path)
    lines.append({"value": 2})
    lines.close()
    assert path.read_bytes() == b'{"value":1}\n{"value":2}\n'


def test_a_file_that_is_one_torn_line_becomes_empty(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"value"')
    Lines(path).close()
    assert path.read_bytes() == b""


def test_no_file_reads_as_nothing(tmp_path):
    assert list(read_lines(tmp_path / "none.jsonl")) == []
