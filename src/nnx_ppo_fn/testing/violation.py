"""The error that says which law a module breaks, where, and what usually causes it."""

from collections.abc import Sequence
from typing import final


LAWS = (
    "structure",
    "carry",
    "provenance",
    "slicing",
    "birth",
    "reset",
    "replay",
    "re-weighting",
    "unroll",
    "gradient",
    "statistics",
    "freshness",
    "inference",
)
"""The names of the laws.

`check_module` tests them in this order, after what can be told of them without running.
"""


@final
class LawViolation(AssertionError):
    """A module breaks a law.

    - `law`: one of the names in `LAWS`.
    - `problem`: what was expected and what came.
    - `place`: the module, as parts of a path, outermost first; empty for the module
      that was handed in itself.
    - `module`: the name of the module's class.
    - `leaf`: the path of the array that is wrong, if one is.
    - `environment`: the row of the batch that is wrong, if one is.
    - `size`: how far off it is, if that is a number.
    - `cause`: what usually causes it, and what to change.
    """

    def __init__(
        self,
        law: str,
        problem: str,
        *,
        cause: str,
        module: str = "",
        place: Sequence[str] = (),
        leaf: str | None = None,
        environment: int | None = None,
        size: float | None = None,
    ):
        self.law = law
        self.problem = problem
        self.cause = cause
        self.module = module
        self.place = tuple(place)
        self.leaf = leaf
        self.environment = environment
        self.size = size
        super().__init__(self._message())

    def at(self, place: Sequence[str], module: str) -> "LawViolation":
        """The same violation, found further inside.

        **Arguments:**

        - `place`: the parts of the path that lead to where the violation was found.
        - `module`: the name of the class, for a violation that does not know it yet.
        """
        return LawViolation(
            self.law,
            self.problem,
            cause=self.cause,
            module=self.module or module,
            place=(*place, *self.place),
            leaf=self.leaf,
            environment=self.environment,
            size=self.size,
        )

    def _message(self) -> str:
        where = " > ".join(self.place)
        culprit = f"{where} ({self.module})" if where else self.module or "the module"
        lines = [f"{culprit} breaks the law of {self.law}: {self.problem}"]
        if self.leaf is not None:
            lines.append(f"  leaf: {self.leaf}")
        if self.environment is not None:
            lines.append(f"  environment: {self.environment}")
        if self.size is not None:
            lines.append(f"  off by: {self.size:.3g}")
        lines.append(f"  usual cause: {self.cause}")
        return "\n".join(lines)
