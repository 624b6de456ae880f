//! Sizes of runs of pages.

/// Tokens of a run, unless a page has more or [`RUN_BYTES`] hold fewer.
pub(super) const RUN_TOKENS: usize = 256;

/// Bytes of a run's pages, unless one page has more: what the engine thread copies at a time.
pub(super) const RUN_BYTES: usize = 16 << 20;

/// Bytes of a file before the tokens: magic, version, number of the run, identity, root, number of tokens.
pub(super) const HEAD_BYTES: usize = 8 + 4 + 4 + 16 + ROOT_BYTES + 4;

/// Bytes of a prefix's root: the salt, and number and scale of each adapter.
pub(super) const ROOT_BYTES: usize = 16 + model::adapters::SEQUENCE_ADAPTERS_MAX * 8;

/// Bytes of the checksum at the end of a file.
pub(super) const CHECKSUM_BYTES: usize = 4;

/// Sizes of the runs of one model; constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunShape {
    /// Tokens of a page.
    pub(super) page_tokens: usize,
    /// Bytes of a page outside the model.
    pub(super) page_bytes: usize,
    /// Pages of a run.
    pub(super) pages: usize,
}

impl RunShape {
    pub(super) fn new(page_tokens: usize, page_bytes: usize) -> Self {
        let pages = (RUN_TOKENS / page_tokens).min(RUN_BYTES / page_bytes);
        Self {
            page_tokens,
            page_bytes,
            pages: pages.max(1),
        }
    }

    /// Tokens of a run.
    pub(super) fn tokens(&self) -> usize {
        self.pages * self.page_tokens
    }

    /// Bytes of a run's pages.
    pub(super) fn bytes(&self) -> usize {
        self.pages * self.page_bytes
    }

    /// Bytes of the file of the run with this number in its prefix.
    pub(super) fn file_bytes(&self, run: u32) -> u64 {
        let tokens = (u64::from(run) + 1) * self.tokens() as u64;
        let rest = HEAD_BYTES + self.bytes() + CHECKSUM_BYTES;
        tokens * size_of::<u32>() as u64 + rest as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_has_its_tokens_unless_pages_are_large() {
        // (tokens and bytes of a page, pages of a run)
        let rows = [
            (32, 1 << 20, 8),
            (32, 4 << 20, 4),
            (32, 32 << 20, 1),
            (512, 1024, 1),
            (4, 48, 64),
        ];
        for (page_tokens, page_bytes, pages) in rows {
            let shape = RunShape::new(page_tokens, page_bytes);
            assert_eq!(shape.pages, pages, "{page_tokens} of {page_bytes} bytes");
        }
    }
}
