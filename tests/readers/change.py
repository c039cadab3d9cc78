"""Changes a table as PyIceberg does.

    change.py WHAT --uri CATALOG --table NAMESPACE.TABLE [ARGUMENT]

WHAT is one of: expire SNAPSHOT,...  |  rollback SNAPSHOT  |  branch NAME  |  make (drops it, makes it again with the same columns)
|  like OTHER (makes OTHER with the columns and all properties, as `LIKE ... INCLUDING PROPERTIES` does)
"""

import argparse

from pyiceberg.catalog import load_catalog

parser = argparse.ArgumentParser()
parser.add_argument("what", choices=["expire", "rollback", "branch", "make", "like"])
parser.add_argument("--uri", required=True)
parser.add_argument("--table", required=True)
parser.add_argument("argument", nargs="?", default="")
arguments = parser.parse_intermixed_args()
catalog = load_catalog("lake", type="rest", uri=arguments.uri)
table = catalog.load_table(arguments.table)
layout = {"schema": table.schema(), "partition_spec": table.spec()}
match arguments.what:
    case "expire":
        table.maintenance.expire_snapshots().by_ids([int(id) for id in arguments.argument.split(",")]).commit()
    case "rollback":
        table.manage_snapshots().rollback_to_snapshot(int(arguments.argument)).commit()
    case "branch":
        table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, arguments.argument).commit()
    case "make":
        catalog.drop_table(arguments.table)
        table = catalog.create_table(arguments.table, **layout)
    case "like":
        table = catalog.create_table(arguments.argument, **layout, properties=table.properties)
print(table.metadata.table_uuid)
