//! Identities: a client shows its credentials and becomes a caller.

use crate::audit::{Audit, Event, Outcome};
use crate::caller::{Caller, Source};
use crate::oidc::{JwtRefused, Oidc};
use crate::tokens::{self, TokenRefused, Tokens};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stele_client::AccessAdmin;
use stele_env::Env;

/// Bytes of a name that a client states, as of all other names.
const STATED_NAME_BYTES_MAX: usize = 256;

/// Callers that are kept with their grants. When there are more, all are made again.
const CALLERS_MAX: usize = 4_096;

/// How access is configured.
#[derive(Default)]
pub struct AccessOptions {
    /// Callers that may do everything.
    pub superusers: HashSet<String>,
    /// The tokens of callers.
    pub tokens: Tokens,
    /// The issuer whose tokens are believed, too.
    pub oidc: Option<Arc<Oidc>>,
    /// The user name that an HBase client states is believed.
    pub trusts_users: bool,
    /// Reads and writes of rows that succeed are in the audit log, too.
    pub audits_rows: bool,
}

/// Finds the caller of a call.
pub struct Access {
    admin: Arc<dyn AccessAdmin>,
    superusers: HashSet<String>,
    tokens: ArcSwap<Tokens>,
    /// Counted up after `tokens` has changed.
    tokens_version: AtomicU64,
    oidc: Option<Arc<Oidc>>,
    trusts_users: bool,
    audits_rows: bool,
    audit: Option<Audit>,
    /// By name, source, and groups.
    callers: Mutex<HashMap<CallerKey, Arc<Caller>>>,
    env: Env,
}

type CallerKey = (String, Source, Arc<[String]>);

/// The credentials of a client.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shown<'a> {
    /// The name in its certificate, which the handshake has verified.
    pub certificate: Option<&'a str>,
    /// A bearer token.
    pub token: Option<&'a str>,
    /// A user name, without any proof.
    pub user: Option<&'a str>,
}

/// A caller, and how long its credentials need not be checked again.
#[derive(Clone)]
pub struct Identified {
    /// The caller.
    pub caller: Arc<Caller>,
    /// The version of the tokens at the check.
    tokens_version: u64,
    /// Seconds since 1970 from which on the credentials must be checked again.
    until: u64,
}

/// The reason for which a client is no caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It shows a token that is not accepted.
    #[error(transparent)]
    Token(#[from] TokenRefused),
    /// It shows a token of the issuer, or of another one, that is not accepted.
    #[error(transparent)]
    Jwt(#[from] JwtRefused),
    /// It shows nothing that counts.
    #[error("the caller is not known: this server needs {0}")]
    Nobody(&'static str),
}

impl Access {
    /// Over the rules of a cluster.
    pub fn new(admin: Arc<dyn AccessAdmin>, options: AccessOptions, audit: Option<Audit>, env: Env) -> Arc<Self> {
        Arc::new(Access {
            admin,
            superusers: options.superusers,
            tokens: ArcSwap::from_pointee(options.tokens),
            tokens_version: AtomicU64::default(),
            oidc: options.oidc,
            trusts_users: options.trusts_users,
            audits_rows: options.audits_rows,
            audit,
            callers: Mutex::default(),
            env,
        })
    }

    /// Replaces the tokens. Later calls with those that are gone are refused.
    pub fn set_tokens(&self, tokens: Tokens) {
        self.tokens.store(Arc::new(tokens));
        self.tokens_version.fetch_add(1, Ordering::AcqRel);
    }

    /// The caller. A token counts first: a client that shows one means it. Then its certificate, then its user name.
    pub fn identify(&self, shown: Shown<'_>) -> Result<Arc<Caller>, Refused> {
        Ok(self.identify_for(shown)?.caller)
    }

    /// Whether credentials that were accepted would be accepted now.
    pub fn still_holds(&self, identified: &Identified) -> bool {
        self.tokens_version.load(Ordering::Acquire) == identified.tokens_version
            && self.now_seconds() < identified.until
    }

    /// Whether a token that named a caller still names it. A token that is refused is written to the audit log.
    pub(crate) fn still_names(&self, caller: &Caller, token: &str, operation: &'static str) -> bool {
        let shown = Shown {
            token: Some(token),
            ..Shown::default()
        };
        let found = self.identify(shown).inspect_err(|refused| {
            self.audit_refused(shown, operation, refused);
        });
        found.is_ok_and(|found| {
            (found.name(), found.source(), found.groups()) == (caller.name(), caller.source(), caller.groups())
        })
    }

    /// The environment's clock.
    pub(crate) fn now(&self) -> Duration {
        self.env.now()
    }

    /// Like [`Access::identify`], for a connection that shows the same credentials again and again.
    pub fn identify_for(&self, shown: Shown<'_>) -> Result<Identified, Refused> {
        // Before the tokens: a change in between has the credentials checked again.
        let tokens_version = self.tokens_version.load(Ordering::Acquire);
        let (caller, until) = self.checked(shown)?;
        Ok(Identified {
            caller,
            tokens_version,
            until,
        })
    }

    fn now_seconds(&self) -> u64 {
        u64::try_from(self.env.wall_micros() / 1_000_000).unwrap_or(0)
    }

    /// The caller, and when its credentials must be checked again.
    fn checked(&self, shown: Shown<'_>) -> Result<(Arc<Caller>, u64), Refused> {
        const NEVER: u64 = u64::MAX;
        if let Some(token) = shown.token {
            let now = self.now_seconds();
            if let Some(oidc) = self.oidc.as_ref().filter(|_| !tokens::is_own(token)) {
                let found = oidc.identify(token, now, self.env.now())?;
                // The issuer's keys may change: each call asks.
                return Ok((self.caller(&found.user, Source::Oidc, &found.groups), now));
            }
            let tokens = self.tokens.load();
            let (holder, expires) = tokens.holder(token, now)?;
            return Ok((self.caller(holder, Source::Token, &[]), expires.unwrap_or(NEVER)));
        }
        if let Some(name) = shown.certificate {
            return Ok((self.caller(name, Source::Certificate, &[]), NEVER));
        }
        match shown.user.filter(|name| self.trusts_users && !name.is_empty()) {
            // Callers are remembered with their names.
            Some(name) if name.len() > STATED_NAME_BYTES_MAX => {
                Err(Refused::Nobody("a user name of at most 256 bytes"))
            }
            Some(name) => Ok((self.caller(name, Source::TrustedUser, &[]), NEVER)),
            None if self.trusts_users => Err(Refused::Nobody("a certificate, a bearer token or an HBase user")),
            None => Err(Refused::Nobody("a certificate or a bearer token")),
        }
    }

    fn caller(&self, name: &str, source: Source, groups: &[String]) -> Arc<Caller> {
        let groups: Arc<[String]> = Arc::from(groups);
        let key = (name.to_owned(), source, Arc::clone(&groups));
        let mut callers = self.callers.lock();
        if let Some(caller) = callers.get(&key) {
            return Arc::clone(caller);
        }
        if callers.len() >= CALLERS_MAX {
            callers.clear();
        }
        // A name that anybody can state must not be enough for everything.
        let is_superuser = source != Source::TrustedUser && self.superusers.contains(name);
        let caller = Arc::new(Caller::new(name.to_owned(), source, groups, is_superuser));
        callers.insert(key, Arc::clone(&caller));
        caller
    }

    /// Writes a refused identity to the audit log.
    pub fn audit_refused(&self, shown: Shown<'_>, operation: &'static str, why: &Refused) {
        let (who, by) = match shown {
            Shown { token: Some(_), .. } => ("", Source::Token.label()),
            // The name is not believed, but may be a trace.
            Shown { user: Some(user), .. } => (user, "unproven user"),
            _ => ("", "nothing"),
        };
        if let Some(audit) = &self.audit {
            audit.add(Event {
                who: who.to_owned(),
                by,
                from: String::new(),
                operation,
                on: String::new(),
                outcome: Outcome::Unauthenticated,
                why: why.to_string(),
            });
        }
    }

    /// The rules.
    pub(crate) fn admin(&self) -> &dyn AccessAdmin {
        &*self.admin
    }

    pub(crate) fn superusers(&self) -> &HashSet<String> {
        &self.superusers
    }

    pub(crate) fn audit(&self) -> Option<&Audit> {
        self.audit.as_ref()
    }

    pub(crate) fn audits_rows(&self) -> bool {
        self.audits_rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemoryRules;
    use stele_env::tokio_env::TokioRuntime;

    fn setting(trusts_users: bool) -> (Arc<Access>, String) {
        let alice = tokens::make("alice", &[7; tokens::RANDOM_BYTES], None).unwrap();
        let options = AccessOptions {
            superusers: HashSet::from(["root".to_owned()]),
            tokens: Tokens::parse(&alice.line).unwrap(),
            trusts_users,
            ..AccessOptions::default()
        };
        let rules = Arc::new(MemoryRules::default());
        (Access::new(rules, options, None, TokioRuntime::current()), alice.token)
    }

    fn name(access: &Access, shown: Shown<'_>) -> Option<(String, Source)> {
        let caller = access.identify(shown).ok()?;
        Some((caller.name().to_owned(), caller.source()))
    }

    #[tokio::test]
    async fn a_token_counts_before_a_certificate_and_that_before_a_user() {
        let (access, token) = setting(true);
        let all = Shown {
            certificate: Some("bob"),
            token: Some(&token),
            user: Some("carol"),
        };
        assert_eq!(name(&access, all), Some(("alice".into(), Source::Token)));
        let wrong = Shown {
            token: Some("stele_x_y"),
            ..all
        };
        assert_eq!(
            access.identify(wrong).err(),
            Some(Refused::Token(TokenRefused::Unknown))
        );
        let certificate = Shown { token: None, ..all };
        assert_eq!(name(&access, certificate), Some(("bob".into(), Source::Certificate)));
        let user = Shown {
            certificate: None,
            ..certificate
        };
        assert_eq!(name(&access, user), Some(("carol".into(), Source::TrustedUser)));
        let long = "n".repeat(STATED_NAME_BYTES_MAX + 1);
        let stated = Shown {
            user: Some(&long),
            ..user
        };
        assert!(access.identify(stated).is_err());
        assert!(access.identify(Shown::default()).is_err());
        access.set_tokens(Tokens::default());
        assert!(access.identify(all).is_err(), "withdrawn");
    }

    #[tokio::test]
    async fn credentials_hold_until_tokens_change_or_expire() {
        let env = TokioRuntime::current();
        let now = u64::try_from(env.wall_micros() / 1_000_000).unwrap();
        let bob = tokens::make("bob", &[8; tokens::RANDOM_BYTES], Some(now + 3_600)).unwrap();
        let (access, alice) = setting(false);
        let (lasting, line) = (access.identify_for(shown(&alice)).unwrap(), &bob.line);
        assert!(access.still_holds(&lasting));
        access.set_tokens(Tokens::parse(line).unwrap());
        assert!(!access.still_holds(&lasting), "withdrawn");
        let mut ending = access.identify_for(shown(&bob.token)).unwrap();
        assert!(access.still_holds(&ending) && ending.until == now + 3_600);
        ending.until = now;
        assert!(!access.still_holds(&ending), "expired");
    }

    fn shown(token: &str) -> Shown<'_> {
        Shown {
            token: Some(token),
            ..Shown::default()
        }
    }

    #[tokio::test]
    async fn users_are_believed_only_if_configured() {
        let (access, _) = setting(false);
        let user = Shown {
            user: Some("root"),
            ..Shown::default()
        };
        assert!(access.identify(user).is_err());
        let (trusting, _) = setting(true);
        assert!(!trusting.identify(user).unwrap().is_superuser());
        let root = Shown {
            certificate: Some("root"),
            ..Shown::default()
        };
        let caller = access.identify(root).unwrap();
        assert!(caller.is_superuser() && Arc::ptr_eq(&caller, &access.identify(root).unwrap()));
    }
}
