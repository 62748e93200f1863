# Commands of HBase's shell, with the answers that they must have. The shell ends with 1 after the first wrong one.
def expect(what, is, wanted)
  raise "#{what}: #{is.inspect} and not #{wanted.inspect}" unless is == wanted
end

if exists 'shell'
  disable 'shell' if is_enabled 'shell'
  drop 'shell'
end
create 'shell', {NAME => 'f', VERSIONS => 3}, SPLITS => ['m']
describe 'shell'
put 'shell', 'r1', 'f:a', 'v1'
put 'shell', 'r1', 'f:a', 'v2'
put 'shell', 'z1', 'f:b', 'v3'
incr 'shell', 'c', 'f:n', 5
append 'shell', 'r1', 'f:a', 'x'
get 'shell', 'r1', {COLUMN => 'f:a', VERSIONS => 3}
expect('count', count('shell'), 3)
scan 'shell', {STARTROW => 'm', FILTER => "PrefixFilter('z')"}
alter 'shell', {NAME => 'g', COMPRESSION => 'NONE'}
alter 'shell', METHOD => 'table_att', MAX_FILESIZE => '134217728'
put 'shell', 'r2', 'g:x', 'y'
delete 'shell', 'r1', 'f:a'
deleteall 'shell', 'r2'
flush 'shell'
major_compact 'shell'
list_regions 'shell'
locate_region 'shell', 'z'
status 'simple'
rows = count('shell')
raise 'no rows are left to snapshot' if rows == 0
delete_snapshot 'shell_snapshot' if list_snapshots('shell_snapshot').any?
snapshot 'shell', 'shell_snapshot'
expect('snapshots', list_snapshots('shell_.*').size, 1)
put 'shell', 'r9', 'f:a', 'later'
expect('count after the snapshot', count('shell'), rows + 1)
clone_snapshot 'shell_snapshot', 'shell_clone'
expect('count of the clone', count('shell_clone'), rows)
disable 'shell_clone'
drop 'shell_clone'
disable 'shell'
restore_snapshot 'shell_snapshot'
enable 'shell'
expect('count of the restored table', count('shell'), rows)
delete_snapshot 'shell_snapshot'
expect('snapshots', list_snapshots('shell_.*').size, 0)
truncate 'shell'
expect('count of a truncated table', count('shell'), 0)
expect('enabled', is_enabled('shell'), true)
disable 'shell'
expect('disabled', is_disabled('shell'), true)
drop 'shell'
create_namespace 'shell_ns'
create 'shell_ns:t', 'f'
expect('tables of a namespace', list_namespace_tables('shell_ns'), ['t'])
disable 'shell_ns:t'
drop 'shell_ns:t'
drop_namespace 'shell_ns'
expect('tables', list.include?('shell'), false)
exit
