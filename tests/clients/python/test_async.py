"""The asynchronous data client, which has its own reader, batcher and retries."""

import pytest
import pytest_asyncio
from conftest import INSTANCE, PROJECT
from google.api_core import exceptions
from google.cloud.bigtable.data import (
    BigtableDataClientAsync,
    ReadRowsQuery,
    RowMutationEntry,
    RowRange,
    SetCell,
    row_filters,
)
from google.cloud.bigtable.data.exceptions import MutationsExceptionGroup
from google.cloud.bigtable.data.mutations import DeleteAllFromRow
from google.cloud.bigtable.data.read_modify_write_rules import AppendValueRule, IncrementRule


@pytest_asyncio.fixture
async def data(table):
    async with BigtableDataClientAsync(project=PROJECT) as client:
        async with client.get_table(INSTANCE, table.table_id) as async_table:
            yield async_table


def cell(value, qualifier=b"q", family="f", micros=1000):
    return SetCell(family, qualifier, value, timestamp_micros=micros)


async def test_write_and_read(data):
    await data.mutate_row(b"r", [cell(b"1"), cell(b"2", micros=2000)])
    row = await data.read_row(b"r")
    assert [(c.timestamp_micros, c.value) for c in row.cells] == [(2000, b"2"), (1000, b"1")]
    assert await data.read_row(b"absent") is None
    assert await data.row_exists(b"r")
    await data.mutate_row(b"r", DeleteAllFromRow())
    assert not await data.row_exists(b"r")


async def test_bulk_and_stream(data):
    entries = [RowMutationEntry(f"r{n:04}".encode(), cell(str(n).encode())) for n in range(500)]
    await data.bulk_mutate_rows(entries)
    query = ReadRowsQuery(row_ranges=[RowRange(b"r0100", b"r0200")])
    seen = [row.row_key async for row in await data.read_rows_stream(query)]
    assert seen == [f"r{n:04}".encode() for n in range(100, 200)]
    limited = await data.read_rows(ReadRowsQuery(limit=7))
    assert len(limited) == 7


async def test_sharded_read(data):
    await data.bulk_mutate_rows([RowMutationEntry(b"%c" % n, cell(b"x")) for n in range(97, 123)])
    shards = ReadRowsQuery().shard(await data.sample_row_keys())
    rows = await data.read_rows_sharded(shards)
    assert len(rows) == 26


async def test_bad_entries_are_named(data):
    with pytest.raises(MutationsExceptionGroup) as caught:
        await data.bulk_mutate_rows([
            RowMutationEntry(b"a", cell(b"x")),
            RowMutationEntry(b"b", cell(b"x", family="absent")),
        ])
    (failure,) = caught.value.exceptions
    assert failure.index == 1 and isinstance(failure.__cause__, exceptions.NotFound)
    assert await data.row_exists(b"a") and not await data.row_exists(b"b")


async def test_batcher(data):
    async with data.mutations_batcher(flush_limit_mutation_count=50) as batcher:
        for n in range(500):
            await batcher.append(RowMutationEntry(f"b{n:04}".encode(), cell(b"x")))
    assert len(await data.read_rows(ReadRowsQuery())) == 500


async def test_conditional(data):
    await data.mutate_row(b"r", cell(b"in", qualifier=b"in"))
    matched = await data.check_and_mutate_row(
        b"r", row_filters.ColumnQualifierRegexFilter(b"in"),
        true_case_mutations=cell(b"yes"), false_case_mutations=cell(b"no"))
    assert matched
    assert not await data.check_and_mutate_row(b"absent", None, false_case_mutations=cell(b"no"))
    assert (await data.read_row(b"absent")).cells[0].value == b"no"


async def test_read_modify_write(data):
    row = await data.read_modify_write_row(b"r", [IncrementRule("f", b"n", 5), AppendValueRule("f", b"s", b"x")])
    assert {c.qualifier: c.value for c in row.cells} == {b"n": (5).to_bytes(8, "big"), b"s": b"x"}


async def test_missing_table(data):
    async with BigtableDataClientAsync(project=PROJECT) as client:
        async with client.get_table(INSTANCE, "absent") as table:
            with pytest.raises(exceptions.NotFound):
                await table.mutate_row(b"r", cell(b"x"))
