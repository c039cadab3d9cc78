"""Prints the history of a change-log table as PyIceberg sees it: a line of JSON for each snapshot of main, the oldest first.

    commits.py --uri CATALOG --table NAMESPACE.TABLE [--prefix _cdc_]

Each line has the snapshot's ids and summary, and `rows`: topic, partition, offset and event time (microseconds, or null) of every row
in the data files that this snapshot added, read from the files themselves. `parent_expired` tells that older ones are gone.
"""

import argparse
import json

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog

parser = argparse.ArgumentParser()
parser.add_argument("--uri", required=True)
parser.add_argument("--table", required=True)
parser.add_argument("--prefix", default="_cdc_")
arguments = parser.parse_args()
table = load_catalog("lake", type="rest", uri=arguments.uri).load_table(arguments.table)

lineage = []
snapshot = table.current_snapshot()
while snapshot is not None:
    lineage.append(snapshot)
    snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id else None

files = {}
if lineage:
    for manifest in lineage[0].manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            files.setdefault(entry.snapshot_id, []).append(entry.data_file.file_path)

columns = [arguments.prefix + name for name in ("topic", "partition", "offset", "event_time")]
for snapshot in reversed(lineage):
    rows = []
    for path in files.pop(snapshot.snapshot_id, []):
        with table.io.new_input(path).open() as file:
            read = pq.read_table(file, columns=columns)
        read = read.set_column(3, columns[3], read[columns[3]].cast(pa.timestamp("us", "UTC")).cast(pa.int64()))
        rows.extend(zip(*(read[name].to_pylist() for name in columns)))
    line = {
        "snapshot": snapshot.snapshot_id,
        "sequence": snapshot.sequence_number,
        "committed_ms": snapshot.timestamp_ms,
        "parent_expired": snapshot is lineage[-1] and snapshot.parent_snapshot_id is not None,
        "summary": {"operation": snapshot.summary.operation.value, **snapshot.summary.additional_properties},
        "rows": rows,
    }
    print(json.dumps(line))
if files:
    raise SystemExit(f"data files of snapshots that are not in main's lineage: {files}")
