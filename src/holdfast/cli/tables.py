"""Tables, sizes and ages as a person reads them: plain text in a pipe, rich on a terminal.

Owns only how output looks. Must never change the values that `--json` prints.
"""

import sys
from collections.abc import Sequence
from typing import Any

import click
import msgspec

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
SPANS = ((86_400, "d"), (3_600, "h"), (60, "min"))
GAP = "  "


def echo_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows below the names of their columns; numbers are right-aligned."""
    cells = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    is_number = [
        bool(rows) and all(isinstance(row[i], int | None) for row in rows)
        for i in range(len(columns))
    ]
    if sys.stdout.isatty():
        _echo_rich(title, columns, cells, is_number)
        return
    if title:
        click.echo(title)
    widths = [max(len(line[i]) for line in [list(columns), *cells]) for i in range(len(columns))]
    for line in [list(columns), *cells]:
        parts = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, is_number, strict=True)
        ]
        click.echo(GAP.join(parts).rstrip())


def _echo_rich(
    title: str, columns: Sequence[str], cells: list[list[str]], is_number: list[bool]
) -> None:
    # rich takes tens of milliseconds to import. A script that pipes the output need not pay that.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for column, right in zip(columns, is_number, strict=True):
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    Console(highlight=False).print(table)


def echo_json(value: Any) -> None:
    """Print one JSON document. Its fields have the names that they have in the code."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def shown_bytes(count: int | None) -> str | None:
    """Format a number of bytes: 1536 as 1.5 KiB."""
    if count is None:
        return None
    size = float(count)
    for unit in UNITS[:-1]:
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} {UNITS[-1]}"


def shown_age(then_ms: int, now_ms: int) -> str:
    """Format how long ago a time was; '-' for a negative one, which means never."""
    if then_ms < 0:
        return "-"
    seconds = max(0.0, (now_ms - then_ms) / 1000)
    for span, unit in SPANS:
        if seconds >= span:
            return f"{seconds / span:.1f} {unit} ago"
    return f"{seconds:.1f} s ago"
