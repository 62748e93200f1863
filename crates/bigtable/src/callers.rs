//! The callers of a connection.
//!
//! A call shows a token in its `authorization` header, or else counts as that of the connection's certificate. The last token,
//! its caller and the context are kept, because a connection has hardly ever more than one. A call with the same token is not
//! checked again until the token expires or the tokens of the server change.

use crate::context::Context;
use http::header::AUTHORIZATION;
use parking_lot::Mutex;
use std::sync::Arc;
use stele_access::tokens::is_same;
use stele_access::{Access, Identified, Shown};
use tonic::Status;
use tonic::codegen::http;

/// Finds the caller of each call.
pub(crate) struct Callers {
    access: Arc<Access>,
    certificate: Option<Arc<str>>,
    last: Arc<Mutex<Option<Known>>>,
}

struct Known {
    /// The token that was shown, if any; else it was the certificate.
    token: Option<Box<str>>,
    identified: Identified,
    context: Arc<Context>,
}

impl Known {
    /// Whether a call that shows this token is one of this caller.
    fn is_of(&self, token: Option<&str>) -> bool {
        match (self.token.as_deref(), token) {
            (Some(own), Some(token)) => is_same(own.as_bytes(), token.as_bytes()),
            (own, token) => own.is_none() && token.is_none(),
        }
    }
}

impl Clone for Callers {
    fn clone(&self) -> Self {
        Callers {
            access: Arc::clone(&self.access),
            certificate: self.certificate.clone(),
            last: Arc::clone(&self.last),
        }
    }
}

impl Callers {
    pub fn new(access: Arc<Access>, certificate: Option<String>) -> Self {
        Callers {
            access,
            certificate: certificate.map(Arc::from),
            last: Arc::default(),
        }
    }

    /// Those of a connection whose client has this name by its certificate.
    pub fn for_connection(&self, certificate: Option<String>) -> Self {
        Callers::new(Arc::clone(&self.access), certificate)
    }

    /// The context of the caller of a call; UNAUTHENTICATED if it is not known.
    pub fn context(
        &self,
        base: &Context,
        headers: &http::HeaderMap,
        method: &'static str,
    ) -> Result<Arc<Context>, Status> {
        let token = token(headers);
        let mut last = self.last.lock();
        if let Some(known) = last.as_ref()
            && known.is_of(token)
            && self.access.still_holds(&known.identified)
        {
            return Ok(Arc::clone(&known.context));
        }
        let shown = Shown {
            certificate: self.certificate.as_deref(),
            token,
            user: None,
        };
        let identified = self.access.identify_for(shown).map_err(|refused| {
            self.access.audit_refused(shown, method, &refused);
            Status::unauthenticated(refused.to_string())
        })?;
        // Long reads look at the token of the context again, so another token has another context.
        let same = last
            .take()
            .filter(|known| known.is_of(token) && Arc::ptr_eq(&known.identified.caller, &identified.caller));
        let context = same.map_or_else(
            || Arc::new(base.of_caller(&self.access, Arc::clone(&identified.caller), token)),
            |known| known.context,
        );
        *last = Some(Known {
            token: token.map(Box::from),
            identified,
            context: Arc::clone(&context),
        });
        Ok(context)
    }
}

/// The bearer token of a call. A header that is none is a token that nobody has.
fn token(headers: &http::HeaderMap) -> Option<&str> {
    let text = headers.get(AUTHORIZATION)?.to_str().unwrap_or_default();
    let (scheme, token) = text.split_once(' ').unwrap_or_default();
    Some(match scheme.eq_ignore_ascii_case("bearer") {
        true => token.trim(),
        false => "",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bearer_tokens_count() {
        let of = |text: &str| {
            let mut headers = http::HeaderMap::new();
            headers.insert(AUTHORIZATION, text.parse().unwrap());
            token(&headers).map(str::to_owned)
        };
        assert_eq!(of("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(of("bearer  abc ").as_deref(), Some("abc"));
        for other in ["Basic abc", "abc", "Bearer", ""] {
            assert_eq!(of(other).as_deref(), Some(""), "{other}");
        }
        assert_eq!(token(&http::HeaderMap::new()), None);
    }
}
