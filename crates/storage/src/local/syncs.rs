//! The three system calls that make data survive power loss. They are made only here, so that a test can observe them
//! and their order: while the power stays on, nothing else shows a missing one.

use std::fs::File;
use std::io;
use std::path::Path;

/// Makes the bytes written to a file durable.
pub(super) fn content(file: &File) -> io::Result<()> {
    file.sync_data()?;
    #[cfg(test)]
    made::note(file);
    Ok(())
}

/// Makes the names in a directory durable.
pub(super) fn names(directory: &Path) -> io::Result<()> {
    let file = File::open(directory)?;
    file.sync_all()?;
    #[cfg(test)]
    made::note(&file);
    Ok(())
}

/// Makes the whole file system of a directory durable, with its names: one wait for the device in place of thousands.
/// It also writes back files of other processes.
pub(super) fn all(directory: &Path) -> io::Result<()> {
    let file = File::open(directory)?;
    rustix::fs::syncfs(&file)?;
    #[cfg(test)]
    made::note(&file);
    Ok(())
}

/// The syncs of all tests of the process, in order.
#[cfg(test)]
pub(super) mod made {
    use parking_lot::Mutex;
    use std::fs::File;
    use std::os::fd::AsRawFd as _;
    use std::path::{Path, PathBuf};

    static MADE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

    /// Records a file under its present name.
    pub(super) fn note(file: &File) {
        let name = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
        MADE.lock().extend(name);
    }

    /// The syncs below a root since the last call, as relative paths.
    pub(in crate::local) fn below(root: &Path) -> Vec<String> {
        let mut made = MADE.lock();
        let below = |path: &PathBuf| path.strip_prefix(root).ok().map(|path| path.display().to_string());
        let found = made.iter().filter_map(below).collect();
        made.retain(|path| !path.starts_with(root));
        found
    }
}
