//! The kernel's text files about processes, processors and networks, read into numbers.
//!
//! Parsers are total functions over text: an unexpected file gives `None` or nothing, never a panic, because kernels
//! add fields and containers hide files. Formats are those of proc(5).

use std::collections::BTreeMap;

/// The relevant fields of `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessStat {
    /// Ticks in user mode, ended threads included.
    pub user_ticks: u64,
    /// Ticks in the kernel, ended threads included.
    pub system_ticks: u64,
    /// Page faults without I/O.
    pub minor_faults: u64,
    /// Page faults with I/O.
    pub major_faults: u64,
    /// Ticks between boot and the process' start.
    pub started_ticks: u64,
}

/// Bytes that a process moved from and to the storage device: `/proc/PID/io`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessIo {
    /// Read from the device, not from the page cache.
    pub read_bytes: u64,
    /// Written to the device, minus writes that were cancelled before they reached it.
    pub written_bytes: u64,
}

/// Reads `/proc/PID/stat`. The second field is the program's name in parentheses, and may itself hold spaces and
/// parentheses: the last closing one ends it.
pub fn process_stat(text: &str) -> Option<ProcessStat> {
    let (_, rest) = text.rsplit_once(')')?;
    // The first of these is field 3 of the manual page.
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number.checked_sub(3)?)?.parse::<u64>().ok();
    Some(ProcessStat {
        minor_faults: field(10)?,
        major_faults: field(12)?,
        user_ticks: field(14)?,
        system_ticks: field(15)?,
        started_ticks: field(22)?,
    })
}

/// Resident bytes from `/proc/PID/status`. Kernel threads and zombies have none.
pub fn resident_bytes(status: &str) -> Option<u64> {
    kib_of(status, "VmRSS")
}

/// Total memory from `/proc/meminfo`.
pub fn memory_bytes(meminfo: &str) -> Option<u64> {
    kib_of(meminfo, "MemTotal")
}

/// A line such as `VmRSS:     123 kB`, in bytes.
fn kib_of(text: &str, name: &str) -> Option<u64> {
    let value = field_of(text, name)?;
    let kib: u64 = value.strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1024)
}

/// The value of the first line `name: value`.
pub fn field_of<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

/// Reads `/proc/PID/io`.
pub fn process_io(text: &str) -> Option<ProcessIo> {
    let value = |name| field_of(text, name)?.parse::<u64>().ok();
    Some(ProcessIo {
        read_bytes: value("read_bytes")?,
        written_bytes: value("write_bytes")?.saturating_sub(value("cancelled_write_bytes").unwrap_or_default()),
    })
}

/// CPU seconds of the machine by state, from `/proc/stat`.
pub fn cpu_seconds(stat: &str, ticks_per_second: f64) -> BTreeMap<String, f64> {
    let Some(line) = stat.lines().find_map(|line| line.strip_prefix("cpu ")) else {
        return BTreeMap::new();
    };
    let fields: Vec<f64> = line
        .split_ascii_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    let sum = |places: &[usize]| places.iter().filter_map(|&place| fields.get(place)).sum::<f64>() / ticks_per_second;
    // user nice system idle iowait irq softirq steal guest guest_nice; guests are counted in user already.
    let states: [(&str, &[usize]); 5] = [
        ("user", &[0, 1]),
        ("system", &[2, 5, 6]),
        ("idle", &[3]),
        ("iowait", &[4]),
        ("steal", &[7]),
    ];
    states
        .into_iter()
        .map(|(name, places)| (name.to_owned(), sum(places)))
        .collect()
}

/// Bytes received and sent by interface, from `/proc/net/dev`.
pub fn network_bytes(text: &str) -> BTreeMap<String, (u64, u64)> {
    let interface = |line: &str| {
        // Old kernels leave no space behind the colon.
        let (name, counters) = line.rsplit_once(':')?;
        let counters: Vec<u64> = counters
            .split_ascii_whitespace()
            .map_while(|field| field.parse().ok())
            .collect();
        Some((name.trim().to_owned(), (*counters.first()?, *counters.get(8)?)))
    };
    // Two lines of headings have no colon but bars.
    text.lines().filter_map(interface).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "4711 (Web (a) server) S 1 4711 4711 0 -1 4194304 90125 7 33 2 5012 1207 9 8 20 0 62 0 81234567 \
                        9876543210 43210 18446744073709551615 1 1 0 0 0 0 0 4096 17123 0 0 0 17 1 0 0 0 0 0\n";

    #[test]
    fn a_process_name_may_hold_anything() {
        let expected = ProcessStat {
            user_ticks: 5012,
            system_ticks: 1207,
            minor_faults: 90_125,
            major_faults: 33,
            started_ticks: 81_234_567,
        };
        assert_eq!(process_stat(STAT), Some(expected));
        let odd = STAT.replace("Web (a) server", ") R 1 (");
        assert_eq!(process_stat(&odd), Some(expected));
    }

    #[test]
    fn short_or_foreign_text_gives_nothing() {
        for text in ["", "4711 (a", "4711 (a)", "1 (a) S x", &STAT[..60]] {
            assert_eq!(process_stat(text), None, "{text:?}");
        }
        assert_eq!(process_io("read_bytes: x\nwrite_bytes: 1\n"), None);
        assert_eq!(resident_bytes("VmRSS:\t12 MB\n"), None);
        assert_eq!(resident_bytes("VmRSS:\t99999999999999999999 kB\n"), None);
        assert!(cpu_seconds("cpu0 1 2 3\n", 100.0).is_empty());
        assert!(network_bytes("nonsense\nlo: 1 2 3\n").is_empty());
    }

    #[test]
    fn memory_is_in_kib() {
        let status = "Name:\tjava\nVmPeak:\t  99 kB\nVmRSS:\t  424216 kB\nThreads:\t62\n";
        assert_eq!(resident_bytes(status), Some(424_216 * 1024));
        assert_eq!(
            memory_bytes("MemTotal:       16384 kB\nMemFree: 1 kB\n"),
            Some(16_384 * 1024)
        );
    }

    #[test]
    fn writes_taken_back_do_not_count() {
        let io = "rchar: 5\nwchar: 6\nsyscr: 1\nsyscw: 1\nread_bytes: 8192\nwrite_bytes: 12288\ncancelled_write_bytes: 4096\n";
        let expected = ProcessIo {
            read_bytes: 8192,
            written_bytes: 8192,
        };
        assert_eq!(process_io(io), Some(expected));
    }

    #[test]
    fn processor_states_are_summed() {
        let stat = "cpu  1000 50 300 8000 40 10 20 5 700 0\ncpu0 1 1 1 1\nctxt 5\n";
        let seconds = cpu_seconds(stat, 100.0);
        let of = |name: &str| seconds.get(name).copied();
        assert_eq!(of("user"), Some(10.5));
        assert_eq!(of("system"), Some(3.3));
        assert_eq!(
            (of("idle"), of("iowait"), of("steal")),
            (Some(80.0), Some(0.4), Some(0.05))
        );
    }

    #[test]
    fn interfaces_are_told_apart() {
        let text = "Inter-|   Receive                  |  Transmit\n face |bytes    packets errs drop fifo frame compressed \
                    multicast|bytes    packets errs\n    lo: 1500 9 0 0 0 0 0 0 2500 9 0 0 0 0 0 0\neth0:77 1 0 0 0 0 0 0 88 1 0 0 0 0 0 \
                    0\nbr:1: 5 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0\n";
        let bytes = network_bytes(text);
        assert_eq!(bytes.get("lo"), Some(&(1500, 2500)));
        assert_eq!(bytes.get("eth0"), Some(&(77, 88)));
        assert_eq!(bytes.get("br:1"), Some(&(5, 6)));
        assert_eq!(bytes.len(), 3);
    }
}
