//! Medians, spreads and ratios of all repeats.

use serde_json::{Value, json};

/// The results of one server, phase and client.
struct Line {
    client: String,
    phase: String,
    server: String,
    /// Operations per CPU second of the server: lowest, median, highest.
    per_cpu: [f64; 3],
    per_second: f64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    server_cpus: f64,
    client_cpus: f64,
    errors: f64,
    /// Measurements that began while the server was still busy.
    unsettled: usize,
}

/// Operations per CPU second of one server divided by those of another: lowest, median and highest of the repeats.
struct Ratio {
    client: String,
    phase: String,
    server: String,
    to: String,
    values: [f64; 3],
}

/// All of a run.
pub struct Summary {
    lines: Vec<Line>,
    ratios: Vec<Ratio>,
}

/// The name of the first build of Stele; the names of other builds begin with it.
const STELE: &str = "stele";

impl Summary {
    /// Lines are in the order of the first repeat.
    pub fn of(cells: &[Value]) -> Summary {
        let mut lines: Vec<Line> = Vec::new();
        for cell in cells {
            let [client, phase, server] = key(cell);
            if !lines
                .iter()
                .any(|l| [l.client.as_str(), &l.phase, &l.server] == [client, phase, server])
            {
                let own: Vec<&Value> = cells.iter().filter(|other| key(other) == key(cell)).collect();
                lines.push(Line::of([client, phase, server], &own));
            }
        }
        let mut ratios = Vec::new();
        for line in lines.iter().filter(|line| line.server.starts_with(STELE)) {
            for other in &lines {
                let same = (&other.client, &other.phase) == (&line.client, &line.phase);
                // Builds of Stele are compared with the first one.
                if same && other.server != line.server && (other.server == STELE || !other.server.starts_with(STELE)) {
                    ratios.extend(Ratio::of(line, other, cells));
                }
            }
        }
        Summary { lines, ratios }
    }

    /// Two tables.
    pub fn print(&self) {
        println!(
            "\n{:<7} {:<10} {:<24} {:>12} {:>19} {:>10} {:>9} {:>9} {:>9} {:>5} {:>6} {:>6}",
            "client",
            "phase",
            "server",
            "op/CPU-s",
            "spread",
            "op/s",
            "p50 µs",
            "p99 µs",
            "p99.9 µs",
            "CPUs",
            "client",
            "errors"
        );
        for line in &self.lines {
            let [low, median, high] = line.per_cpu;
            println!(
                "{:<7} {:<10} {:<24} {median:>12.0} {:>19} {:>10.0} {:>9.0} {:>9.0} {:>9.0} {:>5.2} {:>6.2} {:>6.0}{}",
                line.client,
                line.phase,
                line.server,
                format!("{low:.0} to {high:.0}"),
                line.per_second,
                line.p50_us,
                line.p99_us,
                line.p999_us,
                line.server_cpus,
                line.client_cpus,
                line.errors,
                if line.unsettled > 0 { " not quiet before" } else { "" },
            );
        }
        println!("\noperations per CPU second of the server, divided");
        for ratio in &self.ratios {
            let [low, median, high] = ratio.values;
            println!(
                "{:<7} {:<10} {} ÷ {}: {median:.2} ({low:.2} to {high:.2})",
                ratio.client, ratio.phase, ratio.server, ratio.to
            );
        }
    }

    /// The same for programs.
    pub fn to_json(&self) -> Value {
        let lines = self.lines.iter().map(Line::to_json);
        let ratios = self.ratios.iter().map(|ratio| {
            json!({
                "client": ratio.client, "phase": ratio.phase, "server": ratio.server, "to": ratio.to,
                "low_median_high": ratio.values,
            })
        });
        json!({ "lines": lines.collect::<Vec<_>>(), "ratios": ratios.collect::<Vec<_>>() })
    }
}

impl Line {
    fn of([client, phase, server]: [&str; 3], cells: &[&Value]) -> Line {
        let all = |name: &str| -> Vec<f64> { cells.iter().map(|cell| number(cell, name)).collect() };
        let median = |name: &str| low_median_high(all(name))[1];
        Line {
            client: client.to_owned(),
            phase: phase.to_owned(),
            server: server.to_owned(),
            per_cpu: low_median_high(all("per_server_cpu_second")),
            per_second: median("per_second"),
            p50_us: median("p50_us"),
            p99_us: median("p99_us"),
            p999_us: median("p999_us"),
            server_cpus: median("server_cpus"),
            client_cpus: median("client_cpus"),
            errors: all("errors").iter().sum(),
            unsettled: cells
                .iter()
                .filter(|cell| cell.get("settled") == Some(&json!(false)))
                .count(),
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "client": self.client, "phase": self.phase, "server": self.server,
            "per_server_cpu_second_low_median_high": self.per_cpu, "per_second": self.per_second,
            "p50_us": self.p50_us, "p99_us": self.p99_us, "p999_us": self.p999_us,
            "server_cpus": self.server_cpus, "client_cpus": self.client_cpus,
            "errors": self.errors, "unsettled": self.unsettled,
        })
    }
}

impl Ratio {
    /// Of the same repeats, because the machine's speed changes between them.
    fn of(line: &Line, other: &Line, cells: &[Value]) -> Option<Ratio> {
        let of_server = |server: &str| -> Vec<f64> {
            let wanted = [line.client.as_str(), &line.phase, server];
            let own = cells.iter().filter(|cell| key(cell) == wanted);
            own.map(|cell| number(cell, "per_server_cpu_second")).collect()
        };
        let (own, others) = (of_server(&line.server), of_server(&other.server));
        let values: Vec<f64> = own.iter().zip(&others).map(|(own, other)| own / other).collect();
        (!values.is_empty()).then(|| Ratio {
            client: line.client.clone(),
            phase: line.phase.clone(),
            server: line.server.clone(),
            to: other.server.clone(),
            values: low_median_high(values),
        })
    }
}

fn key(cell: &Value) -> [&str; 3] {
    ["client", "phase", "server"].map(|name| cell.get(name).and_then(Value::as_str).unwrap_or_default())
}

fn number(cell: &Value, name: &str) -> f64 {
    cell.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN)
}

/// Of an even number of values the median is the mean of the middle two.
fn low_median_high(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    let last = values.len().saturating_sub(1);
    [at(0), (at(last / 2) + at(last.div_ceil(2))) / 2.0, at(last)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_the_same_repeat() {
        let cell = |server: &str, rate: f64| json!({"client": "go", "phase": "read", "server": server, "per_server_cpu_second": rate, "errors": 1});
        // The machine is half as fast in the second repeat.
        let rates = [
            ("stele", 100.0),
            ("stele-old", 80.0),
            ("emulator", 50.0),
            ("stele", 60.0),
            ("stele-old", 40.0),
            ("emulator", 25.0),
        ];
        let cells: Vec<Value> = rates.map(|(server, rate)| cell(server, rate)).into();
        let summary = Summary::of(&cells);
        let lines: Vec<_> = summary
            .lines
            .iter()
            .map(|l| (l.server.as_str(), l.per_cpu, l.errors))
            .collect();
        assert_eq!(
            lines,
            [
                ("stele", [60.0, 80.0, 100.0], 2.0),
                ("stele-old", [40.0, 60.0, 80.0], 2.0),
                ("emulator", [25.0, 37.5, 50.0], 2.0)
            ]
        );
        let ratios: Vec<_> = summary
            .ratios
            .iter()
            .map(|r| (r.server.as_str(), r.to.as_str(), r.values))
            .collect();
        assert_eq!(
            ratios,
            [
                ("stele", "emulator", [2.0, 2.2, 2.4]),
                ("stele-old", "stele", [40.0 / 60.0, (40.0 / 60.0 + 0.8) / 2.0, 0.8]),
                ("stele-old", "emulator", [1.6, 1.6, 1.6])
            ]
        );
    }

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert_eq!(low_median_high(vec![3.0, 1.0, 2.0]), [1.0, 2.0, 3.0]);
        assert_eq!(low_median_high(vec![4.0, 1.0, 2.0, 3.0]), [1.0, 2.5, 4.0]);
        assert!(low_median_high(Vec::new()).iter().all(|value| value.is_nan()));
    }
}
