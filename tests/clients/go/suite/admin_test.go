package suite

import (
	"sort"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
)

func TestTableLifecycle(t *testing.T) {
	t.Parallel()
	name, table := newTable(t, "f", "g")
	ctx := testContext(t)
	tables, err := admin.Tables(ctx)
	if err != nil || !contains(tables, name) {
		t.Errorf("listing: %v, %v", tables, err)
	}
	err = admin.CreateTable(ctx, name)
	wantCode(t, "creating it again", err, codes.AlreadyExists)
	info, err := admin.TableInfo(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(info.Families)
	if strings.Join(info.Families, ",") != "f,g" || info.DeletionProtection != bigtable.Unprotected {
		t.Errorf("info: %+v", info)
	}
	set(t, table, "r", "f:q@0=x")
	if err := admin.DeleteTable(ctx, name); err != nil {
		t.Fatal(err)
	}
	_, err = tryRead(t, table, bigtable.InfiniteRange(""))
	wantCode(t, "reading a deleted table", err, codes.NotFound)
	wantCode(t, "deleting it again", admin.DeleteTable(ctx, name), codes.NotFound)
	_, err = admin.TableInfo(ctx, name)
	wantCode(t, "info of a deleted table", err, codes.NotFound)
	// A new table of the same name begins empty.
	if err := admin.CreateTableFromConf(ctx, &bigtable.TableConf{
		TableID: name, Families: map[string]bigtable.GCPolicy{"f": bigtable.NoGcPolicy()},
	}); err != nil {
		t.Fatal(err)
	}
	wantLines(t, readAll(t, table))
}

func TestCreateTableAnswer(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	id := uniqueName("raw")
	created, err := rawAdmin.CreateTable(ctx, &adminpb.CreateTableRequest{
		Parent: instanceName(), TableId: id,
		Table: &adminpb.Table{ColumnFamilies: map[string]*adminpb.ColumnFamily{"f": {}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.DeleteTable(testContext(t), id)
	if created.Name != fullName(id) || created.Granularity != adminpb.Table_MILLIS || created.ColumnFamilies["f"] == nil {
		t.Errorf("got %v", created)
	}
	full, err := rawAdmin.GetTable(ctx, &adminpb.GetTableRequest{Name: fullName(id), View: adminpb.Table_FULL})
	if err != nil || len(full.ClusterStates) == 0 {
		t.Errorf("full view: %v, %v", full, err)
	}
	for cluster, state := range full.GetClusterStates() {
		if state.ReplicationState != adminpb.Table_ClusterState_READY {
			t.Errorf("cluster %s is %v", cluster, state.ReplicationState)
		}
	}
	nameOnly, err := rawAdmin.GetTable(ctx, &adminpb.GetTableRequest{Name: fullName(id), View: adminpb.Table_NAME_ONLY})
	if err != nil || nameOnly.Name != fullName(id) || len(nameOnly.ColumnFamilies) != 0 {
		t.Errorf("name view: %v, %v", nameOnly, err)
	}
}

func TestBadTables(t *testing.T) {
	t.Parallel()
	families := func(names ...string) *adminpb.Table {
		table := &adminpb.Table{ColumnFamilies: map[string]*adminpb.ColumnFamily{}}
		for _, name := range names {
			table.ColumnFamilies[name] = &adminpb.ColumnFamily{}
		}
		return table
	}
	cases := []struct {
		name, id string
		table    *adminpb.Table
	}{
		{"empty name", "", families("f")},
		{"bad name", "a/b", families("f")},
		{"name of 51 characters", strings.Repeat("t", 51), families("f")},
		{"bad family", uniqueName("bad"), families("a:b")},
		{"bad granularity", uniqueName("bad"), &adminpb.Table{Granularity: 7}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := rawAdmin.CreateTable(testContext(t), &adminpb.CreateTableRequest{
				Parent: instanceName(), TableId: c.id, Table: c.table,
			})
			wantCode(t, c.name, err, codes.InvalidArgument)
		})
	}
}

func TestListTablesPages(t *testing.T) {
	t.Parallel()
	// An instance of its own: listing is per instance, and other tests make tables meanwhile.
	parent := "projects/" + project + "/instances/" + uniqueName("paging")
	want := []string{"t1", "t2", "t3", "t4", "t5"}
	for _, id := range want {
		request := &adminpb.CreateTableRequest{Parent: parent, TableId: id, Table: &adminpb.Table{}}
		if _, err := rawAdmin.CreateTable(testContext(t), request); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	request := &adminpb.ListTablesRequest{Parent: parent, PageSize: 2}
	for range len(want) + 1 {
		page, err := rawAdmin.ListTables(testContext(t), request)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Tables) > 2 {
			t.Errorf("a page of %d", len(page.Tables))
		}
		for _, table := range page.Tables {
			got = append(got, strings.TrimPrefix(table.Name, parent+"/tables/"))
		}
		if request.PageToken = page.NextPageToken; request.PageToken == "" {
			break
		}
	}
	sort.Strings(got)
	wantLines(t, got, want...)
}

func TestFamilies(t *testing.T) {
	t.Parallel()
	name, table := newTable(t, "f")
	ctx := testContext(t)
	if err := admin.CreateColumnFamily(ctx, name, "g"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "creating a family again", admin.CreateColumnFamily(ctx, name, "g"), codes.AlreadyExists)
	set(t, table, "r", "f:q@0=f", "g:q@0=g")
	if err := admin.DeleteColumnFamily(ctx, name, "g"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "deleting a family again", admin.DeleteColumnFamily(ctx, name, "g"), codes.NotFound)
	wantLines(t, readAll(t, table), "r f:q@0=f")
	// The data went with the family; one of the same name begins empty.
	if err := admin.CreateColumnFamily(ctx, name, "g"); err != nil {
		t.Fatal(err)
	}
	wantLines(t, readAll(t, table), "r f:q@0=f")
	wantCode(t, "missing table", admin.CreateColumnFamily(ctx, "absent", "g"), codes.NotFound)
	wantCode(t, "rule for a missing family",
		admin.SetGCPolicy(ctx, name, "absent", bigtable.MaxVersionsPolicy(1)), codes.NotFound)
}

func TestModifyColumnFamiliesIsAtomic(t *testing.T) {
	t.Parallel()
	name, _ := newTable(t, "f")
	type change = adminpb.ModifyColumnFamiliesRequest_Modification
	create := func(id string) *change {
		return &change{Id: id, Mod: &adminpb.ModifyColumnFamiliesRequest_Modification_Create{Create: &adminpb.ColumnFamily{}}}
	}
	drop := func(id string) *change {
		return &change{Id: id, Mod: &adminpb.ModifyColumnFamiliesRequest_Modification_Drop{Drop: true}}
	}
	_, err := rawAdmin.ModifyColumnFamilies(testContext(t), &adminpb.ModifyColumnFamiliesRequest{
		Name: fullName(name), Modifications: []*change{create("g"), drop("f"), drop("absent")},
	})
	wantCode(t, "a batch with a bad step", err, codes.NotFound)
	info, err := admin.TableInfo(testContext(t), name)
	if err != nil || strings.Join(info.Families, ",") != "f" {
		t.Errorf("after the failed batch: %+v, %v", info, err)
	}
	after, err := rawAdmin.ModifyColumnFamilies(testContext(t), &adminpb.ModifyColumnFamiliesRequest{
		Name: fullName(name), Modifications: []*change{create("g"), drop("g"), create("h")},
	})
	if err != nil || len(after.ColumnFamilies) != 2 || after.ColumnFamilies["h"] == nil {
		t.Errorf("steps apply in order: %v, %v", after, err)
	}
}

func TestDropRowRange(t *testing.T) {
	t.Parallel()
	name, table := newTable(t, "f")
	for _, key := range []string{"a1", "a2", "b1", "\xff\xff", "\xff\xffx"} {
		set(t, table, key, "f:q@0=x")
	}
	ctx := testContext(t)
	if err := admin.DropRowRange(ctx, name, "a"); err != nil {
		t.Fatal(err)
	}
	wantLines(t, keysOf(t, table, bigtable.InfiniteRange("")), "b1", "\xff\xff", "\xff\xffx")
	if err := admin.DropRowRange(ctx, name, "\xff\xff"); err != nil {
		t.Fatal(err)
	}
	wantLines(t, keysOf(t, table, bigtable.InfiniteRange("")), "b1")
	if err := admin.DropAllRows(ctx, name); err != nil {
		t.Fatal(err)
	}
	wantLines(t, readAll(t, table))
	set(t, table, "a1", "f:q@0=again")
	wantLines(t, readAll(t, table), "a1 f:q@0=again")
	wantCode(t, "missing table", admin.DropRowRange(ctx, "absent", "a"), codes.NotFound)
}

func TestDeletionProtection(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	id := uniqueName("protected")
	conf := &bigtable.TableConf{
		TableID: id, DeletionProtection: bigtable.Protected,
		Families: map[string]bigtable.GCPolicy{"f": bigtable.NoGcPolicy()},
	}
	if err := admin.CreateTableFromConf(ctx, conf); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "deleting a protected table", admin.DeleteTable(ctx, id), codes.FailedPrecondition)
	wantCode(t, "dropping its family", admin.DeleteColumnFamily(ctx, id, "f"), codes.FailedPrecondition)
	info, err := admin.TableInfo(ctx, id)
	if err != nil || info.DeletionProtection != bigtable.Protected {
		t.Errorf("%+v, %v", info, err)
	}
	if err := admin.UpdateTableWithDeletionProtection(ctx, id, bigtable.Unprotected); err != nil {
		t.Fatal(err)
	}
	if err := admin.DeleteTable(ctx, id); err != nil {
		t.Error(err)
	}
}

func TestUpdateTableNeedsAMask(t *testing.T) {
	t.Parallel()
	name, _ := newTable(t, "f")
	for _, paths := range [][]string{nil, {"nonsense"}} {
		_, err := rawAdmin.UpdateTable(testContext(t), &adminpb.UpdateTableRequest{
			Table: &adminpb.Table{Name: fullName(name)}, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths},
		})
		wantCode(t, "mask "+strings.Join(paths, ","), err, codes.InvalidArgument)
	}
}

func TestConsistencyToken(t *testing.T) {
	t.Parallel()
	name, _ := newTable(t, "f")
	if err := admin.WaitForReplication(testContext(t), name); err != nil {
		t.Error(err)
	}
	_, err := rawAdmin.CheckConsistency(testContext(t), &adminpb.CheckConsistencyRequest{
		Name: fullName(name), ConsistencyToken: "made up",
	})
	wantCode(t, "a token from nowhere", err, codes.InvalidArgument)
	_, err = rawAdmin.GenerateConsistencyToken(testContext(t), &adminpb.GenerateConsistencyTokenRequest{Name: fullName("absent")})
	wantCode(t, "missing table", err, codes.NotFound)
}

func TestGCRules(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Millisecond)
	hour := func(n int) bigtable.Timestamp { return bigtable.Time(now.Add(-time.Duration(n) * time.Hour)) }
	age := bigtable.MaxAgePolicy(150 * time.Minute)
	cases := []struct {
		name   string
		policy bigtable.GCPolicy
		want   string
	}{
		{"none", bigtable.NoGcPolicy(), "0123"},
		{"versions", bigtable.MaxVersionsPolicy(2), "01"},
		{"age", age, "012"},
		{"union", bigtable.UnionPolicy(bigtable.MaxVersionsPolicy(1), age), "0"},
		{"intersection", bigtable.IntersectionPolicy(bigtable.MaxVersionsPolicy(1), age), "012"},
		{"nested", bigtable.IntersectionPolicy(bigtable.MaxVersionsPolicy(1),
			bigtable.UnionPolicy(age, bigtable.MaxVersionsPolicy(2))), "01"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			name, table := newTableFromConf(t, &bigtable.TableConf{
				TableID: uniqueName("gc"), Families: map[string]bigtable.GCPolicy{"f": c.policy},
			})
			for i := range 4 {
				mutation := bigtable.NewMutation()
				mutation.Set("f", "q", hour(i), []byte{byte('0' + i)})
				apply(t, table, "r", mutation)
			}
			values := func() string {
				row, err := table.ReadRow(testContext(t), "r")
				if err != nil {
					t.Fatal(err)
				}
				var got string
				for _, item := range row["f"] {
					got += string(item.Value)
				}
				return got
			}
			if got := values(); got != c.want {
				t.Errorf("visible versions %q, want %q", got, c.want)
			}
			info, err := admin.TableInfo(testContext(t), name)
			if err != nil {
				t.Fatal(err)
			}
			if c.name != "none" && info.FamilyInfos[0].GCPolicy != bigtable.GCRuleToString(ruleOf(t, name)) {
				t.Errorf("rule reads back as %q", info.FamilyInfos[0].GCPolicy)
			}
			// A rule set later applies to what is there.
			if err := admin.SetGCPolicy(testContext(t), name, "f", bigtable.MaxVersionsPolicy(1)); err != nil {
				t.Fatal(err)
			}
			if got := values(); got != "0" {
				t.Errorf("after a rule of one version: %q", got)
			}
		})
	}
}

func ruleOf(t *testing.T, table string) *adminpb.GcRule {
	t.Helper()
	got, err := rawAdmin.GetTable(testContext(t), &adminpb.GetTableRequest{Name: fullName(table)})
	if err != nil {
		t.Fatal(err)
	}
	return got.ColumnFamilies["f"].GcRule
}

// A row emptied by its rule is not there.
func TestGCEmptiesRows(t *testing.T) {
	t.Parallel()
	_, table := newTableFromConf(t, &bigtable.TableConf{
		TableID: uniqueName("gc"), Families: map[string]bigtable.GCPolicy{"f": bigtable.MaxAgePolicy(time.Hour)},
	})
	set(t, table, "old", "f:q@1000=x")
	mutation := bigtable.NewMutation()
	mutation.Set("f", "q", bigtable.ServerTime, []byte("x"))
	apply(t, table, "young", mutation)
	wantLines(t, keysOf(t, table, bigtable.InfiniteRange("")), "young")
	wantLines(t, keysOf(t, table, bigtable.InfiniteRange(""), bigtable.LimitRows(1)), "young")
}

func TestBackupsAreListed(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	name, table := newTable(t, "f")
	set(t, table, "r", "f:q@0=x")
	backup := uniqueName("b")
	expires := time.Now().Add(8 * time.Hour)
	if err := admin.CreateBackup(ctx, name, "stele", backup, expires); err != nil {
		t.Fatal(err)
	}
	defer admin.DeleteBackup(ctx, "stele", backup)
	all := admin.Backups(ctx, "stele")
	for {
		info, err := all.Next()
		if err != nil {
			t.Fatalf("the backup is not in the list: %v", err)
		}
		if info.Name == backup {
			if info.SourceTable != name || info.State != "READY" || info.EncryptionInfo == nil {
				t.Errorf("got %+v", info)
			}
			return
		}
	}
}
