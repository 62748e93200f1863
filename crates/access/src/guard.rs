//! The service interface as one caller has it.
//!
//! Every method of the two traits is here, and names the right that it needs: rows in [`rows`], administration in [`admin`].
//! A method of the traits that had a default would go around the checks, so those are here, too.
//!
//! A right is checked before existence: a caller without rights cannot find out which resources exist.

mod admin;
mod narrow;
mod note;
mod rows;
#[cfg(test)]
mod tests;
mod token;

pub use note::Note;

use crate::access::Access;
use crate::audit::{Event, Outcome};
use crate::caller::Caller;
use crate::forwarded::on_behalf_of;
use crate::grants::{Grants, TableRights};
use std::collections::HashSet;
use std::fmt::Display;
use std::sync::Arc;
use stele_client::{ServiceError, ServiceResult, TableAdmin, TableService};
use stele_types::{ErrorKind, Resource, Rights, TableName};
use token::ShownToken;

/// The service interface for one caller.
pub struct Guard {
    access: Arc<Access>,
    caller: Arc<Caller>,
    service: Arc<dyn TableService>,
    tables: Arc<dyn TableAdmin>,
    /// The view through which rows are read and written; the front end narrows them to it.
    view: Option<Arc<str>>,
    /// The token by which the caller has shown its name, for reads to look at it again.
    token: Option<Arc<ShownToken>>,
}

impl Guard {
    /// The services for a caller.
    pub fn new(
        access: Arc<Access>,
        caller: Arc<Caller>,
        service: Arc<dyn TableService>,
        tables: Arc<dyn TableAdmin>,
    ) -> Arc<Self> {
        Arc::new(Guard {
            access,
            caller,
            service,
            tables,
            view: None,
            token: None,
        })
    }

    /// The same for rows of a view: rights on the view count. A request must be narrowed to the view by the front end, which also
    /// does that where callers are not known.
    pub fn through(&self, view: &str) -> Arc<Self> {
        Arc::new(Guard {
            view: Some(view.into()),
            ..self.again()
        })
    }

    /// The same guard, for a stream that outlives the call.
    fn again(&self) -> Guard {
        Guard {
            access: Arc::clone(&self.access),
            caller: Arc::clone(&self.caller),
            service: Arc::clone(&self.service),
            tables: Arc::clone(&self.tables),
            view: self.view.clone(),
            token: self.token.clone(),
        }
    }

    /// The same for calls that show this token, which names the caller now: their reads end when it counts no longer.
    pub fn shown(&self, token: &str) -> Arc<Self> {
        Arc::new(Guard {
            token: Some(Arc::new(ShownToken::new(token, self.access.now()))),
            ..self.again()
        })
    }

    /// The caller.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The rights on a whole resource.
    pub fn rights(&self, resource: &Resource) -> Rights {
        self.grants().on(resource)
    }

    /// The names of the callers that may do everything.
    pub(crate) fn superusers(&self) -> &HashSet<String> {
        self.access.superusers()
    }

    /// Whether any part of a table may be seen.
    pub fn sees_table(&self, table: &TableName) -> bool {
        self.rights_on(&self.grants(), table).is_seen()
    }

    /// Whether the sizes of a table, and the numbers of operations on it, may be known. They tell of all of its rows, so a right on a
    /// part of the table or on a view of it is not enough.
    pub fn knows_figures(&self, table: &TableName) -> bool {
        self.rights(&Resource::Table(table.clone())).has(Rights::VIEW)
    }

    /// The rights on a table, or on the view of it.
    fn rights_on<'g>(&self, grants: &'g Grants, table: &TableName) -> TableRights<'g> {
        match &self.view {
            None => grants.table(table),
            Some(view) => grants.through(table, view),
        }
    }

    /// A table, or the view of it, as a resource.
    fn resource(&self, table: &TableName) -> Resource {
        let table = table.clone();
        match &self.view {
            None => Resource::Table(table),
            Some(view) => Resource::View {
                table,
                view: view.to_string(),
            },
        }
    }

    /// Refuses an operation on the whole cluster that the service interface does not have. A denial is written to the audit log.
    pub fn check_cluster(&self, operation: &'static str, right: Rights) -> ServiceResult<()> {
        self.allow(self.grants().on_cluster(right), operation, &Resource::Cluster, right)
    }

    /// Begins a change of a resource that the service interface does not have. The note writes it to the audit log with its outcome; a
    /// denial is written here.
    pub fn begin_change(&self, operation: &'static str, resource: &Resource) -> ServiceResult<Note<'_>> {
        self.check(operation, resource, Rights::ADMIN)?;
        Ok(Note::new(self, operation, resource))
    }

    fn grants(&self) -> Arc<Grants> {
        self.caller.grants(self.access.admin())
    }

    /// An error while the rules are not known: nothing is a right or a denial then. A caller may repeat the call at another server.
    pub(crate) fn check_known(&self) -> ServiceResult<()> {
        match self.caller.is_superuser() || self.access.admin().is_current() {
            true => Ok(()),
            false => Err(ServiceError::new(
                ErrorKind::Unavailable,
                "this server has no contact with the coordinator, so it does not know the access rules: call another server",
            )),
        }
    }

    /// The grants, where their absence would not be noticed otherwise.
    pub(crate) fn known_grants(&self) -> ServiceResult<Arc<Grants>> {
        self.check_known()?;
        Ok(self.grants())
    }

    /// The result of a check; a denial is written to the audit log.
    fn allow(&self, is_allowed: bool, operation: &'static str, on: &dyn Display, right: Rights) -> ServiceResult<()> {
        if is_allowed {
            return Ok(());
        }
        self.check_known()?;
        let message = format!("{} lacks the right {right} on {on}", self.caller.name());
        self.note(operation, on, Outcome::Denied, &message);
        Err(ServiceError::new(ErrorKind::PermissionDenied, message))
    }

    /// Checks a right on a whole resource.
    fn check(&self, operation: &'static str, resource: &Resource, right: Rights) -> ServiceResult<()> {
        self.allow(self.grants().on(resource).has(right), operation, resource, right)
    }

    /// Checks that any part of a table may be seen.
    fn check_seen(&self, operation: &'static str, table: &TableName) -> ServiceResult<()> {
        match self.sees_table(table) {
            true => Ok(()),
            false => self.check(operation, &self.resource(table), Rights::VIEW),
        }
    }

    /// Checks the right to read or change the rules of a resource.
    pub(crate) fn check_rules(&self, operation: &'static str, resource: &Resource) -> ServiceResult<()> {
        self.check(operation, resource, Rights::ADMIN)
    }

    /// Changes rules, if that is allowed.
    pub(crate) async fn audited_rules<T>(
        &self,
        operation: &'static str,
        resource: &Resource,
        call: impl Future<Output = ServiceResult<T>>,
    ) -> ServiceResult<T> {
        self.check_rules(operation, resource)?;
        self.audited(operation, resource, call).await
    }

    /// Makes an administrative call, and writes it to the audit log with its outcome.
    async fn audited<T>(
        &self,
        operation: &'static str,
        on: &Resource,
        call: impl Future<Output = ServiceResult<T>>,
    ) -> ServiceResult<T> {
        self.noted(Some(Note::new(self, operation, on)), call).await
    }

    /// Makes a call, and writes its note, if there is one, with its outcome.
    async fn noted<T>(&self, note: Option<Note<'_>>, call: impl Future<Output = ServiceResult<T>>) -> ServiceResult<T> {
        let outcome = self.on_behalf(call).await;
        if let Some(note) = note {
            note.write(outcome.as_ref().err());
        }
        outcome
    }

    /// Makes a call that other servers may carry out, with the name of the caller.
    async fn on_behalf<T>(&self, call: impl Future<Output = T>) -> T {
        on_behalf_of(Arc::clone(&self.caller), call).await
    }

    /// The note of a call on rows that begins, if those are written to the audit log.
    fn note_rows(&self, operation: &'static str, table: &TableName) -> Option<Note<'_>> {
        self.access.audits_rows().then(|| self.note_change(operation, table))
    }

    /// Makes a call on rows, and writes it to the audit log with its outcome, if those are written.
    async fn audited_rows<T>(
        &self,
        operation: &'static str,
        table: &TableName,
        call: impl Future<Output = ServiceResult<T>>,
    ) -> ServiceResult<T> {
        self.noted(self.note_rows(operation, table), call).await
    }

    /// The note of a change of rows that a person makes, also where other changes of rows are not written to the audit log.
    pub fn note_change(&self, operation: &'static str, table: &TableName) -> Note<'_> {
        Note::new(self, operation, &self.resource(table))
    }

    fn note(&self, operation: &'static str, on: &dyn Display, outcome: Outcome, why: &str) {
        if let Some(audit) = self.access.audit() {
            audit.add(Event {
                who: self.caller.name().to_owned(),
                by: self.caller.source().label(),
                from: String::new(),
                operation,
                on: on.to_string(),
                outcome,
                why: why.to_owned(),
            });
        }
    }
}
