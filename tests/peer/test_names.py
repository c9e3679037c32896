"""Every public name of the original has a row in the page, and a counterpart here."""

import importlib
import inspect
import re
from typing import NamedTuple

import pytest

import nnx_ppo_fn
from nnx_ppo_fn import PopulationGraphBuilder
from pages import PAGES, rows
from peer.exercises import EXERCISES
from peer.names import call_text, parameters, PUBLIC


class Row(NamedTuple):
    """A row of the page: where, what there, what here, and which differences."""

    path: str
    theirs: str
    ours: str
    differences: str


PAGE = PAGES / "migration.md"
ROWS = {
    re.match(r"\w+", row.theirs)[0]: row
    for cells in rows(PAGE, "Difference")
    for row in [Row(*(cell.replace("`", "") for cell in cells))]
}


def our_object(row):
    """What the page names: exported by the package, or under the original's path."""
    name = re.match(r"\w+", row.ours)[0]
    module = importlib.import_module(f"nnx_ppo_fn.{row.path}")
    found = getattr(module, name)
    assert getattr(nnx_ppo_fn, name, found) is found
    return found


def test_the_page_has_every_name_and_no_other():
    assert {name: path for name, (path, _) in PUBLIC.items()} == {
        name: row.path for name, row in ROWS.items()
    }


def test_differences_are_numbered_and_at_most_ten():
    headings = re.findall(r"^### (\d+)\. ", PAGE.read_text(), re.MULTILINE)
    assert headings == [str(number + 1) for number in range(len(headings))]
    assert len(headings) <= 10
    cited = " ".join(row.differences for row in ROWS.values())
    assert set(re.findall(r"\d+", cited)) == set(headings)


CALLED = [name for name, row in ROWS.items() if "(" in row.theirs]


def test_all_that_can_be_called_is_shown_with_its_arguments():
    plain = {name for name, row in ROWS.items() if "(" not in row.theirs}
    for name in plain:
        value = PUBLIC[name][1]
        is_ours = getattr(value, "__module__", "").startswith("nnx_ppo.")
        assert not is_ours or inspect.isabstract(value) or "__init__" not in vars(value)


@pytest.mark.parametrize("name", CALLED)
def test_arguments_are_those_on_the_page(name):
    row = ROWS[name]
    assert row.theirs == call_text(name, PUBLIC[name][1])
    assert row.ours == call_text(name, our_object(row))


GONE = {"LSTM": {"use_optimized"}}
OTHER_DEFAULTS = {"activation", "kernel_init", "recurrent_kernel_init", "bias_init"}


@pytest.mark.parametrize("name", CALLED)
def test_arguments_keep_names_order_and_defaults(name):
    """But for `rngs`, which is `key` or nothing, and options that became keywords."""
    kinds = inspect.Parameter
    theirs = {
        parameter.name: parameter
        for parameter in parameters(PUBLIC[name][1])
        if parameter.name not in {"rng", "rngs"}
        and parameter.kind not in {kinds.VAR_KEYWORD, kinds.POSITIONAL_ONLY}
    }
    ours = {one.name: one for one in parameters(our_object(ROWS[name]))}
    assert theirs.keys() - ours.keys() == GONE.get(name, set())
    positional = [
        parameter.name
        for parameter in ours.values()
        if parameter.kind is kinds.POSITIONAL_OR_KEYWORD and parameter.name in theirs
    ]
    assert positional == list(theirs)[: len(positional)]
    for shared in theirs.keys() & ours.keys() - OTHER_DEFAULTS:
        default = theirs[shared].default
        if default is not kinds.empty and not callable(default):
            assert ours[shared].default == default


RENAMED = {
    "module_state": "state",
    "network_state": "state",
    "prev_state": "state",
    "key": "state",
    "obs": "x",
    "mean_and_std": "x",
    "batch_size": "keys",
    "rng": "key",
    "ind": "index",
}


CLASSES = [
    name
    for name in (*CALLED, "StatefulModule", "ActionSampler")
    if inspect.isclass(PUBLIC[name][1])
]


@pytest.mark.parametrize("name", CLASSES)
def test_methods_keep_names_and_arguments(name):
    """A graph is described by its builder, whose own options come last."""
    theirs, ours = PUBLIC[name][1], our_object(ROWS[name])
    for method, function in vars(theirs).items():
        if (
            name == "PopulationGraph"
            and not method.startswith("_")
            and hasattr(PopulationGraphBuilder, method)
        ):
            called = getattr(PopulationGraphBuilder, method)
            there = list(inspect.signature(function).parameters)
            assert list(inspect.signature(called).parameters)[: len(there)] == there
            continue
        if method.startswith("_") and method not in {"__call__", "__getitem__"}:
            continue
        if isinstance(function, property):
            assert isinstance(getattr(ours, method), property)
        elif inspect.isfunction(function):
            there = [
                RENAMED.get(one, one) for one in inspect.signature(function).parameters
            ]
            here = list(inspect.signature(getattr(ours, method)).parameters)
            assert here == there


@pytest.mark.parametrize("name", ROWS)
def test_every_name_is_there_and_works(name):
    our_object(ROWS[name])
    EXERCISES[name]()
