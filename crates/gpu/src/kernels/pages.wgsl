// Reading of keys and values in pages, for each storage format: eight elements of a key, and four of a value. A page has a block
// for each head: elements of all positions, then their scales.

// section f16
@group(0) @binding(3) var<storage, read> keys: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> values: array<vec2<u32>>;

fn key_eight(place: Place, d: u32) -> Eight {
  let key = keys[place.row / 4u + d];
  let a = vec4<f32>(unpack2x16float(key.x), unpack2x16float(key.y));
  let b = vec4<f32>(unpack2x16float(key.z), unpack2x16float(key.w));
  return Eight(a, b);
}

fn value_four(place: Place, column: u32) -> vec4<f32> {
  let pair = values[place.row / 2u + column];
  return vec4<f32>(unpack2x16float(pair.x), unpack2x16float(pair.y));
}

// section q8_0
@group(0) @binding(3) var<storage, read> keys: array<u32>;
@group(0) @binding(4) var<storage, read> values: array<u32>;

fn quants(word: u32) -> vec4<f32> {
  let shifted = vec4<u32>(word << 24u, word << 16u, word << 8u, word);
  return vec4<f32>(bitcast<vec4<i32>>(shifted) >> vec4<u32>(24u));
}

fn key_eight(place: Place, d: u32) -> Eight {
  let group = 8u * d / SCALE_GROUP;
  let scale = scale_of(keys[place.scales + group / 2u], group);
  let at = place.row + 2u * d;
  return Eight(quants(keys[at]) * scale, quants(keys[at + 1u]) * scale);
}

fn value_four(place: Place, column: u32) -> vec4<f32> {
  let group = 4u * column / SCALE_GROUP;
  let scale = scale_of(values[place.scales + group / 2u], group);
  return quants(values[place.row + column]) * scale;
}

// section q4_0
@group(0) @binding(3) var<storage, read> keys: array<u32>;
@group(0) @binding(4) var<storage, read> values: array<u32>;

// Of the low half of a word.
fn quants(word: u32) -> vec4<f32> {
  let shifted = vec4<u32>(word << 28u, word << 24u, word << 20u, word << 16u);
  return vec4<f32>(bitcast<vec4<i32>>(shifted) >> vec4<u32>(28u));
}

fn key_eight(place: Place, d: u32) -> Eight {
  let group = 8u * d / SCALE_GROUP;
  let scale = scale_of(keys[place.scales + group / 2u], group);
  let word = keys[place.row + d];
  return Eight(quants(word) * scale, quants(word >> 16u) * scale);
}

fn value_four(place: Place, column: u32) -> vec4<f32> {
  let group = 4u * column / SCALE_GROUP;
  let scale = scale_of(values[place.scales + group / 2u], group);
  return quants(values[place.row + column / 2u] >> (column % 2u * 16u)) * scale;
}
