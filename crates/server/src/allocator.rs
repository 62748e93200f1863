//! Settings of the allocator: how soon it returns freed memory to the system.
//!
//! **Delay.** The allocator retains freed pages for a while, by default a second, because they are often needed again.
//! A loaded server can free more than a small budget within a second, above all with large values. Measured with a
//! budget of 64 MiB, values of 3 MB and 16 callers: 241 MiB resident with a delay of 1 s, 184 MiB with 0.1 s, 147 MiB
//! with none. So the delay follows from the budget. With 64 MiB it had no measurable cost in a load of rows of 1 KB.
//! From a budget of 1.25 GiB on, the default stays.
//!
//! **Large objects.** The delay is a lower bound. Due pages are returned when some thread next frees a page of small
//! objects. Freeing a large object on another thread than allocated it, as requests do, never triggers this. Under a
//! load of large values alone it may take seconds: eight clients with ten values of 10 MB per request took 454 MiB with
//! a budget of 256 MiB. So objects above a limit bypass the allocator's arenas: they are mapped when allocated and
//! unmapped when freed. The same load then took 337 MiB. Faulting the pages in again costs about a fifth of copying the
//! value through the server.
//!
//! **Blocks of the cache** are small objects. When caches shrink for a large request, their pages may stay resident for
//! as long as no thread frees a page. A caller that waits for this memory calls [`give_back`].
//!
//! The allocator reads both settings whenever it uses them. Its environment variables take precedence over this module.

use std::ffi::{OsString, c_int, c_long};

/// The allocator's variable for the delay, in milliseconds.
const DELAY: &str = "MIMALLOC_PURGE_DELAY";

/// The allocator's variable for the largest object in an arena, in bytes.
const ARENA_OBJECT: &str = "MIMALLOC_ARENA_MAX_OBJECT_SIZE";

/// The allocator's own delay.
const DEFAULT_MILLIS: u64 = 1000;

/// The least delay. Below it, returning memory costs more than it saves.
const MILLIS_MIN: u64 = 50;

/// The most that a server frees per second: large values at the rate of two cores. Within one delay it frees at most
/// the whole budget.
const FREED_BYTES_PER_SECOND: u64 = 1280 << 20;

/// The smallest limit for objects in an arena. It is above the buffers of files, which have a megabyte each and are
/// allocated all the time. (Memtables do not use the allocator.)
const ARENA_OBJECT_BYTES: u64 = 2 << 20;

/// The most mappings that large objects may need for the whole budget. A process may have 65,530 by default.
const MAPPINGS: u64 = 4096;

/// A setting of the allocator: its number in `mi_option_e` of mimalloc 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
enum Setting {
    /// `mi_option_purge_delay`, in milliseconds.
    PurgeDelay = 15,
    /// `mi_option_arena_max_object_size`, in KiB.
    ArenaMaxObjectSize = 45,
}

#[allow(
    unsafe_code,
    reason = "functions of the allocator for which its crate has no safe interface"
)]
mod sys {
    use super::{Setting, c_int, c_long};

    unsafe extern "C" {
        /// Collects freed memory. With `force` it returns the memory even if it is not due. Any thread may call it at
        /// any time.
        pub safe fn mi_collect(force: bool);
        fn mi_option_set(option: c_int, value: c_long);
        #[cfg(test)]
        fn mi_option_get(option: c_int) -> c_long;
    }

    pub fn set(setting: Setting, value: c_long) {
        // SAFETY: the function writes one aligned word of a static table at an index that it checks. The program calls it
        // from `main` before it starts a thread, so no read is concurrent. In tests a concurrent allocation may read the
        // old or the new word; each is a valid setting.
        unsafe { mi_option_set(setting as c_int, value) }
    }

    #[cfg(test)]
    pub fn get(setting: Setting) -> c_long {
        // SAFETY: the function reads one aligned word of a static table at an index that it checks.
        unsafe { mi_option_get(setting as c_int) }
    }
}

/// Returns freed memory to the system even if it is not due. Takes some tens of milliseconds for a hundred megabytes.
pub fn give_back() {
    sys::mi_collect(true);
}

/// Sets the allocator up for a memory budget. Call it before any thread is started.
pub fn configure(memory: u64) {
    let set = |setting, value: Option<u64>| {
        if let Some(value) = value {
            sys::set(setting, c_long::try_from(value).unwrap_or(c_long::MAX));
        }
    };
    set(Setting::PurgeDelay, delay_millis(memory, std::env::var_os(DELAY)));
    let bytes = arena_object_bytes(memory, std::env::var_os(ARENA_OBJECT));
    set(Setting::ArenaMaxObjectSize, bytes.map(|bytes| bytes.div_ceil(1024)));
}

/// The delay to set; `None` where the default or the user's setting stays.
fn delay_millis(memory: u64, set: Option<OsString>) -> Option<u64> {
    let millis = memory.saturating_mul(1000) / FREED_BYTES_PER_SECOND;
    (set.is_none() && millis < DEFAULT_MILLIS).then_some(millis.max(MILLIS_MIN))
}

/// The largest object in an arena; `None` where the user's setting stays.
fn arena_object_bytes(memory: u64, set: Option<OsString>) -> Option<u64> {
    set.is_none().then_some((memory / MAPPINGS).max(ARENA_OBJECT_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_follows_from_the_budget_unless_somebody_has_set_it() {
        let of = |mib: u64| delay_millis(mib << 20, None);
        assert_eq!(of(0), Some(MILLIS_MIN));
        assert_eq!(of(64), Some(50));
        assert_eq!(of(128), Some(100));
        assert_eq!(of(256), Some(200));
        assert_eq!(of(512), Some(400));
        assert_eq!(of(1280), None);
        assert_eq!(delay_millis(u64::MAX, None), None);
        assert_eq!(delay_millis(64 << 20, Some("7".into())), None);
    }

    #[test]
    fn large_objects_are_never_in_an_arena_unless_somebody_has_said_so() {
        assert_eq!(arena_object_bytes(64 << 20, None), Some(ARENA_OBJECT_BYTES));
        assert_eq!(arena_object_bytes(8 << 30, None), Some(ARENA_OBJECT_BYTES));
        assert_eq!(arena_object_bytes(1 << 40, None), Some(256 << 20));
        assert_eq!(arena_object_bytes(64 << 20, Some("7".into())), None);
    }

    /// The defaults tell that the numbers name the right settings. The test needs an environment without the variables.
    #[test]
    fn settings_reach_the_allocator() {
        let (delay, object) = (Setting::PurgeDelay, Setting::ArenaMaxObjectSize);
        let before = [sys::get(delay), sys::get(object)];
        assert_eq!(before, [1000, 2 << 20]);
        configure(64 << 20);
        assert_eq!([sys::get(delay), sys::get(object)], [50, 2 << 10]);
        configure(1 << 40);
        assert_eq!([sys::get(delay), sys::get(object)], [50, 256 << 10]);
        sys::set(delay, before[0]);
        sys::set(object, before[1]);
    }
}
