"""Data flows one way through the package; this reads the imports and holds it."""

import ast
import importlib
import sys
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import nnx_ppo_fn


PACKAGE = "nnx_ppo_fn"
ROOT = Path(__file__).parent.parent / "src" / PACKAGE

LAYERS = (
    ("_custom_types", "_expect", "_tree", "_threefry", "_keys", "_counter", "_moments"),
    ("_bytes", "_suggest", "_extras", "_failures", "_files", "_xml", "video"),
    ("networks",),
    ("nnx",),
    ("testing",),
    ("envs",),
    ("wrappers",),
    ("algorithms",),
    ("presets", "_run_records", "runs"),
    ("cli",),
)
"""A module imports from its own layer and from the layers before it."""

STAGES = (
    "types",
    "config",
    "rollout",
    "replay",
    "loss",
    "update",
    "step",
    "loop",
    "ppo",
)
"""The order inside `algorithms`; files that are not named stand beside it."""

CORE = {"jax", "equinox", "optax", "jaxtyping", "beartype", "numpy"}
ADAPTERS = {"envs._gymnax", "envs._brax", "envs._playground", "nnx"}
"""The modules that exist to import an extra."""

ENTRY = {"cli", "cli.command", "cli.usage"}
"""The part of the command line that says that its extra is missing."""


class Import(NamedTuple):
    """One import statement's target, as dotted names."""

    target: str
    is_inside: bool
    is_at_top: bool


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def imports_of(name):
    path = MODULES[name]
    tree = ast.parse(path.read_text())
    top = set(map(id, tree.body))
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    package = [part for part in package if part]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                assert not alias.name.startswith(PACKAGE), (name, alias.name)
                yield Import(alias.name, False, id(node) in top)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            assert not node.module.startswith(PACKAGE), (name, node.module)
            yield Import(node.module, False, id(node) in top)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1]
            base = base + (node.module.split(".") if node.module else [])
            for alias in node.names:
                as_module = ".".join([*base, alias.name])
                target = as_module if as_module in MODULES else ".".join(base)
                yield Import(target, True, id(node) in top)


IMPORTS = {name: list(imports_of(name)) for name in MODULES}


def layer(name):
    first = name.split(".")[0]
    for index, members in enumerate(LAYERS):
        if first in members:
            return index
    raise AssertionError(f"{name} belongs to no layer: give it one in {__file__}")


def test_the_reader_sees_imports_of_both_kinds():
    found = IMPORTS["algorithms.loss"]
    assert Import("algorithms.replay", True, True) in found
    assert Import("jax", False, True) in found
    inside_function = [i for i in IMPORTS["envs._simulated"] if not i.is_at_top]
    assert [i.target for i in inside_function] == ["mujoco"]


def test_layers_import_from_earlier_layers_only():
    backwards = [
        f"{name} imports {one.target}"
        for name, imports in IMPORTS.items()
        for one in imports
        if name and one.is_inside and layer(one.target) > layer(name)
    ]
    assert backwards == []


def test_environments_know_nothing_of_networks():
    wrong = [
        f"{name} imports {one.target}"
        for name, imports in IMPORTS.items()
        for one in imports
        if name.split(".")[0] in ("envs", "wrappers")
        and one.target.split(".")[0] in ("networks", "testing")
        and one.is_inside
    ]
    assert wrong == []


def test_training_goes_from_rollout_to_loop():
    rank = {f"algorithms.{stage}": index for index, stage in enumerate(STAGES)}
    assert set(rank) <= set(MODULES)
    backwards = [
        f"{name} imports {one.target}"
        for name in rank
        for one in IMPORTS[name]
        if rank.get(one.target, -1) > rank[name]
    ]
    assert backwards == []


def test_there_are_no_circles():
    graph = {
        name: {one.target for one in imports if one.is_inside and one.target != name}
        for name, imports in IMPORTS.items()
    }
    assert len(list(TopologicalSorter(graph).static_order())) == len(MODULES)


def test_extras_are_imported_by_adapters_and_inside_functions_only():
    needs_extra = {
        name
        for name, imports in IMPORTS.items()
        for one in imports
        if one.is_at_top and not one.is_inside
        if one.target.split(".")[0] not in CORE | sys.stdlib_module_names
    }
    while True:
        more = {
            name
            for name, imports in IMPORTS.items()
            if any(one.is_at_top and one.target in needs_extra for one in imports)
        }
        if more <= needs_extra:
            break
        needs_extra |= more
    assert {"envs._gymnax"} <= needs_extra
    strays = [
        name
        for name in needs_extra
        if name not in ADAPTERS and name.split(".")[0] not in ADAPTERS | {"cli"}
    ]
    assert strays == []
    assert not needs_extra & ENTRY


def test_the_command_line_starts_without_the_rest_of_the_package():
    seen, waiting = set(), ["cli"]
    while waiting:
        name = waiting.pop()
        seen.add(name)
        for one in IMPORTS[name]:
            if one.is_at_top and one.is_inside:
                waiting += [one.target] if one.target not in seen else []
            elif one.is_at_top:
                assert one.target.split(".")[0] in sys.stdlib_module_names, name
    assert seen == ENTRY


@pytest.mark.parametrize(
    "name", [name for name, path in MODULES.items() if path.name == "__init__.py"]
)
def test_init_files_re_export_and_do_nothing_else(name):
    body = ast.parse(MODULES[name].read_text()).body
    assert isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    for node in body[1:]:
        if isinstance(node, ast.Assign):
            (target,) = node.targets
            assert target.id in ("__all__", "__version__")
            continue
        assert isinstance(node, ast.ImportFrom) and node.level
        assert all(alias.asname == alias.name for alias in node.names)


def test_what_is_exported_is_there():
    body = ast.parse(MODULES[""].read_text()).body
    names = [a.name for n in body if isinstance(n, ast.ImportFrom) for a in n.names]
    assert len(names) == len(set(names)) > 30
    for name in names:
        assert getattr(nnx_ppo_fn, name) is not None


def test_every_module_can_be_imported():
    for name in MODULES:
        if name in ADAPTERS or name.split(".")[0] in ADAPTERS:
            continue
        importlib.import_module(f"{PACKAGE}.{name}".rstrip("."))
