"""Every file format, with every compression."""

from holdfast.landing.formats.interface import Format
from holdfast.landing.formats.jsonl import JsonLines
from holdfast.landing.formats.parquet import Parquet
from holdfast.landing.formats.raw import Raw

CODECS = ("zstd", "gzip", "lz4", "none")
LINES: list[Format] = [JsonLines("value", compression=codec) for codec in CODECS]
WRAPPED: list[Format] = [JsonLines("value", compression=codec, wrap_unfit=True) for codec in CODECS]
RAW: list[Format] = [Raw(compression=codec) for codec in CODECS]
WHOLE: list[Format] = [
    *(JsonLines("envelope", compression=codec) for codec in CODECS),
    *(Parquet(compression=codec) for codec in CODECS),
]
FORMATS: list[Format] = [*LINES, *WRAPPED, *RAW, *WHOLE]
