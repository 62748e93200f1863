//! Parses and prints byte sizes and shares of memory.

use std::fmt::Write;

/// Parses `512MiB`, `2GB`, `4096`.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale: u64 = match unit.trim() {
        "" | "B" => 1,
        "k" | "kB" | "KB" => 1_000,
        "M" | "MB" => 1_000_000,
        "G" | "GB" => 1_000_000_000,
        "T" | "TB" => 1_000_000_000_000,
        "K" | "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        other => {
            return Err(format!(
                "unknown unit {other:?}: use B, kB, MB, GB, TB, KiB, MiB, GiB or TiB"
            ));
        }
    };
    let number: f64 = number.parse().map_err(|_| format!("{text:?} is not a size"))?;
    let bytes = number * scale as f64;
    if bytes >= 0.0 && bytes < u64::MAX as f64 {
        Ok(bytes as u64)
    } else {
        Err(format!("{text:?} is out of range"))
    }
}

/// Parses a size, or a percentage of `whole`.
pub fn parse_share(text: &str, whole: u64) -> Result<u64, String> {
    let Some(percent) = text.trim().strip_suffix('%') else {
        return parse_bytes(text);
    };
    let percent: f64 = percent
        .trim()
        .parse()
        .map_err(|_| format!("{text:?} is not a percentage"))?;
    if percent > 0.0 && percent <= 100.0 {
        Ok((whole as f64 * percent / 100.0) as u64)
    } else {
        Err(format!("{text:?}: a percentage is above 0 and at most 100"))
    }
}

/// Shows bytes in the largest binary unit that keeps three digits.
pub fn show_bytes(bytes: u64) -> String {
    let mut out = String::new();
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if value >= 100.0 || unit == 0 { 0 } else { 1 };
    let _ = write!(out, "{value:.digits$} {}", units[unit]);
    out
}

/// The resident memory of this process, where the system tells it.
pub fn resident_bytes() -> Option<u64> {
    status_bytes("VmRSS:")
}

/// A value of this process's status, by the first word of its line.
pub fn status_bytes(line: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let bytes = status.lines().find_map(|found| found.strip_prefix(line))?;
    let kib = bytes.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?;
    Some(kib * 1024)
}

/// The memory that this process may use: the machine's, or less under the limit of a cgroup.
pub fn memory_of_machine() -> u64 {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total
        .and_then(|rest| rest.trim().strip_suffix("kB"))
        .and_then(|n| n.trim().parse::<u64>().ok());
    // If the system does not tell, the budget fits the smallest machines.
    let machine = kib.map_or(1 << 30, |kib| kib * 1024);
    let limit = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    let new = with_those_above(group).map(|group| limit(&format!("/sys/fs/cgroup{group}/memory.max")));
    let old = limit("/sys/fs/cgroup/memory/memory.limit_in_bytes");
    new.chain([old]).flatten().fold(machine, u64::min)
}

/// A cgroup and its ancestors up to the root, which is the empty path. The limit of each holds for all below it.
fn with_those_above(group: &str) -> impl Iterator<Item = &str> {
    let own = group.trim_end_matches('/');
    std::iter::successors(Some(own), |group| Some(group.rsplit_once('/')?.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_hold_for_the_groups_below() {
        let of = |group| with_those_above(group).collect::<Vec<_>>();
        assert_eq!(of("/"), [""]);
        assert_eq!(
            of("/db.slice/stele.service"),
            ["/db.slice/stele.service", "/db.slice", ""]
        );
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_bytes("512MiB"), Ok(512 << 20));
        assert_eq!(parse_bytes("1.5 GB"), Ok(1_500_000_000));
        assert_eq!(parse_bytes("4096"), Ok(4096));
        for bad in ["", "MiB", "12 parsecs", "-1", "1e999"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_share("50%", 1000), Ok(500));
        for bad in ["0%", "101%", "x%"] {
            assert!(parse_share(bad, 1000).is_err(), "{bad}");
        }
        assert_eq!(
            (show_bytes(512 << 20), show_bytes(1536)),
            ("512 MiB".to_owned(), "1.5 KiB".to_owned())
        );
    }
}
