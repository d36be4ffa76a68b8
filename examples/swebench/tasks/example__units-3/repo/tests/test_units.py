from units import seconds


def test_plain():
    assert seconds("90") == 90


def test_unit():
    assert seconds("2m") == 120
