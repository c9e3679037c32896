"""Checks the shapes that `my_modules` declares, wherever its tests run."""

from jaxtyping import install_import_hook


# Before the first import of `my_modules`.
install_import_hook("my_modules", "beartype.beartype")
