from textkit import columns


def test_columns():
    assert columns([("a", "bb"), ("ccc", "d")]) == ["a    bb", "ccc  d"]
