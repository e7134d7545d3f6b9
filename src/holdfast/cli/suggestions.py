"""Suggestions for an unknown command, or an unknown value of an option.

Owns how click asks for them. Must never act on a guess: a person decides.
"""

from typing import Any

import click

from holdfast.suggestion import did_you_mean, no_such_value


class SuggestingGroup(click.Group):
    """A group of commands that offers the nearest name for an unknown one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        is_option = name.startswith("-")
        if not (is_option or ctx.resilient_parsing) and self.get_command(ctx, name) is None:
            names = self.list_commands(ctx)
            hint = did_you_mean(name, names) or f"there are {', '.join(names)}"
            ctx.fail(f"there is no command {name!r}: {hint}")
        return super().resolve_command(ctx, args)


class SuggestingChoice(click.Choice[str]):
    """A choice of words that offers the nearest one for an unknown one."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        return no_such_value(str(value), self.choices)
