"""Debian's package list, imported with `stele import`, must answer like the file itself.

`stanzas` below parses the list and writes it as JSON Lines. `stele import` loads that file into a table, and Google's `cbt`
and Python client query the table. Every check compares complete results with the parsed list.
"""

import argparse
import json
import os
import re
import subprocess
import sys

import lz4.frame

INSTANCE, TABLE = "debian", "packages"
# Columns the import maps: field, family, qualifier.
MAPPED = [("Version", "p", "version"), ("Section", "p", "section"), ("Depends", "rel", "depends"),
          ("Description", "text", "description")]


def stanzas(text):
    """Fields of each stanza, as bytes; continuation lines lose their first character."""
    for stanza in text.split(b"\n\n"):
        fields, name = {}, None
        for line in stanza.split(b"\n"):
            if line[:1] in (b" ", b"\t"):
                fields[name] += b"\n" + line[1:]
            elif line:
                name, value = line.split(b":", 1)
                fields[name] = value.strip()
        if fields:
            yield fields


class Checks:
    def __init__(self):
        self.passed = self.failed = 0

    def equal(self, what, got, want):
        if got == want:
            self.passed += 1
            print(f"ok   {what}: {len(got) if hasattr(got, '__len__') else got}")
            return
        self.failed += 1
        print(f"FAIL {what}")
        if isinstance(got, dict) and isinstance(want, dict):
            missing, extra = want.keys() - got.keys(), got.keys() - want.keys()
            differ = [k for k in want.keys() & got.keys() if want[k] != got[k]]
            print(f"     missing {sorted(missing)[:3]}, extra {sorted(extra)[:3]}, different {differ[:3]}")
        else:
            print(f"     got {str(got)[:200]}, want {str(want)[:200]}")


class Cbt:
    def __init__(self, program, address):
        self.command = [program, "-project", "stele", "-instance", INSTANCE]
        self.environment = dict(os.environ, BIGTABLE_EMULATOR_HOST=address)

    def run(self, *arguments):
        done = subprocess.run(self.command + list(arguments), env=self.environment, check=True, capture_output=True)
        return done.stdout.decode("utf-8", "surrogateescape")

    def count(self):
        return int(self.run("count", TABLE).strip())

    def read(self, *options):
        """Rows in order, each with its printed cells: {row: {column: quoted value}}."""
        rows, row, column = {}, None, None
        for line in self.run("read", TABLE, *options).split("\n"):
            if line.startswith("----"):
                row = None
            elif row is None and line:
                row = rows.setdefault(line, {})
            elif line.startswith("    "):
                row[column] = line[4:]
            elif line.startswith("  "):
                column = line[2:].split("@")[0].strip()
        return rows


def go_quoted(value):
    """An ASCII string without control characters, as cbt prints it."""
    return '"' + value.decode("ascii").replace("\\", "\\\\").replace('"', '\\"') + '"'


def load(options):
    with lz4.frame.open(options.packages) as file:
        text = file.read()
    lines = os.path.join(options.scratch, "packages.jsonl")
    with open(lines, "w", encoding="utf-8") as file:
        for fields in stanzas(text):
            record = {name.decode(): value.decode() for name, value in fields.items()}
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    command = [options.stele, "import", "--address", options.address, f"{INSTANCE}/{TABLE}", lines,
               "--format", "jsonl", "--key", "Package", "--create"]
    for field, family, qualifier in MAPPED:
        command += ["--map", f"{field}={family}:{qualifier}"]
    subprocess.run(command, check=True)
    # A few packages have several versions, one stanza after the other: as in the table, the last value of a cell holds.
    packages = {}
    for fields in stanzas(text):
        packages.setdefault(fields[b"Package"], {}).update({
            f"{family}:{qualifier}": fields[field.encode()]
            for field, family, qualifier in MAPPED if fields.get(field.encode())
        })
    return dict(sorted(packages.items()))


def check_cbt(checks, cbt, packages):
    names = [name.decode() for name in packages]
    checks.equal("count", cbt.count(), len(packages))
    for prefix in ["lib", "python3-", "zz", "a"]:
        want = [name for name in names if name.startswith(prefix)]
        checks.equal(f"read prefix={prefix}", list(cbt.read(f"prefix={prefix}", "columns=p:version")), want)
    for pattern in ["python3-[a-m].*", ".*-dev", "lib(ssl|z).*", "[0-9].*"]:
        want = [name for name in names if re.fullmatch(pattern, name)]
        checks.equal(f"read regex={pattern}", list(cbt.read(f"regex={pattern}", "columns=p:section")), want)
    want = {name.decode(): {"p:version": go_quoted(cells["p:version"])} for name, cells in packages.items()}
    checks.equal("every version", cbt.read("columns=p:version", "cells-per-column=1"), want)
    middle = names[len(names) // 2]
    checks.equal("first rows from the middle", list(cbt.read(f"start={middle}", "count=50")),
                 names[len(names) // 2:][:50])


def check_client(checks, address, packages):
    os.environ["BIGTABLE_EMULATOR_HOST"] = address
    from google.cloud import bigtable
    from google.cloud.bigtable import row_filters as f

    table = bigtable.Client(project="stele", admin=True).instance(INSTANCE).table(TABLE)

    def cells(row):
        return {f"{family}:{qualifier.decode()}": versions[0].value
                for family, columns in row.cells.items() for qualifier, versions in columns.items()}

    everything = {row.row_key: cells(row) for row in table.read_rows()}
    checks.equal("every cell", everything, packages)
    for column, pattern in [("section", rb"science|math"), ("version", rb"[0-9]+:.*\+dfsg.*"), ("version", rb"1\..*")]:
        chain = f.RowFilterChain(filters=[
            f.FamilyNameRegexFilter("p"), f.ColumnQualifierRegexFilter(column.encode()), f.ValueRegexFilter(pattern)])
        got = {row.row_key: cells(row) for row in table.read_rows(filter_=chain)}
        want = {name: {f"p:{column}": values[f"p:{column}"]} for name, values in packages.items()
                if re.fullmatch(pattern, values.get(f"p:{column}", b""))}
        checks.equal(f"value {column} ~ {pattern.decode()}", got, want)
    chain = f.RowFilterChain(filters=[
        f.ColumnRangeFilter("p", start_column=b"version", end_column=b"version"),
        f.ValueRangeFilter(start_value=b"2", end_value=b"3", inclusive_end=False)])
    got = {row.row_key for row in table.read_rows(filter_=chain)}
    want = {name for name, values in packages.items() if b"2" <= values["p:version"] < b"3"}
    checks.equal("version from 2 to 3", got, want)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ["address", "stele", "cbt", "packages", "scratch"]:
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args()
    packages = load(options)
    checks = Checks()
    check_cbt(checks, Cbt(options.cbt, options.address), packages)
    check_client(checks, options.address, packages)
    print(f"{checks.passed} passed, {checks.failed} failed")
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
