//! Files of secrets and certificates, checked before the first attempt to connect.

use crate::config::{LoginFiles, TlsFiles};
use async_nats::ConnectOptions;
use async_nats::rustls::pki_types::pem::PemObject;
use async_nats::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Bytes of a file with a secret.
const SECRET_FILE_BYTES_MAX: u64 = 16 << 10;

/// Characters of an nkey's seed.
const SEED_CHARS: usize = 58;

/// A file that cannot be used, with the setting that names it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {why}")]
pub struct CredentialError {
    setting: &'static str,
    why: String,
}

/// The options with login and TLS of these files.
///
/// # Errors
/// A file cannot be read, or has no secret, certificate or key.
pub(super) fn with_credentials(
    mut options: ConnectOptions,
    login: &LoginFiles,
    tls: &TlsFiles,
) -> Result<ConnectOptions, CredentialError> {
    if let Some(path) = &login.nkey {
        options = options.nkey(read_seed(path)?);
    }
    if let Some(path) = &login.token {
        options = options.token(read_secret("cluster.token_file", path)?);
    }
    if let (Some(user), Some(path)) = (&login.user, &login.password) {
        let password = read_secret("cluster.password_file", path)?;
        options = options.user_and_password(user.clone(), password);
    }
    if let Some(path) = &tls.ca {
        check_certificates("cluster.tls_ca", path)?;
        options = options
            .add_root_certificates(path.clone())
            .require_tls(true);
    }
    if let (Some(cert), Some(key)) = (&tls.cert, &tls.key) {
        check_certificates("cluster.tls_cert", cert)?;
        check_key(key)?;
        options = options
            .add_client_certificate(cert.clone(), key.clone())
            .require_tls(true);
    }
    Ok(options)
}

/// The seed in a file, as `nk -gen user` prints it.
fn read_seed(path: &Path) -> Result<String, CredentialError> {
    const SETTING: &str = "cluster.nkey_file";
    let seed = read_secret(SETTING, path)?;
    let is_base32 = |b: u8| b.is_ascii_uppercase() || (b'2'..=b'7').contains(&b);
    if seed.len() == SEED_CHARS && seed.starts_with("SU") && seed.bytes().all(is_base32) {
        return Ok(seed);
    }
    Err(CredentialError {
        setting: SETTING,
        why: format!(
            "{} has no seed of a user's nkey ({SEED_CHARS} characters that begin with SU)",
            path.display()
        ),
    })
}

/// The first line of a file that is no comment.
pub(crate) fn read_secret(setting: &'static str, path: &Path) -> Result<String, CredentialError> {
    let error = |why: String| CredentialError {
        setting,
        why: format!("{}: {why}", path.display()),
    };
    let mut text = String::new();
    let read = File::open(path)
        .and_then(|file| file.take(SECRET_FILE_BYTES_MAX).read_to_string(&mut text));
    read.map_err(|why| error(why.to_string()))?;
    let mut lines = text.lines().map(str::trim);
    let secret = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
    secret
        .map(str::to_owned)
        .ok_or_else(|| error("the file is empty".to_owned()))
}

fn check_certificates(setting: &'static str, path: &Path) -> Result<(), CredentialError> {
    let error = |why: String| CredentialError {
        setting,
        why: format!("{}: {why}", path.display()),
    };
    let certificates = CertificateDer::pem_file_iter(path).map_err(|why| error(why.to_string()))?;
    let mut count = 0;
    for certificate in certificates {
        certificate.map_err(|why| error(why.to_string()))?;
        count += 1;
    }
    match count {
        0 => Err(error("the file has no certificate in PEM".to_owned())),
        _ => Ok(()),
    }
}

fn check_key(path: &Path) -> Result<(), CredentialError> {
    let key = PrivateKeyDer::from_pem_file(path);
    key.map(drop).map_err(|why| CredentialError {
        setting: "cluster.tls_key",
        why: format!("{}: {why}", path.display()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use testing::folder::Folder;

    const SEED: &str = "SUAIBDPBAUTWCWBKIO6XHQNINK5FWJW4OHLXC3HQ2KFE4PEJUA44CNHTC4";

    fn told(login: &LoginFiles, tls: &TlsFiles) -> String {
        let options = with_credentials(ConnectOptions::new(), login, tls);
        options.map_or_else(|why| why.to_string(), |_| String::new())
    }

    #[test]
    fn seed_is_read_among_comments_and_others_are_rejected() {
        let folder = Folder::new("nkey");
        let path = folder.0.join("user.nk");
        let login = LoginFiles {
            nkey: Some(path.clone()),
            ..LoginFiles::default()
        };
        let tell = |text: &str| {
            std::fs::write(&path, text).unwrap();
            told(&login, &TlsFiles::default())
        };
        assert_eq!(tell(&format!("# gateway 1\n\n {SEED} \nUA...\n")), "");
        for bad in [
            &SEED[1..],
            "UACQ",
            &SEED.to_lowercase(),
            &SEED.replace("SU", "SA"),
        ] {
            let why = tell(bad);
            assert!(why.contains("cluster.nkey_file") && why.contains("begin with SU"));
            assert!(!why.contains(bad), "no secret in {why}");
        }
        assert!(tell("# nothing\n").contains("the file is empty"));
    }

    #[test]
    fn missing_files_are_named_with_their_setting() {
        let missing = Some(PathBuf::from("/nowhere/file"));
        let none = LoginFiles::default();
        let rows = [
            (
                LoginFiles {
                    user: Some("a".to_owned()),
                    password: missing.clone(),
                    ..none.clone()
                },
                TlsFiles::default(),
                "cluster.password_file: /nowhere/file",
            ),
            (
                LoginFiles {
                    token: missing.clone(),
                    ..none.clone()
                },
                TlsFiles::default(),
                "cluster.token_file: /nowhere/file",
            ),
            (
                none,
                TlsFiles {
                    ca: missing,
                    ..TlsFiles::default()
                },
                "cluster.tls_ca: /nowhere/file",
            ),
        ];
        for (login, tls, expected) in rows {
            let why = told(&login, &tls);
            assert!(why.starts_with(expected), "{why}");
        }
    }

    #[test]
    fn files_without_pem_are_rejected() {
        let folder = Folder::new("pem");
        let path = folder.0.join("not.pem");
        std::fs::write(&path, "hello\n").unwrap();
        let ca = TlsFiles {
            ca: Some(path),
            ..TlsFiles::default()
        };
        let why = told(&LoginFiles::default(), &ca);
        assert!(why.contains("no certificate in PEM"), "{why}");
    }
}
