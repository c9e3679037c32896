"""The public names of the original's `networks` and `wrappers`, and their arguments."""

import ast
import importlib
import inspect
import pkgutil

import nnx_ppo.networks
import nnx_ppo.wrappers


def modules():
    """Every module of the two packages that is no test, by its path in the original."""
    for package in (nnx_ppo.networks, nnx_ppo.wrappers):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("_test"):
                path = found.name.removeprefix("nnx_ppo.")
                yield path, importlib.import_module(found.name)


def defined(module):
    """What a module defines at its top: classes, functions, aliases and constants."""
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (one.id for one in node.targets if isinstance(one, ast.Name))


PUBLIC = {
    name: (path, getattr(module, name))
    for path, module in modules()
    for name in defined(module)
    if not name.startswith("_")
}
"""By name: the path of the module that defines it, and what it is."""


def parameters(called):
    """The parameters of a function, or of making an instance of a class."""
    if inspect.isclass(called):
        called = called.__init__
    found = inspect.signature(called).parameters.values()
    return [parameter for parameter in found if parameter.name != "self"]


def call_text(name, called):
    """A call with the names of all parameters, as the page shows it."""
    kinds = inspect.Parameter
    stars = {kinds.VAR_KEYWORD: "**"}
    parts = []
    previous = None
    for parameter in parameters(called):
        if previous is kinds.POSITIONAL_ONLY and parameter.kind is not previous:
            parts.append("/")
        if parameter.kind is kinds.KEYWORD_ONLY and parameter.kind is not previous:
            parts.append("*")
        parts.append(stars.get(parameter.kind, "") + parameter.name)
        previous = parameter.kind
    return f"{name}({', '.join(parts)})"
