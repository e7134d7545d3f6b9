"""What is offered where a command, or the value of an option, is not known.

Owns how click asks for it. Must never guess and go on: a person decides.
"""

from typing import Any

import click

from holdfast.suggestion import did_you_mean, no_such_value


class SuggestingGroup(click.Group):
    """A group of commands that offers the nearest name for one that is not there."""

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
    """A choice of words that offers the nearest one."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        return no_such_value(str(value), self.choices)
