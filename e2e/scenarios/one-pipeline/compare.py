"""Compares a change log with the captured messages that it was made of: every change once, with the values it came with.

    compare.py FILE.jsonl TOPIC < rows as tests/readers/rows.py prints them
"""

import base64
import datetime
import json
import sys
from decimal import Decimal

file, topic = sys.argv[1:]
epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def instant(text):
    return (datetime.datetime.fromisoformat(text) - epoch) // datetime.timedelta(microseconds=1)


def expected(message):
    """The row of one change, by hand from Debezium's documentation."""
    change = json.loads(message["value"])
    image = change["before"] if change["op"] == "d" else change["after"]
    return {
        "id": image["id"],
        "customer_id": image["customer_id"],
        "status": image["status"],
        "amount": str(Decimal(int.from_bytes(base64.b64decode(image["amount"]), "big", signed=True)).scaleb(-2)),
        "note": image["note"],
        "created_at": image["created_at"],
        "updated_at": instant(image["updated_at"]),
        "channel": image.get("channel"),
        "_cdc_op": change["op"],
        "_cdc_event_time": change["source"]["ts_us"],
        "_cdc_topic": message["topic"],
        "_cdc_partition": message["partition"],
        "_cdc_offset": message["offset"],
    }


messages = [json.loads(line) for line in open(file, encoding="utf-8")]
wanted = [expected(m) for m in messages if m["topic"] == topic and m["value"] is not None]
read = [json.loads(line) for line in sys.stdin]
place = lambda row: (row["_cdc_partition"], row["_cdc_offset"])
read = [{name: row[name] for name in wanted[0]} for row in sorted(read, key=place)]
wanted.sort(key=place)
if read != wanted:
    for ours, theirs in zip(wanted, read):
        if ours != theirs:
            print("wanted", ours, "\nread  ", theirs, file=sys.stderr)
    raise SystemExit(f"{len(wanted)} rows wanted, {len(read)} rows read, and they differ")
print(f"{len(read)} rows, each as it was captured")
