package suite

import (
	"testing"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/grpc/codes"
)

func TestInstanceLifecycle(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	id := "i" + uniqueName("")[1:]
	conf := &bigtable.InstanceWithClustersConfig{
		InstanceID: id, DisplayName: "A test", Labels: map[string]string{"k": "v"},
		Clusters: []bigtable.ClusterConfig{
			{InstanceID: id, ClusterID: id + "-c1", Zone: "here-a", NumNodes: 1, StorageType: bigtable.SSD},
		},
	}
	if err := iadmin.CreateInstanceWithClusters(ctx, conf); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "creating it again", iadmin.CreateInstanceWithClusters(ctx, conf), codes.AlreadyExists)
	info, err := iadmin.InstanceInfo(ctx, id)
	if err != nil || info.Name != id || info.DisplayName != "A test" || info.Labels["k"] != "v" {
		t.Errorf("%+v, %v", info, err)
	}
	instances, err := iadmin.Instances(ctx)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, instance := range instances {
		found = found || instance.Name == id
	}
	if !found {
		t.Errorf("%s is not listed", id)
	}
	clusters, err := iadmin.Clusters(ctx, id)
	if err != nil || len(clusters) != 1 || clusters[0].Name != id+"-c1" {
		t.Errorf("clusters: %+v, %v", clusters, err)
	}
	if err := iadmin.DeleteInstance(ctx, id); err != nil {
		t.Fatal(err)
	}
	_, err = iadmin.InstanceInfo(ctx, id)
	wantCode(t, "a deleted instance", err, codes.NotFound)
	wantCode(t, "deleting it again", iadmin.DeleteInstance(ctx, id), codes.NotFound)
}

// Deleting an instance deletes its tables; tables can be made in an instance nobody created.
func TestDeleteInstanceWithTables(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	id := "i" + uniqueName("")[1:]
	parent := "projects/" + project + "/instances/" + id
	request := &adminpb.CreateTableRequest{Parent: parent, TableId: "t", Table: &adminpb.Table{DeletionProtection: true}}
	if _, err := rawAdmin.CreateTable(ctx, request); err != nil {
		t.Fatal(err)
	}
	_, err := rawInst.DeleteInstance(ctx, &adminpb.DeleteInstanceRequest{Name: parent})
	wantCode(t, "an instance with a protected table", err, codes.FailedPrecondition)
	other, err := bigtable.NewAdminClient(ctx, project, id)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.UpdateTableWithDeletionProtection(ctx, "t", bigtable.Unprotected); err != nil {
		t.Fatal(err)
	}
	if _, err := rawInst.DeleteInstance(ctx, &adminpb.DeleteInstanceRequest{Name: parent}); err != nil {
		t.Fatal(err)
	}
	_, err = rawAdmin.GetTable(ctx, &adminpb.GetTableRequest{Name: parent + "/tables/t"})
	wantCode(t, "its table", err, codes.NotFound)
}

func TestBadInstanceNames(t *testing.T) {
	t.Parallel()
	_, err := rawInst.DeleteInstance(testContext(t), &adminpb.DeleteInstanceRequest{Name: "nonsense"})
	wantCode(t, "a malformed name", err, codes.InvalidArgument)
	_, err = rawInst.GetInstance(testContext(t), &adminpb.GetInstanceRequest{Name: "projects/p/instances/absent-instance"})
	wantCode(t, "a missing instance", err, codes.NotFound)
}

// Everything else of the admin API answers, at worst with UNIMPLEMENTED.
func TestOtherAdminCallsAnswer(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	_, err := rawInst.CreateLogicalView(ctx, &adminpb.CreateLogicalViewRequest{
		Parent: instanceName(), LogicalViewId: "v", LogicalView: &adminpb.LogicalView{Query: "SELECT 1"},
	})
	wantCode(t, "CreateLogicalView", err, codes.Unimplemented)
	_, err = rawInst.ListHotTablets(ctx, &adminpb.ListHotTabletsRequest{Parent: instanceName() + "/clusters/c"})
	wantCode(t, "ListHotTablets", err, codes.Unimplemented, codes.OK)
	_, err = rawAdmin.CreateBackup(ctx, &adminpb.CreateBackupRequest{Parent: instanceName() + "/clusters/c", BackupId: "b"})
	wantCode(t, "CreateBackup in a missing cluster", err, codes.NotFound)
	name, _ := newTable(t, "f")
	_, err = rawAdmin.GetTable(ctx, &adminpb.GetTableRequest{Name: fullName(name)})
	wantCode(t, "the server is alive", err, codes.OK)
}
