//! The paths of update masks.
//!
//! A path copies its field from the request into a record, however often it is named. So the number of paths is limited, and each
//! is taken once.

use crate::status::invalid;
use prost_types::FieldMask;
use std::collections::HashSet;
use tonic::Status;

/// Paths in a mask: several times the fields that can be updated of any resource.
const PATHS_MAX: usize = 100;

/// The paths of a mask, each once; none without a mask.
pub(crate) fn paths(mask: Option<FieldMask>) -> Result<Vec<String>, Status> {
    let given = mask.unwrap_or_default().paths;
    if given.len() > PATHS_MAX {
        return Err(invalid(format!(
            "update_mask has {} paths, the limit is {PATHS_MAX}",
            given.len()
        )));
    }
    let mut known = HashSet::with_capacity(given.len());
    Ok(given.into_iter().filter(|path| known.insert(path.clone())).collect())
}

/// The same of a mask that must name a field.
pub(crate) fn some_paths(mask: Option<FieldMask>) -> Result<Vec<String>, Status> {
    let paths = paths(mask)?;
    match paths.is_empty() {
        true => Err(invalid("update_mask must name at least one field")),
        false => Ok(paths),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_counts_once_and_there_are_few() {
        let of = |given: &[&str]| {
            let paths = given.iter().map(ToString::to_string).collect();
            Some(FieldMask { paths })
        };
        assert_eq!(paths(of(&["b", "a", "b", "a"])).unwrap(), ["b", "a"]);
        assert_eq!(some_paths(of(&["a"; PATHS_MAX])).unwrap(), ["a"]);
        for refused in [paths(of(&["a"; PATHS_MAX + 1])), some_paths(None), some_paths(of(&[]))] {
            assert_eq!(refused.unwrap_err().code(), tonic::Code::InvalidArgument);
        }
        assert!(paths(None).unwrap().is_empty());
    }
}
