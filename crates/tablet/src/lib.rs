//! The LSM of one tablet. Knows no network, no cluster and no log.
