use super::*;
use std::os::unix::fs::PermissionsExt;
use testing::folder::Folder;

fn entry(name: &str) -> Entry {
    Entry {
        name: name.to_owned(),
        hash: KeyHash::of(name.as_bytes()).to_hex(),
        scopes: vec!["inference".to_owned(), "metrics".to_owned()],
        limits: Limits {
            requests_per_min: NonZeroU32::new(60),
            ..Limits::default()
        },
        weight: 3,
        webhook_secrets: Vec::new(),
        created: "2026-11-20T00:00:00Z".to_owned(),
    }
}

fn add(path: &Path, entry: Entry) -> Result<(), String> {
    let mut edit = Edit::begin(path)?;
    edit.file.keys.push(entry);
    edit.commit()
}

#[test]
fn written_keys_are_read_back() {
    let folder = Folder::new("round");
    let path = folder.0.join("keys.yaml");
    for name in ["a", "true", "1.5", "-x", "null"] {
        add(&path, entry(name)).unwrap();
    }
    let keys = KeyFile::read(&path).unwrap().keys().unwrap();
    let names: Vec<_> = keys.iter().map(|key| key.name.as_str()).collect();
    assert_eq!(names, ["a", "true", "1.5", "-x", "null"]);
    assert_eq!(keys[0], entry("a").key().unwrap());
    assert!(keys[0].scopes.has(Scope::Metrics) && !keys[0].scopes.has(Scope::Admin));
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let left: Vec<_> = std::fs::read_dir(&folder.0).unwrap().collect();
    assert_eq!(left.len(), 1, "nothing lies beside it: {left:?}");
}

#[test]
fn concurrent_change_is_rejected_and_failed_change_is_undone() {
    let folder = Folder::new("edit");
    let path = folder.0.join("keys.yaml");
    add(&path, entry("a")).unwrap();
    let before = std::fs::read_to_string(&path).unwrap();
    let mut first = Edit::begin(&path).unwrap();
    let second = Edit::begin(&path).unwrap_err();
    assert!(second.contains("another process is changing"), "{second}");
    first.file.keys.clear();
    drop(first);
    let twice = add(&path, entry("a")).unwrap_err();
    assert!(twice.contains("twice"), "{twice}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
}

#[test]
fn symbolic_link_is_preserved() {
    let folder = Folder::new("link");
    let (path, link) = (folder.0.join("real.yaml"), folder.0.join("link.yaml"));
    add(&path, entry("a")).unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    add(&link, entry("b")).unwrap();
    assert!(link.is_symlink());
    assert_eq!(KeyFile::read(&path).unwrap().keys.len(), 2);
}

#[test]
fn invalid_file_of_each_kind_is_named() {
    let folder = Folder::new("bad");
    let path = folder.0.join("keys.yaml");
    let hash = "0".repeat(64);
    let with = |fields: &str| {
        format!("keys: [{{name: a, hash: '{hash}', scopes: [inference], {fields}}}]")
    };
    let rows = [
        ("unknown field", with("scoops: 1"), "scoops"),
        ("unknown limit", with("limits: {per_min: 1}"), "per_min"),
        (
            "limit of nothing",
            with("limits: {requests_per_min: 0}"),
            "from 1 to 4294967295",
        ),
        ("no YAML", "keys: [".to_owned(), "keys.yaml"),
        (
            "short hash",
            with("").replace(&hash, "00"),
            "64 hexadecimal",
        ),
        (
            "unknown scope",
            with("").replace("[inference]", "[root]"),
            "inference, admin, metrics",
        ),
        ("weight", with("weight: 1001"), "from 1 to 1000"),
        (
            "no scope",
            with("").replace("[inference]", "[]"),
            "at least one scope",
        ),
    ];
    for (label, text, named) in rows {
        std::fs::write(&path, text).unwrap();
        let read = KeyFile::read(&path).and_then(|file| file.check());
        let why = read.expect_err(label);
        assert!(why.contains(named), "{label}: {why}");
    }
    std::fs::write(&path, "# nothing yet\n\n").unwrap();
    assert_eq!(KeyFile::read(&path).unwrap().keys().unwrap(), []);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(KeyFile::read(&path).unwrap_err().contains("chmod o-w"));
}
