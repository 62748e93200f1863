//! Charts as SVG, drawn by this module so that the page needs no other files.
//!
//! Every chart names its axes and their units, and labels its lines directly where there is space. A chart without data
//! is not drawn: its function returns nothing, and the caller prints the reason.
//!
//! Colours come from style sheet classes `c0`…`c5` (Okabe and Ito's palette, which readers with any eyesight can
//! distinguish), so that they follow the reader's light or dark page. Each target has one colour and one point symbol
//! in all charts.

use maud::{Markup, html};

pub mod bars;
pub mod dots;
pub mod lines;
pub mod scale;
pub mod stack;

/// Most targets with colours of their own. Beyond, colours repeat, with other point symbols.
pub const COLOURS: usize = 6;
/// A character's width as a share of its height, for text in charts; measured on the usual sans-serif fonts.
const CHARACTER: f64 = 0.54;
/// Height of text in charts.
pub const TEXT: f64 = 11.5;

/// A chart's outer size and the margins of its plot.
#[derive(Debug, Clone, Copy)]
pub struct Frame {
    /// Whole width, drawing units (CSS pixels at full size).
    pub width: f64,
    /// Whole height.
    pub height: f64,
    /// Left of the plot.
    pub left: f64,
    /// Margin on the right.
    pub right: f64,
    /// Margin above.
    pub top: f64,
    /// Margin below.
    pub bottom: f64,
}

impl Frame {
    /// Horizontal position of the plot's left edge.
    pub fn x0(&self) -> f64 {
        self.left
    }

    /// … right edge.
    pub fn x1(&self) -> f64 {
        self.width - self.right
    }

    /// Vertical position of the plot's upper edge.
    pub fn y0(&self) -> f64 {
        self.top
    }

    /// … lower edge.
    pub fn y1(&self) -> f64 {
        self.height - self.bottom
    }

    /// The drawing, with a title for readers who cannot see it.
    pub fn svg(&self, title: &str, content: Markup) -> Markup {
        let view = format!("0 0 {} {}", self.width, self.height);
        html! {
            svg viewBox=(view) width=(self.width) height=(self.height) role="img" aria-label=(title) { (content) }
        }
    }
}

/// Class of the colour of the target at `index`.
pub fn colour(index: usize) -> String {
    format!("c{}", index % COLOURS)
}

/// A coordinate with one decimal.
pub fn px(value: f64) -> String {
    format!("{value:.1}")
}

/// Width of `text` in a chart.
pub fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * TEXT * CHARACTER
}

/// `text`, cut to fit into `width`.
pub fn fit(text: &str, width: f64) -> String {
    let room = (width / (TEXT * CHARACTER)).max(1.0) as usize;
    if text.chars().count() <= room {
        return text.to_owned();
    }
    let kept: String = text.chars().take(room.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// Text at a point. `anchor` is `start`, `middle` or `end`.
pub fn text(x: f64, y: f64, anchor: &str, class: &str, content: &str) -> Markup {
    html! { text x=(px(x)) y=(px(y)) text-anchor=(anchor) class=(class) { (content) } }
}

/// A straight line.
pub fn line(x1: f64, y1: f64, x2: f64, y2: f64, class: &str) -> Markup {
    html! { line x1=(px(x1)) y1=(px(y1)) x2=(px(x2)) y2=(px(y2)) class=(class) {} }
}

/// The mark of a target's value. Its shape and colour are the target's.
pub fn marker(index: usize, x: f64, y: f64, hollow: bool, tip: &str) -> Markup {
    let class = format!("{} {}", colour(index), if hollow { "hollow" } else { "solid" });
    let path = match index % 4 {
        0 => None,
        1 => Some(format!("M{} {}h6v6h-6z", px(x - 3.0), px(y - 3.0))),
        2 => Some(format!("M{} {}l4 7h-8z", px(x), px(y - 4.2))),
        _ => Some(format!("M{} {}l4.3 4.3l-4.3 4.3l-4.3 -4.3z", px(x), px(y - 4.3))),
    };
    html! {
        @match path {
            Some(path) => path d=(path) class=(class) { title { (tip) } },
            None => circle cx=(px(x)) cy=(px(y)) r="3.4" class=(class) { title { (tip) } },
        }
    }
}

/// A cross at the place of a failed run.
pub fn cross(index: usize, x: f64, y: f64, tip: &str) -> Markup {
    let path = format!("M{} {}l7 7m0 -7l-7 7", px(x - 3.5), px(y - 3.5));
    html! { path d=(path) class={ (colour(index)) " cross" } { title { (tip) } } }
}

/// Horizontal hairlines with labels, and the axis' name above: the vertical axis of most charts.
///
/// Labels are divided by the power of thousand that suits the largest value. The power goes into the unit.
pub fn vertical_axis(frame: &Frame, scale: &scale::Scale, name: &str, unit: &str) -> Markup {
    let divisible = !matches!(unit, "" | "%" | "s" | "ms" | "×");
    let (divisor, prefix) = if divisible {
        super::number::prefix(scale.high())
    } else {
        (1.0, "")
    };
    let ticks = scale.ticks(5.0);
    let step = ticks
        .get(1)
        .map_or(1.0, |second| (second - ticks.first().unwrap_or(&0.0)) / divisor);
    let label = |tick| {
        if scale.is_logarithmic() {
            super::number::round(tick)
        } else {
            scale::label(tick, step)
        }
    };
    let unit = if unit.starts_with('B') || prefix.is_empty() {
        format!("{prefix}{unit}")
    } else {
        format!("{} {unit}", super::number::count(divisor as u64))
    };
    let title = if unit.is_empty() {
        name.to_owned()
    } else {
        format!("{name}, {unit}")
    };
    html! {
        @for tick in &ticks {
            (line(frame.x0(), scale.at(*tick), frame.x1(), scale.at(*tick), if *tick == 0.0 { "base" } else { "grid" }))
            (text(frame.x0() - 6.0, scale.at(*tick) + 4.0, "end", "tick", &label(tick / divisor)))
        }
        (text(4.0, 13.0, "start", "axis", &title))
    }
}

/// Names under the plot at given places, without those that would touch their neighbour, and the axis' name.
pub fn horizontal_axis(frame: &Frame, labels: &[(f64, String)], name: &str, unit: &str) -> Markup {
    let title = match (name, unit) {
        (name, "") => name.to_owned(),
        (name, unit) => format!("{name}, {unit}"),
    };
    let mut free_from = f64::MIN;
    let mut shown = Vec::new();
    for (x, label) in labels {
        let half = text_width(label) / 2.0;
        if x - half > free_from {
            free_from = x + half + 6.0;
            shown.push((*x, label));
        }
    }
    html! {
        @for (x, label) in shown {
            (line(x, frame.y1(), x, frame.y1() + 4.0, "base"))
            (text(x, frame.y1() + 17.0, "middle", "tick", label))
        }
        (text((frame.x0() + frame.x1()) / 2.0, frame.y1() + 34.0, "middle", "axis", &title))
    }
}

/// Colours and names of all targets in a row, for charts that cannot label directly.
pub fn legend(names: &[String]) -> Markup {
    html! {
        p.legend {
            @for (index, name) in names.iter().enumerate() {
                span { svg width="14" height="12" aria-hidden="true" { (marker(index, 7.0, 6.0, false, "")) } " " (name) }
            }
        }
    }
}

/// Moves overlapping labels apart: heights in ascending order, at least `gap` apart, within `[low, high]` as far as
/// they fit.
pub fn spread_apart(mut wanted: Vec<(f64, usize)>, gap: f64, low: f64, high: f64) -> Vec<(f64, usize)> {
    wanted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut above = low - gap;
    for (y, _) in &mut wanted {
        *y = y.max(above + gap);
        above = *y;
    }
    let mut below = high + gap;
    for (y, _) in wanted.iter_mut().rev() {
        *y = y.min(below - gap);
        below = *y;
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_do_not_overlap() {
        let placed = spread_apart(vec![(50.0, 0), (51.0, 1), (52.0, 2), (10.0, 3)], 12.0, 0.0, 60.0);
        assert!(
            placed.windows(2).all(|pair| pair[1].0 - pair[0].0 >= 12.0 - 1e-9),
            "{placed:?}"
        );
        assert!(placed.iter().all(|(y, _)| (0.0..=60.0).contains(y)), "{placed:?}");
        assert_eq!(placed.iter().map(|(_, index)| *index).collect::<Vec<_>>(), [3, 0, 1, 2]);
        assert!(spread_apart(Vec::new(), 12.0, 0.0, 1.0).is_empty());
    }

    #[test]
    fn long_names_are_cut_at_characters() {
        assert_eq!(fit("short", 100.0), "short");
        let cut = fit("ünïcödé námé thát ïs löng", 60.0);
        assert!(cut.ends_with('…') && text_width(&cut) <= 60.0, "{cut}");
        assert_eq!(fit("ab", 0.0), "…");
    }

    #[test]
    fn text_is_escaped() {
        let markup = text(0.0, 0.0, "start", "tick", "<script>&").into_string();
        assert!(markup.contains("&lt;script&gt;&amp;"), "{markup}");
        let tip = marker(0, 0.0, 0.0, false, "<b>").into_string();
        assert!(tip.contains("&lt;b&gt;"), "{tip}");
    }

    #[test]
    fn crowded_names_are_left_out() {
        let frame = Frame {
            width: 100.0,
            height: 50.0,
            left: 0.0,
            right: 0.0,
            top: 0.0,
            bottom: 0.0,
        };
        let labels: Vec<_> = (0..50)
            .map(|index| (f64::from(index) * 2.0, format!("{index:04}")))
            .collect();
        let markup = horizontal_axis(&frame, &labels, "x", "GB").into_string();
        assert!(markup.matches("class=\"tick\"").count() < 6, "{markup}");
        assert!(markup.contains("x, GB"));
    }
}
