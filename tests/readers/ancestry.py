"""Prints what leads to a table's newest snapshot: a line of JSON for each snapshot of main, the oldest first.

    ancestry.py --uri CATALOG --table NAMESPACE.TABLE [--prefix _cdc_]

As commits.py, on tables that others have changed as well: `rows` are those of the data files that the snapshot itself added, whether or
not they are still in the table, and of commits of ours only. `parent_expired` tells that older ones are gone.
"""

import argparse
import json

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import ManifestEntryStatus

parser = argparse.ArgumentParser()
parser.add_argument("--uri", required=True)
parser.add_argument("--table", required=True)
parser.add_argument("--prefix", default="_cdc_")
arguments = parser.parse_args()
table = load_catalog("lake", type="rest", uri=arguments.uri).load_table(arguments.table)
columns = [arguments.prefix + name for name in ("topic", "partition", "offset", "event_time")]


def added(snapshot):
    """The rows that a snapshot brought."""
    for manifest in snapshot.manifests(table.io):
        if manifest.added_snapshot_id != snapshot.snapshot_id:
            continue
        for entry in manifest.fetch_manifest_entry(table.io):
            if entry.status != ManifestEntryStatus.ADDED:
                continue
            with table.io.new_input(entry.data_file.file_path).open() as file:
                read = pq.read_table(file, columns=columns)
            read = read.set_column(3, columns[3], read[columns[3]].cast(pa.timestamp("us", "UTC")).cast(pa.int64()))
            yield from zip(*(read[name].to_pylist() for name in columns))


lineage = []
snapshot = table.current_snapshot()
while snapshot is not None:
    lineage.append(snapshot)
    snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id else None
for snapshot in reversed(lineage):
    summary = snapshot.summary.additional_properties
    own = "tidemark.commit-id" in summary and "source-snapshot-id" not in summary
    line = {
        "snapshot": snapshot.snapshot_id,
        "parent_expired": snapshot is lineage[-1] and snapshot.parent_snapshot_id is not None,
        "own": own,
        "summary": {"operation": snapshot.summary.operation.value, **summary},
        "rows": list(added(snapshot)) if own else [],
    }
    print(json.dumps(line))
