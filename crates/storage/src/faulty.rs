//! A medium that fails.
