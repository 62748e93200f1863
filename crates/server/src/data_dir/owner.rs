//! Refuses root on a data folder of another user.
//!
//! Files that root writes belong to root, and the server of the other user could not open them any more: it would not
//! start after `sudo stele repair`. Any other user fails by the permissions of the folder, or has them from its group, as
//! on a volume of Kubernetes that belongs to root.
#![allow(
    clippy::disallowed_methods,
    reason = "runs before the storage is opened, because opening it already writes"
)]

use super::FORMAT;
use anyhow::{Context, bail};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const ROOT: u32 = 0;

/// Checks that a process of this user may write to a folder, which may not exist yet.
pub fn check(folder: &Path, user: u32) -> anyhow::Result<()> {
    if user != ROOT {
        return Ok(());
    }
    let Some(owner) = owner(folder).with_context(|| format!("data folder {}", folder.display()))? else {
        return Ok(());
    };
    if owner == ROOT {
        return Ok(());
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let (name, argument) = match name_in(&users, owner) {
        Some(name) => (name.to_owned(), name.to_owned()),
        None => (format!("with the number {owner}"), format!("'#{owner}'")),
    };
    bail!(
        "{} belongs to the user {name}, whose server could not open files of root: run this as that user, for example \
         with sudo -u {argument} stele ...",
        folder.display()
    )
}

/// The user of the data: the owner of the format, which a server wrote, or of a folder without one. A container whose root
/// wrote all data may have them in a folder of a user of its host.
fn owner(folder: &Path) -> io::Result<Option<u32>> {
    for path in [&folder.join(FORMAT), folder] {
        match std::fs::metadata(path) {
            Ok(found) => return Ok(Some(found.uid())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The name of a user in the text of a file like `/etc/passwd`.
fn name_in(users: &str, user: u32) -> Option<&str> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let number = fields.nth(1)?.parse::<u32>().ok()?;
        (number == user).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::chown;

    /// Files of another user than root: only root can make such, and others own theirs.
    fn give_away(path: &Path) -> u32 {
        match std::fs::metadata(path).unwrap().uid() {
            ROOT => {
                chown(path, Some(4_711), None).unwrap();
                4_711
            }
            other => other,
        }
    }

    #[test]
    fn root_leaves_folders_of_others_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (path, format) = (folder.path(), folder.path().join(FORMAT));
        check(&path.join("absent"), ROOT).unwrap();
        let user = give_away(path);
        let error = check(path, ROOT).unwrap_err().to_string();
        assert!(
            error.contains("sudo -u ") && error.contains("belongs to the user"),
            "{error}"
        );
        check(path, user).unwrap();
        check(path, user + 1).unwrap();

        std::fs::write(&format, "stele-data 1\n").unwrap();
        if std::fs::metadata(&format).unwrap().uid() == ROOT {
            check(path, ROOT).unwrap();
        }
        give_away(&format);
        check(path, ROOT).unwrap_err();
        check(path, user).unwrap();
    }

    #[test]
    fn users_are_found_by_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\n\nbroken\nstele:x:998:998::/var/lib/stele:/bin/false\n:x:5:5::/:\n";
        assert_eq!(name_in(users, 998), Some("stele"));
        assert_eq!(name_in(users, 0), Some("root"));
        assert_eq!(name_in(users, 5), None);
        assert_eq!(name_in(users, 99), None);
    }
}
