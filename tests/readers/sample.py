"""Writes a small table with a column of each type that a change log can hold: what the readers are tried on.

    sample.py --uri CATALOG --table NAMESPACE.TABLE
"""

import argparse
import datetime
import decimal

import pyarrow as pa
from pyiceberg.catalog import load_catalog

parser = argparse.ArgumentParser()
parser.add_argument("--uri", required=True)
parser.add_argument("--table", required=True)
arguments = parser.parse_args()

utc = datetime.timezone.utc
instant = datetime.datetime(2026, 11, 30, 9, 59, 59, 999_999)
columns = {
    "whole": pa.array([1, -(2**62), None], pa.int64()),
    "small": pa.array([1, -(2**31), None], pa.int32()),
    "real": pa.array([1.5, float("nan"), None], pa.float64()),
    "yes": pa.array([True, False, None]),
    "text": pa.array(["zoë \"1\"", "", None]),
    "raw": pa.array([b"\x00\xff", b"", None], pa.binary()),
    "money": pa.array([decimal.Decimal("1.10"), decimal.Decimal("-0.01"), None], pa.decimal128(18, 2)),
    "day": pa.array([instant.date(), datetime.date(1969, 12, 31), None]),
    "time": pa.array([instant.time(), datetime.time(0), None], pa.time64("us")),
    "local": pa.array([instant, datetime.datetime(1969, 12, 31, 23, 59, 59, 1), None], pa.timestamp("us")),
    "instant": pa.array([instant.replace(tzinfo=utc), datetime.datetime(1969, 12, 31, tzinfo=utc), None], pa.timestamp("us", "UTC")),
    "names": pa.array([["a", "b"], [], None], pa.list_(pa.string())),
    "place": pa.array(
        [{"incarnation": 0, "position": 7}, {"incarnation": 1, "position": None}, None],
        pa.struct([("incarnation", pa.int32()), ("position", pa.int64())]),
    ),
}
rows = pa.table(columns)
catalog = load_catalog("lake", type="rest", uri=arguments.uri)
catalog.create_namespace_if_not_exists(arguments.table.rsplit(".", 1)[0])
table = catalog.create_table(arguments.table, schema=rows.schema)
table.append(rows)
table.append(rows.slice(0, 1))
print(table.metadata_location)
