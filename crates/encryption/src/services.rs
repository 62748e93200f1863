//! Several key services: a root comes from one to another.
//!
//! They may have different keys of one id, as two installations of Vault with the same names do. So each is asked, and the one that
//! unwraps a data key has wrapped it.

use crate::service::{DataKey, KeyContext, KeyError, KeyService, Wrapped};
use async_trait::async_trait;
use std::sync::Arc;

/// Key services of which the first one wraps, and the one that has the key unwraps.
pub struct KeyServices(Vec<Arc<dyn KeyService>>);

impl KeyServices {
    /// These services. `None` without one.
    pub fn of(mut services: Vec<Arc<dyn KeyService>>) -> Option<Arc<dyn KeyService>> {
        match services.len() {
            0 | 1 => services.pop(),
            _ => Some(Arc::new(KeyServices(services))),
        }
    }
}

#[async_trait]
impl KeyService for KeyServices {
    fn current(&self) -> &str {
        self.0.first().map_or("", |first| first.current())
    }

    async fn wrap(&self, key: &DataKey, context: &KeyContext) -> Result<Wrapped, KeyError> {
        match self.0.first() {
            Some(first) => first.wrap(key, context).await,
            None => Err(KeyError::Failed("there is no key".to_owned())),
        }
    }

    async fn unwrap(&self, wrapped: &Wrapped, context: &KeyContext) -> Result<DataKey, KeyError> {
        Ok(self.unwrap_and_compare(wrapped, context).await?.0)
    }

    async fn unwrap_and_compare(&self, wrapped: &Wrapped, context: &KeyContext) -> Result<(DataKey, bool), KeyError> {
        let (mut all, mut failed, mut refused) = (Vec::new(), None, None);
        for (number, service) in self.0.iter().enumerate() {
            match service.unwrap_and_compare(wrapped, context).await {
                Ok((key, is_current)) => return Ok((key, is_current && number == 0)),
                Err(KeyError::Unknown { known, .. }) => all.push(known),
                Err(error @ KeyError::Failed(_)) => failed = failed.or(Some(error)),
                Err(error @ KeyError::Refused { .. }) => refused = refused.or(Some(error)),
            }
        }
        // One that failed may have the key that others refused.
        Err(failed.or(refused).unwrap_or_else(|| KeyError::Unknown {
            id: wrapped.by.clone(),
            known: all.join(", "),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KeyFile, SystemRandom};

    fn file(text: &str) -> Arc<dyn KeyService> {
        Arc::new(KeyFile::parse(text, Arc::new(SystemRandom)).unwrap())
    }

    #[tokio::test]
    async fn the_first_wraps_and_each_unwraps_its_own() {
        let (a, b) = (format!("a {}", "11".repeat(32)), format!("b {}", "22".repeat(32)));
        let both = KeyServices::of(vec![file(&a), file(&b)]).unwrap();
        assert_eq!(both.current(), "a");
        let (key, context) = (DataKey::new([7; 32]), [1; 32]);
        assert_eq!(both.wrap(&key, &context).await.unwrap().by, "a");
        for one in [&a, &b] {
            let wrapped = file(one).wrap(&key, &context).await.unwrap();
            assert_eq!(both.unwrap(&wrapped, &context).await.unwrap().bytes(), &[7; 32]);
        }
        let wrapped = file(&format!("c {}", "33".repeat(32)))
            .wrap(&key, &context)
            .await
            .unwrap();
        let error = both.unwrap(&wrapped, &context).await.unwrap_err().to_string();
        assert!(error.contains("\"c\"") && error.contains("(a, b)"), "{error}");
        // The same id with another key that none of them has.
        let other = file(&format!("a {}", "44".repeat(32)))
            .wrap(&key, &context)
            .await
            .unwrap();
        assert!(matches!(
            both.unwrap(&other, &context).await,
            Err(KeyError::Refused { .. })
        ));
        assert!(KeyServices::of(Vec::new()).is_none());
    }

    #[tokio::test]
    async fn of_two_keys_with_one_id_the_right_one_unwraps() {
        let (new, old) = (format!("a {}", "11".repeat(32)), format!("a {}", "22".repeat(32)));
        let both = KeyServices::of(vec![file(&new), file(&old)]).unwrap();
        let (key, context) = (DataKey::new([7; 32]), [1; 32]);
        for (one, expected) in [(&new, true), (&old, false)] {
            let wrapped = file(one).wrap(&key, &context).await.unwrap();
            let (unwrapped, is_current) = both.unwrap_and_compare(&wrapped, &context).await.unwrap();
            assert_eq!((unwrapped.bytes(), is_current), (&[7; 32], expected));
        }
    }
}
