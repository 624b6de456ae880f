//! Keys of images: equal keys mean equal rows.

use crate::plan::{Canvas, Plan, Step, Tile};
use crate::resize::Filter;
use crate::size::{Area, Grid, Size};
use sha2::{Digest, Sha256};

/// The version of everything between the bytes of a file and the pixels that a tower sees. It changes with every change
/// that changes a pixel, so that stored keys of another version are not found.
pub const PREPROCESS_VERSION: u32 = 1;

/// What a key begins with, so that it equals no hash of anything else.
const DOMAIN: &[u8] = b"millrace image\0";

/// First bytes of the key of a view.
const VIEW_DOMAIN: &[u8] = b"millrace view\0";

/// The SHA-256 of a file, its name where files are kept.
#[must_use]
pub fn file_digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// The identity of an image for one tower and plan: 256 bits, never shortened, since two images with one key would share
/// their rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ImageKey([u8; 32]);

impl ImageKey {
    /// The key of a file for a tower with this fingerprint and under this plan.
    #[must_use]
    pub fn new(file_digest: &[u8; 32], tower_fingerprint: &[u8], plan: &Plan) -> Self {
        let mut hash = Hash(Sha256::new_with_prefix(DOMAIN));
        hash.number(PREPROCESS_VERSION);
        hash.0.update(file_digest);
        hash.number(tower_fingerprint.len() as u32);
        hash.0.update(tower_fingerprint);
        hash.plan(plan);
        Self(hash.0.finalize().into())
    }

    /// The key of one of the image's views, which has its own run of rows: `view` counts from zero.
    #[must_use]
    pub fn of_view(&self, view: u32) -> Self {
        let mut hash = Hash(Sha256::new_with_prefix(VIEW_DOMAIN));
        hash.0.update(self.0);
        hash.number(view);
        Self(hash.0.finalize().into())
    }

    /// All bytes of the key.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// A hash of numbers of fixed width; lists have their length before them, so that no two plans write the same bytes.
struct Hash(Sha256);

impl Hash {
    fn number(&mut self, number: u32) {
        self.0.update(number.to_le_bytes());
    }

    fn numbers<const N: usize>(&mut self, numbers: [u32; N]) {
        numbers.into_iter().for_each(|number| self.number(number));
    }

    fn plan(&mut self, plan: &Plan) {
        let Plan {
            canvases,
            grid,
            rows,
        } = plan;
        self.grid(*grid);
        self.number(*rows);
        self.number(canvases.len() as u32);
        for Canvas { steps, tiles } in canvases {
            self.number(steps.len() as u32);
            steps.iter().for_each(|step| self.step(step));
            self.number(tiles.len() as u32);
            for tile in tiles {
                let Tile {
                    area,
                    patches,
                    merged,
                    rows: _, // follows from the tower and the rows of the plan
                } = *tile;
                self.area(area);
                self.grid(patches);
                self.grid(merged);
            }
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Resize { to, filter } => {
                let filter = match filter {
                    Filter::Bilinear => 0,
                    Filter::Bicubic => 1,
                    Filter::Lanczos => 2,
                };
                self.numbers([0, filter]);
                self.size(to);
            }
            Step::Crop(area) => {
                self.number(1);
                self.area(area);
            }
            Step::Pad { to, x, y, color } => {
                self.numbers([2, x, y]);
                self.size(to);
                self.numbers(color.map(u32::from));
            }
            Step::Thin { to, every, keep } => {
                self.numbers([3, every, keep]);
                self.size(to);
            }
        }
    }

    fn area(&mut self, area: Area) {
        self.numbers([area.x, area.y]);
        self.size(area.size);
    }

    fn size(&mut self, size: Size) {
        self.numbers([size.width, size.height]);
    }

    fn grid(&mut self, grid: Grid) {
        self.numbers([grid.rows, grid.columns]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Fit, Square};

    fn plan(edge: u32, filter: Filter, fit: Fit) -> Plan {
        let square = Square {
            edge,
            patch: 14,
            pool: 4,
            filter,
            fit,
        };
        square.plan(Size::new(640, 480)).expect("a plan")
    }

    #[test]
    fn all_that_shapes_rows_changes_the_key() {
        let file = file_digest(b"a file");
        let usual = plan(896, Filter::Bilinear, Fit::Stretch);
        let keys = [
            ImageKey::new(&file, b"tower", &usual),
            ImageKey::new(&file_digest(b"another"), b"tower", &usual),
            ImageKey::new(&file, b"towers", &usual),
            ImageKey::new(&file, b"", &usual),
            ImageKey::new(&file, b"tower", &plan(448, Filter::Bilinear, Fit::Stretch)),
            ImageKey::new(&file, b"tower", &plan(896, Filter::Bicubic, Fit::Stretch)),
            ImageKey::new(&file, b"tower", &plan(896, Filter::Bilinear, Fit::Crop)),
            ImageKey::new(
                &file,
                b"tower",
                &plan(896, Filter::Bilinear, Fit::Pad([0; 3])),
            ),
            ImageKey::new(
                &file,
                b"tower",
                &plan(896, Filter::Bilinear, Fit::Pad([1; 3])),
            ),
        ];
        for (index, key) in keys.iter().enumerate() {
            assert!(!keys[..index].contains(key), "{index}");
        }
        let again = ImageKey::new(&file, b"tower", &usual);
        assert_eq!(again.bytes(), keys[0].bytes());
    }

    /// Keys are stored: another key for an old plan is another version.
    #[test]
    fn keys_are_those_of_the_version() {
        let plan = plan(896, Filter::Bilinear, Fit::Stretch);
        let key = ImageKey::new(&file_digest(b"a file"), b"tower", &plan);
        let hex: String = key
            .bytes()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(
            (PREPROCESS_VERSION, hex.as_str()),
            (
                1,
                "bad5b9180cf806e7e359d79b4faaf3ef97423a18fda5475d0b3d9a1223b967d6"
            )
        );
    }

    #[test]
    fn the_digest_is_that_of_other_tools() {
        let expected = [
            0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40, 0xde, 0x5d, 0xae,
            0x22, 0x23, 0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17, 0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61,
            0xf2, 0x00, 0x15, 0xad,
        ];
        assert_eq!(file_digest(b"abc"), expected);
    }
}
