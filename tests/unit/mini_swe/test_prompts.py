"""The opening of a conversation: what a model is told, and at what price."""

import pytest

from agentrl_mini_swe import prompts
from agentrl_mini_swe.observation import SUBMIT_MARKER
from agentrl_mini_swe.reply import read_command


@pytest.fixture
def opening():
    return prompts.opening(problem=" Fix {it}.\n", workdir="/testbed", demonstration=True)


def test_names_the_workdir_and_how_to_submit(opening):
    assert "/testbed" in opening[0]["content"]
    assert SUBMIT_MARKER in opening[0]["content"]


def test_ends_with_the_issue_and_nothing_else(opening):
    assert opening[-1] == {"role": "user", "content": "Fix {it}."}


def test_the_examples_answer_as_the_model_shall(opening):
    answers = [message["content"] for message in opening if message["role"] == "assistant"]
    assert all(read_command(answer) for answer in answers)
    assert len(set(answers)) == len(answers) > 0


def test_stays_short(opening):
    words = sum(len(message["content"]) for message in opening)
    assert words < 600, "a small model reads about 4 characters a token and has room for 220 tokens"


def test_a_correction_shows_a_block_that_can_be_copied():
    message = prompts.correction("No bash block found.")
    assert message.startswith("No bash block found.")
    assert read_command(message) == "<command>"
