"""File formats of landed objects: lines of JSON under zstd, and Parquet."""
