//! Remembers which files are encrypted.
//!
//! So a listing of a root that was encrypted later reads the beginning of each file only once.
//! Files that other servers have deleted are forgotten when their directory is listed as a whole.

use std::collections::{HashMap, HashSet};
use stele_storage::FileInfo;
use xxhash_rust::xxh3::xxh3_64;

/// Files of which it is remembered: 24 MB, needed only where there are as many. The beginnings of others are read in each listing.
const FILES_MAX: usize = if cfg!(test) { 100 } else { 1 << 20 };

/// By the first directory of their paths, and the hash of these. A wrong length in a listing is all that a collision of two hashes
/// could cause.
#[derive(Default)]
pub(crate) struct Remembered(HashMap<String, HashMap<u64, bool>>);

/// The first directory of a path.
fn directory(path: &str) -> &str {
    path.split_once('/').map_or("", |(directory, _)| directory)
}

fn hash(path: &str) -> u64 {
    xxh3_64(path.as_bytes())
}

impl Remembered {
    /// Whether a file is encrypted, if that is known.
    pub(crate) fn get(&self, path: &str) -> Option<bool> {
        self.0.get(directory(path))?.get(&hash(path)).copied()
    }

    pub(crate) fn insert(&mut self, path: &str, is_encrypted: bool) {
        let count: usize = self.0.values().map(HashMap::len).sum();
        let files = self.0.entry(directory(path).to_owned()).or_default();
        // Forgetting others instead would have a listing of more files read all of them again, each time.
        if count < FILES_MAX || files.contains_key(&hash(path)) {
            files.insert(hash(path), is_encrypted);
        }
    }

    pub(crate) fn remove(&mut self, path: &str) {
        if let Some(files) = self.0.get_mut(directory(path)) {
            files.remove(&hash(path));
        }
    }

    /// Forgets files that the listing of a first directory does not have. One that was made meanwhile is forgotten, too, and read
    /// again.
    pub(crate) fn keep_listed(&mut self, prefix: &str, listed: &[FileInfo]) {
        let directory = prefix.strip_suffix('/').filter(|directory| !directory.contains('/'));
        let files = directory.and_then(|directory| self.0.get_mut(directory));
        let Some(files) = files.filter(|files| files.len() > listed.len()) else {
            return;
        };
        let listed: HashSet<u64> = listed.iter().map(|file| hash(&file.path)).collect();
        files.retain(|file, _| listed.contains(file));
    }
}
