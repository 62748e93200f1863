//! Takes up files that could not be opened when the tablet was.
//!
//! In place of such a file the tablet holds one of which every read fails. When the device has thought better of it, the
//! registry of open files has the file itself ([`FileRegistry::open_again`]), and the tablet exchanges them. To those who read,
//! that is a change like a commit: whoever began before goes on with what fails.
//!
//! [`FileRegistry::open_again`]: crate::FileRegistry::open_again

use super::{hold_all, set_held};
use crate::error::Result;
use crate::held::HeldFile;
use crate::tablet::Tablet;

impl Tablet {
    /// Holds its files anew, if one that could not be opened is open by now; whether one is.
    pub async fn hold_opened(&self) -> Result<bool> {
        let files = &self.context.files;
        let is_opened = |file: &HeldFile| file.unopened().any(|file| files.is_open(file));
        let is_concerned = self.with_state(|state| state.groups.iter().any(|group| group.files.iter().any(is_opened)));
        if !is_concerned {
            return Ok(false);
        }
        // No commit comes between: the state has the files of the manifest, once more.
        let committer = self.committer.lock().await;
        if committer.released {
            return Ok(false);
        }
        let held = hold_all(&committer.manifest, files, &[]).await?;
        self.update_state(None, |state| set_held(state, held));
        committer.manifest.stored().for_each(|file| files.release(file));
        drop(committer);
        self.note_debt();
        Ok(true)
    }

    /// Whether it holds a file that could not be opened. It may be open by now.
    pub fn holds_unopened(&self) -> bool {
        let is_unopened = |file: &HeldFile| file.unopened().next().is_some();
        self.with_state(|state| state.groups.iter().any(|group| group.files.iter().any(is_unopened)))
    }
}
