//! Codings of a request's body: `chunked`, as the framing of the message (RFC 9112, 6.1), and no other.
//!
//! The HTTP library takes any list of transfer codings that ends with `chunked`, and content codings are nothing to it:
//! a compressed body would be read as if it were plain.

use generate::error::{ApiError, ErrorKind};
use http::{HeaderMap, HeaderName, header};

/// What `Content-Encoding` may say.
const IDENTITY: &str = "identity";
/// What `Transfer-Encoding` may say, once.
const CHUNKED: &str = "chunked";

/// Refuses codings that would have to be undone.
///
/// # Errors
/// 415 for a content coding, 501 for a transfer coding, 400 for `chunked` twice.
pub fn expect_plain(headers: &HeaderMap) -> Result<(), ApiError> {
    let is_identity = |coding: &str| coding.eq_ignore_ascii_case(IDENTITY);
    if !codings(headers, &header::CONTENT_ENCODING).all(is_identity) {
        return Err(ApiError::caller(
            ErrorKind::UnsupportedMedia,
            "unsupported_content_encoding",
            "content-encoding: bodies are taken as they are (identity); send this one without a content coding",
        ));
    }
    let is_chunked = |coding: &str| coding.eq_ignore_ascii_case(CHUNKED);
    if !codings(headers, &header::TRANSFER_ENCODING).all(is_chunked) {
        return Err(ApiError::caller(
            ErrorKind::NotSupported,
            "unsupported_transfer_encoding",
            "transfer-encoding: only chunked is understood",
        ));
    }
    if codings(headers, &header::TRANSFER_ENCODING).count() > 1 {
        return Err(ApiError::bad_request(
            "invalid_transfer_encoding",
            "transfer-encoding: a body is chunked once",
        ));
    }
    Ok(())
}

/// The members of a list, over all lines of the header field; one that cannot be read is no coding of ours.
fn codings<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(name).into_iter();
    let members = lines.flat_map(|line| line.to_str().unwrap_or("?").split(','));
    members.map(str::trim).filter(|coding| !coding.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::status_code;
    use http::HeaderValue;

    #[test]
    fn one_chunked_and_identity_are_plain() {
        type Row = (&'static [(&'static str, &'static str)], Option<u16>);
        let rows: [Row; 12] = [
            (&[], None),
            (&[("content-encoding", "identity")], None),
            (&[("content-encoding", "")], None),
            (&[("content-encoding", "gzip")], Some(415)),
            (&[("content-encoding", "identity, br")], Some(415)),
            (
                &[
                    ("content-encoding", "identity"),
                    ("content-encoding", "zstd"),
                ],
                Some(415),
            ),
            (&[("transfer-encoding", "Chunked")], None),
            (&[("transfer-encoding", ", chunked")], None),
            (&[("transfer-encoding", "gzip, chunked")], Some(501)),
            (&[("transfer-encoding", "identity, chunked")], Some(501)),
            (
                &[
                    ("transfer-encoding", "gzip"),
                    ("transfer-encoding", "chunked"),
                ],
                Some(501),
            ),
            (&[("transfer-encoding", "chunked, chunked")], Some(400)),
        ];
        for (fields, status) in rows {
            let mut headers = HeaderMap::new();
            for &(name, value) in fields {
                headers.append(name, HeaderValue::from_static(value));
            }
            let refused = expect_plain(&headers).err();
            assert_eq!(
                refused.map(|e| status_code(e.kind).as_u16()),
                status,
                "{fields:?}"
            );
        }
    }
}
