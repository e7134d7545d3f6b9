"""File formats of landed objects: lines of JSON, raw values, and Parquet."""
