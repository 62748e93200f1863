//! The samples of processes, disks and networks during the runs.

use super::chart::stack::{self, Layer};
use super::number::{self, SPACE};
use super::results::Results;
use crate::bundle::Bundle;
use crate::xray::{HostSample, ProcessSample, Xray};
use maud::{Markup, html};
use std::collections::BTreeMap;

/// Most moments of the chart over the whole suite.
const MOMENTS_MAX: usize = 400;
/// Processes that have a layer of their own. The others are summed.
const LAYERS_MAX: usize = 5;

/// Seconds since the suite's start during which a target was measured.
type Windows = Vec<(f64, f64)>;

/// Resource use of a process during some windows.
#[derive(Debug, Default, PartialEq)]
struct Use {
    seconds: f64,
    user: f64,
    system: f64,
    resident: u64,
    read: u64,
    written: u64,
    minor: u64,
    major: u64,
    pauses: usize,
    paused_millis: f64,
    longest_millis: f64,
}

/// Resource use of the machine during some windows.
#[derive(Debug, Default, PartialEq)]
struct HostUse {
    seconds: f64,
    cpu: BTreeMap<String, f64>,
    received: u64,
    sent: u64,
    operations: u64,
    read: u64,
    written: u64,
    busy_millis: u64,
    wait_millis: u64,
}

/// The experiment's table: processes and machine while each target was measured.
pub fn of_experiment(results: &Results<'_>) -> Markup {
    let bundle = results.bundle;
    let parties = bundle.parties.iter().enumerate().map(|(index, party)| {
        let windows = windows(results, index);
        let names = party
            .processes
            .iter()
            .map(|process| process.name.clone())
            .chain(["generator".to_owned()]);
        let uses: Vec<_> = names
            .filter_map(|name| Some((name.clone(), process_use(&bundle.xray, &name, &windows)?)))
            .collect();
        (party.name.as_str(), uses, host_use(&bundle.xray, &windows))
    });
    let parties: Vec<_> = parties
        .filter(|(_, uses, host)| !uses.is_empty() || host.is_some())
        .collect();
    if parties.is_empty() {
        return html! { p.note { "No x-ray: no process was watched for two samples while these runs were under way." } };
    }
    html! {
        h3 { "X-ray: processes, disks and network while each target was measured" }
            div.wide { table {
                thead { tr {
                    th { "target" } th.who { "process" } th { "CPU, cores" } th { "user" } th { "system" } th { "resident at most" }
                    th { "read, MB/s" } th { "written, MB/s" } th { "minor faults/s" } th { "major faults" } th { "pauses" } th { "pauses, ms" } th { "longest, ms" }
                } }
                @for (party, uses, _) in &parties {
                    tbody { @for (index, (name, usage)) in uses.iter().enumerate() { tr {
                        @if index == 0 { th rowspan=(uses.len()) { (party) } }
                        td.who { (name) } (process_cells(usage))
                    } } }
                }
            } }
            div.wide { table {
                thead { tr {
                    th { "machine while measuring" } th { "CPU busy" } th { "waiting for disk" } th { "stolen" } th { "received, MB/s" } th { "sent, MB/s" }
                    th { "disk operations/s" } th { "read, MB/s" } th { "written, MB/s" } th { "disk busy" } th { "disk wait, ms" }
                } }
                tbody { @for (party, _, host) in &parties { @if let Some(host) = host { tr { th { (party) } (host_cells(host)) } } } }
            } }
    }
}

fn process_cells(usage: &Use) -> Markup {
    let per_second = |amount: f64| number::short(amount / usage.seconds);
    html! {
        td { (per_second(usage.user + usage.system)) } td { (per_second(usage.user)) } td { (per_second(usage.system)) }
        td { (number::bytes(usage.resident as f64)) }
        td { (per_second(usage.read as f64 / 1e6)) } td { (per_second(usage.written as f64 / 1e6)) }
        td { (per_second(usage.minor as f64)) } td { (number::count(usage.major)) }
        td { (number::count(usage.pauses as u64)) } td { (number::short(usage.paused_millis)) } td { (number::short(usage.longest_millis)) }
    }
}

fn host_cells(host: &HostUse) -> Markup {
    let all: f64 = host.cpu.values().sum();
    let share = |states: &[&str]| {
        let sum: f64 = states
            .iter()
            .filter_map(|state| host.cpu.get(*state))
            .fold(0.0, |sum, seconds| sum + seconds);
        if all > 0.0 {
            format!("{:.0}{SPACE}%", 100.0 * sum / all)
        } else {
            "–".to_owned()
        }
    };
    let per_second = |amount: u64, unit: f64| number::short(amount as f64 / unit / host.seconds);
    let wait = if host.operations > 0 {
        number::short(host.wait_millis as f64 / host.operations as f64)
    } else {
        "–".to_owned()
    };
    html! {
        td { (share(&["user", "system"])) } td { (share(&["iowait"])) } td { (share(&["steal"])) }
        td { (per_second(host.received, 1e6)) } td { (per_second(host.sent, 1e6)) }
        td { (per_second(host.operations, 1.0)) } td { (per_second(host.read, 1e6)) } td { (per_second(host.written, 1e6)) }
        td { (format!("{:.0}{SPACE}%", host.busy_millis as f64 / host.seconds / 10.0)) } td { (wait) }
    }
}

fn windows(results: &Results<'_>, party: usize) -> Windows {
    let runs = results
        .rows
        .iter()
        .filter_map(|row| row.cells.get(party))
        .flat_map(|cell| &cell.runs);
    let start = |at: f64| at - results.bundle.started_at;
    runs.filter(|run| run.seconds > 0.0)
        .map(|run| (start(run.started_at), start(run.started_at) + run.seconds))
        .collect()
}

fn process_use(xray: &Xray, name: &str, windows: &Windows) -> Option<Use> {
    let samples: Vec<&ProcessSample> = xray.processes.iter().filter(|sample| sample.process == name).collect();
    let mut all = Use::default();
    for &(start, end) in windows {
        let within = samples.iter().filter(|sample| sample.at >= start && sample.at <= end);
        let (Some(first), Some(last)) = (within.clone().next(), within.clone().next_back()) else {
            continue;
        };
        all.seconds += last.at - first.at;
        all.user += last.user_seconds - first.user_seconds;
        all.system += last.system_seconds - first.system_seconds;
        all.read += last.read_bytes.saturating_sub(first.read_bytes);
        all.written += last.written_bytes.saturating_sub(first.written_bytes);
        all.minor += last.minor_faults.saturating_sub(first.minor_faults);
        all.major += last.major_faults.saturating_sub(first.major_faults);
        all.resident = within.map(|sample| sample.resident_bytes).fold(all.resident, u64::max);
        for pause in xray
            .pauses
            .iter()
            .filter(|pause| pause.process == name && (start..=end).contains(&pause.at))
        {
            all.pauses += 1;
            all.paused_millis += pause.millis;
            all.longest_millis = all.longest_millis.max(pause.millis);
        }
    }
    (all.seconds > 0.0).then_some(all)
}

fn host_use(xray: &Xray, windows: &Windows) -> Option<HostUse> {
    let mut all = HostUse::default();
    for &(start, end) in windows {
        let within = xray
            .hosts
            .iter()
            .filter(|sample| sample.at >= start && sample.at <= end);
        let (Some(first), Some(last)) = (within.clone().next(), within.clone().next_back()) else {
            continue;
        };
        all.seconds += last.at - first.at;
        for (state, seconds) in &last.cpu_seconds {
            let before = first.cpu_seconds.get(state).unwrap_or(seconds);
            *all.cpu.entry(state.clone()).or_default() += seconds - before;
        }
        all.received += difference(&first.received_bytes, &last.received_bytes);
        all.sent += difference(&first.sent_bytes, &last.sent_bytes);
        add_disks(&mut all, first, last);
    }
    (all.seconds > 0.0).then_some(all)
}

fn difference(first: &BTreeMap<String, u64>, last: &BTreeMap<String, u64>) -> u64 {
    last.iter()
        .map(|(name, bytes)| bytes.saturating_sub(*first.get(name).unwrap_or(bytes)))
        .fold(0, u64::saturating_add)
}

fn add_disks(all: &mut HostUse, first: &HostSample, last: &HostSample) {
    for (name, disk) in &last.disks {
        let before = first.disks.get(name).unwrap_or(disk);
        all.operations += disk.operations.saturating_sub(before.operations);
        all.read += disk.read_bytes.saturating_sub(before.read_bytes);
        all.written += disk.written_bytes.saturating_sub(before.written_bytes);
        all.busy_millis += disk.busy_millis.saturating_sub(before.busy_millis);
        all.wait_millis += disk.wait_millis.saturating_sub(before.wait_millis);
    }
}

/// Use of the processors over the whole suite.
pub fn whole(bundle: &Bundle) -> Markup {
    let (times, layers) = layers(bundle);
    html! {
        h2 { "Processors over the whole suite" }
        @match stack::draw("processor time by process", ("CPU by process", "cores"), &times, &layers) {
            Some(chart) => figure { (chart) },
            None => p.note { "No chart: no process was watched for as long as two samples." },
        }
    }
}

/// Cores used by the busiest processes between moments of equal distance.
fn layers(bundle: &Bundle) -> (Vec<f64>, Vec<Layer>) {
    let samples = &bundle.xray.processes;
    let end = samples
        .iter()
        .map(|sample| sample.at)
        .filter(|at| at.is_finite())
        .fold(0.0, f64::max);
    let each = (end / MOMENTS_MAX as f64).max(1.0);
    let moments = (end / each).floor() as usize;
    let mut cores: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut before: BTreeMap<&str, &ProcessSample> = BTreeMap::new();
    for sample in samples {
        if let Some(earlier) = before.insert(&sample.process, sample) {
            let spent = |sample: &ProcessSample| sample.user_seconds + sample.system_seconds;
            let row = cores.entry(&sample.process).or_insert_with(|| vec![0.0; moments + 1]);
            // A restarted process counts from zero again.
            if let Some(slot) = row.get_mut((earlier.at / each).max(0.0) as usize) {
                *slot += (spent(sample) - spent(earlier)).max(0.0) / each;
            }
        }
    }
    let mut ordered: Vec<_> = cores.into_iter().collect();
    ordered.sort_by(|a, b| b.1.iter().sum::<f64>().total_cmp(&a.1.iter().sum::<f64>()));
    let others = ordered.split_off(ordered.len().min(LAYERS_MAX));
    let colours = colours(bundle, ordered.iter().map(|(name, _)| *name));
    let mut layers: Vec<_> = ordered
        .into_iter()
        .zip(colours)
        .map(|((name, values), colour)| Layer {
            name: name.to_owned(),
            colour,
            values,
        })
        .collect();
    if !others.is_empty() {
        let sum = |index| others.iter().filter_map(|(_, row)| row.get(index)).sum();
        layers.push(Layer {
            name: "others".into(),
            colour: LAYERS_MAX,
            values: (0..=moments).map(sum).collect(),
        });
    }
    ((0..=moments).map(|index| index as f64 * each).collect(), layers)
}

/// A process has its target's colour if no other process took it.
fn colours<'a>(bundle: &Bundle, names: impl Iterator<Item = &'a str>) -> Vec<usize> {
    let mut taken: Vec<usize> = Vec::new();
    let parties = bundle.parties.len();
    for name in names {
        let owner = bundle
            .parties
            .iter()
            .position(|party| party.processes.iter().any(|process| process.name == name));
        let free = |colour: &usize| !taken.contains(colour);
        let own = owner
            .filter(free)
            .or_else(|| (parties..parties + LAYERS_MAX).find(free));
        taken.push(own.unwrap_or(0));
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::fabricated;
    use crate::report::results;

    #[test]
    fn use_is_the_difference_of_counters_within_windows() {
        let sample = |at: f64| ProcessSample {
            at,
            process: "p".into(),
            user_seconds: at * 0.5,
            resident_bytes: at as u64,
            written_bytes: at as u64 * 10,
            ..ProcessSample::default()
        };
        let xray = Xray {
            processes: (0..100).map(|at| sample(f64::from(at))).collect(),
            ..Xray::default()
        };
        let found = process_use(&xray, "p", &vec![(10.0, 20.0), (50.5, 60.5)]).unwrap();
        assert_eq!(
            (found.seconds, found.user, found.written, found.resident),
            (19.0, 9.5, 190, 60)
        );
        assert_eq!(process_use(&xray, "p", &vec![(10.2, 10.8)]), None);
        assert_eq!(process_use(&xray, "q", &vec![(10.0, 20.0)]), None);
    }

    #[test]
    fn layers_are_as_long_as_their_moments() {
        let bundle = fabricated::bundle(1.0);
        let (times, layers) = layers(&bundle);
        assert!(times.len() <= MOMENTS_MAX + 1 && layers.len() == 4);
        assert!(layers.iter().all(|layer| layer.values.len() == times.len()));
        let colours: std::collections::BTreeSet<_> = layers.iter().map(|layer| layer.colour).collect();
        assert_eq!(colours.len(), 4);
    }

    #[test]
    fn without_samples_there_is_a_sentence() {
        let bundle = Bundle {
            xray: Xray::default(),
            ..fabricated::bundle(1.0)
        };
        assert!(whole(&bundle).into_string().contains("No chart"));
        assert!(
            of_experiment(&results::of_bundle(&bundle)[0])
                .into_string()
                .contains("No x-ray")
        );
    }
}
