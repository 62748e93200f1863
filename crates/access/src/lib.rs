//! Callers, their rights, and the audit log.
//!
//! A *caller* has shown its identity: by a certificate, a bearer token of this server or of an issuer ([`oidc`]), or a user name
//! where that is trusted ([`Access`]). Its
//! *grants* are the rights that the access rules of the catalog give it. A [`Guard`] is the service interface as that caller has it: each
//! call is checked against the grants before it reaches the service. Both front ends work on a guard, so no call of either
//! can go around the checks. Without access rules there is no guard, and calls cost nothing more.
//!
//! In a cluster the server that a client calls is the one that checks; the others learn the name of the caller for their audit
//! logs ([`Forwarded`]).
//!
//! A denied call, a refused identity and every administrative call are written to the audit log ([`audit`]). Values and rows
//! are never written there.
#![forbid(unsafe_code)]

mod access;
pub mod audit;
mod caller;
mod forwarded;
mod grants;
mod guard;
pub mod oidc;
pub mod rules;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tokens;

pub use access::{Access, AccessOptions, Identified, Refused, Shown};
pub use caller::{Caller, Source};
pub use forwarded::{Forwarded, NAME_BYTES_MAX, NamedCaller, on_behalf_of};
pub use guard::{Guard, Note};
pub use rules::Rules;
