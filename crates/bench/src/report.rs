//! One self-contained HTML page from a bundle.
