//! Colors to RGB of 8 bits, with the arithmetic of Pillow: alpha over white, CMYK.

/// `a · b / 255`, rounded.
fn times(a: u8, b: u8) -> u32 {
    let product = u32::from(a) * u32::from(b) + 128;
    (product + (product >> 8)) >> 8
}

/// A value of a channel with the opacity `alpha` over white.
pub(crate) fn over_white(value: u8, alpha: u8) -> u8 {
    let (a, b) = (u32::from(alpha), u32::from(255 - alpha));
    let sum = u32::from(value) * a + 255 * b + 128;
    ((sum + (sum >> 8)) >> 8) as u8
}

/// Turns RGBA into RGB over white in place, and drops what is left behind.
pub(crate) fn rgba_over_white(bytes: &mut Vec<u8>) {
    compact::<4>(bytes, |[red, green, blue, alpha]| {
        [red, green, blue].map(|value| over_white(value, alpha))
    });
}

/// Turns inverted CMYK, as JPEG files have it, into RGB in place.
pub(crate) fn inverted_cmyk_to_rgb(bytes: &mut Vec<u8>) {
    compact::<4>(bytes, |[cyan, magenta, yellow, key]| {
        [cyan, magenta, yellow].map(|ink| {
            let light = u32::from(key);
            light.saturating_sub(times(255 - ink, key)).min(255) as u8
        })
    });
}

/// Turns YCCK into inverted CMYK in place: the first three channels are CMY as Y, Cb and Cr.
pub(crate) fn ycck_to_inverted_cmyk(bytes: &mut [u8]) {
    for pixel in bytes.as_chunks_mut::<4>().0 {
        let [luma, blue, red, key] = *pixel;
        let [r, g, b] = rgb_of_ycc(luma, blue, red);
        *pixel = [255 - r, 255 - g, 255 - b, key];
    }
}

/// RGB of Y, Cb and Cr, with the 16-bit fractions of libjpeg.
fn rgb_of_ycc(luma: u8, blue: u8, red: u8) -> [u8; 3] {
    const HALF: i32 = 1 << 15;
    let (y, cb, cr) = (i32::from(luma), i32::from(blue) - 128, i32::from(red) - 128);
    let clip = |value: i32| value.clamp(0, 255) as u8;
    [
        clip(y + ((91_881 * cr + HALF) >> 16)),
        clip(y + ((-22_554 * cb - 46_802 * cr + HALF) >> 16)),
        clip(y + ((116_130 * cb + HALF) >> 16)),
    ]
}

/// Replaces pixels of `N` bytes by pixels of three, from the front, without a second buffer.
fn compact<const N: usize>(bytes: &mut Vec<u8>, rgb: impl Fn([u8; N]) -> [u8; 3]) {
    let count = bytes.len() / N;
    for pixel in 0..count {
        let from = pixel * N;
        let Some(&old) = bytes[from..].first_chunk::<N>() else {
            break;
        };
        bytes[pixel * 3..pixel * 3 + 3].copy_from_slice(&rgb(old));
    }
    bytes.truncate(count * 3);
    bytes.shrink_to_fit();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opaque_pixels_are_kept_and_transparent_ones_are_white() {
        let mut bytes = vec![1, 2, 3, 255, 9, 9, 9, 0, 0, 255, 100, 128];
        rgba_over_white(&mut bytes);
        assert_eq!(bytes, [1, 2, 3, 255, 255, 255, 127, 255, 177]);
    }

    #[test]
    fn ink_and_key_darken() {
        let mut bytes = vec![255, 255, 255, 255, 255, 0, 255, 255, 255, 255, 255, 0];
        inverted_cmyk_to_rgb(&mut bytes);
        assert_eq!(bytes, [255, 255, 255, 255, 0, 255, 0, 0, 0]);
    }
}
