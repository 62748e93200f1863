//! One self-contained HTML page from a bundle.

use crate::bundle::Bundle;
use crate::outcome::Ending;
use maud::{DOCTYPE, html};

/// The page.
pub fn render(bundles: &[Bundle]) -> String {
    let page = html! {
        (DOCTYPE)
        @for bundle in bundles {
            h1 { (bundle.suite.document) }
            ul {
                @for run in &bundle.runs {
                    li {
                        (run.experiment) " " (run.label) ": "
                        @match &run.ending {
                            Ending::Passed => "passed",
                            Ending::Failed(causes) => { "failed: " (causes.join("; ")) },
                            Ending::Skipped(reason) => { "skipped: " (reason) },
                        }
                    }
                }
            }
        }
    };
    page.into_string()
}

/// Several executions beside one another.
pub fn compare(bundles: &[Bundle]) -> String {
    render(bundles)
}
