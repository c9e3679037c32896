"""Help texts are read from docstrings."""

import pytest

from nnx_ppo_fn.cli.docstrings import field_texts, plain, summary


class Settings:
    """What a run
    is like.

    More about it.

    - `size`: how large it is; one of
      `"small"` and `"large"`.
    - `first`, `last`: where it begins and ends.

    The end.
    """


def test_a_bullet_is_the_text_of_its_names():
    assert field_texts(Settings) == {
        "size": 'how large it is; one of `"small"` and `"large"`.',
        "first": "where it begins and ends.",
        "last": "where it begins and ends.",
    }


def test_the_summary_is_the_first_paragraph():
    assert summary(Settings) == "What a run is like."


@pytest.mark.parametrize("text", ['one of `"small"`', '`one` of "small"'])
def test_a_terminal_shows_no_backticks(text):
    assert plain(text) == 'one of "small"'
