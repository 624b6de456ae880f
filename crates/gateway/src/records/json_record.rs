//! JSON of bounded length as the body of a record.

use generate::infill_prompt::{INFILL_FILES_MAX, InfillPrompt};
use generate::request::{
    CACHE_SALT_BYTES_MAX, CONVERSATION_ID_BYTES_MAX, MESSAGES_MAX, MIXED_PARTS_MAX, MixedPart,
    Prompt, StreamOptions, WEBHOOK_URL_BYTES_MAX,
};
use generate::request_record::PromptRecord;
use generate::tools::TOOLS_MAX;
use generate::value_bounds::{
    IDS_MAX, InvalidValue, check_prompt, require, require_count, require_ids, require_range,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::ser::Formatter;
use std::io;
use std::time::Duration;
use wire::fields::bounds::VALUES_MAX;
use wire::shared::generation_fields::DEADLINE_MS_MAX;

/// Nesting that is decoded in any case: values of clients are parsed by themselves, each to serde_json's limit of 127.
const SAFE_DEPTH: usize = 100;

/// Lists, objects and members of a body: parsed ones take up to about 100 times the bytes of their text. A request has
/// at most [`VALUES_MAX`], of which a description has up to three copies (tools, their schemas, the grammar of calls).
const PARTS_MAX: usize = 4 * VALUES_MAX;

/// Why the body of a record cannot be encoded or decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptionError {
    /// The body is longer than this many bytes.
    #[error("longer than {0} bytes")]
    TooLong(usize),
    /// The message names the field.
    #[error("{0}")]
    Invalid(String),
}

/// JSON of at most `bytes_max` bytes, which can be decoded as a `T`. The work is bounded by `bytes_max`, whatever the
/// length of the value is.
pub(crate) fn to_json<T: DeserializeOwned>(
    value: &impl Serialize,
    bytes_max: usize,
) -> Result<Vec<u8>, DescriptionError> {
    let mut writer = BoundedWriter {
        bytes: Vec::new(),
        bytes_max,
    };
    let mut nesting = Nesting::default();
    let mut serializer = serde_json::Serializer::with_formatter(&mut writer, &mut nesting);
    match value.serialize(&mut serializer) {
        Ok(()) => {}
        Err(error) if error.is_io() => return Err(DescriptionError::TooLong(bytes_max)),
        Err(error) => return Err(DescriptionError::Invalid(error.to_string())),
    }
    require_parts(nesting.parts)?;
    if nesting.deepest > SAFE_DEPTH {
        from_json::<T>(&writer.bytes, bytes_max)?;
    }
    Ok(writer.bytes)
}

/// The value of a JSON text of at most `bytes_max` bytes. An error names the field.
pub(crate) fn from_json<T: DeserializeOwned>(
    bytes: &[u8],
    bytes_max: usize,
) -> Result<T, DescriptionError> {
    if bytes.len() > bytes_max {
        return Err(DescriptionError::TooLong(bytes_max));
    }
    require_parts(part_count(bytes))?;
    serde_json::from_slice(bytes).map_err(|error| {
        // Paths cost time, so that they are computed for errors only.
        let mut json = serde_json::Deserializer::from_slice(bytes);
        let named = serde_path_to_error::deserialize::<_, T>(&mut json).err();
        let why = named.map_or_else(|| error.to_string(), |named| named.to_string());
        DescriptionError::Invalid(why)
    })
}

fn require_parts(parts: usize) -> Result<(), DescriptionError> {
    if parts > PARTS_MAX {
        let why = format!("has more than {PARTS_MAX} lists, objects and members");
        return Err(DescriptionError::Invalid(why));
    }
    Ok(())
}

/// Number of lists, objects and members in a JSON text.
fn part_count(json: &[u8]) -> usize {
    let (mut parts, mut in_string, mut is_escaped) = (0, false, false);
    for byte in json {
        if in_string {
            in_string = is_escaped || *byte != b'"';
            is_escaped = *byte == b'\\' && !is_escaped;
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' | b':' => parts += 1,
            _ => {}
        }
    }
    parts
}

/// Measures how deep lists and objects are nested, and counts lists, objects and members.
#[derive(Default)]
struct Nesting {
    depth: usize,
    deepest: usize,
    parts: usize,
}

impl Nesting {
    fn open(&mut self) {
        self.depth += 1;
        self.parts += 1;
        self.deepest = self.deepest.max(self.depth);
    }
}

impl Formatter for &mut Nesting {
    fn begin_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open();
        writer.write_all(b"[")
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth -= 1;
        writer.write_all(b"]")
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open();
        writer.write_all(b"{")
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.parts += 1;
        writer.write_all(b":")
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth -= 1;
        writer.write_all(b"}")
    }
}

struct BoundedWriter {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl io::Write for BoundedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() > self.bytes_max - self.bytes.len() {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes of names and ids.
const NAME_BYTES_MAX: usize = 1 << 12;
/// Wall times are before the year 10000.
const UNIX_S_MAX: i64 = 253_402_300_799;

impl From<InvalidValue> for DescriptionError {
    fn from(invalid: InvalidValue) -> Self {
        Self::Invalid(invalid.0)
    }
}

/// Requires a short text without control characters.
pub(crate) fn require_name(name: &str, text: &str) -> Result<(), InvalidValue> {
    require_count(name, text.len(), NAME_BYTES_MAX)?;
    require(!text.chars().any(char::is_control), || {
        format!("{name}: has a control character")
    })
}

/// Requires seconds of a wall time.
pub(crate) fn require_unix_s(name: &str, unix_s: i64) -> Result<(), InvalidValue> {
    require_range(name, unix_s, 0..=UNIX_S_MAX)
}

/// Requires microseconds of a wall time.
pub(crate) fn require_unix_us(name: &str, unix_us: u64) -> Result<(), InvalidValue> {
    let unix_s = i64::try_from(unix_us / 1_000_000).unwrap_or(i64::MAX);
    require_unix_s(name, unix_s)
}

/// Checks stream options of a stream with `n` choices per prompt.
pub(crate) fn check_options(options: &StreamOptions, n: usize) -> Result<(), InvalidValue> {
    let deadline = options.deadline.unwrap_or_default();
    require(deadline <= Duration::from_millis(DEADLINE_MS_MAX), || {
        let ms = deadline.as_millis();
        format!("stream_options.deadline: is {ms} ms; at most {DEADLINE_MS_MAX}")
    })?;
    let salt = options.cache_salt.as_deref().unwrap_or(" ");
    require_range(
        "stream_options.cache_salt",
        salt.len(),
        1..=CACHE_SALT_BYTES_MAX,
    )?;
    let conversation = options.conversation_id.as_deref().unwrap_or_default();
    let name = "stream_options.conversation_id";
    require_count(name, conversation.len(), CONVERSATION_ID_BYTES_MAX)?;
    let webhook = options.webhook.as_deref().unwrap_or_default();
    require_count(
        "stream_options.webhook",
        webhook.len(),
        WEBHOOK_URL_BYTES_MAX,
    )?;
    if let Some(best_of) = options.best_of {
        let name = "stream_options.best_of";
        let (returned, generated) = (best_of.returned, best_of.generated);
        require(generated == n && (1..=n).contains(&returned), || {
            format!("{name}: returns {returned} of {generated}; the request generates {n}")
        })?;
    }
    if let Some(fields) = options.repeated_fields.as_deref() {
        let object = format!("{{{fields}}}");
        let is_object = serde_json::from_str::<serde_json::Map<String, Value>>(&object).is_ok();
        require(is_object, || {
            "stream_options.repeated_fields: is not the inside of a JSON object".to_owned()
        })?;
    }
    Ok(())
}

/// Checks the prompts of a request.
pub(crate) fn check_requested(prompts: &[Prompt]) -> Result<(), InvalidValue> {
    for prompt in prompts {
        match prompt {
            Prompt::Continued { context, then } => {
                require_ids("prompts.context", context, IDS_MAX)?;
                check_single(then)?;
            }
            other => check_single(other)?,
        }
    }
    Ok(())
}

/// Checks a prompt that follows no earlier ids.
fn check_single(prompt: &Prompt) -> Result<(), InvalidValue> {
    match prompt {
        Prompt::Conversation {
            messages, tools, ..
        } => {
            require_count("prompts.messages", messages.len(), MESSAGES_MAX)?;
            require_count("prompts.tools", tools.len(), TOOLS_MAX)
        }
        Prompt::Continued { .. } => require(false, || {
            "prompts.continued: continues a prompt that continues another one".to_owned()
        }),
        Prompt::Ids(ids) => require_ids("prompts.ids", ids, IDS_MAX),
        Prompt::Mixed(parts) => {
            require_count("prompts.mixed", parts.len(), MIXED_PARTS_MAX)?;
            parts.iter().try_for_each(|part| match part {
                MixedPart::Ids(ids) => require_ids("prompts.mixed.ids", ids, IDS_MAX),
                MixedPart::Text(_) => Ok(()),
            })
        }
        Prompt::Infill(InfillPrompt { repository, .. }) => {
            let files = repository.as_ref().map_or(0, |shown| shown.files.len());
            require_count("prompts.infill.files", files, INFILL_FILES_MAX)
        }
        Prompt::Pieces(_) | Prompt::Text(_) => Ok(()),
    }
}

/// Checks prepared prompts for a context of this length.
pub(crate) fn check_prepared(
    prompts: &[PromptRecord],
    context_max: usize,
) -> Result<(), InvalidValue> {
    for (i, prompt) in prompts.iter().enumerate() {
        check_prompt(&format!("prompts[{i}]"), prompt, context_max)?;
    }
    Ok(())
}
