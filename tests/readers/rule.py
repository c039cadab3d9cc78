"""Applies the readers' rule as docs/table-contract.md gives it in Python, and prints what it says: an instant, or None.

    rule.py --uri CATALOG --table NAMESPACE.TABLE
"""

import argparse
import pathlib
import re

from pyiceberg.catalog import load_catalog

parser = argparse.ArgumentParser()
parser.add_argument("--uri", required=True)
parser.add_argument("--table", required=True)
arguments = parser.parse_args()
page = pathlib.Path(__file__).parents[2].joinpath("docs/table-contract.md").read_text()
samples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
[rule] = [sample for sample in samples if "def finalized_before(" in sample]
exec(rule)
print(finalized_before(load_catalog("lake", type="rest", uri=arguments.uri).load_table(arguments.table)))
