// Weights of each format: a unit of 16 as four vectors of levels, and scale and shift. `unit` needs the constants
// `LOW_ROW`, `HIGH_ROW` and `SCALE_ROW` of the parameters.

// section common
struct Unit {
  a: vec4<f32>,
  b: vec4<f32>,
  c: vec4<f32>,
  d: vec4<f32>,
  scale: f32,
  shift: f32,
}

// Levels of four inputs.
fn quad_of(w: Unit, quad: u32) -> vec4<f32> {
  return select(select(w.a, w.b, quad == 1u), select(w.c, w.d, quad == 3u), quad >= 2u);
}

// A sum with the product of a unit: levels times inputs, and the inputs, each in four parts.
fn with_product(w: Unit, product: vec4<f32>, inputs: vec4<f32>, sum: f32) -> f32 {
  let scaled = fma(w.scale, (product.x + product.y) + (product.z + product.w), sum);
  if (!HAS_SHIFT) {
    return scaled;
  }
  return fma(w.shift, (inputs.x + inputs.y) + (inputs.z + inputs.w), scaled);
}

// section f32
@group(0) @binding(0) var<storage, read> low: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> high: array<u32>;
@group(0) @binding(2) var<storage, read> scales: array<u32>;
fn prepare(lid: u32) {}
fn unit(row: u32, u: u32) -> Unit {
  let at = row * p.low_row + u * 4u;
  return Unit(low[at], low[at + 1u], low[at + 2u], low[at + 3u], 1.0, 0.0);
}

// section f16
@group(0) @binding(0) var<storage, read> low: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> high: array<u32>;
@group(0) @binding(2) var<storage, read> scales: array<u32>;
fn prepare(lid: u32) {}
fn pairs(x: u32, y: u32) -> vec4<f32> {
  return vec4<f32>(unpack2x16float(x), unpack2x16float(y));
}
fn unit(row: u32, u: u32) -> Unit {
  let at = row * p.low_row + u * 2u;
  let x = low[at];
  let y = low[at + 1u];
  return Unit(pairs(x.x, x.y), pairs(x.z, x.w), pairs(y.x, y.y), pairs(y.z, y.w), 1.0, 0.0);
}

// section bf16
@group(0) @binding(0) var<storage, read> low: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> high: array<u32>;
@group(0) @binding(2) var<storage, read> scales: array<u32>;
fn prepare(lid: u32) {}
fn pairs(x: u32, y: u32) -> vec4<f32> {
  return bitcast<vec4<f32>>(vec4<u32>(x << 16u, x & 0xffff0000u, y << 16u, y & 0xffff0000u));
}
fn unit(row: u32, u: u32) -> Unit {
  let at = row * p.low_row + u * 2u;
  let x = low[at];
  let y = low[at + 1u];
  return Unit(pairs(x.x, x.y), pairs(x.z, x.w), pairs(y.x, y.y), pairs(y.z, y.w), 1.0, 0.0);
}

// section quants
@group(0) @binding(1) var<storage, read> high: array<u32>;
@group(0) @binding(2) var<storage, read> scales: array<u32>;
fn unit(row: u32, u: u32) -> Unit {
  let q = low_quads(row * p.low_row + u) | high_quads(row * p.high_row, u);
  let s = scale_and_shift(row * p.scale_row, u);
  return Unit(levels(q.x), levels(q.y), levels(q.z), levels(q.w), s.x, s.y);
}

// section low2
@group(0) @binding(0) var<storage, read> low: array<u32>;
fn low_quads(at: u32) -> vec4<u32> {
  return (vec4<u32>(low[at]) >> vec4<u32>(0u, 2u, 4u, 6u)) & vec4<u32>(0x03030303u);
}

// section low4
@group(0) @binding(0) var<storage, read> low: array<vec2<u32>>;
fn low_quads(at: u32) -> vec4<u32> {
  return (low[at].xxyy >> vec4<u32>(0u, 4u, 0u, 4u)) & vec4<u32>(0x0f0f0f0fu);
}

// section low8
@group(0) @binding(0) var<storage, read> low: array<vec4<u32>>;
fn low_quads(at: u32) -> vec4<u32> {
  return low[at];
}

// section high0
fn high_quads(row: u32, u: u32) -> vec4<u32> {
  return vec4<u32>(0u);
}

// section high1
fn high_quads(row: u32, u: u32) -> vec4<u32> {
  let word = vec4<u32>(high[row + (u >> 1u)] >> ((u & 1u) * 4u));
  return ((word >> vec4<u32>(0u, 1u, 2u, 3u)) & vec4<u32>(0x01010101u)) << vec4<u32>(LOW_BITS);
}

// section high2
fn high_quads(row: u32, u: u32) -> vec4<u32> {
  let word = vec4<u32>(high[row + u]);
  return ((word >> vec4<u32>(0u, 2u, 4u, 6u)) & vec4<u32>(0x03030303u)) << vec4<u32>(LOW_BITS);
}

// section even
fn prepare(lid: u32) {}
fn levels(q: u32) -> vec4<f32> {
  return vec4<f32>(unpack4xU8(q)) - vec4<f32>(ZERO);
}

// section table
// The levels that quants stand for; four bytes in each word of the constants.
var<workgroup> level_table: array<f32, 16>;
fn prepare(lid: u32) {
  if (lid < 16u) {
    let word = select(
      select(LEVELS_A, LEVELS_B, lid >= 4u),
      select(LEVELS_C, LEVELS_D, lid >= 12u),
      lid >= 8u,
    );
    level_table[lid] = f32((word >> ((lid & 3u) * 8u)) & 0xffu) - ZERO;
  }
  workgroupBarrier();
}
fn levels(q: u32) -> vec4<f32> {
  let at = unpack4xU8(q);
  return vec4<f32>(level_table[at.x], level_table[at.y], level_table[at.z], level_table[at.w]);
}

// section byte
fn signed_byte(word: u32, index: u32) -> f32 {
  return f32(bitcast<i32>(word << (24u - (index & 3u) * 8u)) >> 24u);
}
fn unsigned_byte(word: u32, index: u32) -> u32 {
  return (word >> ((index & 3u) * 8u)) & 0xffu;
}

// section plain
fn scale_and_shift(row: u32, u: u32) -> vec2<f32> {
  let block = u >> 1u;
  return vec2<f32>(half(scales[row + (block >> 1u)] >> ((block & 1u) * 16u)), 0.0);
}

// section plain_min
fn scale_and_shift(row: u32, u: u32) -> vec2<f32> {
  let word = scales[row + (u >> 1u)];
  return vec2<f32>(half(word), half(word >> 16u));
}

// section power
// The two smallest powers, which are no normal numbers, count as zero.
fn scale_and_shift(row: u32, u: u32) -> vec2<f32> {
  let block = u >> 1u;
  let exponent = unsigned_byte(scales[row + (block >> 2u)], block);
  return vec2<f32>(bitcast<f32>((max(exponent, 1u) - 1u) << 23u), 0.0);
}

// section super32
fn scale_and_shift(row: u32, u: u32) -> vec2<f32> {
  let at = row + (u >> 4u) * 3u;
  let sub = (u >> 1u) & 7u;
  return vec2<f32>(half(scales[at]) * signed_byte(scales[at + 1u + (sub >> 2u)], sub) * SCALE_UNIT, 0.0);
}

// section super16
fn scale_and_shift(row: u32, u: u32) -> vec2<f32> {
  let at = row + (u >> 4u) * 5u;
  let sub = u & 15u;
  return vec2<f32>(half(scales[at]) * signed_byte(scales[at + 1u + (sub >> 2u)], sub) * SCALE_UNIT, 0.0);
}

// section super_min16
fn scale_and_shift(row: u32, u: u32) -> vec2<f32> {
  let at = row + (u >> 4u) * 5u;
  let sub = u & 15u;
  let both = unsigned_byte(scales[at + 1u + (sub >> 2u)], sub);
  let factors = scales[at];
  return vec2<f32>(half(factors) * f32(both & 15u), -half(factors >> 16u) * f32(both >> 4u));
}

// section super_min32
fn scale_and_shift(row: u32, u: u32) -> vec2<f32> {
  let at = row + (u >> 4u) * 5u;
  let sub = (u >> 1u) & 7u;
  let word = at + 1u + (sub >> 2u);
  let factors = scales[at];
  return vec2<f32>(
    half(factors) * f32(unsigned_byte(scales[word], sub)),
    -half(factors >> 16u) * f32(unsigned_byte(scales[word + 2u], sub)),
  );
}
