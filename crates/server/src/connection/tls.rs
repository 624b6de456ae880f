//! TLS on accepted connections, with a certificate that can be replaced while the server runs.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;

/// Bytes that a session of TLS holds for a reader that is slower than the kernel's buffer.
const SESSION_BUFFER_BYTES: usize = 16 << 10;
/// Bytes of a certificate or a key file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A certificate with its key, as read from files.
#[derive(Clone)]
pub struct TlsCertificate(Arc<ServerConfig>);

impl TlsCertificate {
    /// Reads a chain of certificates and the key of the first one, both in PEM.
    ///
    /// # Errors
    /// A file cannot be read, or the key is not the certificate's.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, String> {
        let named = |path: &Path, why: &dyn fmt::Display| format!("{}: {why}", path.display());
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&read_short(certificate)?)
            .collect::<Result<_, _>>()
            .map_err(|why| named(certificate, &why))?;
        if chain.is_empty() {
            return Err(named(certificate, &"has no certificate in PEM"));
        }
        let private = PrivateKeyDer::from_pem_slice(&read_short(key)?)
            .map_err(|why| named(key, &format!("has no private key in PEM: {why}")))?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|why| why.to_string())?
            .with_no_client_auth()
            .with_single_cert(chain, private)
            .map_err(|why| named(key, &why))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }
}

impl fmt::Debug for TlsCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsCertificate")
    }
}

fn read_short(path: &Path) -> Result<Vec<u8>, String> {
    let named = |why: &dyn fmt::Display| format!("{}: {why}", path.display());
    let bytes = std::fs::metadata(path).map_err(|why| named(&why))?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(named(&format!(
            "has {bytes} bytes; at most {FILE_BYTES_MAX}"
        )));
    }
    std::fs::read(path).map_err(|why| named(&why))
}

/// The certificate of new connections; `None`: connections are in the clear.
#[derive(Clone, Default)]
pub(crate) struct TlsSlot(Arc<RwLock<Option<TlsCertificate>>>);

impl TlsSlot {
    pub(crate) fn set(&self, certificate: TlsCertificate) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(certificate);
    }

    pub(crate) fn get(&self) -> Option<TlsCertificate> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Negotiates TLS with a client; `None` if that fails or takes longer than `patience`.
pub(crate) async fn accept_tls(
    stream: TcpStream,
    certificate: TlsCertificate,
    patience: Duration,
) -> Option<Box<TlsStream<TcpStream>>> {
    let acceptor = TlsAcceptor::from(certificate.0);
    let accepting = acceptor.accept_with(stream, |session| {
        session.set_buffer_limit(Some(SESSION_BUFFER_BYTES));
    });
    match timeout(patience, accepting).await {
        Ok(Ok(stream)) => Some(Box::new(stream)),
        Ok(Err(error)) => {
            tracing::debug!(%error, "the TLS handshake failed");
            None
        }
        Err(_) => {
            tracing::debug!("the TLS handshake took too long");
            None
        }
    }
}
