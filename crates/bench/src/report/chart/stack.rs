//! Amounts stacked over time, such as the use of the processors by process.

use super::scale::Scale;
use super::{Frame, colour, fit, horizontal_axis, px, text, vertical_axis};
use maud::{Markup, html};
use std::fmt::Write as _;

/// One layer, from the bottom up.
pub struct Layer {
    /// Its name.
    pub name: String,
    /// Which colour.
    pub colour: usize,
    /// A value for each moment.
    pub values: Vec<f64>,
}

/// Layers over `times` (seconds, ascending), named at the right from the top one down. Nothing if there are fewer than
/// two moments or all values are zero.
pub fn draw(title: &str, y: (&str, &str), times: &[f64], layers: &[Layer]) -> Option<Markup> {
    let sums = sums(times.len(), layers);
    let high = sums
        .last()?
        .iter()
        .copied()
        .filter(|sum| sum.is_finite())
        .reduce(f64::max)?;
    let (first, last) = (*times.first()?, *times.last()?);
    if times.len() < 2 || high <= 0.0 || first >= last {
        return None;
    }
    let frame = Frame {
        width: 1160.0,
        height: 220.0,
        left: 52.0,
        right: 170.0,
        top: 26.0,
        bottom: 44.0,
    };
    let minutes = last - first > 600.0;
    let unit = if minutes { 60.0 } else { 1.0 };
    let x = Scale::exact(first / unit, last / unit, frame.x0(), frame.x1());
    let scale = Scale::from_zero(high, frame.y1(), frame.y0());
    let ticks = x.ticks(10.0);
    let step = ticks
        .get(1)
        .map_or(1.0, |second| second - ticks.first().unwrap_or(&0.0));
    let labels: Vec<_> = ticks
        .into_iter()
        .map(|tick| (x.at(tick), super::scale::label(tick, step)))
        .collect();
    Some(frame.svg(
        title,
        html! {
            (vertical_axis(&frame, &scale, y.0, y.1))
            (horizontal_axis(&frame, &labels, "time since the suite's start", if minutes { "min" } else { "s" }))
            @for (layer, edges) in layers.iter().zip(sums.windows(2)) {
                @if let [low, high] = edges {
                    path d=(outline(times, low, high, unit, &x, &scale)) class={ (colour(layer.colour)) " area" } { title { (layer.name) } }
                }
            }
            @for (index, layer) in layers.iter().rev().enumerate() {
                (text(frame.x1() + 6.0, frame.y0() + 4.0 + 15.0 * index as f64, "start", &format!("name {}", colour(layer.colour)), &fit(&layer.name, 160.0)))
            }
        },
    ))
}

/// Running sums: the lower edge of the first layer, and the upper edge of every one.
fn sums(moments: usize, layers: &[Layer]) -> Vec<Vec<f64>> {
    let mut sums = vec![vec![0.0; moments]];
    for layer in layers {
        let below = sums.last().cloned().unwrap_or_default();
        let value = |index| {
            layer
                .values
                .get(index)
                .copied()
                .filter(|value: &f64| value.is_finite())
                .unwrap_or(0.0)
        };
        sums.push(
            below
                .into_iter()
                .enumerate()
                .map(|(index, sum)| sum + value(index))
                .collect(),
        );
    }
    sums
}

fn outline(times: &[f64], low: &[f64], high: &[f64], unit: f64, x: &Scale, y: &Scale) -> String {
    let there = times.iter().zip(high);
    let back = times.iter().zip(low).rev();
    let mut path = there
        .chain(back)
        .enumerate()
        .fold(String::new(), |mut path, (index, (time, value))| {
            let letter = if index == 0 { 'M' } else { 'L' };
            _ = write!(path, "{letter}{} {}", px(x.at(time / unit)), px(y.at(*value)));
            path
        });
    path.push('Z');
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(values: &[f64]) -> Layer {
        Layer {
            name: "a".into(),
            colour: 0,
            values: values.to_vec(),
        }
    }

    #[test]
    fn nothing_to_draw_is_no_chart() {
        assert!(draw("t", ("CPU", "cores"), &[], &[]).is_none());
        assert!(draw("t", ("CPU", "cores"), &[1.0], &[layer(&[1.0])]).is_none());
        assert!(draw("t", ("CPU", "cores"), &[1.0, 2.0], &[layer(&[0.0, 0.0])]).is_none());
        assert!(draw("t", ("CPU", "cores"), &[1.0, 2.0], &[layer(&[1.0, 2.0])]).is_some());
    }

    #[test]
    fn layers_stand_on_one_another_and_gaps_are_zero() {
        let sums = sums(3, &[layer(&[1.0, 2.0, f64::NAN]), layer(&[1.0])]);
        assert_eq!(sums, [vec![0.0; 3], vec![1.0, 2.0, 0.0], vec![2.0, 2.0, 0.0]]);
    }
}
