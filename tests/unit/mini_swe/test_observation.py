"""What the model sees of a command."""

import pytest

from agentrl.api import ExecResult
from agentrl_mini_swe.observation import describe, is_submission, shorten


def seen(result: ExecResult, max_chars: int = 1000) -> str:
    return describe(result, timeout_sec=5, max_chars=max_chars)


def test_exit_code_and_both_streams():
    assert seen(ExecResult(3, b"out\n", b"err\n")) == "exit code 3\nout\nerr"


def test_silence_is_said():
    assert seen(ExecResult(0, b"\n", b"")) == "exit code 0\n(no output)"


def test_a_timeout_shows_what_there_was():
    message = seen(ExecResult(137, b"step 1\n", b"", timed_out=True))
    assert "timed out after 5 s" in message
    assert message.endswith("step 1")


def test_bytes_that_are_no_text_are_replaced():
    assert seen(ExecResult(0, b"a\xffb", b"")) == "exit code 0\na\ufffdb"


def test_of_a_long_output_both_ends_are_kept():
    message = seen(ExecResult(0, b"start" + b"." * 5000 + b"end", b""), max_chars=100)
    assert "start" in message
    assert message.endswith("end")
    assert "[4908 characters left out]" in message
    assert len(message) < 200


def test_what_fits_is_shown_as_it_is():
    assert shorten("x" * 100, 100) == "x" * 100


def test_an_odd_limit_gives_the_tail_one_more():
    assert shorten("abcdefgh", 5) == "ab\n[3 characters left out]\nfgh"


@pytest.mark.parametrize(
    ("output", "submitted"),
    [
        ("COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\n", True),
        ("\n  COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT  \nthat was all", True),
        ("done\nCOMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\n", False),
        ("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\n", False),
        ("", False),
    ],
)
def test_only_the_first_line_submits(output, submitted):
    assert is_submission(output) is submitted
