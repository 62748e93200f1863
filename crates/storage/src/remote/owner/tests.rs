//! Owners that take over one after the other, concurrently, and while others interfere.
#![allow(clippy::disallowed_methods, reason = "the tests run on the real clock")]

use super::*;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use stele_env::tokio_env::TokioRuntime;

/// Records in memory, and the actions of other processes just before or just after a record is made.
#[derive(Default)]
struct Device {
    records: Mutex<BTreeSet<String>>,
    before: Mutex<Vec<u64>>,
    after: Mutex<Vec<u64>>,
}

#[async_trait]
impl Records for Device {
    async fn records(&self) -> Result<Vec<String>> {
        // A listing has no order.
        Ok(self.records.lock().iter().rev().cloned().collect())
    }

    async fn make_record(&self, key: &str, _: Bytes) -> Result<()> {
        let of_others = |others: &Mutex<Vec<u64>>| {
            let others = std::mem::take(&mut *others.lock());
            self.records.lock().extend(others.into_iter().map(record_path));
        };
        of_others(&self.before);
        let is_new = self.records.lock().insert(key.to_owned());
        of_others(&self.after);
        if is_new {
            Ok(())
        } else {
            Err(StorageError::AlreadyExists { path: key.to_owned() })
        }
    }

    async fn has_record(&self, key: &str) -> Result<bool> {
        Ok(self.records.lock().contains(key))
    }

    async fn delete_records(&self, keys: &[String]) -> Result<()> {
        let mut records = self.records.lock();
        records.retain(|record| !keys.contains(record));
        Ok(())
    }
}

impl Device {
    async fn claim(&self) -> Result<u64> {
        claim(self, &TokioRuntime::current()).await
    }

    fn epochs(&self) -> Vec<u64> {
        let records = self.records.lock();
        records.iter().filter_map(|key| parse_record(key)).collect()
    }
}

#[test]
fn who_is_not_the_last_is_told_who_is() {
    let records = ["@owner/00000002", "@owner/00000003", "@owner/x"];
    assert_eq!(check_last(records, 3), Ok(()));
    assert_eq!(check_last([], 3), Ok(()));
    let error = check_last(records, 2).unwrap_err();
    assert!(error.to_string().contains("owner 3"), "{error}");
}

#[tokio::test]
async fn the_last_to_come_is_the_owner_and_the_one_before_is_refused_for_good() {
    let (device, fence) = (Device::default(), Fence::default());
    assert_eq!(device.claim().await, Ok(1));
    verify(&device, &fence, 1, "log").await.unwrap();
    fence.check("log").unwrap();
    assert_eq!(device.claim().await, Ok(2));
    verify(&device, &Fence::default(), 2, "log").await.unwrap();
    let fenced = StorageError::Fenced {
        path: "log".to_owned(),
        by: "owner 2".to_owned(),
    };
    assert_eq!(verify(&device, &fence, 1, "log").await, Err(fenced.clone()));
    assert_eq!(fence.check("log"), Err(fenced.clone()));
    // Also when the record is lost afterwards.
    device.records.lock().clear();
    assert_eq!(fence.check("log"), Err(fenced));
}

#[tokio::test]
async fn of_two_that_come_at_once_each_has_a_number_of_its_own() {
    let device = Device::default();
    // The number is taken between the listing and the record.
    *device.before.lock() = vec![1];
    assert_eq!(device.claim().await, Ok(2));
    // Others are ahead when our record is made, perhaps even a deleted one with our number.
    *device.after.lock() = vec![7];
    assert_eq!(device.claim().await, Ok(8));
    assert_eq!(device.epochs(), [1, 2, 3, 7, 8]);
}

#[tokio::test]
async fn the_records_of_the_last_owners_stay() {
    let device = Device::default();
    for epoch in 1..=RECORDS_KEPT + 3 {
        assert_eq!(device.claim().await, Ok(epoch));
    }
    let kept: Vec<u64> = (4..=RECORDS_KEPT + 3).collect();
    assert_eq!(device.epochs(), kept);
    let numbers_end = EPOCH_MAX;
    device.records.lock().insert(record_path(numbers_end));
    assert!(matches!(device.claim().await, Err(StorageError::Io { .. })));
}

/// The owner is unknown then, and so is whether a process took over.
#[tokio::test]
async fn an_owner_whose_record_is_gone_is_not_confirmed() {
    let (device, fence) = (Device::default(), Fence::default());
    device.claim().await.unwrap();
    device.records.lock().clear();
    assert!(matches!(
        verify(&device, &fence, 1, "log").await,
        Err(StorageError::Io { .. })
    ));
    assert_eq!(fence.by(), None);
}

#[tokio::test]
async fn an_idle_owner_learns_of_the_next_one() {
    let (device, fence) = (Arc::new(Device::default()), Arc::new(Fence::default()));
    let epoch = device.claim().await.unwrap();
    let (watched, its) = (device.clone(), fence.clone());
    let watching = tokio::spawn(async move { watch(&*watched, &TokioRuntime::current(), &its, epoch).await });
    device.claim().await.unwrap();
    assert_eq!(watching.await.unwrap(), "owner 2");
    assert!(fence.check("log").is_err());
    assert_eq!(
        watch(&*device, &TokioRuntime::current(), &fence, epoch).await,
        "owner 2"
    );
}

/// Neither its own record nor the next one is left.
#[tokio::test(start_paused = true)]
async fn who_slept_through_many_takeovers_learns_of_them() {
    let (device, fence) = (Device::default(), Fence::default());
    let epoch = device.claim().await.unwrap();
    for _ in 0..=RECORDS_KEPT {
        device.claim().await.unwrap();
    }
    assert!(!device.epochs().contains(&(epoch + 1)));
    assert_eq!(
        watch(&device, &TokioRuntime::current(), &fence, epoch).await,
        "owner 33 or a later one"
    );
}

#[test]
fn records_have_one_spelling() {
    assert_eq!(parse_record(&record_path(0xab)), Some(0xab));
    for other in ["@owner/000000AB", "@owner/ab", "@owner/+00000ab", "owner/000000ab"] {
        assert_eq!(parse_record(other), None, "{other}");
    }
}

#[tokio::test]
async fn a_record_of_an_impossible_number_is_an_error() {
    for number in [EPOCH_MAX, u64::MAX - 1, u64::MAX] {
        let device = Device::default();
        device.records.lock().insert(record_path(number));
        let claimed = device.claim().await;
        assert!(matches!(claimed, Err(StorageError::Io { .. })), "{number}: {claimed:?}");
    }
}
