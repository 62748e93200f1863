//! Settings of traces.

use super::Setting;
use anyhow::{Context, bail};

/// The flags.
#[derive(clap::Args, Default)]
pub struct TraceArgs {
    /// OpenTelemetry collector that gets traces of requests, by OTLP over gRPC: http:// or https://HOST:PORT
    /// [default: none, no traces]
    #[arg(long, env = "STELE_OTLP", value_name = "URL")]
    otlp: Option<String>,
    /// Part of the requests that is traced where the client does not decide: from 0 to 1 [default: 0.01]
    #[arg(long, env = "STELE_TRACE_SAMPLE", value_name = "PART")]
    trace_sample: Option<String>,
}

/// Their descriptions.
pub(super) const SETTINGS: [Setting; 2] = [
    Setting {
        key: "otlp",
        meaning: "OpenTelemetry collector that gets traces of requests, by OTLP over gRPC. Spans name tables and tablets; they \
                  have no keys and no values. A collector that is absent or slow costs spans, and never delays a request.",
        unit: "http://host:port, or https://host:port with an authority that the system trusts",
        default: "",
        range: "empty for no traces",
    },
    Setting {
        key: "trace_sample",
        meaning: "Part of the requests that is traced where the client does not decide. A client that sends a traceparent decides \
                  by its sampled flag. The right part depends on the load and on the price of a span at the collector.",
        unit: "",
        default: "0.01",
        range: "0 to 1",
    },
];

/// Where traces go, and of which requests there are some.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceConfig {
    /// The collector: a scheme, a host and a port.
    pub collector: String,
    /// Part of the requests that is traced where the client does not decide.
    pub part: f64,
}

impl TraceArgs {
    /// The collector, if there is one.
    pub(super) fn resolve(
        &self,
        text: &impl Fn(&str, &Option<String>) -> String,
    ) -> anyhow::Result<Option<TraceConfig>> {
        let part = parse_part(&text("trace_sample", &self.trace_sample))?;
        let collector = text("otlp", &self.otlp);
        if collector.is_empty() {
            return Ok(None);
        }
        check_collector(&collector).with_context(|| format!("otlp: {collector:?}"))?;
        Ok(Some(TraceConfig { collector, part }))
    }
}

fn parse_part(text: &str) -> anyhow::Result<f64> {
    match text.trim().parse::<f64>() {
        Ok(part) if (0.0..=1.0).contains(&part) => Ok(part),
        _ => bail!("trace_sample: {text:?} is not a number from 0 to 1"),
    }
}

fn check_collector(text: &str) -> anyhow::Result<()> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let rest = rest.context("it begins with neither http:// nor https://")?;
    let (host, port) = rest.trim_end_matches('/').rsplit_once(':').context("it has no port")?;
    if host.is_empty() || host.contains(['/', '@', '?', ' ']) || !port.parse::<u16>().is_ok_and(|port| port > 0) {
        bail!("it is not of the form http://host:4317");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(otlp: &str, part: &str) -> anyhow::Result<Option<TraceConfig>> {
        let args = TraceArgs {
            otlp: Some(otlp.to_owned()),
            trace_sample: Some(part.to_owned()),
        };
        args.resolve(&|_: &str, flag: &Option<String>| flag.clone().unwrap_or_default())
    }

    #[test]
    fn a_collector_has_a_scheme_and_a_port() {
        assert_eq!(resolve("", "0.5").unwrap(), None);
        for good in ["http://host:4317", "https://host:4317/", "http://[::1]:4317"] {
            let config = resolve(good, "0.5").unwrap().unwrap();
            assert_eq!((&config.collector[..], config.part), (good, 0.5));
        }
        for bad in [
            "host:4317",
            "http://host",
            "http://:4317",
            "http://host:0",
            "http://host/v1:4317",
            "grpc://host:4317",
        ] {
            let error = format!("{:#}", resolve(bad, "0.5").unwrap_err());
            assert!(error.starts_with("otlp: ") && error.contains(bad), "{error}");
        }
    }

    #[test]
    fn a_part_is_from_0_to_1() {
        for (text, part) in [("0", 0.0), ("1", 1.0), ("0.001", 0.001), ("1e-6", 1e-6)] {
            assert_eq!(resolve("http://h:1", text).unwrap().unwrap().part, part);
        }
        for bad in ["", "1.1", "-0.1", "1%", "NaN"] {
            let error = resolve("http://h:1", bad).unwrap_err().to_string();
            assert!(error.starts_with("trace_sample: "), "{error}");
        }
    }
}
