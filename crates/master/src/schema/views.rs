//! Changes of authorized views.

use super::check_name;
use stele_client::{ServiceError, ServiceResult, ViewChange};
use stele_types::view::{VIEWS_BYTES_MAX, VIEWS_MAX};
use stele_types::{ErrorKind, TableSchema, View, limits};

/// Changes a view in the next schema of a table. The view gets the version of that schema.
pub(super) fn change(next: &mut TableSchema, name: String, change: ViewChange) -> ServiceResult<()> {
    let table = next.name.clone();
    let found = next.views.get(&name);
    let missing = || ServiceError::not_found(format!("table {table} has no view {name}"));
    match change {
        ViewChange::Create(_) if found.is_some() => {
            let message = format!("table {table} has a view {name} already");
            Err(ServiceError::new(ErrorKind::AlreadyExists, message))
        }
        ViewChange::Create(view) => {
            check_name("view", &name, limits::TABLE_NAME_BYTES_MAX)?;
            put(next, name, view)
        }
        ViewChange::Replace { view, former } => {
            check_former(found.ok_or_else(missing)?, &name, former)?;
            put(next, name, view)
        }
        ViewChange::Delete { former } => {
            let found = found.ok_or_else(missing)?;
            check_former(found, &name, former)?;
            if found.is_protected {
                let message = format!("view {name} of table {table} is protected against deletion");
                return Err(ServiceError::new(ErrorKind::FailedPrecondition, message));
            }
            next.views.remove(&name);
            Ok(())
        }
    }
}

fn check_former(found: &View, name: &str, former: Option<u64>) -> ServiceResult<()> {
    match former {
        Some(former) if former != found.version => Err(ServiceError::new(
            ErrorKind::Aborted,
            format!(
                "view {name} has changed: it has version {}, not {former}",
                found.version
            ),
        )),
        _ => Ok(()),
    }
}

fn put(next: &mut TableSchema, name: String, view: View) -> ServiceResult<()> {
    if let Some(fault) = view.fault() {
        return Err(ServiceError::invalid(fault));
    }
    let version = next.version;
    next.views.insert(name, View { version, ..view });
    let bytes: usize = next.views.values().map(View::bytes).sum();
    if next.views.len() > VIEWS_MAX || bytes > VIEWS_BYTES_MAX {
        let message = format!("a table has at most {VIEWS_MAX} views, with names of at most {VIEWS_BYTES_MAX} bytes");
        return Err(ServiceError::new(ErrorKind::ResourceExhausted, message));
    }
    Ok(())
}
