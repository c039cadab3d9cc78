"""Writes change events of one table to a topic until it is told to stop, and keeps a ledger of what the broker has taken.

    produce.py BOOTSTRAP TOPIC PARTITIONS LEDGER RATE

Debezium's envelope of MySQL, RATE a second; partitions differ in how much they get. An event is up to 800 ms old when it is sent, so
that event times come out of order. Each line of the ledger is one row as the broker has acknowledged it: partition, offset, id and event
time in ms. SIGTERM: everything is acknowledged, then it ends.
"""

import json
import random
import signal
import sys
import time

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

bootstrap, topic, partitions, ledger, rate = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], float(sys.argv[5])
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
admin = AdminClient({"bootstrap.servers": bootstrap})  # to be kept: it takes its answers with it
for future in admin.create_topics([NewTopic(topic, partitions)]).values():
    try:
        future.result()
    except KafkaException as error:
        if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
            raise

taken = open(ledger, "a", encoding="utf-8")
producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20})
chance = random.Random(7)


def acknowledged(number, event_ms):
    def told(error, message):
        if error:
            raise SystemExit(f"row {number} was not taken: {error}")
        taken.write(json.dumps([message.partition(), message.offset(), number, event_ms]) + "\n")

    return told


def change(number, event_ms):
    source = {"version": "2.4.2.Final", "connector": "mysql", "name": "shop", "ts_ms": event_ms, "snapshot": "false", "db": "shop", "sequence": None}
    source |= {"table": "orders", "server_id": 184054, "gtid": None, "file": "mysql-bin.000001", "pos": 4 + 731 * number, "row": 0, "thread": 1, "query": None}
    image = {"id": number, "customer": f"customer {chance.randrange(1000)}", "amount": f"{chance.randrange(1, 99999) / 100:.2f}"}
    return {"before": None, "after": image, "source": source, "op": "c", "ts_ms": event_ms + 20, "transaction": None}


number = sum(1 for _ in open(ledger, encoding="utf-8"))
started, sent = time.monotonic(), 0
while not stop:
    due = int((time.monotonic() - started) * rate)
    while sent < due:
        event_ms = int(time.time() * 1000) - chance.randrange(800)
        partition = min(chance.randrange(2 * partitions), partitions - 1)
        value = json.dumps(change(number, event_ms))
        producer.produce(topic, key=json.dumps({"id": number}), value=value, partition=partition, on_delivery=acknowledged(number, event_ms))
        number, sent = number + 1, sent + 1
    producer.poll(0.02)
    taken.flush()
producer.flush()
taken.close()
print(f"{number} rows taken")
