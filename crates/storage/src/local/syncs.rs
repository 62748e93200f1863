//! The three system calls by which anything survives power loss. They are made here and nowhere else, so that a test can see
//! that they are made, and when: on a machine whose power stays on, nothing else tells.

use std::fs::File;
use std::io;
use std::path::Path;

/// Makes what was written to a file durable.
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

/// Makes everything durable that the file system of a directory holds, with the names: one wait for the device in place of
/// thousands. Writes back also what others wrote.
pub(super) fn all(directory: &Path) -> io::Result<()> {
    let file = File::open(directory)?;
    rustix::fs::syncfs(&file)?;
    #[cfg(test)]
    made::note(&file);
    Ok(())
}

/// What was synced, in this order, by all tests of the process.
#[cfg(test)]
pub(super) mod made {
    use parking_lot::Mutex;
    use std::fs::File;
    use std::os::fd::AsRawFd as _;
    use std::path::{Path, PathBuf};

    static MADE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

    /// Under the name that it has at this moment.
    pub(super) fn note(file: &File) {
        let name = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
        MADE.lock().extend(name);
    }

    /// What was synced below a root since the last call, relative to it.
    pub(in crate::local) fn below(root: &Path) -> Vec<String> {
        let mut made = MADE.lock();
        let below = |path: &PathBuf| path.strip_prefix(root).ok().map(|path| path.display().to_string());
        let found = made.iter().filter_map(below).collect();
        made.retain(|path| !path.starts_with(root));
        found
    }
}
