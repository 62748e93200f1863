//! The Cloud Bigtable gRPC front end.
