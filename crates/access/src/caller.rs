//! A caller, and its grants as the rules have them now.

use crate::grants::Grants;
use arc_swap::ArcSwapOption;
use std::sync::Arc;
use stele_client::AccessAdmin;
use stele_client::access::AccessView;

/// The kind of credential that a caller has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// By a certificate.
    Certificate,
    /// By a bearer token.
    Token,
    /// By the name alone, which this server trusts.
    TrustedUser,
    /// By a token of an issuer of OpenID Connect.
    Oidc,
}

impl Source {
    const ALL: [Source; 4] = [Source::Certificate, Source::Token, Source::TrustedUser, Source::Oidc];

    /// Its number between servers.
    pub fn number(self) -> u8 {
        match self {
            Source::Certificate => 1,
            Source::Token => 2,
            Source::TrustedUser => 3,
            Source::Oidc => 4,
        }
    }

    /// Of a number; `None` for an unknown one.
    pub fn of_number(number: u8) -> Option<Source> {
        Source::ALL.into_iter().find(|source| source.number() == number)
    }

    /// As the audit log has it.
    pub fn label(self) -> &'static str {
        match self {
            Source::Certificate => "certificate",
            Source::Token => "token",
            Source::TrustedUser => "trusted user",
            Source::Oidc => "oidc token",
        }
    }
}

/// A client that has shown its identity.
pub struct Caller {
    name: String,
    source: Source,
    /// The groups that its credentials name.
    groups: Arc<[String]>,
    is_superuser: bool,
    /// Computed when a call needs them, and again when rules have changed.
    grants: ArcSwapOption<Known>,
}

struct Known {
    /// The rules that they were computed from are the current ones as long as this is the current version.
    version: u64,
    rules: Arc<AccessView>,
    grants: Arc<Grants>,
}

impl Caller {
    pub(crate) fn new(name: String, source: Source, groups: Arc<[String]>, is_superuser: bool) -> Self {
        Caller {
            name,
            source,
            groups,
            is_superuser,
            grants: ArcSwapOption::empty(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it has shown that.
    pub fn source(&self) -> Source {
        self.source
    }

    /// The groups that its credentials name.
    pub fn groups(&self) -> &[String] {
        &self.groups
    }

    /// Whether it may do everything, without regard to the rules.
    pub fn is_superuser(&self) -> bool {
        self.is_superuser
    }

    /// Its grants now. While the rules are not known, none but those of a superuser.
    pub(crate) fn grants(&self, admin: &dyn AccessAdmin) -> Arc<Grants> {
        if !self.is_superuser && !admin.is_current() {
            return Arc::default();
        }
        // Before the rules: a change in between makes them out of date, and not wrong.
        let version = admin.version();
        let known = self.grants.load();
        if let Some(known) = known.as_deref().filter(|known| known.version == version) {
            return Arc::clone(&known.grants);
        }
        let rules = admin.rules();
        let grants = match known.as_deref() {
            Some(known) if Arc::ptr_eq(&known.rules, &rules) => Arc::clone(&known.grants),
            _ if self.is_superuser => Arc::new(Grants::everything()),
            _ => Arc::new(Grants::of(&rules, &self.name, &self.groups)),
        };
        let known = Known {
            version,
            rules,
            grants: Arc::clone(&grants),
        };
        self.grants.store(Some(Arc::new(known)));
        grants
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemoryRules;
    use stele_types::{AccessRule, Member, Resource, Rights};

    #[tokio::test]
    async fn grants_follow_the_rules() {
        let rules = MemoryRules::default();
        let caller = Caller::new("alice".into(), Source::Token, Arc::default(), false);
        let before = caller.grants(&rules);
        assert!(Arc::ptr_eq(&before, &caller.grants(&rules)), "kept");
        assert!(!before.on_cluster(Rights::READ));
        let rule = AccessRule::whole(Member::User("alice".into()), Rights::READ);
        rules.set_rules(&Resource::Cluster, vec![rule], None).await.unwrap();
        assert!(caller.grants(&rules).on_cluster(Rights::READ));
        let root = Caller::new("root".into(), Source::Certificate, Arc::default(), true);
        assert!(root.grants(&rules).on_cluster(Rights::ALL));
    }
}
