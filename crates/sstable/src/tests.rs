//! Tests of whole files: against a sorted map, against damage, against the golden file.

mod damage;
mod dictionary;
mod files;
mod filters;
mod golden;
mod kept;
mod model;
mod ranges;
mod renumber;
