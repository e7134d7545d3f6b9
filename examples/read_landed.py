"""Read what a pipeline has landed: the files that its ledger names, and no others.

    python -m examples.read_landed --lake data/lake --sink orders

A killed run may leave files that nothing names. They are in the same folders, and do not count:
so ask the ledger which files there are, then read these with any tool.
"""

import argparse

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.environment import Environment
from holdfast.landing import blocking, landed
from holdfast.landing.ledger_entry import OutputFile
from holdfast.store.interface import Store


def committed(lake: str, sink_id: str) -> tuple[OutputFile, ...]:
    """The files that count now."""

    async def look(store: Store, environment: Environment) -> tuple[OutputFile, ...]:
        return await landed.files(store, sink_id, environment=environment)

    return blocking.with_store(lake, look)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lake", required=True, help="the directory that the pipeline writes to")
    parser.add_argument("--sink", default="orders", help="its sink id")
    options = parser.parse_args(arguments)

    files = committed(options.lake, options.sink)
    if not files:
        raise SystemExit(f"sink {options.sink} has committed nothing in {options.lake}")
    tables = [pq.read_table(f"{options.lake}/{file.path}") for file in files]
    rows = pa.concat_tables(tables)
    print(f"{rows.num_rows} rows in {len(files)} files; columns {', '.join(rows.column_names)}")
    for row in rows.slice(0, 3).select(["partition", "offset", "value"]).to_pylist():
        print(row)


if __name__ == "__main__":
    main()
