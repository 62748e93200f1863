"""One test for each row of docs/semantics.md."""

import datetime

import pytest
from google.api_core import exceptions
from google.cloud.bigtable import column_family, row_filters

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def micros(n):
    return EPOCH + datetime.timedelta(microseconds=n)


def put(table, key, family, qualifier, time_micros, value):
    row = table.direct_row(key)
    row.set_cell(family, qualifier, value, timestamp=micros(time_micros))
    return row.commit()


def cells(table, key):
    """(family, qualifier, micros, value) of each cell, as they come."""
    row = table.read_row(key)
    if row is None:
        return []
    return [
        (family, qualifier, cell.timestamp_micros, cell.value)
        for family, columns in row.cells.items()
        for qualifier, versions in columns.items()
        for cell in versions
    ]


def test_time_unit(hbase, of_hbase, of_bigtable):
    name, table = of_hbase
    assert hbase("put", name, "r", "f:q", 1234, "v") == "ok"
    assert cells(table, b"r") == [("f", b"q", 1_234_000, b"v")]
    assert put(table, b"r", "f", b"q", 2_000_000, b"w").code == 0
    assert hbase("get", name, "r", 5) == "f:q@2000=w f:q@1234=v"
    name, table = of_bigtable
    put(table, b"r", "f", b"q", 1_234_000, b"v")
    assert hbase("get", name, "r", 5) == "f:q@1234=v"
    assert hbase("put", name, "r", "f:q", 9, "w") == "ok"
    assert cells(table, b"r") == [("f", b"q", 1_234_000, b"v"), ("f", b"q", 9_000, b"w")]


def test_delete_rule(hbase, of_hbase, of_bigtable):
    name, table = of_hbase
    hbase("put", name, "r", "f:q", 1, "old")
    assert hbase("delete", name, "r", "f:q", 10) == "ok"
    # By timestamp: a later put at or below the time of the delete is hidden, for both clients.
    put(table, b"r", "f", b"q", 5_000, b"hidden")
    assert (hbase("get", name, "r", 5), cells(table, b"r")) == ("", [])
    hbase("put", name, "r", "f:q", 11, "seen")
    assert cells(table, b"r") == [("f", b"q", 11_000, b"seen")]
    name, table = of_bigtable
    put(table, b"r", "f", b"q", 1_000, b"old")
    assert hbase("delete", name, "r", "f:q", 10) == "ok"
    # By sequence: every later write is seen, whatever its time.
    assert hbase("put", name, "r", "f:q", 5, "seen") == "ok"
    assert cells(table, b"r") == [("f", b"q", 5_000, b"seen")]
    assert hbase("get", name, "r", 5) == "f:q@5=seen"


def test_empty_qualifier(hbase, of_hbase):
    name, table = of_hbase
    hbase("put", name, "r", "f:", 1, "v")
    assert cells(table, b"r") == [("f", b"", 1_000, b"v")]
    put(table, b"s", "f", b"", 1_000, b"w")
    assert hbase("get", name, "s", 1) == "f:@1=w"


def test_limits(hbase, of_hbase):
    name, table = of_hbase
    long_row = "r" * 5_000
    assert hbase("put", name, long_row, "f:q", 1, "v") == "ok"
    # The API of Bigtable refuses such a key in requests, but scans return it.
    assert put(table, long_row.encode(), "f", b"q", 1_000, b"v").code == 3
    assert [len(row.row_key) for row in table.read_rows()] == [5_000]


def test_versions(hbase, of_hbase):
    name, table = of_hbase
    for time in (1, 2, 3):
        hbase("put", name, "r", "f:q", time, f"v{time}")
    # HBase reads one version unless it is asked for more, Bigtable all.
    assert hbase("get", name, "r", 1) == "f:q@3=v3"
    assert [value for _, _, _, value in cells(table, b"r")] == [b"v3", b"v2", b"v1"]


def test_garbage_collection(hbase, instance, name):
    full = f"semantics:{name}"
    assert hbase("create", full, "all:2147483647:2147483647", "one:1:2147483647", "both:3:86400") == "ok"
    table = instance.table(name)
    rules = {family: found.gc_rule for family, found in table.list_column_families().items()}
    day = datetime.timedelta(days=1)
    assert rules["all"] is None
    assert rules["one"] == column_family.MaxVersionsGCRule(1)
    both = [column_family.MaxVersionsGCRule(3), column_family.MaxAgeGCRule(day)]
    assert rules["both"] == column_family.GCRuleUnion(rules=both)
    # Versions beyond the rule are never read, compacted or not.
    for time in (1, 2):
        hbase("put", full, "r", "one:q", time, f"v{time}")
    assert [value for _, _, _, value in cells(table, b"r")] == [b"v2"]
    kept = [column_family.MaxAgeGCRule(day), column_family.MaxVersionsGCRule(2)]
    table.column_family("least", column_family.GCRuleIntersection(rules=kept)).create()
    assert "least:2147483647:2:86400" in hbase("families", full).split()
    table.delete()


def test_cell_order(hbase, of_bigtable):
    name, table = of_bigtable
    table.column_family("a").create()
    for family in ("f", "a"):
        put(table, b"r", family, b"q", 1_000, b"v")
    # Bigtable returns families in the order of their creation, HBase in that of their names.
    assert [family for family, _, _, _ in cells(table, b"r")] == ["f", "a"]
    assert hbase("get", name, "r", 1) == "a:q@1=v f:q@1=v"


def test_conditions(hbase, of_hbase):
    name, table = of_hbase
    put(table, b"r", "f", b"q", 1_000, b"one")
    assert hbase("check", name, "r", "f:q", "none", "two") == "false"
    assert hbase("check", name, "r", "f:q", "one", "two") == "true"
    row = table.conditional_row(b"r", filter_=row_filters.ValueRegexFilter(b"two"))
    row.set_cell("f", b"p", b"seen", timestamp=micros(1_000), state=True)
    assert row.commit() is True
    assert "f:p@1=seen" in hbase("get", name, "r", 1)


def test_counters(hbase, of_hbase):
    name, table = of_hbase
    assert hbase("increment", name, "r", "f:n", 5) == "5"
    row = table.append_row(b"r")
    row.increment_cell_value("f", b"n", 2)
    changed = row.commit()
    assert int.from_bytes(changed["f"][b"n"][0][0], "big", signed=True) == 7
    assert hbase("increment", name, "r", "f:n", -10) == "-3"
    put(table, b"s", "f", b"n", 1_000, b"seven77")
    assert "DoNotRetryIOException" in hbase("increment", name, "s", "f:n", 1)
    row = table.append_row(b"s")
    row.increment_cell_value("f", b"n", 1)
    with pytest.raises(exceptions.GoogleAPICallError):
        row.commit()


def test_namespaces(hbase, instance, of_bigtable):
    name, table = of_bigtable
    assert name == f"semantics:{table.table_id}"
    assert hbase("families", name).startswith("f:")
    assert table.table_id in [found.table_id for found in instance.list_tables()]
