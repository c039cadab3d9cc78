"""Works on tables as Spark does: one session, fed from outside.

    spark.py --uri CATALOG

A line in is the SQL text as a JSON string; a line out is a JSON object: `rows`, a list of lists, or `error`. The catalog is called
`lake`. It ends when its input does.
"""

import argparse
import glob
import json
import os
import sys

from pyspark.sql import SparkSession

parser = argparse.ArgumentParser()
parser.add_argument("--uri", required=True)
arguments = parser.parse_args()

# What the session prints by itself must not be taken for an answer.
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
settings = {
    "spark.jars": ",".join(glob.glob(f"{sys.prefix}/jars/*.jar")),
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "rest",
    "spark.sql.catalog.lake.uri": arguments.uri,
    # Others change the tables as well.
    "spark.sql.catalog.lake.cache-enabled": "false",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    # Without both it dials the machine's outer address.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    # Half of the CPU: a session lives for seconds.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
builder = SparkSession.builder.master("local[1]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
for line in sys.stdin:
    try:
        answer = {"rows": [list(row) for row in spark.sql(json.loads(line)).collect()]}
    except Exception as error:
        answer = {"error": str(error)}
    print(json.dumps(answer, default=str), file=answers, flush=True)
