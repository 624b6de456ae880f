//! Owners of files with secrets: of a file that replaces another one, and of a new one. Windows has no modes: there files have
//! the permissions of their folder, which in a user's profile are the user's own.

use std::fs::{File, Metadata};
use std::io;
use std::path::Path;

/// Gives a new file the owner of the one that it replaces, and lets its group read if that one's group could: the server
/// may run as another user than the one that edits.
pub(crate) fn keep_owner(old: &Metadata, new: &File) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        set_owner(new, old.uid(), old.gid(), old.mode() & GROUP_READS != 0)?;
    }
    #[cfg(not(unix))]
    let _ = (old, new);
    Ok(())
}

/// Gives a new file of root to those whom its folder is for. In another user's folder that is the user. In a folder of root
/// and another group, as `/etc/millrace` of the Debian package, the group may read. Files of other users stay as they are.
pub(crate) fn give_to_folder(folder: &Path, new: &File) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        if new.metadata()?.uid() != 0 {
            return Ok(());
        }
        let folder = std::fs::metadata(folder)?;
        let is_for_group = folder.uid() == 0 && folder.gid() != 0;
        if folder.uid() != 0 || is_for_group {
            set_owner(new, folder.uid(), folder.gid(), is_for_group)?;
        }
    }
    #[cfg(not(unix))]
    let _ = (folder, new);
    Ok(())
}

/// The bit of a mode that lets the group read.
#[cfg(unix)]
const GROUP_READS: u32 = 0o040;

#[cfg(unix)]
fn set_owner(file: &File, user: u32, group: u32, group_reads: bool) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
    let made = file.metadata()?;
    if (user, group) != (made.uid(), made.gid()) {
        fchown(file, Some(user), Some(group))?;
    }
    if group_reads {
        file.set_permissions(std::fs::Permissions::from_mode(0o600 | GROUP_READS))?;
    }
    Ok(())
}

/// Whether every user can change the file.
pub(crate) fn is_writable_by_all(metadata: &Metadata) -> bool {
    #[cfg(unix)]
    return std::os::unix::fs::MetadataExt::mode(metadata) & 0o002 != 0;
    #[cfg(not(unix))]
    {
        let _ = metadata;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::{give_to_folder, keep_owner};
    use private_files::create_new;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    use testing::folder::Folder;

    /// User and group of a service.
    const SERVICE: u32 = 61_234;

    #[test]
    fn file_of_root_is_for_those_whom_its_folder_is_for() {
        let folder = Folder::new("private-files");
        let own = std::fs::metadata(&folder.0).unwrap();
        if own.uid() != 0 {
            // Another user can give nothing away: the file stays the user's own.
            let file = create_new(&folder.0.join("own")).unwrap();
            give_to_folder(&folder.0, &file).unwrap();
            assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
            return;
        }
        let rows = [
            ("of root", (0, 0), (0, 0, 0o600)),
            ("of root and a group", (0, SERVICE), (0, SERVICE, 0o640)),
            ("of a user", (SERVICE, SERVICE), (SERVICE, SERVICE, 0o600)),
        ];
        for (case, (user, group), want) in rows {
            let inner = folder.0.join(case);
            std::fs::create_dir(&inner).unwrap();
            chown(&inner, Some(user), Some(group)).unwrap();
            let file = create_new(&inner.join("keys.yaml")).unwrap();
            give_to_folder(&inner, &file).unwrap();
            let of = |file: &std::fs::File| {
                let made = file.metadata().unwrap();
                (made.uid(), made.gid(), made.mode() & 0o777)
            };
            assert_eq!(of(&file), want, "{case}");
            // The next edit keeps all of it, and nothing that is wider.
            let mode = file.metadata().unwrap().mode() | 0o022;
            file.set_permissions(std::fs::Permissions::from_mode(mode))
                .unwrap();
            let next = create_new(&inner.join("keys.yaml.new")).unwrap();
            keep_owner(&file.metadata().unwrap(), &next).unwrap();
            assert_eq!(of(&next), want, "{case}, edited");
        }
    }
}
