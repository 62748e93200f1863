//! Works out whether a filter needs values, or would do as well with empty ones.

use crate::node::{CellTest, Node};

/// Whether the result depends on the values of the row.
pub(crate) fn needs_values(root: &Node) -> bool {
    let values = values(root);
    values.reads || values.emits
}

/// Whether evaluation reads the values of the row, instead of only passing them on.
pub(crate) fn reads_values(root: &Node) -> bool {
    values(root).reads
}

/// The use that a filter makes of the values of its input.
#[derive(Clone, Copy)]
struct Values {
    /// It reads them, or sends them to the final result.
    reads: bool,
    /// They are in its output.
    emits: bool,
}

fn values(node: &Node) -> Values {
    match node {
        Node::Sink => Values {
            reads: true,
            emits: false,
        },
        Node::BlockAll | Node::Strip => Values {
            reads: false,
            emits: false,
        },
        Node::Cells(tests) => Values {
            reads: tests.iter().any(CellTest::reads_value),
            emits: true,
        },
        Node::Chain(members) => members.iter().map(values).fold(
            Values {
                reads: false,
                emits: true,
            },
            |before, here| Values {
                reads: before.reads || before.emits && here.reads,
                emits: before.emits && here.emits,
            },
        ),
        Node::Interleave(members) => members.iter().map(values).fold(
            Values {
                reads: false,
                emits: false,
            },
            |a, b| Values {
                reads: a.reads || b.reads,
                emits: a.emits || b.emits,
            },
        ),
        Node::Condition {
            predicate,
            on_true,
            on_false,
        } => {
            let (yes, no) = (values(on_true), values(on_false));
            Values {
                reads: values(predicate).reads || yes.reads || no.reads,
                emits: yes.emits || no.emits,
            }
        }
        _ => Values {
            reads: false,
            emits: true,
        },
    }
}
