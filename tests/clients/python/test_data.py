"""The classic Python client: reads, filters, writes, conditional writes, read-modify-write, administration."""

import datetime
import os

import pytest
from google.api_core import exceptions
from google.cloud.bigtable import column_family, row_filters
from google.cloud.bigtable.batcher import MutationsBatcher
from google.cloud.bigtable.row_set import RowSet

EPOCH = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)


def at(seconds):
    return EPOCH + datetime.timedelta(seconds=seconds)


def put(table, key, *cells):
    row = table.direct_row(key)
    for family, qualifier, seconds, value in cells:
        row.set_cell(family, qualifier, value, timestamp=at(seconds))
    status = row.commit()
    assert status.code == 0, status


def content(row):
    """Cells of a row as (family, qualifier, seconds, value), families by name."""
    return [
        (family, qualifier.decode("latin-1"), int((cell.timestamp - EPOCH).total_seconds()), cell.value)
        for family in sorted(row.cells)
        for qualifier in row.cells[family]
        for cell in row.cells[family][qualifier]
    ]


def scan(table, **options):
    return [(row.row_key, content(row)) for row in table.read_rows(**options)]


def keys(table, **options):
    return [row.row_key for row in table.read_rows(**options)]


@pytest.fixture
def filled(table):
    put(table, b"a", ("f", b"q1", 3, b"v3"), ("f", b"q1", 2, b"v2"), ("f", b"q1", 1, b"v1"), ("f", b"q2", 1, b"x"))
    put(table, b"b", ("f", b"q1", 1, b"bv"), ("g", b"q9", 5, b""))
    put(table, b"c", ("g", b"q1", 1, b"cg"))
    return table


def test_read_row(filled):
    row = filled.read_row(b"a")
    assert content(row) == [
        ("f", "q1", 3, b"v3"), ("f", "q1", 2, b"v2"), ("f", "q1", 1, b"v1"), ("f", "q2", 1, b"x"),
    ]
    assert filled.read_row(b"absent") is None


def test_scans(filled):
    assert keys(filled) == [b"a", b"b", b"c"]
    assert keys(filled, start_key=b"b") == [b"b", b"c"]
    assert keys(filled, end_key=b"b") == [b"a"]
    assert keys(filled, end_key=b"b", end_inclusive=True) == [b"a", b"b"]
    assert keys(filled, limit=2) == [b"a", b"b"]
    rows = RowSet()
    rows.add_row_key(b"c")
    rows.add_row_key(b"a")
    rows.add_row_range_from_keys(start_key=b"a", end_key=b"b")
    assert keys(filled, row_set=rows) == [b"a", b"c"]
    rows = RowSet()
    rows.add_row_range_with_prefix("b")
    assert keys(filled, row_set=rows) == [b"b"]


@pytest.mark.parametrize(
    "name, row_filter, want",
    [
        ("pass", row_filters.PassAllFilter(True), "abc"),
        ("block", row_filters.BlockAllFilter(True), ""),
        ("row", row_filters.RowKeyRegexFilter(b"[ab]"), "ab"),
        ("family", row_filters.FamilyNameRegexFilter("g"), "bc"),
        ("column", row_filters.ColumnQualifierRegexFilter(b"q[29]"), "ab"),
        ("column range", row_filters.ColumnRangeFilter("f", start_column=b"q2"), "a"),
        ("value", row_filters.ValueRegexFilter(b"v.|cg"), "ac"),
        ("exact value", row_filters.ExactValueFilter(b"bv"), "b"),
        ("value range", row_filters.ValueRangeFilter(start_value=b"v2"), "a"),
        ("time", row_filters.TimestampRangeFilter(row_filters.TimestampRange(start=at(2), end=at(5))), "a"),
        ("offset", row_filters.CellsRowOffsetFilter(3), "a"),
        ("chain", row_filters.RowFilterChain(
            filters=[row_filters.CellsColumnLimitFilter(1), row_filters.ValueRegexFilter(b"v1")]), ""),
        ("union", row_filters.RowFilterUnion(
            filters=[row_filters.RowKeyRegexFilter(b"a"), row_filters.ValueRegexFilter(b"cg")]), "ac"),
        ("condition", row_filters.ConditionalRowFilter(
            predicate_filter=row_filters.FamilyNameRegexFilter("g"),
            true_filter=row_filters.PassAllFilter(True)), "bc"),
    ],
)
def test_filters(filled, name, row_filter, want):
    assert b"".join(keys(filled, filter_=row_filter)).decode() == want, name


def test_transformers(filled):
    only = row_filters.RowKeyRegexFilter(b"c")
    strip = row_filters.RowFilterChain(filters=[only, row_filters.StripValueTransformerFilter(True)])
    assert scan(filled, filter_=strip) == [(b"c", [("g", "q1", 1, b"")])]
    label = row_filters.RowFilterChain(filters=[only, row_filters.ApplyLabelFilter("a-label")])
    (row,) = filled.read_rows(filter_=label)
    assert row.cells["g"][b"q1"][0].labels == ["a-label"]
    limit = row_filters.RowFilterChain(
        filters=[row_filters.RowKeyRegexFilter(b"a"), row_filters.CellsRowLimitFilter(2)])
    assert scan(filled, filter_=limit) == [(b"a", [("f", "q1", 3, b"v3"), ("f", "q1", 2, b"v2")])]


def test_bad_filter_is_refused(table):
    with pytest.raises(exceptions.InvalidArgument):
        keys(table, filter_=row_filters.ValueRegexFilter(b"("))


def test_deletes(filled):
    row = filled.direct_row(b"a")
    row.delete_cell("f", b"q1", time_range=row_filters.TimestampRange(start=at(1), end=at(3)))
    assert row.commit().code == 0
    assert scan(filled, row_set=one(b"a")) == [(b"a", [("f", "q1", 3, b"v3"), ("f", "q2", 1, b"x")])]
    row = filled.direct_row(b"a")
    row.delete_cells("f", row.ALL_COLUMNS)
    assert row.commit().code == 0
    row = filled.direct_row(b"b")
    row.delete()
    assert row.commit().code == 0
    assert keys(filled) == [b"c"]


def one(key):
    rows = RowSet()
    rows.add_row_key(key)
    return rows


def test_bulk_reports_every_row(table):
    good, bad = table.direct_row(b"good"), table.direct_row(b"bad")
    good.set_cell("f", b"q", b"x", timestamp=at(0))
    bad.set_cell("absent", b"q", b"x", timestamp=at(0))
    statuses = table.mutate_rows([good, bad])
    assert [status.code for status in statuses] == [0, 5]
    assert keys(table) == [b"good"]


def test_batcher(table):
    with MutationsBatcher(table, flush_count=100) as batcher:
        for n in range(1000):
            row = table.direct_row(f"r{n:04}".encode())
            row.set_cell("f", b"q", str(n).encode(), timestamp=at(0))
            batcher.mutate(row)
    assert len(keys(table)) == 1000


def test_conditional(filled):
    row = filled.conditional_row(b"a", filter_=row_filters.ColumnQualifierRegexFilter(b"q2"))
    row.set_cell("g", b"out", b"yes", timestamp=at(0), state=True)
    row.set_cell("g", b"out", b"no", timestamp=at(0), state=False)
    assert row.commit() is True
    row = filled.conditional_row(b"c", filter_=row_filters.ColumnQualifierRegexFilter(b"q2"))
    row.set_cell("g", b"out", b"yes", timestamp=at(0), state=True)
    row.set_cell("g", b"out", b"no", timestamp=at(0), state=False)
    assert row.commit() is False
    assert filled.read_row(b"a").cell_value("g", b"out") == b"yes"
    assert filled.read_row(b"c").cell_value("g", b"out") == b"no"


def test_read_modify_write(table):
    row = table.append_row(b"r")
    row.append_cell_value("f", b"text", b"ab")
    row.append_cell_value("f", b"text", b"cd")
    row.increment_cell_value("f", b"n", 40)
    row.increment_cell_value("f", b"n", 2)
    answer = row.commit()
    assert answer["f"][b"text"][0][0] == b"abcd"
    assert int.from_bytes(answer["f"][b"n"][0][0], "big") == 42


def test_large_cell(table):
    """The default gRPC channel takes messages of 4 MiB, so the server must split the cell."""
    value = os.urandom(10 << 20)
    put(table, b"r", ("f", b"q", 0, value))
    assert table.read_row(b"r").cell_value("f", b"q") == value


def test_sample_row_keys(instance):
    table = instance.table(f"split-{os.urandom(4).hex()}")
    table.create(initial_split_keys=[b"g", b"p"], column_families={"f": None})
    samples = [sample.row_key for sample in table.sample_row_keys()]
    assert b"g" in samples and b"p" in samples and samples[-1] == b""
    table.delete()


def test_gc_hides_old_versions(table):
    put(table, b"r", ("one", b"q", 1, b"old"), ("one", b"q", 2, b"new"))
    assert scan(table) == [(b"r", [("one", "q", 2, b"new")])]


def test_administration(instance):
    table = instance.table(f"admin-{os.urandom(4).hex()}")
    assert not table.exists()
    rule = column_family.GCRuleUnion(
        [column_family.MaxVersionsGCRule(2), column_family.MaxAgeGCRule(datetime.timedelta(days=1))])
    table.create(column_families={"f": rule})
    assert table.exists()
    assert table.table_id in [other.table_id for other in instance.list_tables()]
    assert table.list_column_families()["f"].gc_rule == rule
    with pytest.raises(exceptions.AlreadyExists):
        table.create()
    table.column_family("g").create()
    assert sorted(table.list_column_families()) == ["f", "g"]
    table.column_family("g").delete()
    put(table, b"aa", ("f", b"q", 0, b"x"))
    put(table, b"b", ("f", b"q", 0, b"x"))
    table.drop_by_prefix(b"a")
    table.truncate()
    assert keys(table) == []
    assert table.get_cluster_states()
    table.delete()
    with pytest.raises(exceptions.NotFound):
        table.delete()
