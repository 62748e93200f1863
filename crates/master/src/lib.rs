//! Table administration, assignment and splits as catalog transactions.
