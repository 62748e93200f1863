//! Checks that a filter labels a cell at most once.
//!
//! Bigtable allows one label on every path through the tree (data.proto, `apply_label_transformer`). Members of an
//! interleave are paths of their own, and a path ends at a sink.

use crate::ast::Filter;
use crate::error::FilterError;

/// Checks that no path through the tree applies two labels to the same cell.
pub(crate) fn check_labels(filter: &Filter) -> Result<(), FilterError> {
    if labels(filter).most > 1 {
        let reason = "at most one apply_label_transformer may be in a chain";
        return Err(FilterError::Structure(reason.to_owned()));
    }
    Ok(())
}

/// Labels that a filter may put on one cell.
#[derive(Clone, Copy)]
struct Labels {
    /// On any cell, also one that goes to a sink.
    most: usize,
    /// On a cell that comes out; `None` when none does.
    through: Option<usize>,
}

fn labels(filter: &Filter) -> Labels {
    let either = |a: Labels, b: Labels| Labels {
        most: a.most.max(b.most),
        through: a.through.max(b.through),
    };
    let nothing = Labels { most: 0, through: None };
    match filter {
        Filter::ApplyLabel(_) => Labels {
            most: 1,
            through: Some(1),
        },
        Filter::Sink => nothing,
        Filter::Chain(members) => members.iter().fold(
            Labels {
                most: 0,
                through: Some(0),
            },
            |so_far, member| {
                let Some(before) = so_far.through else {
                    return so_far;
                };
                let here = labels(member);
                Labels {
                    most: so_far.most.max(before + here.most),
                    through: here.through.map(|after| before + after),
                }
            },
        ),
        Filter::Interleave(members) => members.iter().map(labels).fold(nothing, either),
        Filter::Condition {
            predicate,
            on_true,
            on_false,
        } => {
            let predicate = Labels {
                through: None,
                ..labels(predicate)
            };
            let branches = [on_true, on_false].into_iter().flatten();
            branches.map(|branch| labels(branch)).fold(predicate, either)
        }
        _ => Labels {
            most: 0,
            through: Some(0),
        },
    }
}
