"""Prints every row of an Iceberg table as a line of JSON, read by somebody else's software.

    rows.py pyiceberg|duckdb --uri CATALOG --table NAMESPACE.TABLE
    rows.py pyiceberg|duckdb --metadata FILE.metadata.json
    rows.py pyiceberg --property NAME=VALUE …    further properties of the catalog and its files, as s3.endpoint

Both readers print the same text for the same row: columns in the table's order, instants and times as microseconds, decimals and
dates as text, bytes as hex, NaN and the infinities as text. The order of the rows is the reader's own.
"""

import argparse
import datetime
import decimal
import glob
import json
import math
import sys


def plain(value):
    """One value as JSON can hold it."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, datetime.datetime):
        zone = datetime.timezone.utc
        since = (value if value.tzinfo else value.replace(tzinfo=zone)) - datetime.datetime(1970, 1, 1, tzinfo=zone)
        return since // datetime.timedelta(microseconds=1)
    if isinstance(value, datetime.time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    if isinstance(value, (datetime.date, decimal.Decimal)):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return value


def read_pyiceberg(arguments):
    """The table as Arrow, through PyIceberg."""
    if arguments.metadata:
        from pyiceberg.table import StaticTable

        return StaticTable.from_metadata(arguments.metadata, arguments.properties).scan().to_arrow()
    from pyiceberg.catalog import load_catalog

    return load_catalog("lake", type="rest", uri=arguments.uri, **arguments.properties).load_table(arguments.table).scan().to_arrow()


def read_duckdb(arguments):
    """The table as Arrow, through DuckDB. Its extensions come from wheels: nothing is fetched at run time."""
    import duckdb

    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    connection.execute("SET TimeZone = 'UTC'")
    for name in ("avro", "httpfs", "iceberg"):
        file = f"{sys.prefix}/lib/python3*/site-packages/duckdb_extension_{name}/extensions/*/{name}.duckdb_extension"
        connection.load_extension(glob.glob(file)[0])
    if arguments.metadata:
        return connection.execute("FROM iceberg_scan(?)", [arguments.metadata]).to_arrow_table()
    connection.execute(f"ATTACH '' AS lake (TYPE iceberg, ENDPOINT '{arguments.uri}', AUTHORIZATION_TYPE 'none')")
    table = ".".join(f'"{part}"' for part in arguments.table.split("."))
    return connection.execute(f"FROM lake.{table}").to_arrow_table()


parser = argparse.ArgumentParser()
parser.add_argument("reader", choices=["pyiceberg", "duckdb"])
parser.add_argument("--uri")
parser.add_argument("--table")
parser.add_argument("--metadata")
parser.add_argument("--property", action="append", default=[])
arguments = parser.parse_args()
arguments.properties = dict(one.split("=", 1) for one in arguments.property)
table = read_pyiceberg(arguments) if arguments.reader == "pyiceberg" else read_duckdb(arguments)
for batch in table.to_batches(max_chunksize=10_000):
    for row in batch.to_pylist():
        print(json.dumps(plain(row), ensure_ascii=False))
