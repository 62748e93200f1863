//! Rules for the times of backups, as the API publishes them.

use super::micros_of;
use crate::pb::admin::backup::BackupType;
use crate::status::invalid;
use prost_types::Timestamp;
use std::time::Duration;
use tonic::Status;

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);
/// Shortest life of a backup after its creation.
const LIFE_MIN: Duration = HOUR.saturating_mul(6);
/// Longest life of a backup after its creation.
pub(super) const BACKUP_LIFE_MAX: Duration = DAY.saturating_mul(90);
/// Longest life of a copy after the request for it.
pub(super) const COPY_LIFE_MAX: Duration = DAY.saturating_mul(30);
/// Shortest time that a backup is hot.
const HOT_MIN: Duration = DAY;
/// How much less than the shortest times is accepted. Clients add the shortest time to their own clock before they send a
/// request, as Google's own tests do. Then the call takes time, and clocks that NTP keeps differ by less than a second.
const GRACE: Duration = Duration::from_secs(60);

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// The expiry of a backup that was created at a time, in microseconds since 1970.
pub(super) fn expiry(time: Option<&Timestamp>, created: i64, most: Duration) -> Result<i64, Status> {
    let time = time.ok_or_else(|| invalid("expire_time must be set"))?;
    let expires = micros_of(time).ok_or_else(|| invalid("expire_time is out of range"))?;
    let least = created.saturating_add(micros(LIFE_MIN - GRACE));
    let last = created.saturating_add(micros(most));
    if (least..=last).contains(&expires) {
        return Ok(expires);
    }
    Err(invalid(format!(
        "expire_time must be at least {} hours and at most {} days after the creation of the backup",
        LIFE_MIN.as_secs() / HOUR.as_secs(),
        most.as_secs() / DAY.as_secs()
    )))
}

/// The type of a backup.
pub(super) fn kind(number: i32) -> Result<BackupType, Status> {
    match BackupType::try_from(number) {
        Ok(BackupType::Unspecified | BackupType::Standard) => Ok(BackupType::Standard),
        Ok(BackupType::Hot) => Ok(BackupType::Hot),
        Err(_) => Err(invalid(format!("unknown backup_type {number}"))),
    }
}

/// When a hot backup becomes a standard one, in microseconds since 1970.
pub(super) fn hot_to_standard(time: Option<&Timestamp>, kind: BackupType, created: i64) -> Result<Option<i64>, Status> {
    let Some(time) = time else { return Ok(None) };
    if kind != BackupType::Hot {
        return Err(invalid("hot_to_standard_time may be set for hot backups only"));
    }
    let at = micros_of(time).ok_or_else(|| invalid("hot_to_standard_time is out of range"))?;
    if at < created.saturating_add(micros(HOT_MIN - GRACE)) {
        return Err(invalid(
            "hot_to_standard_time must be at least 24 hours after the creation of the backup",
        ));
    }
    Ok(Some(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::timestamp_of;

    /// When the client read its clock.
    const ASKED: i64 = 1_700_000_000_000_000;

    #[test]
    fn the_shortest_times_count_from_the_clock_of_the_client() {
        let time = |life: Duration| Some(timestamp_of(ASKED + micros(life)));
        let expires = |life, created| expiry(time(life).as_ref(), created, BACKUP_LIFE_MAX).is_ok();
        let stays_hot = |life, created| hot_to_standard(time(life).as_ref(), BackupType::Hot, created).is_ok();
        let (on_arrival, late) = (ASKED + 20_000, ASKED + micros(GRACE) + 1);
        assert!(expires(LIFE_MIN, on_arrival) && stays_hot(HOT_MIN, on_arrival));
        assert!(!expires(LIFE_MIN, late) && !stays_hot(HOT_MIN, late));
        assert!(expires(BACKUP_LIFE_MAX, ASKED));
        assert!(!expires(BACKUP_LIFE_MAX, ASKED - 1));
    }
}
