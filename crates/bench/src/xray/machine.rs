//! The machine of a bundle: facts that a reader needs to judge its figures.

use super::proc;
use std::collections::BTreeMap;
use std::path::Path;

/// Processor, cores, memory, limits of the container, kernel, clock governor, and the file system of the working
/// directory. Unknown facts are left out.
pub fn machine() -> BTreeMap<String, String> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
    let system = rustix::system::uname();
    let words = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    let entries = [
        ("processor", processor(&cpuinfo)),
        (
            "cores",
            std::thread::available_parallelism().ok().map(|cores| cores.to_string()),
        ),
        (
            "memory",
            read("/proc/meminfo")
                .and_then(|text| proc::memory_bytes(&text))
                .map(gib),
        ),
        (
            "memory limit",
            read("/sys/fs/cgroup/memory.max")
                .and_then(|text| text.trim().parse().ok())
                .map(gib),
        ),
        (
            "processor limit",
            read("/sys/fs/cgroup/cpu.max").and_then(|text| cpu_limit(&text)),
        ),
        (
            "kernel",
            Some(format!(
                "{} {} {}",
                words(system.sysname()),
                words(system.release()),
                words(system.machine())
            )),
        ),
        (
            "governor",
            read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").map(|text| text.trim().to_owned()),
        ),
        ("file system", file_system(Path::new("."))),
    ];
    entries
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

/// Type, device and options of the file system that holds a path.
pub fn file_system(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    mount_of(&std::fs::read_to_string("/proc/self/mountinfo").ok()?, &path)
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

/// The processor's name, and the number of processors that the kernel shows.
fn processor(cpuinfo: &str) -> Option<String> {
    let name = ["model name", "Model", "cpu model", "Hardware"]
        .iter()
        .find_map(|key| proc::field_of(cpuinfo, key))?;
    let count = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    Some(format!("{count} × {name}"))
}

/// `200000 100000` is two cores' worth of time; `max 100000` is no limit.
fn cpu_limit(text: &str) -> Option<String> {
    let (quota, period) = text.trim().split_once(' ')?;
    let cores = quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?;
    cores.is_finite().then(|| format!("{cores:.2} cores"))
}

/// The mount with the longest point above `path`; the last of those with the same point hides the others.
fn mount_of(mountinfo: &str, path: &Path) -> Option<String> {
    let mounts = mountinfo.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(4);
        let (point, options) = (unescape(left.next()?), left.next()?);
        let mut right = right.split(' ');
        let (kind, device) = (right.next()?, unescape(right.next()?));
        path.starts_with(&point)
            .then(|| (point.len(), format!("{kind} on {device} ({options})")))
    });
    mounts.max_by_key(|(length, _)| *length).map(|(_, text)| text)
}

/// Undoes the kernel's octal escapes of space, tab, line feed and backslash.
fn unescape(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .into_iter()
        .fold(text.to_owned(), |text, (escaped, plain)| text.replace(escaped, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_mount_counts() {
        let mounts = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n23 22 8:2 / /data rw,noatime - xfs /dev/sdb rw\n24 22 \
                      0:5 / /my\\040disk rw - tmpfs tmpfs rw,size=1k\nnonsense\n25 23 8:3 / /data rw - btrfs /dev/sdc rw\n";
        let of = |path: &str| mount_of(mounts, Path::new(path)).unwrap();
        assert_eq!(of("/home"), "ext4 on /dev/sda1 (rw,relatime)");
        assert_eq!(of("/data/x"), "btrfs on /dev/sdc (rw)");
        assert_eq!(of("/database"), "ext4 on /dev/sda1 (rw,relatime)");
        assert_eq!(of("/my disk/x"), "tmpfs on tmpfs (rw)");
        assert_eq!(mount_of("", Path::new("/")), None);
    }

    #[test]
    fn processors_are_named_and_counted() {
        let cpuinfo =
            "processor\t: 0\nmodel name\t: Some CPU @ 2.00GHz\n\nprocessor\t: 1\nmodel name\t: Some CPU @ 2.00GHz\n";
        assert_eq!(processor(cpuinfo).as_deref(), Some("2 × Some CPU @ 2.00GHz"));
        assert_eq!(processor("processor\t: 0\n"), None);
    }

    #[test]
    fn limits_of_a_container_are_told() {
        assert_eq!(cpu_limit("150000 100000\n").as_deref(), Some("1.50 cores"));
        assert_eq!(cpu_limit("max 100000\n"), None);
        assert_eq!(cpu_limit("1 0\n"), None);
        assert_eq!(cpu_limit(""), None);
    }

    #[test]
    fn this_machine_tells_what_matters() {
        let machine = machine();
        for name in ["cores", "memory", "kernel"] {
            assert!(
                machine.get(name).is_some_and(|value| !value.is_empty()),
                "{name}: {machine:?}"
            );
        }
    }
}
