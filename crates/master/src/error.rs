//! Errors of the layers below, as the service interface has them.

use stele_catalog::CatalogError;
use stele_client::ServiceError;

/// A catalog's error.
pub(crate) fn from_catalog(error: CatalogError) -> ServiceError {
    ServiceError::new(error.kind(), error.to_string())
}
