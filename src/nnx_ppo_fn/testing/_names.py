"""Names of keys, and the book of what has been done with each."""

import dataclasses
from collections.abc import Callable, Hashable, Iterator
from typing import final

from ._lines import Line


@final
@dataclasses.dataclass(eq=False)
class Name:
    """One key, known by where it comes from. Equal keys are the same object.

    - `text`: for messages.
    - `born`: whether it descends from the keys that the carry was born with.
    - `held`: whether it, or a key that it is derived from, sits in `Held`.
    - `environment`: whose it is, if that is known.
    - `options`: for a key that is one of several, which ones.
    """

    text: str
    born: bool
    held: bool = False
    environment: int | None = None
    options: tuple["Name", ...] = ()

    def all_options(self) -> Iterator["Name"]:
        """Every key that this one may be, itself left out."""
        for option in self.options:
            yield option
            yield from option.all_options()


class KeyMisuse(Exception):
    """A key is used against the rules.

    - `name`: the key.
    - `problem`: what is done with it.
    - `cause`: what usually causes it.
    """

    def __init__(self, name: Name, problem: str, cause: str):
        self.name = name
        self.problem = problem
        self.cause = cause
        super().__init__(problem)


@final
class KeyBook:
    """Makes names, and keeps what has been drawn from and derived from each.

    `recent` holds what was drawn or derived from since somebody emptied it.
    """

    def __init__(self):
        self._made: dict[Hashable, Name] = {}
        self._drawn: dict[Name, Line] = {}
        self._drawn_as_option: dict[Name, Line] = {}
        self._derived: dict[Name, Line] = {}
        self.recent: set[Name] = set()

    def copy(self) -> "KeyBook":
        """A book with the same names in which more can be written."""
        book = KeyBook()
        book._made = self._made
        book._drawn = dict(self._drawn)
        book._drawn_as_option = dict(self._drawn_as_option)
        book._derived = dict(self._derived)
        book.recent = set(self.recent)
        return book

    def merge(self, other: "KeyBook") -> None:
        """Takes over what the other book says."""
        self._drawn = other._drawn | self._drawn
        self._drawn_as_option = other._drawn_as_option | self._drawn_as_option
        self._derived = other._derived | self._derived
        self.recent |= other.recent

    def child(self, parent: Name, tag: Hashable, where: Line) -> Name:
        """Derives the child `tag`; the same child is the same key every time."""
        self._derived.setdefault(parent, where)
        self.recent.add(parent)
        if parent in self._drawn:
            self._refuse_both(parent)
        return self._make(
            ("child", parent, tag),
            lambda: dataclasses.replace(
                parent, text=f"a child of {_root(parent)}", options=()
            ),
        )

    def hold(self, name: Name) -> Name:
        """The key as it is known while it sits in `Held`."""
        if name.held:
            return name
        return self._make(
            ("held", name),
            lambda: dataclasses.replace(name, text=f"{name.text}, held,", held=True),
        )

    def one_of(self, options: tuple[Name, ...], choice: Hashable) -> Name:
        """One of several keys, chosen by something that only a run can know."""
        if all(option is options[0] for option in options):
            return options[0]
        return self._make(
            ("one of", options, choice),
            lambda: Name(
                f"either {' or '.join(option.text for option in options)}",
                all(option.born for option in options),
                all(option.held for option in options),
                options[0].environment,
                options,
            ),
        )

    def opaque(self, sources: tuple[Name, ...], identity: Hashable) -> Name:
        """A key of which only the sources are known: out of a long loop, say."""
        return self._make(
            ("opaque", identity),
            lambda: Name(
                f"a key made from {sources[0].text if sources else 'nothing'}",
                bool(sources) and all(source.born for source in sources),
                bool(sources) and all(source.held for source in sources),
            ),
        )

    def draw(self, name: Name, where: Line) -> None:
        """Draws from the key, which it can bear once."""
        if not name.born:
            raise KeyMisuse(
                name,
                f"draws from {name.text}, which does not descend from the carry "
                f"({where})",
                "a key made or kept outside the carry gives every environment and "
                "every replay other numbers than the rollout had. Carry one key per "
                "environment: derive from StochasticModule, or start a chain in "
                "initialize_state(keys) and take each step's key with advance_keys",
            )
        if name in self._derived:
            self._drawn.setdefault(name, where)
            self._refuse_both(name)
        if not name.held:
            self._refuse_second_draw(name, where)
        self._drawn[name] = where
        self.recent.add(name)
        for option in name.all_options():
            self._drawn_as_option[option] = where

    def _refuse_second_draw(self, name: Name, where: Line) -> None:
        earlier = self._drawn.get(name) or self._drawn_as_option.get(name)
        for option in name.all_options():
            if not option.held:
                earlier = earlier or self._drawn.get(option)
        if earlier is None:
            return
        raise KeyMisuse(
            name,
            f"draws twice from {name.text} ({_twice(earlier, where)})",
            "the chain of keys does not advance in every step, in the replay too, or "
            "one key serves two purposes or two environments, so numbers that should "
            "be independent are equal. Take a new key for every draw: "
            "`next_state, draw = advance_keys(state)`. A key that is meant to last "
            "until the next reset belongs in Held(key). Under vmap both branches of a "
            "cond or switch run: draw before the cond, once",
        )

    def _refuse_both(self, name: Name) -> None:
        raise KeyMisuse(
            name,
            f"draws from {name.text} and also splits it or folds into it "
            f"({_twice(self._drawn[name], self._derived[name])})",
            "a key that was drawn from is spent, and a key that children are derived "
            "from must not be drawn from: their numbers may be correlated. Derive one "
            "child to draw from and one to carry on: "
            "`next_state, draw = advance_keys(state)`",
        )

    def _make(self, identity: Hashable, build: Callable[[], Name]) -> Name:
        if identity not in self._made:
            self._made[identity] = build()
        return self._made[identity]


def _root(name: Name) -> str:
    return name.text.removeprefix("a child of ")


def _twice(earlier: Line, later: Line) -> str:
    return f"{earlier}, twice" if earlier == later else f"{earlier}, then {later}"
