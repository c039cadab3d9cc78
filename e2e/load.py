"""Writes captured messages to the broker: topic, partition, key, value, headers and timestamp as they were.

    load.py BOOTSTRAP FILE.jsonl TOPIC...

Only the named topics; each is made first, with as many partitions as the capture used.
"""

import json
import sys

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

bootstrap, file, *topics = sys.argv[1:]
messages = [message for message in map(json.loads, open(file, encoding="utf-8")) if message["topic"] in topics]
partitions = {topic: 1 + max(m["partition"] for m in messages if m["topic"] == topic) for topic in topics}
admin = AdminClient({"bootstrap.servers": bootstrap})
for future in admin.create_topics([NewTopic(topic, count) for topic, count in partitions.items()]).values():
    future.result()

failed = []
producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
for message in messages:
    producer.produce(
        message["topic"],
        key=message["key"],
        value=message["value"],
        partition=message["partition"],
        timestamp=message["timestamp"],
        headers=message["headers"],
        on_delivery=lambda error, _: error and failed.append(error),
    )
producer.flush()
if failed:
    raise SystemExit(f"not delivered: {failed}")
print(f"{len(messages)} messages written to {', '.join(topics)}")
