//! A caller's request, as it is sent to other instances.

use super::seal::{ExpectedAnswer, seal};
use super::{Peer, Peers};
use bytes::Bytes;
use cluster::messages::Role;
use cluster::secret::ClusterSecret;
use gateway::keys::Caller;
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, ORIGIN, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri};
use http_client::Incoming;
use std::time::Duration;
use stream::Owner;

/// Marks a request that was passed on: the instance answers from what it has itself. The value says in whose name
/// ([`super::seal`]); `1` is a request without a name, or with a key of its own.
pub(crate) const FORWARDED: HeaderName = HeaderName::from_static("x-millrace-forwarded");
/// Header fields that are not passed on: those of one connection, and the page's origin, which this instance has checked and
/// the other would compare with its own host.
const NOT_PASSED_ON: [HeaderName; 6] =
    [CONNECTION, EXPECT, HOST, ORIGIN, TRANSFER_ENCODING, UPGRADE];

/// Hexadecimal digits of an id after its prefix.
const ID_DIGITS: usize = 32;

/// Method, path, header fields and owner of a caller's request, without the key; can be sent more than once.
#[derive(Clone, Debug)]
pub(crate) struct PassedRequest {
    method: Method,
    path_and_query: String,
    headers: HeaderMap,
    body: Bytes,
    /// In whose name; `None`: without a key.
    owner: Option<Owner>,
}

impl PassedRequest {
    /// The request with this head and this complete body.
    pub(crate) fn of(head: &Parts, body: Bytes) -> Self {
        let path = head.uri.path_and_query();
        Self {
            method: head.method.clone(),
            path_and_query: path.map_or("/", |path| path.as_str()).to_owned(),
            headers: passed_headers(head),
            body,
            owner: owner(head),
        }
    }

    /// A `GET` request of the same caller.
    pub(crate) fn get(head: &Parts, path_and_query: String) -> Self {
        let mut headers = passed_headers(head);
        headers.remove(CONTENT_LENGTH);
        Self {
            method: Method::GET,
            path_and_query,
            headers,
            body: Bytes::new(),
            owner: owner(head),
        }
    }

    /// The number with which the id in the path begins, after its prefix: that of the gateway that made the id
    /// ([`gateway::id_generator::IdGenerator`]).
    pub(super) fn gateway_number(&self) -> Option<u16> {
        let path = self.path_and_query.split('?').next()?;
        let digits = |part: &'_ str| -> Option<u16> {
            let start = part.len().checked_sub(ID_DIGITS)?;
            let (prefix, digits) = part.split_at_checked(start)?;
            let is_id = (prefix.is_empty() || prefix.ends_with(['_', '-']))
                && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            is_id.then(|| u16::from_str_radix(&digits[..4], 16).ok())?
        };
        path.split('/').find_map(digits)
    }

    /// The request for an instance at this address, sealed for a gateway, with the answer that is to be believed. An engine
    /// does not have the secret: it gets no name, and anybody's answer is taken for its own.
    ///
    /// # Errors
    /// The address is no host and port, or there is no secret.
    pub(super) fn build(
        &self,
        peer: &Peer,
        address: &str,
        secret: Option<&ClusterSecret>,
    ) -> Result<(Request<Bytes>, Option<ExpectedAnswer>), String> {
        let uri = format!("http://{address}{}", self.path_and_query).parse::<Uri>();
        let uri = uri.map_err(|why| why.to_string())?;
        let host = HeaderValue::from_str(address).map_err(|why| why.to_string())?;
        let mut request = Request::new(self.body.clone());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().insert(HOST, host);
        if peer.role == Role::Engine {
            return Ok((request, None));
        }
        let secret = secret.ok_or("cluster.secret_file is not set")?;
        let owner = self.owner.ok_or("the request has no caller")?;
        let expected = seal(&mut request, (owner, &self.body[..]), secret, peer.id)?;
        Ok((request, Some(expected)))
    }
}

/// Sends a caller's request to an instance, and returns the response when its head has arrived. The connection is closed
/// when the body is dropped before its end.
///
/// # Errors
/// The instance has no address that is trusted, is not reachable, breaks off, or is a gateway without the secret.
pub(crate) async fn ask(
    peers: &Peers,
    peer: &Peer,
    request: &PassedRequest,
) -> Result<Response<Incoming>, String> {
    let address = peer.address.as_deref().map_err(|why| (*why).to_owned())?;
    let secret = peers.trust().map(|trust| &trust.secret);
    let (request, expected) = request.build(peer, address, secret)?;
    // The callers bound the time, or wait for as long as their client does.
    let response = peers.client().send(request, Duration::MAX).await;
    let mut response = response.map_err(|why| why.to_string())?;
    response.headers_mut().remove(CONNECTION);
    response.headers_mut().remove(TRANSFER_ENCODING);
    if let Some(expected) = expected {
        expected.check(&mut response)?;
    }
    Ok(response)
}

fn owner(head: &Parts) -> Option<Owner> {
    head.extensions.get::<Caller>().map(|caller| caller.owner)
}

/// The caller's header fields, marked as passed on. The authentication layer has removed the key.
fn passed_headers(head: &Parts) -> HeaderMap {
    let mut headers = head.headers.clone();
    for name in NOT_PASSED_ON {
        headers.remove(name);
    }
    headers.insert(FORWARDED, HeaderValue::from_static("1"));
    headers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::authentication;
    use cluster::names::InstanceId;
    use gateway::keys::Keys;

    fn peer(role: Role) -> Peer {
        Peer {
            id: InstanceId(7),
            role,
            address: Ok("127.0.0.1:9".to_owned()),
        }
    }

    #[test]
    fn id_in_the_path_names_its_gateway() {
        let id = "0a1b0000000000000000000000000001";
        let rows = [
            (format!("/v1/streams/{id}/events?offset=3"), Some(0x0a1b)),
            (format!("/v1/responses/resp_{id}"), Some(0x0a1b)),
            (
                format!("/v1/chat/completions/chatcmpl-{id}/messages"),
                Some(0x0a1b),
            ),
            ("/v1/jobs/mine".to_owned(), None),
            (format!("/v1/jobs/x{id}"), None),
            (format!("/v1/jobs/{}", "é".repeat(17)), None),
            (format!("/v1/jobs?after={id}"), None),
        ];
        for (path, number) in rows {
            let head = Request::new(()).into_parts().0;
            let request = PassedRequest::get(&head, path);
            assert_eq!(request.gateway_number(), number, "{request:?}");
        }
    }

    #[test]
    fn request_names_the_owner_and_has_no_key() {
        let mut request = Request::builder()
            .uri("/v1/streams?limit=3")
            .header("host", "here")
            .header("connection", "close")
            .header("origin", "http://here")
            .header("authorization", "Bearer k")
            .header("x-api-key", "k")
            .header("x-title", "t")
            .body(())
            .unwrap();
        authentication::remove_keys(request.headers_mut());
        let caller = Keys::anonymous().identify(None).unwrap();
        request.extensions_mut().insert(caller);
        let (head, ()) = request.into_parts();
        let passed = PassedRequest::of(&head, Bytes::new());
        let (gateway, engine) = (peer(Role::Gateway), peer(Role::Engine));
        let (built, expected) = passed.build(&engine, "127.0.0.1:9", None).unwrap();
        assert!(expected.is_none());
        assert_eq!(built.uri(), "http://127.0.0.1:9/v1/streams?limit=3");
        let mut fields: Vec<_> = built
            .headers()
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        fields.sort();
        let expected = ["host: 127.0.0.1:9", "x-millrace-forwarded: 1", "x-title: t"];
        assert_eq!(fields, expected);

        let secret = ClusterSecret::of("s");
        let (built, expected) = passed.build(&gateway, "h:1", Some(&secret)).unwrap();
        assert!(expected.is_some());
        let shown = format!("{:?}", built.headers());
        assert!(
            !shown.contains("Bearer") && shown.matches('.').count() >= 4,
            "{shown}"
        );
        assert!(
            passed.build(&gateway, "h:1", None).is_err(),
            "without a secret"
        );
        let other = PassedRequest::get(&head, "/v1/jobs/a".to_owned());
        let (other, _) = other.build(&engine, "h:1", None).unwrap();
        assert_eq!(other.uri(), "http://h:1/v1/jobs/a");
        assert!(passed.build(&engine, "no\nhost", None).is_err());
    }
}
