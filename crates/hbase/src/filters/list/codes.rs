//! How the codes of a list's filters combine.

use crate::filters::node::Code;

/// Of two filters that must both let the cell pass: the longer step.
pub(super) fn both(a: Code, b: Code) -> Code {
    if a == Code::Seek || b == Code::Seek {
        return Code::Seek;
    }
    let step = step(a).max(step(b));
    code(a.includes() && b.includes(), step)
}

/// Of two filters of which one must let the cell pass: the shorter step.
pub(super) fn either(a: Code, b: Code) -> Code {
    if a == Code::Seek && b == Code::Seek {
        return Code::Seek;
    }
    code(a.includes() || b.includes(), step(a).min(step(b)))
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Cell,
    Column,
    Row,
}

fn step(code: Code) -> Step {
    match code {
        Code::Include | Code::Skip | Code::Seek => Step::Cell,
        Code::IncludeNextColumn | Code::NextColumn => Step::Column,
        Code::IncludeNextRow | Code::NextRow => Step::Row,
    }
}

fn code(include: bool, step: Step) -> Code {
    match (include, step) {
        (true, Step::Cell) => Code::Include,
        (true, Step::Column) => Code::IncludeNextColumn,
        (true, Step::Row) => Code::IncludeNextRow,
        (false, Step::Cell) => Code::Skip,
        (false, Step::Column) => Code::NextColumn,
        (false, Step::Row) => Code::NextRow,
    }
}
