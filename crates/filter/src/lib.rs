//! Row filters: a tree, its validation, evaluation over a row, and what can be pushed down.
