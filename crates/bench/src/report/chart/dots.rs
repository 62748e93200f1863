//! Ratios of all experiments on one axis: a dot for each point and target.
//!
//! Right of 1 the target was better than the first one.

use super::scale::Scale;
use super::{Frame, fit, line, marker, text};
use maud::{Markup, html};

/// One line of dots.
pub struct Row {
    /// The experiment's point.
    pub name: String,
    /// Target, ratio and description.
    pub dots: Vec<(usize, f64, String)>,
}

/// Ratios are drawn within this factor of one. Others stand at the edge.
const FACTOR_MAX: f64 = 100.0;

/// The chart; nothing if there is no ratio.
pub fn draw(title: &str, axis: &str, rows: &[Row]) -> Option<Markup> {
    let ratios = rows
        .iter()
        .flat_map(|row| &row.dots)
        .map(|dot| dot.1)
        .filter(|ratio| *ratio > 0.0 && ratio.is_finite());
    let farthest = ratios
        .map(|ratio| ratio.max(1.0 / ratio))
        .reduce(f64::max)?
        .clamp(2.0, FACTOR_MAX);
    let height = 60.0 + 20.0 * rows.len() as f64;
    let frame = Frame {
        width: 1160.0,
        height,
        left: 330.0,
        right: 30.0,
        top: 30.0,
        bottom: 30.0,
    };
    let edge = if farthest <= 2.0 { 2.0 } else { farthest * 1.05 };
    let scale = Scale::logarithmic(1.0 / edge, edge, frame.x0(), frame.x1());
    let factors = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
    let ticks = factors.into_iter().filter(|tick| (1.0 / edge..=edge).contains(tick));
    Some(frame.svg(
        title,
        html! {
            @for tick in ticks {
                (line(scale.at(tick), frame.y0() - 4.0, scale.at(tick), frame.y1(), if tick == 1.0 { "base" } else { "grid" }))
                (text(scale.at(tick), frame.y0() - 9.0, "middle", "tick", &format!("{tick}×")))
            }
            @for (index, row) in rows.iter().enumerate() {
                @let y = frame.y0() + 20.0 * (index as f64 + 0.6);
                (text(frame.x0() - 10.0, y + 4.0, "end", "tick", &fit(&row.name, frame.left - 14.0)))
                (line(frame.x0(), y, frame.x1(), y, "hair"))
                @for (party, ratio, tip) in &row.dots { (marker(*party, scale.at(*ratio), y, false, tip)) }
            }
            (text((frame.x0() + frame.x1()) / 2.0, frame.y1() + 20.0, "middle", "axis", axis))
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ratios: &[f64]) -> Row {
        Row {
            name: "<x>".into(),
            dots: ratios.iter().map(|ratio| (1, *ratio, String::new())).collect(),
        }
    }

    #[test]
    fn nothing_to_draw_is_no_chart() {
        assert!(draw("t", "a", &[]).is_none());
        assert!(draw("t", "a", &[row(&[]), row(&[0.0, f64::NAN])]).is_none());
    }

    #[test]
    fn one_stands_in_the_middle_and_extremes_at_the_edges() {
        let markup = draw("t", "a", &[row(&[1.0, 1e9])]).unwrap().into_string();
        assert!(
            markup.contains("M727.0") || markup.contains("M728.0") || markup.contains("M732.0"),
            "{markup}"
        );
        assert!(markup.contains("M1127.0"), "{markup}");
        assert!(markup.contains("&lt;x&gt;"));
    }
}
