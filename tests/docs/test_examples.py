"""The code in the pages runs, and the commands in them parse."""

import contextlib
import io
import re

import jax.random as jr
import pytest

from nnx_ppo_fn.presets import build
from nnx_ppo_fn.runs import RunFolder
from pages import blocks, commands, PAGES, README


GUIDES = sorted(PAGES.glob("*.md"))


def ids(paths):
    return [path.stem for path in paths]


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """A folder to work in, with the run that the pages speak of."""
    setup = build("hidden-cartpole", "lstm", key=jr.key(0))
    folder = RunFolder(tmp_path / "runs" / "lstm", "hidden-cartpole", "lstm", setup)
    folder.save_network(setup.network)
    folder.close()
    monkeypatch.chdir(tmp_path)


def without_numbers(text):
    """The text, without the spaces either by which NumPy makes numbers equally long."""
    masked = re.sub(r"-?\d+(\.\d+)?(e-?\d+)?", "#", text).strip()
    return re.sub(r" +", " ", masked).replace("[ ", "[").replace(" ]", "]")


WITH_PYTHON = [
    page for page in GUIDES if any(block.language == "python" for block in blocks(page))
]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=ids(WITH_PYTHON))
def test_a_page_is_one_script(page, runs):
    """A block of text after a block of Python is what it prints, numbers apart."""
    namespace = {"__name__": page.stem}
    printed = ""
    for block in blocks(page):
        if block.language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(block.text, str(page), "exec"), namespace)
            printed = out.getvalue()
        elif block.language == "text":
            assert without_numbers(printed) == without_numbers(block.text)
        else:
            assert block.language == "sh"


def parse(words):
    """Parses a command as the command line does, without running it."""
    from nnx_ppo_fn.cli import checking, comparison, evaluation, listing, options
    from nnx_ppo_fn.cli.parsing import parse as read

    command, *rest = words
    if command == "train":
        return options.parse_train(rest)
    module, kind = {
        "eval": (evaluation, evaluation.EvalOptions),
        "plot": (comparison, comparison.PlotOptions),
        "envs": (listing, listing.EnvsOptions),
        "check": (checking, checking.CheckOptions),
    }[command]
    return read(kind, rest, command=command, about=module.ABOUT)


CALLS = {
    " ".join(words): words for page in (*GUIDES, README) for words in commands(page)
}


@pytest.mark.parametrize("words", CALLS.values(), ids=CALLS)
def test_a_command_parses(words):
    if "--help" in words:
        with pytest.raises(SystemExit) as end:
            parse(words)
        assert not end.value.code
    else:
        parse(words)


def made_runs(page):
    return [
        words[words.index("--out") + 1]
        for words in commands(page)
        if words[0] == "train" and "--out" in words
    ]


@pytest.mark.parametrize("page", [*GUIDES, README], ids=ids([*GUIDES, README]))
def test_every_run_that_a_page_speaks_of_is_made_in_it(page):
    code = "\n".join(block.text for block in blocks(page))
    assert set(re.findall(r"\bruns/[\w-]+", code)) == set(made_runs(page))


def test_no_run_folder_is_asked_for_twice():
    made = [run for page in (*GUIDES, README) for run in made_runs(page)]
    assert made
    assert len(made) == len(set(made))


def test_every_command_is_shown():
    shown = {words[0] for words in CALLS.values() if words}
    assert shown >= {"train", "eval", "plot", "envs", "check"}
