//! Another server that describes images: one request of OpenAI's chat completions for each.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use generate::error::{ApiError, Blame, ErrorKind};
use generate::images::{ImagePart, detail_name};
use http::header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Request, StatusCode, Uri};
use http_client::{ClientOptions, HttpClient, HttpError, read_body, retry_after};
use serde::Deserialize;
use serde_json::json;
use std::fmt;
use std::time::Duration;
use wire::clock;

/// Bytes of a response.
const RESPONSE_BYTES_MAX: usize = 1 << 20;
const AGENT: &str = concat!("millrace/", env!("CARGO_PKG_VERSION"));
/// When to try again after a rejection that says nothing about that.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A server with OpenAI's chat completions, whose model sees images.
#[derive(Clone)]
pub struct VisionServer {
    /// URL of chat completions.
    url: String,
    authorization: Option<HeaderValue>,
    client: HttpClient,
}

/// Why there is no such server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidServer(&'static str);

/// Input of a description.
pub struct DescriptionRequest<'a> {
    /// Name of the model there.
    pub model: &'a str,
    /// Text that goes with the image.
    pub prompt: &'a str,
    /// The image.
    pub part: &'a ImagePart,
    /// Tokens of the description.
    pub max_tokens: usize,
    /// Temperature of the description.
    pub temperature: f32,
    /// Time for the head of the response, and for its body.
    pub timeout: Duration,
}

/// A description, and the tokens that it took, as far as they are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeDescription {
    /// The description.
    pub text: String,
    /// Whether the model had more to say.
    pub is_cut: bool,
    /// Tokens of the prompt; 0: not known.
    pub prompt_tokens: u64,
    /// Tokens of the description; 0: not known.
    pub completion_tokens: u64,
}

impl fmt::Debug for VisionServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VisionServer")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl VisionServer {
    /// The server at an address such as `http://10.0.0.2:8000`, with `/v1` or without.
    ///
    /// # Errors
    /// The address is no http or https URL with a host alone, or the key is no word.
    pub fn new(address: &str, api_key: Option<&str>) -> Result<Self, InvalidServer> {
        const URL: InvalidServer =
            InvalidServer("must be a URL without user and query, such as http://10.0.0.2:8000");
        let uri: Uri = address.parse().map_err(|_| URL)?;
        let has_scheme = matches!(uri.scheme_str(), Some("http" | "https"));
        let has_host = uri
            .authority()
            .is_some_and(|host| !host.as_str().contains('@'));
        if !has_scheme || !has_host || uri.query().is_some() {
            return Err(URL);
        }
        let base = address.trim_end_matches('/').trim_end_matches("/v1");
        let authorization = api_key.map(|key| {
            let mut value = HeaderValue::from_str(&format!("Bearer {key}"))?;
            value.set_sensitive(true);
            Ok::<_, http::header::InvalidHeaderValue>(value)
        });
        let authorization = authorization.transpose();
        let authorization = authorization
            .map_err(|_| InvalidServer("the key has characters that no header takes"))?;
        Ok(Self {
            url: format!("{base}/v1/chat/completions"),
            authorization,
            client: HttpClient::new(ClientOptions::default()),
        })
    }

    /// URL of the requests, which names the server.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Has an image described. The connection is closed if the future is dropped.
    ///
    /// # Errors
    /// The server cannot be reached in time, rejects the request, or gives no text. No text of the server is repeated.
    pub async fn describe(
        &self,
        request: &DescriptionRequest<'_>,
    ) -> Result<MadeDescription, ApiError> {
        let mut post = Request::post(&self.url)
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, AGENT);
        if let Some(authorization) = &self.authorization {
            post = post.header(AUTHORIZATION, authorization);
        }
        let post = post.body(request.body());
        let post = post.map_err(|why| failed(&why))?;
        let response = self.client.send(post, request.timeout).await;
        let response = response.map_err(|why| failed(&why))?;
        let status = response.status();
        if !status.is_success() {
            let now = clock::wall(clock::now());
            return Err(rejected(status, retry_after(response.headers(), now)));
        }
        let body = read_body(response.into_body(), RESPONSE_BYTES_MAX, request.timeout).await;
        let body = body.map_err(|why: HttpError| failed(&why))?;
        let completion: Completion = serde_json::from_slice(&body)
            .map_err(|_| failed(&"the response is no chat completion"))?;
        completion.into_description()
    }
}

impl DescriptionRequest<'_> {
    fn body(&self) -> Bytes {
        let data = STANDARD.encode(&self.part.bytes);
        let url = format!("data:{};base64,{data}", self.part.media_type());
        let detail = detail_name(self.part.detail);
        let content = json!([
            {"type": "image_url", "image_url": {"url": url, "detail": detail}},
            {"type": "text", "text": self.prompt},
        ]);
        let body = json!({
            "model": self.model,
            "messages": [{"role": "user", "content": content}],
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "stream": false,
        });
        body.to_string().into()
    }
}

/// A response of chat completions, as far as it matters here.
#[derive(Deserialize)]
struct Completion {
    choices: Vec<CompletionChoice>,
    #[serde(default)]
    usage: Option<CompletionUsage>,
}

#[derive(Deserialize)]
struct CompletionChoice {
    message: CompletionMessage,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct CompletionMessage {
    #[serde(default)]
    content: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CompletionUsage {
    prompt_tokens: u64,
    completion_tokens: u64,
}

impl Completion {
    fn into_description(self) -> Result<MadeDescription, ApiError> {
        let choice = self.choices.into_iter().next();
        let choice = choice.ok_or_else(|| failed(&"the response has no choice"))?;
        let usage = self.usage.unwrap_or_default();
        Ok(MadeDescription {
            text: choice.message.content.unwrap_or_default(),
            is_cut: choice.finish_reason.as_deref() == Some("length"),
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
        })
    }
}

fn failed(why: &dyn fmt::Display) -> ApiError {
    ApiError::new(
        ErrorKind::Upstream,
        Blame::Ours,
        "vision_model_failed",
        why.to_string(),
    )
}

fn rejected(status: StatusCode, retry: Option<Duration>) -> ApiError {
    let why = format!("its server answers with status {}", status.as_u16());
    match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            ApiError::capacity("vision_model_busy", why, retry.unwrap_or(RETRY_AFTER))
        }
        _ => failed(&why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_leads_to_chat_completions() {
        for (address, url) in [
            ("http://a:8000", "http://a:8000/v1/chat/completions"),
            ("https://a/x/v1/", "https://a/x/v1/chat/completions"),
        ] {
            let server = VisionServer::new(address, Some("sk-1")).expect("an address");
            assert_eq!(server.url(), url);
            assert!(!format!("{server:?}").contains("sk-1"));
        }
        for address in ["", "a:8000", "ftp://a", "http://k@a", "http://a?x=1", "/v1"] {
            assert!(VisionServer::new(address, None).is_err(), "{address}");
        }
        assert!(VisionServer::new("http://a", Some("a\nb")).is_err());
    }

    #[test]
    fn response_without_text_or_counts_is_read() {
        let read = |text: &str| {
            let completion: Completion = serde_json::from_str(text).expect("JSON");
            completion.into_description()
        };
        let whole = read(
            r#"{"choices": [{"message": {"content": "a cat"}, "finish_reason": "length"}], "usage": {"prompt_tokens": 90, "completion_tokens": 2}}"#,
        );
        let want = MadeDescription {
            text: "a cat".to_owned(),
            is_cut: true,
            prompt_tokens: 90,
            completion_tokens: 2,
        };
        assert_eq!(whole.ok(), Some(want));
        let bare = read(r#"{"choices": [{"message": {"content": null}}]}"#).expect("a choice");
        assert_eq!((bare.text.as_str(), bare.prompt_tokens), ("", 0));
        let none = read(r#"{"choices": []}"#).expect_err("no choice");
        assert_eq!(
            (none.kind, none.code),
            (ErrorKind::Upstream, "vision_model_failed")
        );
    }

    #[test]
    fn rejection_for_want_of_room_can_be_tried_again() {
        let busy = rejected(StatusCode::TOO_MANY_REQUESTS, Some(Duration::from_secs(7)));
        assert_eq!(busy.retry_after, Some(Duration::from_secs(7)));
        let broken = rejected(StatusCode::INTERNAL_SERVER_ERROR, None);
        assert_eq!(
            (broken.kind, broken.retry_after),
            (ErrorKind::Upstream, None)
        );
    }
}
