//! One self-contained HTML page from one bundle or several.
//!
//! The page needs no other files: style sheet and charts are in it, and there is no script. Rules:
//! * A figure of a run that did not pass is never shown as a result. The cause stands in the figure's place, also if
//!   other repeats of the run passed.
//! * Losses are printed as plainly as wins, and failures first.
//! * Every axis has a name and a unit. A chart without data is left out, with a sentence that gives the reason.
//! * Text from bundles is escaped by the templates; nothing is put into the page unescaped but the style sheet.
//!
//! Pure: a page depends on its bundles alone, so that rendering again gives the same bytes.

use crate::bundle::Bundle;
use maud::{DOCTYPE, Markup, PreEscaped, html};

pub mod chart;
pub mod compare;
mod distribution;
mod experiment;
mod head;
pub mod metric;
pub mod number;
mod published;
mod rating;
mod resources;
pub mod results;
mod summary;
mod table;
mod tail;

pub use summary::summary;

#[cfg(test)]
mod tests;

/// The report of `bundles`. For several, it begins with their comparison, followed by one section for each.
pub fn render(bundles: &[Bundle]) -> String {
    let title = bundles
        .first()
        .map_or("Benchmark report", |bundle| bundle.suite.document.as_str());
    page(
        title,
        html! {
            @if bundles.len() > 1 { h1 { "Executions compared" } (compare::section(bundles)) }
            @if bundles.is_empty() { p.note { "No bundles." } }
            @for bundle in bundles { (one(bundle)) }
        },
    )
}

/// Only the comparison of `bundles` with the first one.
pub fn compare(bundles: &[Bundle]) -> String {
    page(
        "Executions compared",
        html! { h1 { "Executions compared" } (compare::section(bundles)) },
    )
}

fn one(bundle: &Bundle) -> Markup {
    let results = results::of_bundle(bundle);
    html! {
        (head::title(bundle))
        (head::contents(&results))
        (head::verdict(bundle, &results))
        (head::environment(bundle))
        @if results.is_empty() { p.note { "The suite has no experiments." } }
        @for results in &results { (experiment::section(results)) }
        div.overall { (resources::whole(bundle)) }
        (tail::methods(bundle))
        (tail::rerun(bundle))
    }
}

fn page(title: &str, content: Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(include_str!("report/style.css"))) }
            }
            body { (content) }
        }
    };
    page.into_string()
}
