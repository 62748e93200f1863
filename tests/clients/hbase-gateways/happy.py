"""A round trip of happybase through the Thrift gateway: PORT."""

import sys

import happybase

c = happybase.Connection('127.0.0.1', int(sys.argv[1]), timeout=30000)
t = b'happy'
if t in c.tables():
    c.delete_table(t, disable=True)
c.create_table(t, {'f': dict(max_versions=3), 'n': dict()})
table = c.table(t)
table.put(b'r1', {b'f:a': b'1', b'f:b': b'2'})
table.put(b'r1', {b'f:a': b'3'})
assert table.row(b'r1') == {b'f:a': b'3', b'f:b': b'2'}, table.row(b'r1')
assert table.cells(b'r1', b'f:a', versions=3) == [b'3', b'1']
with table.batch(batch_size=50) as b:
    for i in range(500):
        b.put(b'k%04d' % i, {b'f:q': b'v%d' % i})
rows = dict(table.rows([b'k0001', b'k0499', b'none']))
assert set(rows) == {b'k0001', b'k0499'}, rows
assert len(list(table.scan(row_prefix=b'k'))) == 500
assert len(list(table.scan(row_start=b'k0100', row_stop=b'k0200', limit=30))) == 30
assert len(list(table.scan(filter=b"PrefixFilter('k00')"))) == 100
assert [k for k, _ in table.scan(row_start=b'k0003', row_stop=b'k0001', reverse=True)] == [b'k0003', b'k0002']
assert table.counter_inc(b'c', b'n:x', 5) == 5
assert table.counter_dec(b'c', b'n:x', 2) == 3
assert table.counter_get(b'c', b'n:x') == 3
table.delete(b'r1', columns=[b'f:a'])
assert table.row(b'r1') == {b'f:b': b'2'}
table.delete(b'r1')
assert table.row(b'r1') == {}
assert len(table.regions()) == 1
assert set(table.families()) == {b'f:', b'n:'} or set(table.families()) == {b'f', b'n'}, table.families()
c.disable_table(t); assert not c.is_table_enabled(t); c.enable_table(t)
c.delete_table(t, disable=True)
assert t not in c.tables()
print('ok')
