//! Errors of the layers below, as the service interface has them.

use stele_catalog::CatalogError;
use stele_client::ServiceError;
use stele_types::ErrorKind;

/// A catalog's error.
pub(crate) fn from_catalog(error: CatalogError) -> ServiceError {
    ServiceError::new(error.kind(), error.to_string())
}

/// The error of a change of which a part is made and stays. Nobody may repeat the call blindly: it would begin with the table as the
/// first attempt has left it, and keep that for undoing.
pub(crate) fn once_begun(error: ServiceError) -> ServiceError {
    match error.is_retryable() {
        true => {
            let message = format!("the change was begun, and may be made in part: {}", error.message);
            ServiceError::new(ErrorKind::Aborted, message)
        }
        false => error,
    }
}
