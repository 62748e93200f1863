//! Lines over a numeric axis, labelled at their right ends: sweeps, distributions, percentiles, time.

use super::scale::Scale;
use super::{
    Frame, colour, cross, fit, horizontal_axis, line, marker, px, spread_apart, text, text_width, vertical_axis,
};
use crate::report::number;
use maud::{Markup, html};
use std::fmt::Write as _;

/// One line.
#[derive(Debug, Clone, Default)]
pub struct Line {
    /// Its label. Several lines with the same label are labelled once.
    pub name: String,
    /// Index of the target, which determines colour and point symbol.
    pub party: usize,
    /// Points in order of x, with the range of repeats where there are several.
    pub points: Vec<Point>,
    /// Failed runs: x and cause.
    pub failed: Vec<(f64, String)>,
    /// Whether it is a published figure, not ours.
    pub dashed: bool,
}

/// A point of a line.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Point {
    /// Horizontal.
    pub x: f64,
    /// Vertical.
    pub y: f64,
    /// Range of repeats.
    pub range: Option<(f64, f64)>,
    /// Shown when pointed at.
    pub tip: String,
}

impl Point {
    /// Without range and tip.
    pub fn new(x: f64, y: f64) -> Self {
        Self {
            x,
            y,
            ..Self::default()
        }
    }
}

/// An axis.
#[derive(Debug, Clone, Copy, Default)]
pub struct Axis<'a> {
    /// The quantity on it.
    pub name: &'a str,
    /// In which unit.
    pub unit: &'a str,
    /// Whether it is logarithmic.
    pub logarithmic: bool,
}

/// Lines over a numeric axis.
#[derive(Default)]
pub struct Lines<'a> {
    /// Title for readers who cannot see the chart.
    pub title: &'a str,
    /// Horizontal axis.
    pub x: Axis<'a>,
    /// Vertical axis; from zero unless logarithmic.
    pub y: Axis<'a>,
    /// The lines.
    pub lines: Vec<Line>,
    /// Whether points are marked: for a few points, each measured by itself.
    pub markers: bool,
    /// Fixed horizontal ticks with labels, instead of round numbers.
    pub ticks: Option<Vec<(f64, String)>>,
    /// Moments to be marked, with texts. Numbered from one, and explained by the caption.
    pub events: Vec<(f64, String)>,
    /// Moments of short marks at the foot of the plot, with the target that they belong to.
    pub pauses: Vec<(f64, usize, String)>,
    /// Smaller than usual and without names at the lines, for one of several charts under a common legend.
    pub small: bool,
}

impl Lines<'_> {
    /// The chart; nothing if no line has a point.
    pub fn draw(&self) -> Option<Markup> {
        let points = || {
            self.lines
                .iter()
                .flat_map(|line| &line.points)
                .filter(|p| p.x.is_finite() && p.y.is_finite())
        };
        let failed = self.lines.iter().flat_map(|line| line.failed.iter().map(|(x, _)| *x));
        let high = points()
            .map(|point| point.range.map_or(point.y, |range| range.1))
            .reduce(f64::max)?;
        let low = points()
            .map(|point| point.y)
            .filter(|y| *y > 0.0)
            .reduce(f64::min)
            .unwrap_or(high);
        let xs: Vec<f64> = points()
            .map(|point| point.x)
            .chain(failed)
            .filter(|x| x.is_finite())
            .collect();
        let (x_low, x_high) = (
            xs.iter().copied().reduce(f64::min)?,
            xs.iter().copied().reduce(f64::max)?,
        );
        let frame = self.frame();
        let x = scale(self.x.logarithmic)(x_low, x_high, frame.x0() + 4.0, frame.x1() - 4.0);
        let y = if self.y.logarithmic {
            Scale::logarithmic(round_down(low), high * 1.1, frame.y1(), frame.y0())
        } else {
            Scale::from_zero(high, frame.y1(), frame.y0())
        };
        Some(frame.svg(
            self.title,
            html! {
                (vertical_axis(&frame, &y, self.y.name, self.y.unit))
                (horizontal_axis(&frame, &self.x_labels(&x, &xs), self.x.name, self.x.unit))
                @for (index, (at, words)) in self.events.iter().enumerate() { (event(&frame, index + 1, x.at(*at), words)) }
                @for (at, party, words) in &self.pauses {
                    line x1=(px(x.at(*at))) x2=(px(x.at(*at))) y1=(px(frame.y1() - 7.0)) y2=(px(frame.y1())) class={ (colour(*party)) " pause" } {
                        title { (words) }
                    }
                }
                @for line in &self.lines { (self.one(line, &x, &y)) }
                @if !self.small { (self.labels(&frame, &y)) }
            },
        ))
    }

    fn frame(&self) -> Frame {
        let widest = self.lines.iter().map(|line| text_width(&line.name)).fold(0.0, f64::max);
        let right = if self.small {
            8.0
        } else {
            (widest + 14.0).clamp(16.0, 176.0)
        };
        let top = if self.events.is_empty() { 26.0 } else { 42.0 };
        if self.small {
            Frame {
                width: 276.0,
                height: 186.0,
                left: 40.0,
                right,
                top,
                bottom: 42.0,
            }
        } else {
            Frame {
                width: 570.0,
                height: 280.0,
                left: 52.0,
                right,
                top,
                bottom: 44.0,
            }
        }
    }

    /// The measured positions themselves if there are few, otherwise round numbers.
    fn x_labels(&self, scale: &Scale, xs: &[f64]) -> Vec<(f64, String)> {
        if let Some(ticks) = &self.ticks {
            return ticks.iter().map(|(x, label)| (scale.at(*x), label.clone())).collect();
        }
        let mut measured = xs.to_vec();
        measured.sort_by(f64::total_cmp);
        measured.dedup();
        let ticks = if self.markers && measured.len() <= 10 {
            measured
        } else {
            scale.ticks(6.0)
        };
        ticks
            .into_iter()
            .map(|tick| (scale.at(tick), tick_label(tick)))
            .collect()
    }

    fn one(&self, line: &Line, x: &Scale, y: &Scale) -> Markup {
        let shown: Vec<_> = line
            .points
            .iter()
            .filter(|point| point.x.is_finite() && point.y.is_finite())
            .collect();
        let path = shown
            .iter()
            .enumerate()
            .fold(String::new(), |mut path, (index, point)| {
                let letter = if index == 0 { 'M' } else { 'L' };
                _ = write!(path, "{letter}{} {}", px(x.at(point.x)), px(y.at(point.y)));
                path
            });
        let class = format!(
            "{} line{}",
            colour(line.party),
            if line.dashed { " dashed" } else { "" }
        );
        html! {
            @if shown.len() > 1 { path d=(path) class=(class) {} }
            @for point in &shown {
                @if let Some((low, high)) = point.range {
                    (super::line(x.at(point.x), y.at(low), x.at(point.x), y.at(high), &format!("{} spread", colour(line.party))))
                }
                @if self.markers || shown.len() == 1 {
                    (marker(line.party, x.at(point.x), y.at(point.y), line.dashed, &point.tip))
                }
            }
            @for (at, cause) in &line.failed { (cross(line.party, x.at(*at), y.at(0.0) - 7.0, cause)) }
        }
    }

    /// The lines' names at their right ends.
    fn labels(&self, frame: &Frame, y: &Scale) -> Markup {
        let mut named: Vec<(f64, usize)> = Vec::new();
        for (index, line) in self.lines.iter().enumerate() {
            let first = self.lines.iter().position(|other| other.name == line.name) == Some(index);
            let end = line.points.iter().rev().find(|point| point.y.is_finite());
            if let (true, Some(end)) = (first, end) {
                named.push((y.at(end.y), index));
            }
        }
        let placed = spread_apart(named, 13.0, frame.y0(), frame.y1());
        html! {
            @for (at, index) in placed {
                @if let Some(line) = self.lines.get(index) {
                    (text(frame.x1() + 4.0, at + 4.0, "start", &format!("name {}", colour(line.party)), &fit(&line.name, frame.right - 6.0)))
                }
            }
        }
    }
}

fn scale(logarithmic: bool) -> fn(f64, f64, f64, f64) -> Scale {
    if logarithmic { Scale::logarithmic } else { Scale::exact }
}

/// The largest 1, 2 or 5 × 10ⁿ that is not above `value`.
fn round_down(value: f64) -> f64 {
    let unit = 10f64.powf(value.log10().floor());
    let factor = [5.0, 2.0, 1.0]
        .into_iter()
        .find(|factor| factor * unit <= value * (1.0 + 1e-9))
        .unwrap_or(1.0);
    if unit.is_finite() && unit > 0.0 {
        factor * unit
    } else {
        value
    }
}

/// A number on the horizontal axis: thousands and more with SI prefixes, as short as possible.
fn tick_label(tick: f64) -> String {
    let (divisor, prefix) = number::prefix(tick);
    let number = number::round(tick / divisor);
    if prefix.is_empty() {
        number
    } else {
        format!("{number}\u{a0}{prefix}")
    }
}

/// A moment: its number, which the caption explains, and its text as a tooltip.
fn event(frame: &Frame, number: usize, x: f64, words: &str) -> Markup {
    html! {
        g {
            title { (words) }
            (line(x, frame.y0() - 4.0, x, frame.y1(), "event"))
            (text(x, frame.y0() - 7.0, "middle", "tick", &number.to_string()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(points: &[(f64, f64)]) -> Lines<'static> {
        let points = points.iter().map(|(x, y)| Point::new(*x, *y)).collect();
        Lines {
            x: Axis {
                name: "data set",
                unit: "GB",
                logarithmic: true,
            },
            y: Axis {
                name: "throughput",
                unit: "operations/s",
                logarithmic: false,
            },
            lines: vec![Line {
                name: "a<b>".into(),
                points,
                ..Line::default()
            }],
            markers: true,
            ..Lines::default()
        }
    }

    #[test]
    fn nothing_to_draw_is_no_chart() {
        assert!(lines(&[]).draw().is_none());
        assert!(lines(&[(f64::NAN, 1.0), (1.0, f64::INFINITY)]).draw().is_none());
        assert!(Lines::default().draw().is_none());
    }

    #[test]
    fn one_point_is_a_marker_without_a_line() {
        let markup = lines(&[(4.0, 100.0)]).draw().unwrap().into_string();
        assert!(markup.contains("<circle") && !markup.contains("<path"), "{markup}");
        assert!(markup.contains("a&lt;b&gt;") && !markup.contains("a<b>"), "{markup}");
    }

    #[test]
    fn zero_values_are_on_the_base_line() {
        let markup = lines(&[(1.0, 0.0), (10.0, 0.0)]).draw().unwrap().into_string();
        let path = markup.split("<path d=\"").nth(1).unwrap().split('"').next().unwrap();
        assert!(
            path.split(['M', 'L']).skip(1).all(|point| point.ends_with(" 236.0")),
            "{path}"
        );
    }

    #[test]
    fn axes_have_names_and_units() {
        let markup = lines(&[(1.0, 20_000.0), (8.0, 5_000.0)]).draw().unwrap().into_string();
        assert!(
            markup.contains("throughput, 1,000 operations/s") && markup.contains("data set, GB"),
            "{markup}"
        );
        assert!(markup.contains(">8<") && markup.contains(">20<"), "{markup}");
    }

    #[test]
    fn ticks_are_short() {
        let cases = [
            (0.25, "0.25"),
            (10.0, "10"),
            (1000.0, "1\u{a0}k"),
            (2.5e6, "2.5\u{a0}M"),
            (0.0, "0"),
        ];
        for (tick, expected) in cases {
            assert_eq!(tick_label(tick), expected);
        }
    }

    #[test]
    fn logarithmic_axes_begin_at_round_numbers() {
        assert!((round_down(0.073) - 0.05).abs() < 1e-12 && (round_down(20.0) - 20.0).abs() < 1e-9);
        assert_eq!(round_down(0.0), 0.0);
    }
}
