"""Decorators for tests that are coroutines: in virtual time, in an event loop, or by a runner.

Owns the translation to what pytest calls: a plain function that asks for the same fixtures and
parameters. A test never asks pytest for what its runner hands it, which is its first argument.
"""

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from tests.support.lanes import simulate

AsyncTest = Callable[..., Coroutine[Any, Any, Any]]
Test = Callable[..., None]
Runner = Callable[..., Any]
"""Calls `runner(test)` in a loop of its own, with what the test needs."""


def simulated(test: AsyncTest) -> Test:
    """In virtual time, from one seed; unhandled errors of tasks fail the test.

    The annotation of the first argument says which world it gets. Where the test has an argument
    `seed`, that is the loop's seed.
    """
    world_type = next(iter(inspect.signature(test).parameters.values())).annotation

    def run(body: AsyncTest, **arguments: Any) -> None:
        simulate(body, seed=arguments.get("seed", 1), world_type=world_type)

    return _translated(test, run)


def in_event_loop(test: AsyncTest) -> Test:
    """In an event loop of its own, in real time."""

    @functools.wraps(test)
    def run_test(**arguments: Any) -> None:
        asyncio.run(test(**arguments))

    return run_test


def run_by(runner: Runner) -> Callable[[AsyncTest], Test]:
    """By a function that hands the test its first argument."""

    def run(body: AsyncTest, **_: Any) -> None:
        runner(body)

    return functools.partial(_translated, run=run)


def run_by_fixture(name: str, **options: Any) -> Callable[[AsyncTest], Test]:
    """By a fixture that is such a function; it gets the options."""

    def decorate(test: AsyncTest) -> Test:
        def run(body: AsyncTest, **arguments: Any) -> None:
            arguments[name](body, **options)

        return _translated(test, run, fixture=name)

    return decorate


def _translated(test: AsyncTest, run: Runner, *, fixture: str | None = None) -> Test:
    """What pytest calls: it asks for all arguments but the first, and for the fixture."""
    signature = inspect.signature(test)
    asked = list(signature.parameters.values())[1:]
    names = {parameter.name for parameter in asked}

    @functools.wraps(test)
    def run_test(**arguments: Any) -> None:
        own = {name: value for name, value in arguments.items() if name in names}
        run(functools.partial(test, **own), **arguments)

    if fixture is not None and fixture not in names:
        asked.insert(0, inspect.Parameter(fixture, inspect.Parameter.POSITIONAL_OR_KEYWORD))
    run_test.__signature__ = signature.replace(parameters=asked)
    return run_test
