//! Where the bytes of an image come from: data URLs, base64 alone, and remote URLs, which are only recognized.

use crate::error::{ImageError, ImageFault};
use crate::limits::Limits;
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Padded or not, with any bits behind the last byte: what clients send is read, not judged.
const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// What an image's URL stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageSource<'a> {
    /// The bytes themselves, from a data URL.
    Bytes(Vec<u8>),
    /// An http or https URL. Nothing here fetches it.
    Remote(&'a str),
}

impl<'a> ImageSource<'a> {
    /// Reads the URL of an image. The media type that a data URL states is not looked at: bytes decide.
    ///
    /// # Errors
    ///
    /// The URL is of another scheme, its base64 is damaged, or it has more bytes than the limits allow. The error names
    /// `field`.
    pub fn of_url(field: &str, url: &'a str, limits: &Limits) -> Result<Self, ImageError> {
        Self::read(url, limits).map_err(|fault| fault.of(field))
    }

    fn read(url: &'a str, limits: &Limits) -> Result<Self, ImageFault> {
        let url = url.trim_ascii();
        if let Some(data) = after(url, "data:") {
            return data_url(data, limits).map(Self::Bytes);
        }
        let is_remote = ["http://", "https://"]
            .iter()
            .any(|scheme| after(url, scheme).is_some_and(|rest| !rest.is_empty()));
        if is_remote {
            return Ok(Self::Remote(url));
        }
        Err(if url.is_empty() {
            ImageFault::Empty
        } else {
            ImageFault::Scheme
        })
    }
}

/// Decodes base64 in either alphabet, with line ends or without, padded or not. A data URL is read, too, since clients
/// put one where base64 belongs.
///
/// # Errors
///
/// The text is no base64, or has more bytes than the limits allow. The error names `field`.
pub fn decode_base64(field: &str, text: &str, limits: &Limits) -> Result<Vec<u8>, ImageError> {
    let decoded = match after(text.trim_ascii(), "data:") {
        Some(data) => data_url(data, limits),
        None => base64_bytes(text, limits),
    };
    decoded.map_err(|fault| fault.of(field))
}

/// What follows a scheme, in letters of any case.
fn after<'a>(url: &'a str, scheme: &str) -> Option<&'a str> {
    let (start, rest) = url.split_at_checked(scheme.len())?;
    start.eq_ignore_ascii_case(scheme).then_some(rest)
}

/// The bytes of a data URL, from behind its scheme.
fn data_url(data: &str, limits: &Limits) -> Result<Vec<u8>, ImageFault> {
    let (kind, data) = data
        .split_once(',')
        .ok_or(ImageFault::DataUrlWithoutComma)?;
    let is_base64 = kind
        .rsplit(';')
        .next()
        .is_some_and(|last| last.trim_ascii().eq_ignore_ascii_case("base64"));
    if is_base64 {
        return base64_bytes(data, limits);
    }
    // Each byte of the text is at least a third of a byte of the file.
    limits.check_bytes((data.len() as u64).div_ceil(3))?;
    let bytes: Vec<u8> = Unescaped(data.as_bytes()).collect();
    limits.check_bytes(bytes.len() as u64)?;
    Ok(bytes)
}

fn base64_bytes(text: &str, limits: &Limits) -> Result<Vec<u8>, ImageFault> {
    let characters = || {
        Unescaped(text.as_bytes())
            .filter(|byte| !byte.is_ascii_whitespace())
            .map(|byte| match byte {
                b'-' => b'+',
                b'_' => b'/',
                byte => byte,
            })
    };
    // Counted before anything is allocated: four characters are three bytes.
    let count = characters().take_while(|&byte| byte != b'=').count() as u64;
    limits.check_bytes(count * 3 / 4)?;
    let mut clean = Vec::with_capacity(count as usize + 2);
    clean.extend(characters().take(count as usize + 2));
    if clean.len() == count as usize + 2 && characters().nth(clean.len()).is_some() {
        let reason = "characters follow its end".to_owned();
        return Err(ImageFault::Base64 { reason });
    }
    let bytes = ENGINE.decode(&clean).map_err(|error| ImageFault::Base64 {
        reason: reason(&error),
    })?;
    limits.check_bytes(bytes.len() as u64)?;
    Ok(bytes)
}

/// A fault of base64, in words.
fn reason(error: &base64::DecodeError) -> String {
    match error {
        base64::DecodeError::InvalidByte(at, byte) => {
            let byte = byte.escape_ascii();
            format!("character {} is `{byte}`", at + 1)
        }
        _ => "its length is not that of any bytes, so it has been cut".to_owned(),
    }
}

/// Bytes of a text with its percent escapes undone. A percent sign without two digits stands for itself.
struct Unescaped<'a>(&'a [u8]);

impl Iterator for Unescaped<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        if let [b'%', high, low, rest @ ..] = self.0
            && let (Some(high), Some(low)) = (digit(*high), digit(*low))
        {
            self.0 = rest;
            return Some((high * 16 + low) as u8);
        }
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }
}
