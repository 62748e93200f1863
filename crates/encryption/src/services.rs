//! Several key services: a root comes from one to another.

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
        let mut all = Vec::new();
        for service in &self.0 {
            match service.unwrap(wrapped, context).await {
                Err(KeyError::Unknown { known, .. }) => all.push(known),
                outcome => return outcome,
            }
        }
        Err(KeyError::Unknown {
            id: wrapped.by.clone(),
            known: all.join(", "),
        })
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
        // The same id with another key is told, not looked for elsewhere.
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
}
