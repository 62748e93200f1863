//! Bars in groups, one group for each position, one bar for each target.
//!
//! A thin line shows the range of repeats.

use super::scale::Scale;
use super::{Frame, colour, cross, fit, horizontal_axis, px, vertical_axis};
use maud::{Markup, html};

/// The content of a bar.
#[derive(Debug, Clone, PartialEq)]
pub enum Bar {
    /// Nothing was to be run here.
    Absent,
    /// The run failed or was skipped, for this reason.
    Failed(String),
    /// A value with the range of its repeats, and a description.
    Value {
        /// Mean.
        mean: f64,
        /// Smallest.
        low: f64,
        /// Largest.
        high: f64,
        /// Shown when pointed at.
        tip: String,
        /// Whether the run failed because of the value (stale reads).
        failed: bool,
    },
}

/// Groups of bars.
pub struct Bars<'a> {
    /// Title for readers who cannot see the chart.
    pub title: &'a str,
    /// Name and unit of the horizontal axis.
    pub x: (&'a str, &'a str),
    /// Name and unit of the vertical axis.
    pub y: (&'a str, &'a str),
    /// Groups: name, and a bar for each target.
    pub groups: Vec<(String, Vec<Bar>)>,
}

impl Bars<'_> {
    /// The chart; nothing if no bar has a value.
    pub fn draw(&self) -> Option<Markup> {
        let values = self.groups.iter().flat_map(|(_, bars)| bars);
        let highs = values.filter_map(|bar| {
            if let Bar::Value { high, .. } = bar {
                Some(*high)
            } else {
                None
            }
        });
        let high = highs.filter(|high| high.is_finite()).reduce(f64::max)?;
        let frame = Frame {
            width: 570.0,
            height: 280.0,
            left: 52.0,
            right: 10.0,
            top: 26.0,
            bottom: 44.0,
        };
        let scale = Scale::from_zero(high, frame.y1(), frame.y0());
        let room = (frame.x1() - frame.x0()) / self.groups.len() as f64;
        let middle = |index: usize| frame.x0() + (index as f64 + 0.5) * room;
        let names = self.groups.iter().enumerate();
        let labels: Vec<_> = names
            .map(|(index, (name, _))| (middle(index), fit(name, room - 6.0)))
            .collect();
        Some(frame.svg(
            self.title,
            html! {
                (vertical_axis(&frame, &scale, self.y.0, self.y.1))
                (horizontal_axis(&frame, &labels, self.x.0, self.x.1))
                @for (index, (_, bars)) in self.groups.iter().enumerate() {
                    (group(&scale, middle(index), room, bars))
                }
            },
        ))
    }
}

fn group(scale: &Scale, middle: f64, room: f64, bars: &[Bar]) -> Markup {
    let width = (room * 0.76 / bars.len().max(1) as f64).min(34.0);
    let left = middle - width * bars.len() as f64 / 2.0;
    html! {
        @for (index, bar) in bars.iter().enumerate() {
            (one(scale, index, left + width * index as f64, width, bar))
        }
    }
}

fn one(scale: &Scale, index: usize, left: f64, width: f64, bar: &Bar) -> Markup {
    let (base, middle) = (scale.at(0.0), left + width / 2.0);
    match bar {
        Bar::Absent => html! {},
        Bar::Failed(cause) => cross(index, middle, base - 7.0, cause),
        Bar::Value {
            mean,
            low,
            high,
            tip,
            failed,
        } => {
            let top = scale.at(*mean);
            let class = format!("{} {}", colour(index), if *failed { "hollow" } else { "bar" });
            html! {
                rect x=(px(left + 1.0)) y=(px(top)) width=(px((width - 2.0).max(1.0))) height=(px(base - top)) class=(class) {
                    title { (tip) }
                }
                @if high > low {
                    (super::line(middle, scale.at(*low), middle, scale.at(*high), "range"))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(bars: Vec<Bar>) -> Bars<'static> {
        Bars {
            title: "t",
            x: ("size", "B"),
            y: ("throughput", "B/s"),
            groups: vec![("10".into(), bars)],
        }
    }

    fn value(mean: f64) -> Bar {
        Bar::Value {
            mean,
            low: mean,
            high: mean,
            tip: String::new(),
            failed: false,
        }
    }

    #[test]
    fn nothing_to_draw_is_no_chart() {
        assert!(bars(Vec::new()).draw().is_none());
        assert!(bars(vec![Bar::Absent, Bar::Failed("x".into())]).draw().is_none());
        assert!(bars(vec![value(f64::NAN)]).draw().is_none());
    }

    #[test]
    fn a_bar_is_as_high_as_its_value() {
        let markup = bars(vec![value(100.0), value(50.0), value(0.0)])
            .draw()
            .unwrap()
            .into_string();
        // The plot is 210 high, and 100 is the top of its scale.
        for height in ["210.0", "105.0", "0.0"] {
            assert!(markup.contains(&format!("height=\"{height}\"")), "{height}: {markup}");
        }
        assert!(
            markup.contains("throughput, B/s") && markup.contains("size, B"),
            "{markup}"
        );
    }

    #[test]
    fn a_failed_run_has_a_cross_and_no_bar() {
        let markup = bars(vec![value(5.0), Bar::Failed("<lost> rows".into())])
            .draw()
            .unwrap()
            .into_string();
        assert_eq!(markup.matches("<rect").count(), 1);
        assert!(markup.contains("cross") && markup.contains("&lt;lost&gt; rows"));
    }
}
