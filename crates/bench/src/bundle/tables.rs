//! The bundle's CSV files: time series of runs, and samples of processes and machines.

use crate::outcome::Second;
use crate::xray::{DiskSample, GcPause, HostSample, ProcessSample};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// `rows` with a header line of their field names. The header exists even without rows.
fn encode<T: Serialize>(header: &[&str], rows: impl IntoIterator<Item = T>) -> Result<Vec<u8>, String> {
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    writer.write_record(header).map_err(|error| error.to_string())?;
    for row in rows {
        writer.serialize(row).map_err(|error| error.to_string())?;
    }
    writer.into_inner().map_err(|error| error.to_string())
}

/// The rows of a CSV file whose header must be `header`.
fn decode<T: DeserializeOwned>(header: &[&str], bytes: &[u8]) -> Result<Vec<T>, String> {
    let mut reader = csv::Reader::from_reader(bytes);
    let found = reader.headers().map_err(|error| error.to_string())?;
    if found.iter().ne(header.iter().copied()) {
        return Err(format!("columns {found:?}, expected {header:?}"));
    }
    reader
        .deserialize()
        .map(|row| row.map_err(|error: csv::Error| error.to_string()))
        .collect()
}

const SERIES: [&str; 7] = [
    "at",
    "operations",
    "failures",
    "bytes",
    "p50_micros",
    "p99_micros",
    "max_micros",
];

pub(super) fn encode_series(series: &[Second]) -> Result<Vec<u8>, String> {
    encode(&SERIES, series)
}

pub(super) fn decode_series(bytes: &[u8]) -> Result<Vec<Second>, String> {
    decode(&SERIES, bytes)
}

const PROCESSES: [&str; 9] = [
    "at",
    "process",
    "user_seconds",
    "system_seconds",
    "resident_bytes",
    "minor_faults",
    "major_faults",
    "read_bytes",
    "written_bytes",
];

pub(super) fn encode_processes(samples: &[ProcessSample]) -> Result<Vec<u8>, String> {
    encode(&PROCESSES, samples)
}

pub(super) fn decode_processes(bytes: &[u8]) -> Result<Vec<ProcessSample>, String> {
    decode(&PROCESSES, bytes)
}

const PAUSES: [&str; 4] = ["process", "at", "millis", "cause"];

pub(super) fn encode_pauses(pauses: &[GcPause]) -> Result<Vec<u8>, String> {
    encode(&PAUSES, pauses)
}

pub(super) fn decode_pauses(bytes: &[u8]) -> Result<Vec<GcPause>, String> {
    decode(&PAUSES, bytes)
}

const HOSTS: [&str; 5] = ["at", "subject", "name", "counter", "value"];

/// One counter of one sample of the machine.
#[derive(Serialize, Deserialize)]
struct HostLine {
    at: f64,
    subject: String,
    name: String,
    counter: String,
    value: String,
}

pub(super) fn encode_hosts(samples: &[HostSample]) -> Result<Vec<u8>, String> {
    encode(&HOSTS, samples.iter().flat_map(host_lines))
}

fn host_lines(sample: &HostSample) -> Vec<HostLine> {
    let mut lines = Vec::new();
    let mut line = |subject: &str, name: &str, counter: &str, value: String| {
        let (subject, name, counter) = (subject.to_owned(), name.to_owned(), counter.to_owned());
        lines.push(HostLine {
            at: sample.at,
            subject,
            name,
            counter,
            value,
        });
    };
    for (state, seconds) in &sample.cpu_seconds {
        line("cpu", state, "seconds", seconds.to_string());
    }
    for (interface, bytes) in &sample.received_bytes {
        line("network", interface, "received_bytes", bytes.to_string());
    }
    for (interface, bytes) in &sample.sent_bytes {
        line("network", interface, "sent_bytes", bytes.to_string());
    }
    for (device, disk) in &sample.disks {
        line("disk", device, "operations", disk.operations.to_string());
        line("disk", device, "read_bytes", disk.read_bytes.to_string());
        line("disk", device, "written_bytes", disk.written_bytes.to_string());
        line("disk", device, "busy_millis", disk.busy_millis.to_string());
        line("disk", device, "wait_millis", disk.wait_millis.to_string());
        line("disk", device, "in_flight", disk.in_flight.to_string());
    }
    lines
}

pub(super) fn decode_hosts(bytes: &[u8]) -> Result<Vec<HostSample>, String> {
    let mut samples: Vec<HostSample> = Vec::new();
    for line in decode::<HostLine>(&HOSTS, bytes)? {
        match samples.last_mut() {
            Some(sample) if sample.at == line.at => add_line(sample, line)?,
            _ => {
                let mut sample = HostSample {
                    at: line.at,
                    ..HostSample::default()
                };
                add_line(&mut sample, line)?;
                samples.push(sample);
            }
        }
    }
    Ok(samples)
}

fn add_line(sample: &mut HostSample, line: HostLine) -> Result<(), String> {
    let HostLine {
        at,
        subject,
        name,
        counter,
        value,
    } = line;
    let wrong = || format!("{subject} {name} {counter} = {value:?} at {at} is none of the known counters");
    if (subject.as_str(), counter.as_str()) == ("cpu", "seconds") {
        let seconds = value
            .parse::<f64>()
            .ok()
            .filter(|seconds| seconds.is_finite())
            .ok_or_else(wrong)?;
        sample.cpu_seconds.insert(name, seconds);
        return Ok(());
    }
    let number: u64 = value.parse().map_err(|_| wrong())?;
    match (subject.as_str(), counter.as_str()) {
        ("network", "received_bytes") => _ = sample.received_bytes.insert(name, number),
        ("network", "sent_bytes") => _ = sample.sent_bytes.insert(name, number),
        ("disk", _) => {
            let field = disk_field(sample.disks.entry(name.clone()).or_default(), &counter).ok_or_else(wrong)?;
            *field = number;
        }
        _ => return Err(wrong()),
    }
    Ok(())
}

fn disk_field<'a>(disk: &'a mut DiskSample, counter: &str) -> Option<&'a mut u64> {
    Some(match counter {
        "operations" => &mut disk.operations,
        "read_bytes" => &mut disk.read_bytes,
        "written_bytes" => &mut disk.written_bytes,
        "busy_millis" => &mut disk.busy_millis,
        "wait_millis" => &mut disk.wait_millis,
        "in_flight" => &mut disk.in_flight,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_commas_and_quotes_survive() {
        let pauses = [GcPause {
            process: "a,\"b\"\nc".into(),
            at: 1.5,
            millis: 0.25,
            cause: "G1 (young), mixed".into(),
        }];
        assert_eq!(decode_pauses(&encode_pauses(&pauses).unwrap()).unwrap(), pauses);
    }

    #[test]
    fn empty_tables_have_a_header() {
        assert_eq!(encode_pauses(&[]).unwrap(), b"process,at,millis,cause\n");
        assert!(decode_pauses(b"process,at,millis,cause\n").unwrap().is_empty());
        assert!(decode_hosts(&encode_hosts(&[]).unwrap()).unwrap().is_empty());
    }

    #[test]
    fn foreign_columns_and_counters_are_errors() {
        assert!(decode_series(b"at,operations\n1,2\n").unwrap_err().contains("expected"));
        assert!(decode_series(b"").is_err());
        let header = "at,subject,name,counter,value\n";
        for line in [
            "1,disk,sda,colour,3",
            "1,cpu,user,seconds,inf",
            "1,network,lo,sent_bytes,-1",
            "1,moon,x,y,1",
        ] {
            let error = decode_hosts(format!("{header}{line}\n").as_bytes()).unwrap_err();
            assert!(error.contains("none of the known"), "{error}");
        }
    }
}
