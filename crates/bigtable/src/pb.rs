//! The published message types under short names.

pub use googleapis_tonic_google_bigtable_admin_v2::google::bigtable::admin::v2 as admin;
pub use googleapis_tonic_google_bigtable_v2::google::bigtable::v2;
pub use googleapis_tonic_google_iam_v1::google::iam::v1 as iam;
pub use googleapis_tonic_google_longrunning::google::longrunning;

pub use stele_adminapi as own;
