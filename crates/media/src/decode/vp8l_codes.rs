//! Bits and prefix codes of lossless WebP.
//!
//! A file may ask for 65,536 groups of five codes, each described in a few bytes, so the memory of all codes of a
//! picture has a bound of its own.

use std::fmt;

/// Bytes that all codes of a picture may take. An encoder's largest pictures need a tenth.
pub(crate) const CODES_BYTES_MAX: usize = 48 << 20;

/// The longest code, in bits.
const LENGTH_MAX: usize = 15;

/// Bits that are looked up at once.
const LOOKUP_BITS: u32 = 8;

/// Symbols of the code that describes lengths of other codes.
const LENGTH_SYMBOLS: usize = 19;

/// The order in which the lengths of that code are stored.
const LENGTH_ORDER: [usize; LENGTH_SYMBOLS] = [
    17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
];

/// Why a lossless picture cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vp8lFault {
    Truncated,
    Codes,
    CodesMemory,
    Transforms,
    Reference,
    Dimensions,
    Deadline,
}

impl fmt::Display for Vp8lFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the file is truncated",
            Self::Codes => "a prefix code is damaged",
            Self::CodesMemory => "the prefix codes need too much memory",
            Self::Transforms => "the transforms are damaged",
            Self::Reference => "a reference leaves the picture",
            Self::Dimensions => "the picture has other dimensions",
            Self::Deadline => "the time is over",
        })
    }
}

/// Bits from the lowest of each byte on.
pub(crate) struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
    held: u64,
    count: u32,
}

impl<'a> Bits<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            held: 0,
            count: 0,
        }
    }

    /// Takes in as many bytes as fit.
    fn fill(&mut self) {
        while self.count <= 56 {
            let Some(&byte) = self.bytes.get(self.at) else {
                break;
            };
            self.held |= u64::from(byte) << self.count;
            self.at += 1;
            self.count += 8;
        }
    }

    /// The next `count` bits, at most 16.
    pub(crate) fn read(&mut self, count: u32) -> Result<u32, Vp8lFault> {
        if self.count < count {
            self.fill();
        }
        let value = (self.held & ((1 << count) - 1)) as u32;
        self.skip(count)?;
        Ok(value)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, Vp8lFault> {
        Ok(self.read(1)? == 1)
    }

    fn skip(&mut self, count: u32) -> Result<(), Vp8lFault> {
        self.count = self.count.checked_sub(count).ok_or(Vp8lFault::Truncated)?;
        self.held >>= count;
        Ok(())
    }
}

/// A canonical prefix code.
pub(crate) struct Code {
    /// Entries for the next 8 bits: length in the upper 4 bits, symbol below; 0 where the code is longer.
    lookup: Vec<u16>,
    /// Codes of each length.
    counts: [u16; LENGTH_MAX + 1],
    /// Symbols in the order of their codes.
    symbols: Vec<u16>,
}

impl Code {
    /// The code whose symbols have these lengths; 0 is no code.
    fn new(lengths: &[u8]) -> Result<Self, Vp8lFault> {
        let mut counts = [0_u16; LENGTH_MAX + 1];
        for &length in lengths {
            counts[usize::from(length)] += 1;
        }
        counts[0] = 0;
        let mut starts = [0_usize; LENGTH_MAX + 2];
        let mut space = 0_u32;
        for length in 1..=LENGTH_MAX {
            starts[length + 1] = starts[length] + usize::from(counts[length]);
            space += u32::from(counts[length]) << (LENGTH_MAX - length);
        }
        let total = starts[LENGTH_MAX + 1];
        let mut symbols = vec![0; total];
        for (symbol, &length) in lengths
            .iter()
            .enumerate()
            .filter(|(_, length)| **length > 0)
        {
            let start = &mut starts[usize::from(length)];
            symbols[*start] = symbol as u16;
            *start += 1;
        }
        match total {
            // A single symbol needs no bits.
            1 => Ok(Self::single(symbols[0])),
            _ if space != 1 << LENGTH_MAX => Err(Vp8lFault::Codes),
            _ => Ok(Self {
                lookup: lookup(&counts, &symbols),
                counts,
                symbols,
            }),
        }
    }

    fn single(symbol: u16) -> Self {
        Self {
            lookup: Vec::new(),
            counts: [0; LENGTH_MAX + 1],
            symbols: vec![symbol],
        }
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + 2 * (self.lookup.len() + self.symbols.len())
    }

    /// The next symbol.
    pub(crate) fn read(&self, bits: &mut Bits<'_>) -> Result<u16, Vp8lFault> {
        if self.lookup.is_empty() {
            return self.symbols.first().copied().ok_or(Vp8lFault::Codes);
        }
        if bits.count < LENGTH_MAX as u32 {
            bits.fill();
        }
        let entry = self.lookup[(bits.held & ((1 << LOOKUP_BITS) - 1)) as usize];
        if entry != 0 {
            bits.skip(u32::from(entry >> 12))?;
            return Ok(entry & 0xfff);
        }
        self.read_bitwise(bits)
    }

    /// Reads bit by bit: the code grows until it is one of its length.
    fn read_bitwise(&self, bits: &mut Bits<'_>) -> Result<u16, Vp8lFault> {
        let (mut code, mut first, mut index) = (0_u32, 0_u32, 0_usize);
        for length in 1..=LENGTH_MAX {
            code = code << 1 | (bits.held >> (length - 1) & 1) as u32;
            let count = u32::from(self.counts[length]);
            if code < first + count {
                bits.skip(length as u32)?;
                let symbol = self.symbols.get(index + (code - first) as usize);
                return symbol.copied().ok_or(Vp8lFault::Codes);
            }
            index += count as usize;
            first = (first + count) << 1;
        }
        Err(Vp8lFault::Codes)
    }
}

/// The table for codes of up to 8 bits. A complete code has no symbol with an entry of 0, as its length is not 0.
fn lookup(counts: &[u16; LENGTH_MAX + 1], symbols: &[u16]) -> Vec<u16> {
    let mut table = vec![0; 1 << LOOKUP_BITS];
    let (mut code, mut index) = (0_u32, 0);
    for length in 1..=LOOKUP_BITS {
        for _ in 0..counts[length as usize] {
            let reversed = (code.reverse_bits() >> (32 - length)) as usize;
            let entry = (length as u16) << 12 | symbols[index];
            for place in (reversed..1 << LOOKUP_BITS).step_by(1 << length) {
                table[place] = entry;
            }
            code += 1;
            index += 1;
        }
        code <<= 1;
    }
    table
}

/// Reads codes, and counts their memory.
#[derive(Default)]
pub(crate) struct CodeReader {
    bytes: usize,
}

impl CodeReader {
    /// Reads the description of a code for `symbols` symbols.
    pub(crate) fn read(&mut self, bits: &mut Bits<'_>, symbols: usize) -> Result<Code, Vp8lFault> {
        let code = if bits.flag()? {
            simple(bits, symbols)?
        } else {
            Code::new(&lengths(bits, symbols)?)?
        };
        self.bytes += code.bytes();
        if self.bytes > CODES_BYTES_MAX {
            return Err(Vp8lFault::CodesMemory);
        }
        Ok(code)
    }
}

/// A code of one or two symbols.
fn simple(bits: &mut Bits<'_>, symbols: usize) -> Result<Code, Vp8lFault> {
    let has_two = bits.flag()?;
    let width = if bits.flag()? { 8 } else { 1 };
    let first = bits.read(width)? as usize;
    let second = if has_two {
        bits.read(8)? as usize
    } else {
        first
    };
    if first.max(second) >= symbols {
        return Err(Vp8lFault::Codes);
    }
    if first == second {
        return Ok(Code::single(first as u16));
    }
    let mut lengths = vec![0; first.max(second) + 1];
    lengths[first] = 1;
    lengths[second] = 1;
    Code::new(&lengths)
}

/// The lengths of a code, which are themselves coded.
fn lengths(bits: &mut Bits<'_>, symbols: usize) -> Result<Vec<u8>, Vp8lFault> {
    let count = 4 + bits.read(4)? as usize;
    let mut of_lengths = [0; LENGTH_SYMBOLS];
    for &place in LENGTH_ORDER.iter().take(count) {
        of_lengths[place] = bits.read(3)? as u8;
    }
    let code = Code::new(&of_lengths)?;
    let mut left = symbols;
    if bits.flag()? {
        let width = 2 + 2 * bits.read(3)?;
        left = 2 + bits.read(width)? as usize;
        if left > symbols {
            return Err(Vp8lFault::Codes);
        }
    }
    let (mut lengths, mut last) = (Vec::with_capacity(symbols), 8);
    while lengths.len() < symbols && left > 0 {
        left -= 1;
        let (length, repeat) = match code.read(bits)? {
            16 => (last, 3 + bits.read(2)?),
            17 => (0, 3 + bits.read(3)?),
            18 => (0, 11 + bits.read(7)?),
            length => (length as u8, 1),
        };
        if length > 0 {
            last = length;
        }
        if lengths.len() + repeat as usize > symbols {
            return Err(Vp8lFault::Codes);
        }
        lengths.extend(std::iter::repeat_n(length, repeat as usize));
    }
    lengths.resize(symbols, 0);
    Ok(lengths)
}
