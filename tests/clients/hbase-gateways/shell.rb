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
