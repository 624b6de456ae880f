//! Files that an operator names: the reading of settings and keys, and owners of files with secrets, of one that
//! replaces another and of a new one. Windows has no modes: there files have the permissions of their folder, which in
//! a user's profile are the user's own.

use crate::config::plain_words;
use std::fs::{File, Metadata};
use std::io;
use std::io::{ErrorKind, Read};
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

/// The content and the metadata of a regular file. Other files are an error: opening a FIFO or reading a terminal would
/// block.
///
/// # Errors
/// The file cannot be read, is no regular file, has more than `bytes_max` bytes, or is not UTF-8. The error names the path.
pub(crate) fn read(path: &Path, bytes_max: u64) -> Result<(String, Metadata), String> {
    let shown = path.display();
    let wrong = |why: std::io::Error| format!("{shown}: {why}");
    if !std::fs::metadata(path).map_err(wrong)?.is_file() {
        return Err(format!("{shown}: must be a regular file"));
    }
    let file = File::open(path).map_err(wrong)?;
    let metadata = file.metadata().map_err(wrong)?;
    let mut text = String::new();
    // The file may grow during the read.
    let read = file.take(bytes_max + 1).read_to_string(&mut text);
    let read = read.map_err(|why| match why.kind() {
        ErrorKind::InvalidData => format!("{shown}: is no UTF-8 text"),
        _ => wrong(why),
    });
    if read? as u64 > bytes_max {
        let bytes = metadata.len();
        return Err(format!("{shown}: {bytes} bytes, at most {bytes_max}"));
    }
    Ok((text, metadata))
}

/// Parses YAML. Errors name the line and quote nothing: the lines around a mistake may have a secret.
///
/// # Errors
/// The text is not YAML of this type.
pub(crate) fn parse_yaml<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_str_with_options(text, options).map_err(|why| yaml_words(&why.to_string()))
}

/// A message of the YAML parser in words for people, with its line.
fn yaml_words(message: &str) -> String {
    let (problem, place) = match message.rfind(" at line ") {
        Some(at) => message.split_at(at),
        None => (message, ""),
    };
    let words = if let Some(rest) = problem.strip_prefix("duplicate mapping key: ") {
        let name = rest.split(", set ").next().unwrap_or(rest);
        format!("the key {name} is there twice")
    } else if let Some(rest) = problem.strip_prefix("non-finite float ") {
        let number = rest.split(" rejected").next().unwrap_or(rest);
        format!("{number} is no finite number")
    } else {
        match problem {
            "expected sequence start" => "must be a list".to_owned(),
            "expected mapping start" => "must be names with values".to_owned(),
            "recursion limit exceeded" => "is nested too deeply".to_owned(),
            _ if problem.starts_with("budget breached") => {
                "is too large where its aliases (*name) are replaced".to_owned()
            }
            _ if problem.starts_with("multiple YAML documents") => {
                "has a second document; take out the line ---".to_owned()
            }
            _ => plain_words(problem),
        }
    };
    words + place
}

#[cfg(test)]
mod tests {
    use super::{give_to_folder, keep_owner, parse_yaml};
    use private_files::create_new;
    use serde_json::Value;
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

    #[test]
    fn errors_name_no_type_of_the_parser() {
        for (text, want) in [
            ("a: 1\na: 2\n", "the key a is there twice at line 2"),
            ("a: .nan", "`.nan` is no finite number at line 1"),
        ] {
            let why = parse_yaml::<Value>(text).expect_err(text);
            assert!(why.starts_with(want), "{why}");
        }
        let names: Vec<_> = ('a'..='l').collect();
        let bomb: String = names
            .windows(2)
            .map(|pair| {
                format!(
                    "{}: &{} [{}]\n",
                    pair[1],
                    pair[1],
                    format!("*{}, ", pair[0]).repeat(9)
                )
            })
            .collect();
        let bomb = format!("a: &a [x]\n{bomb}");
        for (text, want) in [
            (bomb, "is too large where its aliases"),
            ("a: 1\n---\nb: 2\n".to_owned(), "has a second document"),
            ("[".repeat(10_000), "is nested too deeply"),
        ] {
            let why = parse_yaml::<Value>(&text).expect_err(want);
            assert!(why.starts_with(want), "{why}");
        }
        let why = parse_yaml::<Vec<u32>>("[1, x]").expect_err("a word");
        assert!(why.starts_with("must be a whole number from 0"), "{why}");
        let why = parse_yaml::<Vec<u32>>("3").expect_err("a number");
        assert!(why.starts_with("must be a list at line 1"), "{why}");
    }

    #[test]
    fn errors_quote_no_lines() {
        let rows = [
            "keys:\n  - secret: whsec_LEAK\n    scopes: [x\n",
            "api_key: sk-LEAK\nserver: {bind: 1\n",
        ];
        for text in rows {
            let why = parse_yaml::<Value>(text).expect_err("an open bracket");
            assert!(!why.contains("LEAK") && why.contains("line"), "{why}");
        }
    }
}
