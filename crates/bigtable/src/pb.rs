//! The published message types under short names, and the server stubs generated over them.

pub use googleapis_tonic_google_bigtable_admin_v2::google::bigtable::admin::v2 as admin;
pub use googleapis_tonic_google_bigtable_v2::google::bigtable::v2;
pub use googleapis_tonic_google_longrunning::google::longrunning;

pub use stele_adminapi as own;

/// `google.protobuf.Empty`, in a form the stub generator can name.
pub type Empty = ();

/// What `build.rs` generates.
pub mod stubs {
    #![allow(missing_docs, reason = "generated")]
    tonic::include_proto!("google.bigtable.v2.Bigtable");
    tonic::include_proto!("google.bigtable.admin.v2.BigtableTableAdmin");
    tonic::include_proto!("google.bigtable.admin.v2.BigtableInstanceAdmin");
    tonic::include_proto!("google.longrunning.Operations");
    tonic::include_proto!("stele.admin.v1.LocalityGroups");
    tonic::include_proto!("stele.admin.v1.TableSettings");
    include!(concat!(env!("OUT_DIR"), "/served.rs"));
}
