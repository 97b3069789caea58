"""Plants a bug: replaces a few words of the real source, and restores them afterwards.

    Mutant(old ─▶ new) ─▶ the function's source ─▶ compiled in its module ─▶ `__code__` of the very function,
                                                                            put back at the end

The function object stays the same, so every reference to it has the bug: classes, bound methods, names imported
elsewhere. `old` must occur exactly once, so that a mutant cannot go stale unnoticed when the source changes.

Next: deterministic.py, kafka.py.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pkgutil import resolve_name
from types import CodeType, FunctionType

_PACKAGE = __package__.split(".")[0]


class Rotten(Exception):
    """The source that a mutant changes is missing, or cannot be changed in this way."""


@dataclass(frozen=True)
class Mutant:
    """A bug to plant. `function`: "module:qualified name", the module within the package; `source`: the published
    bug that it repeats, "" for one of our own; `mode`: the world that can show it."""

    name: str
    about: str
    function: str
    old: str
    new: str
    source: str = ""
    mode: str = "deterministic"


def function_of(mutant: Mutant) -> FunctionType:
    function = resolve_name(f"{_PACKAGE}.{mutant.function}")
    if not isinstance(function, FunctionType):
        raise Rotten(f"{mutant.name}: {mutant.function} is no function")
    return function


def mutate(mutant: Mutant) -> CodeType:
    """Returns the function's code with the bug in it; raises Rotten."""
    function = function_of(mutant)
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(mutant.old) != 1:
        raise Rotten(
            f"{mutant.name}: {mutant.old!r} is {source.count(mutant.old)} times in "
            f"{mutant.function}, not once"
        )
    source = source.replace(mutant.old, mutant.new)
    owner, _, _ = function.__qualname__.rpartition(".")
    if owner:  # in a class, for `super()` and private names
        source = f"class {owner}:\n" + textwrap.indent(source, "    ")
    name = function.__code__.co_filename
    tree = ast.increment_lineno(ast.parse(source), function.__code__.co_firstlineno - 1)
    code = _inner(compile(tree, name, "exec", dont_inherit=True), function.__name__)
    if code is None or code.co_freevars != function.__code__.co_freevars:
        raise Rotten(f"{mutant.name}: {mutant.function} uses names of what it is made in")
    return code


def _inner(code: CodeType, name: str) -> CodeType | None:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = constant if constant.co_name == name else _inner(constant, name)
            if inner is not None:
                return inner
    return None


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """Plants the bug in this process's engine until the context exits."""
    function, code = function_of(mutant), mutate(mutant)
    before, function.__code__ = function.__code__, code
    try:
        yield
    finally:
        function.__code__ = before
