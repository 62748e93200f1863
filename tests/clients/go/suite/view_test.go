package suite

import (
	"strings"
	"testing"

	"cloud.google.com/go/bigtable"
	"google.golang.org/grpc/codes"
)

// newView makes a view of a table, which may be deleted.
func newView(t *testing.T, table string, subset bigtable.SubsetViewConf) bigtable.TableAPI {
	t.Helper()
	conf := &bigtable.AuthorizedViewConf{
		TableID: table, AuthorizedViewID: "v", AuthorizedView: &subset, DeletionProtection: bigtable.Unprotected,
	}
	if err := admin.CreateAuthorizedView(testContext(t), conf); err != nil {
		t.Fatalf("creating a view: %v", err)
	}
	return client.OpenAuthorizedView(table, "v")
}

func TestViewLifecycle(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	name, _ := newTable(t, "f")
	newView(t, name, bigtable.SubsetViewConf{RowPrefixes: [][]byte{[]byte("a")}})
	views, err := admin.AuthorizedViews(ctx, name)
	if err != nil || strings.Join(views, ",") != "v" {
		t.Errorf("views: %v, %v", views, err)
	}
	protect := bigtable.UpdateAuthorizedViewConf{AuthorizedViewConf: bigtable.AuthorizedViewConf{
		TableID: name, AuthorizedViewID: "v", DeletionProtection: bigtable.Protected,
	}}
	if err := admin.UpdateAuthorizedView(ctx, protect); err != nil {
		t.Fatal(err)
	}
	info, err := admin.AuthorizedViewInfo(ctx, name, "v")
	if err != nil || info.DeletionProtection != bigtable.Protected {
		t.Fatalf("info: %+v, %v", info, err)
	}
	if rows := info.AuthorizedView.(*bigtable.SubsetViewInfo).RowPrefixes; len(rows) != 1 || string(rows[0]) != "a" {
		t.Errorf("rows after an update of the protection: %q", rows)
	}
	wantCode(t, "deleting a protected view", admin.DeleteAuthorizedView(ctx, name, "v"), codes.FailedPrecondition)
	wantCode(t, "deleting its table", admin.DeleteTable(ctx, name), codes.FailedPrecondition)
	protect.AuthorizedViewConf.DeletionProtection = bigtable.Unprotected
	if err := admin.UpdateAuthorizedView(ctx, protect); err != nil {
		t.Fatal(err)
	}
	if err := admin.DeleteAuthorizedView(ctx, name, "v"); err != nil {
		t.Fatal(err)
	}
	_, err = admin.AuthorizedViewInfo(ctx, name, "v")
	wantCode(t, "info of a deleted view", err, codes.NotFound)
}

func TestViewReads(t *testing.T) {
	t.Parallel()
	name, table := newTable(t, "f", "g")
	set(t, table, "a", "f:q@0=1", "f:p1@0=2", "f:x@0=3", "g:q@0=4")
	set(t, table, "a1", "g:q@0=5")
	set(t, table, "b", "f:q@0=6")
	set(t, table, "c", "f:p@0=7")
	view := newView(t, name, bigtable.SubsetViewConf{
		RowPrefixes: [][]byte{[]byte("a"), []byte("c")},
		FamilySubsets: map[string]bigtable.FamilySubset{
			"f":      {Qualifiers: [][]byte{[]byte("q")}, QualifierPrefixes: [][]byte{[]byte("p")}},
			"absent": {QualifierPrefixes: [][]byte{{}}},
		},
	})
	read := func(rows bigtable.RowSet, opts ...bigtable.ReadOption) []string {
		t.Helper()
		var lines []string
		err := view.ReadRows(testContext(t), rows, func(row bigtable.Row) bool {
			lines = append(lines, renderRow(row))
			return true
		}, opts...)
		if err != nil {
			t.Fatalf("reading: %v", err)
		}
		return lines
	}
	all := bigtable.InfiniteRange("")
	wantLines(t, read(all), "a f:p1@0=2 f:q@0=1", "c f:p@0=7")
	wantLines(t, read(bigtable.RowList{"a1", "b", "c"}), "c f:p@0=7")
	wantLines(t, read(bigtable.NewRange("b", "d")), "c f:p@0=7")
	wantLines(t, read(bigtable.SingleRow("b")))
	wantLines(t, read(all, bigtable.LimitRows(1)), "a f:p1@0=2 f:q@0=1")
	wantLines(t, read(all, bigtable.RowFilter(bigtable.CellsPerRowOffsetFilter(1))), "a f:q@0=1")
	wantLines(t, read(all, bigtable.RowFilter(bigtable.ConditionFilter(
		bigtable.ColumnFilter("x"), bigtable.PassAllFilter(), bigtable.ValueFilter("2")))), "a f:p1@0=2")
	wantLines(t, read(all, bigtable.RowFilter(bigtable.InterleaveFilters(
		bigtable.PassAllFilter(), bigtable.FamilyFilter("g")))), "a f:p1@0=2 f:q@0=1", "c f:p@0=7")
	// The predicate of a conditional write sees the view, too.
	onlyOutside := bigtable.NewCondMutation(bigtable.ValueFilter("3"), column("f", "q", "yes"), column("f", "q", "no"))
	if err := view.Apply(testContext(t), "a", onlyOutside); err != nil {
		t.Fatal(err)
	}
	wantLines(t, read(bigtable.SingleRow("a"), bigtable.RowFilter(bigtable.ColumnFilter("q"))), "a f:q@0=no")
}

func column(family, qualifier, value string) *bigtable.Mutation {
	mutation := bigtable.NewMutation()
	mutation.Set(family, qualifier, 0, []byte(value))
	return mutation
}

func TestViewWrites(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	name, table := newTable(t, "f", "g")
	view := newView(t, name, bigtable.SubsetViewConf{
		RowPrefixes:   [][]byte{[]byte("a")},
		FamilySubsets: map[string]bigtable.FamilySubset{"f": {Qualifiers: [][]byte{[]byte("q")}}},
	})
	if err := view.Apply(ctx, "a", column("f", "q", "1")); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "a row outside", view.Apply(ctx, "b", column("f", "q", "1")), codes.PermissionDenied)
	wantCode(t, "a column outside", view.Apply(ctx, "a", column("f", "x", "1")), codes.PermissionDenied)
	row := bigtable.NewMutation()
	row.DeleteRow()
	wantCode(t, "a deletion of a row", view.Apply(ctx, "a", row), codes.PermissionDenied)
	two := column("f", "q", "2")
	two.Set("g", "q", 0, []byte("2"))
	status, err := view.ApplyBulk(ctx, []string{"a1", "b", "a"}, []*bigtable.Mutation{column("f", "q", "1"), column("f", "q", "1"), two})
	if err != nil || len(status) != 3 || status[0] != nil {
		t.Fatalf("bulk: %v, %v", status, err)
	}
	wantCode(t, "a row of a bulk", status[1], codes.PermissionDenied)
	wantCode(t, "a mutation of a bulk", status[2], codes.PermissionDenied)
	wantLines(t, readAll(t, table), "a f:q@0=1", "a1 f:q@0=1")
	increment := bigtable.NewReadModifyWrite()
	increment.AppendValue("f", "q", []byte("+"))
	changed, err := view.ApplyReadModifyWrite(ctx, "a", increment)
	if err != nil || string(changed["f"][0].Value) != "1+" {
		t.Errorf("append: %v, %v", changed, err)
	}
	_, err = view.ApplyReadModifyWrite(ctx, "b", increment)
	wantCode(t, "an append outside", err, codes.PermissionDenied)
}

func TestViewSamples(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	name := uniqueName("t")
	newTableFromConf(t, &bigtable.TableConf{TableID: name, SplitKeys: []string{"r0", "r11", "r12", "r2"}})
	view := newView(t, name, bigtable.SubsetViewConf{RowPrefixes: [][]byte{[]byte("r1")}})
	keys, err := view.SampleRowKeys(ctx)
	if err != nil || strings.Join(keys, ",") != "r11,r12,r2" {
		t.Errorf("samples: %q, %v", keys, err)
	}
}
