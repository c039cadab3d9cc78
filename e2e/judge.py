"""Holds what PyIceberg reads of a table against the ledger of the producer (produce.py), and the table's claims against its rows.

    judge.py CATALOG TABLE LEDGER MEMORY [--all] [--final CELLS] [--more CELLS]

Always: no row twice, none that was not produced, each with the id and event time that it was produced with; every produced row before the
claim is there; no claim of the table's history was above the truth: no row came later that lies before it; none lies before an
earlier one. MEMORY is a file that hands the claim from one call to the next, so that it never goes back between them either.

--all: the producer has ended, and every row is there. --final CELLS: so many cells have become final since the first row; --more CELLS:
since the last call. All are waited for.
"""

import argparse
import collections
import datetime
import json
import os
import sys
import time

from pyiceberg.catalog.rest import RestCatalog

PATIENCE_S = 180
CLAIM = "tidemark.finalized-before-ms"


def milliseconds(instant):
    return int(instant.timestamp() * 1000)


def produced(ledger):
    rows = {}
    for line in open(ledger, encoding="utf-8"):
        if line.endswith("\n"):
            partition, offset, number, event_ms = json.loads(line)
            rows[partition, offset] = (number, event_ms)
    return rows


def told(ms):
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone.utc).isoformat()


def complain(what):
    raise SystemExit(f"judge: {what}")


def judge_rows(read, ledger):
    """Each row once, as it was produced."""
    seen = collections.Counter((row["_cdc_partition"], row["_cdc_offset"]) for row in read)
    doubled = [place for place, count in seen.items() if count > 1]
    if doubled:
        complain(f"{len(doubled)} rows are there more than once, as partition and offset {doubled[0]}")
    deadline = time.monotonic() + 20
    while True:  # a row may be in the table before its acknowledgement is in the ledger
        rows = produced(ledger)
        unknown = [row for row in read if (row["_cdc_partition"], row["_cdc_offset"]) not in rows]
        if not unknown:
            break
        if time.monotonic() > deadline:
            complain(f"{len(unknown)} rows were never produced, as {unknown[0]}")
        time.sleep(0.5)
    for row in read:
        expected = rows[row["_cdc_partition"], row["_cdc_offset"]]
        if (row["id"], milliseconds(row["_cdc_event_time"])) != expected:
            complain(f"{row} was produced as {expected}")
    return rows, seen


def judge_history(table):
    """The claims of all commits, the oldest first, against the event times of the rows that came after each."""
    added = collections.defaultdict(list)
    for entry in table.inspect.entries().to_pylist():
        if entry["status"] != 2:
            least = entry["readable_metrics"]["_cdc_event_time"]["lower_bound"]
            added[entry["snapshot_id"]].append(milliseconds(least))
    claim = None
    for snapshot in sorted(table.metadata.snapshots, key=lambda snapshot: snapshot.sequence_number):
        late = [least for least in added[snapshot.snapshot_id] if claim is not None and least < claim]
        if late:
            complain(f"snapshot {snapshot.snapshot_id} added a row of {told(min(late))} when the claim was {told(claim)}")
        text = (snapshot.summary or {}).get("tidemark.finalized-before")
        if text:
            new = milliseconds(datetime.datetime.fromisoformat(text))
            if claim is not None and new < claim:
                complain(f"the claim went back from {told(claim)} to {text}")
            claim = new
    return claim


def judge(arguments, memory):
    table = RestCatalog("lake", **json.loads(os.environ.get("CATALOG_PROPERTIES", "{}")), uri=arguments.catalog).load_table(arguments.table)
    fields = ("_cdc_partition", "_cdc_offset", "_cdc_event_time", "id")
    read = table.scan(selected_fields=fields).to_arrow().to_pylist()
    rows, seen = judge_rows(read, arguments.ledger)
    claim = int(table.properties[CLAIM]) if CLAIM in table.properties else None
    if judge_history(table) != claim:
        complain(f"the property says {claim}, the newest commit something else")
    if memory and (claim is None or claim < memory["claim"]):
        complain(f"the claim went back from {told(memory['claim'])} to {claim and told(claim)}")
    missing = [place for place, (_, event_ms) in rows.items() if claim is not None and event_ms < claim and place not in seen]
    if missing:
        complain(f"{len(missing)} rows before the claim {told(claim)} are missing, as partition and offset {missing[0]}")
    return claim, rows, read


parser = argparse.ArgumentParser()
for name in ("catalog", "table", "ledger", "memory"):
    parser.add_argument(name)
parser.add_argument("--all", action="store_true")
parser.add_argument("--final", type=int, default=0)
parser.add_argument("--more", type=int, default=0)
parser.add_argument("--cell", type=int, default=5, help="its length in s")
arguments = parser.parse_args()
memory = json.load(open(arguments.memory, encoding="utf-8")) if os.path.exists(arguments.memory) else None
before = memory["claim"] if memory else None
deadline = time.monotonic() + PATIENCE_S
while True:
    claim, rows, read = judge(arguments, memory)
    first = min((event_ms for _, event_ms in rows.values()), default=0)
    cells = 0 if claim is None else max(0, (claim - first) // (1000 * arguments.cell))
    if claim is not None:
        memory = {"claim": claim}
        json.dump(memory, open(arguments.memory, "w", encoding="utf-8"))
    more = 0 if claim is None or before is None else (claim - before) // (1000 * arguments.cell)
    if cells >= arguments.final and more >= arguments.more and (not arguments.all or len(read) == len(rows)):
        break
    if time.monotonic() > deadline:
        complain(f"after {PATIENCE_S} s {len(read)} of {len(rows)} rows are there and {cells} cells are final")
    time.sleep(1)
print(f"{len(read)} of {len(rows)} rows, each once; complete before {claim and told(claim)}, {cells} cells final; no claim above the truth, none went back")
