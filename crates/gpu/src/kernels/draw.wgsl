// Tokens drawn from rows of logits: a workgroup for each draw, or for each draw and block of columns.
//
// A weight is `e^((logit - largest) / temperature)`, and its mass a whole number of 2^-44: sums of masses are exact, so their
// order is free. What a filter keeps is everything down to a cut: above a key, and of the tokens with this key those up to an
// id. Cuts are found by histograms of the keys' bits, eight bits at a time.

// section draws
struct P {
  batch: Batch,     // of one row
  first: u32,       // the first draw
  heads: u32,       // words before the lists
  cols: u32,
  row: u32,         // floats between rows
  nan: u32,
}
var<immediate> p: P;

const THREADS: u32 = 256u;

// Words of a draw.
const DRAW_WORDS: u32 = 20u;
const ROW: u32 = 0u;
const SLOT: u32 = 1u;           // row of adjusted logits, or NONE
const NUMBER: u32 = 2u;         // of the results
const TEMPERATURE: u32 = 3u;
const TOP_K: u32 = 4u;          // 0: off
const TOP_P: u32 = 5u;          // two words: parts of 2^64
const TOP_P_REST: u32 = 7u;     // 1 - top_p; 0: off
const MIN_P: u32 = 8u;
const QUANTILE: u32 = 9u;       // two words: parts of 2^64
const REPETITION: u32 = 11u;
const FREQUENCY: u32 = 12u;
const PRESENCE: u32 = 13u;
const COUNTS: u32 = 14u;        // place among the lists, and number of pairs
const BIAS: u32 = 16u;          // the same
const ALLOWED: u32 = 18u;       // place among the lists, or NONE
const ALTERNATIVES: u32 = 19u;  // NONE: no log-probabilities either

// In place of the logit of a token that is not allowed; no other is as small.
const IMPOSSIBLE: f32 = -3.4e38;
const NEVER: f32 = -3.3e38;

// section adjust
// Penalties, bias and the set of allowed tokens, to rows of their own.
@group(0) @binding(0) var<storage, read> draws: array<u32>;
@group(0) @binding(1) var<storage, read> logits: array<f32>;
@group(0) @binding(2) var<storage, read_write> adjusted: array<f32>;

const BLOCK: u32 = 1024u;
var<workgroup> values: array<f32, BLOCK>;
var<workgroup> broken: atomic<u32>;

fn penalized(x: f32, generated: u32, draw: u32) -> f32 {
  let repetition = bitcast<f32>(draws[draw + REPETITION]);
  let y = select(x * repetition, x / repetition, x > 0.0);
  let frequency = bitcast<f32>(draws[draw + FREQUENCY]);
  let presence = bitcast<f32>(draws[draw + PRESENCE]);
  return select(y, y - fma(f32(generated), frequency, presence), generated > 0u);
}

fn is_allowed(allowed: u32, col: u32) -> bool {
  return allowed == NONE || (draws[p.heads + allowed + col / 32u] & (1u << (col % 32u))) != 0u;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let draw = (p.first + block.y) * DRAW_WORDS;
  let slot = draws[draw + SLOT];
  if (slot == NONE) {
    return;
  }
  let begin = block.x * BLOCK;
  let end = min(begin + BLOCK, p.cols);
  if (lid == 0u) {
    atomicStore(&broken, 0u);
  }
  workgroupBarrier();
  let from_at = draws[draw + ROW] * p.row;
  for (var col = begin + lid; col < end; col += THREADS) {
    let x = logits[from_at + col];
    values[col - begin] = x;
    if (!is_finite(x)) {
      atomicStore(&broken, 1u);
    }
  }
  workgroupBarrier();
  // Each token is counted once.
  let counts = p.heads + draws[draw + COUNTS];
  for (var i = lid; i < draws[draw + COUNTS + 1u]; i += THREADS) {
    let token = draws[counts + 2u * i];
    if (token >= begin && token < end) {
      values[token - begin] = penalized(values[token - begin], draws[counts + 2u * i + 1u], draw);
    }
  }
  workgroupBarrier();
  // A token may be listed more than once: it belongs to one thread.
  let biases = p.heads + draws[draw + BIAS];
  for (var i = 0u; i < draws[draw + BIAS + 1u]; i += 1u) {
    let token = draws[biases + 2u * i];
    if (token >= begin && token < end && token % THREADS == lid) {
      values[token - begin] += bitcast<f32>(draws[biases + 2u * i + 1u]);
    }
  }
  workgroupBarrier();
  let is_broken = atomicLoad(&broken) != 0u;
  let allowed = draws[draw + ALLOWED];
  let to = slot * p.row;
  for (var col = begin + lid; col < end; col += THREADS) {
    let x = select(IMPOSSIBLE, values[col - begin], is_allowed(allowed, col));
    adjusted[to + col] = select(x, bitcast<f32>(p.nan), is_broken);
  }
}

// section cuts
@group(0) @binding(0) var<storage, read> draws: array<u32>;
@group(0) @binding(1) var<storage, read> logits: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> adjusted: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> results: array<u32>;
@group(0) @binding(4) var<storage, read_write> tokens: array<u32>;

// Words of a result: outcome, token, the token's logit, the largest logit, mass of all logits (two words), number of
// alternatives, nothing; then pairs of a token and its logit.
const RESULT_WORDS: u32 = 136u;
const ALTERNATIVES_MAX: u32 = 64u;

// Everything above `key`, and what has it with ids up to `last`.
struct Cut {
  key: u32,
  last: u32,
}

// The key where as much as wanted is reached, what is left of it there, and the mass of all that have the key.
struct Found {
  reached: bool,
  key: u32,
  left: vec2<u32>,
  mass: vec2<u32>,
}

// How a token is counted: one for each value from `least_value` on, by its mass, or one for each that has a key.
const BY_VALUE: u32 = 0u;
const BY_WEIGHT: u32 = 1u;
const BY_ID_OF_VALUE: u32 = 2u;
const BY_ID_OF_WEIGHT: u32 = 3u;

var<private> first_four: u32;
var<private> is_adjusted: bool;
var<private> most: f32;
var<private> temperature: f32;
var<private> least_value: f32;
var<private> least_weight: f32;
var<private> value_cut: Cut;
var<private> weight_cut: Cut;

var<workgroup> low: array<atomic<u32>, THREADS>;
var<workgroup> high: array<atomic<u32>, THREADS>;
// The digit that was found, what is left, and the mass of the digit.
var<workgroup> found_digit: array<u32, 5>;
var<workgroup> sums: array<vec2<u32>, THREADS>;
var<workgroup> largest: array<f32, THREADS>;
var<workgroup> largest_id: array<u32, THREADS>;
var<workgroup> floor_of_k: f32;
var<workgroup> any_nan: atomic<u32>;

// 64 bits as (high, low).
fn add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let sum = a.y + b.y;
  return vec2<u32>(a.x + b.x + u32(sum < a.y), sum);
}

fn minus(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(a.x - b.x - u32(a.y < b.y), a.y - b.y);
}

fn is_less(a: vec2<u32>, b: vec2<u32>) -> bool {
  return a.x < b.x || (a.x == b.x && a.y < b.y);
}

fn product(a: u32, b: u32) -> vec2<u32> {
  let low_low = (a & 0xffffu) * (b & 0xffffu);
  let low_high = (a & 0xffffu) * (b >> 16u);
  let high_low = (a >> 16u) * (b & 0xffffu);
  let middle = (low_low >> 16u) + (low_high & 0xffffu) + (high_low & 0xffffu);
  let upper = (a >> 16u) * (b >> 16u) + (low_high >> 16u) + (high_low >> 16u) + (middle >> 16u);
  return vec2<u32>(upper, (middle << 16u) | (low_low & 0xffffu));
}

// `mass * part / 2^64`: the whole number, and whether something is cut off.
fn part_of(mass: vec2<u32>, part: vec2<u32>) -> vec3<u32> {
  let low_low = product(mass.y, part.y);
  let low_high = product(mass.y, part.x);
  let high_low = product(mass.x, part.y);
  // Words 1 of the products, then words 2 and 3 with what is carried.
  var carried = add(vec2<u32>(0u, low_low.x), vec2<u32>(0u, low_high.y));
  carried = add(carried, vec2<u32>(0u, high_low.y));
  var whole = product(mass.x, part.x);
  whole = add(whole, vec2<u32>(0u, low_high.x));
  whole = add(whole, vec2<u32>(0u, high_low.x));
  whole = add(whole, vec2<u32>(0u, carried.x));
  return vec3<u32>(whole, u32((carried.y | low_low.y) != 0u));
}

fn times(mass: vec2<u32>, count: u32) -> vec2<u32> {
  return add(product(mass.y, count), vec2<u32>(mass.x * count, 0u));
}

fn mass_of(weight: f32) -> vec2<u32> {
  let scaled = weight * 4096.0;
  let whole = floor(scaled);
  return vec2<u32>(u32(whole), u32((scaled - whole) * 4294967296.0));
}

// `e^x` for `x <= 0`; 0 where the result would not be a normal number.
fn exp_of(x: f32) -> f32 {
  if (!(x > -87.0)) {
    return 0.0;
  }
  let whole = round(x * 1.4426950408889634);
  let r = fma(-whole, -2.1219444e-4, fma(-whole, 0.6933594, x));
  var y = 1.9875691e-4;
  y = fma(y, r, 1.3981999e-3);
  y = fma(y, r, 8.333452e-3);
  y = fma(y, r, 4.1665796e-2);
  y = fma(y, r, 1.6666665e-1);
  y = fma(y, r, 0.5);
  let fraction = fma(y, r * r, r) + 1.0;
  return bitcast<f32>(bitcast<u32>(fraction) + (bitcast<u32>(i32(whole)) << 23u));
}

// A key that rises with the value.
fn key_of(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  return select(bits | 0x80000000u, ~bits, (bits & 0x80000000u) != 0u);
}

fn fours() -> u32 {
  return (p.cols + 3u) / 4u;
}

// Logits 4u to 4u + 3.
fn four(u: u32) -> vec4<f32> {
  var x: vec4<f32>;
  if (is_adjusted) {
    x = adjusted[first_four + u];
  } else {
    x = logits[first_four + u];
  }
  let col = vec4<u32>(4u * u) + vec4<u32>(0u, 1u, 2u, 3u);
  return select(vec4<f32>(IMPOSSIBLE), x, col < vec4<u32>(p.cols));
}

fn is_above(cut: Cut, key: u32, id: u32) -> bool {
  return key > cut.key || (key == cut.key && id <= cut.last);
}

// The weight of a token that all filters keep, else 0.
fn kept_weight(x: f32, id: u32) -> f32 {
  if (!(x > NEVER) || !is_above(value_cut, key_of(x), id)) {
    return 0.0;
  }
  let weight = exp_of((x - most) / temperature);
  return select(0.0, weight, weight >= least_weight && is_above(weight_cut, bitcast<u32>(weight), id));
}

// Counts a token under eight bits of its key, if the bits before are those that were found.
fn tally(mode: u32, x: f32, id: u32, known: vec2<u32>, shift: u32, of_key: u32) {
  var key = key_of(x);
  var mass = vec2<u32>(0u, 1u);
  var counts = x > NEVER && x >= least_value;
  if (mode == BY_ID_OF_VALUE) {
    counts = counts && key == of_key;
    key = ~id;
  } else if (mode != BY_VALUE) {
    let weight = kept_weight(x, id);
    key = bitcast<u32>(weight);
    if (mode == BY_WEIGHT) {
      mass = mass_of(weight);
      counts = weight > 0.0;
    } else {
      counts = weight > 0.0 && key == of_key;
      key = ~id;
    }
  }
  if (!counts || (key & known.y) != known.x) {
    return;
  }
  let digit = (key >> shift) & 255u;
  let before = atomicAdd(&low[digit], mass.y);
  let carried = mass.x + u32(before + mass.y < before);
  if (carried != 0u) {
    atomicAdd(&high[digit], carried);
  }
}

// The digit at which the masses of the digits, from the largest on, reach what is left.
fn find_digit(wanted: vec2<u32>) {
  var left = wanted;
  found_digit[0] = NONE;
  for (var i = 0u; i < rolled(256u); i += 1u) {
    let digit = 255u - i;
    let mass = vec2<u32>(atomicLoad(&high[digit]), atomicLoad(&low[digit]));
    if ((mass.x | mass.y) == 0u) {
      continue;
    }
    if (!is_less(mass, left)) {
      found_digit[0] = digit;
      found_digit[1] = left.x;
      found_digit[2] = left.y;
      found_digit[3] = mass.x;
      found_digit[4] = mass.y;
      break;
    }
    left = minus(left, mass);
  }
}

// Where the masses, from the largest key on, reach what is wanted.
fn find(mode: u32, wanted: vec2<u32>, of_key: u32, lid: u32) -> Found {
  // Bits of the key that are known, and which these are.
  var known = vec2<u32>(0u);
  var found = Found(true, 0u, wanted, vec2<u32>(0u));
  for (var round = 0u; round < rolled(4u); round += 1u) {
    let shift = 24u - 8u * round;
    workgroupBarrier();
    atomicStore(&low[lid], 0u);
    atomicStore(&high[lid], 0u);
    workgroupBarrier();
    for (var u = lid; u < fours(); u += THREADS) {
      let x = four(u);
      for (var i = 0u; i < rolled(4u); i += 1u) {
        tally(mode, x[i], 4u * u + i, known, shift, of_key);
      }
    }
    workgroupBarrier();
    if (lid == 0u) {
      find_digit(found.left);
    }
    workgroupBarrier();
    if (found_digit[0] == NONE) {
      found.reached = false;
      break;
    }
    known = vec2<u32>(known.x | (found_digit[0] << shift), known.y | (255u << shift));
    found.left = vec2<u32>(found_digit[1], found_digit[2]);
    found.mass = vec2<u32>(found_digit[3], found_digit[4]);
  }
  workgroupBarrier();
  found.key = known.x;
  return found;
}

// How many of equal masses reach what is left, at least one.
fn count_to(left: vec2<u32>, each: vec2<u32>) -> u32 {
  let float = vec2<f32>(4294967296.0, 1.0);
  let ratio = dot(vec2<f32>(left), float) / max(dot(vec2<f32>(each), float), 1.0);
  var count = max(u32(min(ratio, 4.0e9)), 1u);
  while (is_less(times(each, count), left)) {
    count += 1u;
  }
  while (count > 1u && !is_less(times(each, count - 1u), left)) {
    count -= 1u;
  }
  return count;
}

// The cut of the fewest tokens that reach what is wanted; of all that count, where they do not.
fn cut_at(mode: u32, wanted: vec2<u32>, lid: u32) -> Cut {
  let found = find(mode, wanted, 0u, lid);
  if (!found.reached) {
    return Cut(0u, NONE);
  }
  var each = vec2<u32>(0u, 1u);
  if (mode == BY_WEIGHT) {
    each = mass_of(bitcast<f32>(found.key));
  }
  let count = count_to(found.left, each);
  if (!is_less(times(each, count), found.mass)) {
    return Cut(found.key, NONE);
  }
  let of_id = select(BY_ID_OF_VALUE, BY_ID_OF_WEIGHT, mode == BY_WEIGHT);
  let last = find(of_id, vec2<u32>(0u, count), found.key, lid);
  return Cut(found.key, ~last.key);
}

// The cut of the `count` largest values.
fn cut_at_count(count: u32, lid: u32) -> Cut {
  // As many values as are wanted are not below the one of this rank among the threads' largest.
  if (count <= THREADS) {
    var rank = 0u;
    let mine = largest[lid];
    for (var i = 0u; i < rolled(THREADS); i += 1u) {
      rank += u32(largest[i] > mine || (largest[i] == mine && i < lid));
    }
    if (rank == count - 1u) {
      floor_of_k = mine;
    }
    workgroupBarrier();
    least_value = floor_of_k;
  }
  let cut = cut_at(BY_VALUE, vec2<u32>(0u, count), lid);
  least_value = NEVER;
  return cut;
}

// The mass of the kept tokens of fours `begin` to `end`.
fn mass_between(begin: u32, end: u32, lid: u32) -> vec2<u32> {
  var sum = vec2<u32>(0u);
  for (var u = begin + lid; u < min(end, fours()); u += THREADS) {
    let x = four(u);
    for (var i = 0u; i < rolled(4u); i += 1u) {
      sum = add(sum, mass_of(kept_weight(x[i], 4u * u + i)));
    }
  }
  workgroupBarrier();
  sums[lid] = sum;
  workgroupBarrier();
  for (var distance = rolled(THREADS / 2u); distance > 0u; distance >>= 1u) {
    if (lid < distance) {
      sums[lid] = add(sums[lid], sums[lid + distance]);
    }
    workgroupBarrier();
  }
  let all = sums[0];
  workgroupBarrier();
  return all;
}

// The largest value of each thread; returns the id of the largest of all, the lowest where equal.
fn find_largest(lid: u32) -> u32 {
  var best = IMPOSSIBLE;
  var id = NONE;
  if (lid == 0u) {
    atomicStore(&any_nan, 0u);
  }
  workgroupBarrier();
  for (var u = lid; u < fours(); u += THREADS) {
    let x = four(u);
    for (var i = 0u; i < 4u; i += 1u) {
      if (is_nan(x[i])) {
        atomicStore(&any_nan, 1u);
      }
      if (x[i] > best) {
        best = x[i];
        id = 4u * u + i;
      }
    }
  }
  largest[lid] = best;
  largest_id[lid] = id;
  workgroupBarrier();
  // All threads compare alike: the largest of each thread are needed later.
  var most_of_all = IMPOSSIBLE;
  var id_of_all = NONE;
  for (var i = 0u; i < rolled(THREADS); i += 1u) {
    let x = largest[i];
    if (x > most_of_all || (x == most_of_all && largest_id[i] < id_of_all)) {
      most_of_all = x;
      id_of_all = largest_id[i];
    }
  }
  most = most_of_all;
  return id_of_all;
}

// Reads a row from here on, without filters.
fn begin_row(adjusted_row: bool, row: u32, row_temperature: f32) {
  is_adjusted = adjusted_row;
  first_four = row * (p.row / 4u);
  temperature = row_temperature;
  least_value = NEVER;
  least_weight = 0.0;
  value_cut = Cut(0u, NONE);
  weight_cut = Cut(0u, NONE);
}

fn float_word(at: u32) -> f32 {
  return bitcast<f32>(draws[at]);
}

fn two_words(at: u32) -> vec2<u32> {
  return vec2<u32>(draws[at], draws[at + 1u]);
}

// section choose
// Filters and the draw: outcome 0 with a token, 1 where none is possible, 2 where a logit is not finite.
var<workgroup> chosen: u32;

fn filter_tokens(draw: u32, lid: u32) {
  let top_k = draws[draw + TOP_K];
  var count = p.cols;
  if (top_k != 0u && top_k < p.cols) {
    value_cut = cut_at_count(top_k, lid);
    count = top_k;
  }
  let min_p = float_word(draw + MIN_P);
  let rest = float_word(draw + TOP_P_REST);
  if (rest > 0.0) {
    let mass = mass_between(0u, fours(), lid);
    let part = part_of(mass, two_words(draw + TOP_P));
    // All tokens below an even share of the rest have together less than the rest.
    let whole = f32(mass.x) / 4096.0;
    least_weight = max(rest * whole / f32(count), min_p);
    weight_cut = cut_at(BY_WEIGHT, add(part.xy, vec2<u32>(0u, part.z)), lid);
  }
  least_weight = max(least_weight, min_p);
}

// The token at a part of the mass, in the order of ids.
fn token_at(target_mass: vec2<u32>, lid: u32) -> u32 {
  var before = vec2<u32>(0u);
  var begin = 0u;
  // Blocks of 16384 tokens, then of 1024.
  for (var size = rolled(16u * THREADS); size >= THREADS; size /= 16u) {
    while (begin + size < fours()) {
      let after = add(before, mass_between(begin, begin + size, lid));
      if (is_less(target_mass, after)) {
        break;
      }
      before = after;
      begin += size;
    }
  }
  workgroupBarrier();
  let mine = begin + lid;
  var sum = vec2<u32>(0u);
  if (mine < fours()) {
    let x = four(mine);
    for (var i = 0u; i < 4u; i += 1u) {
      sum = add(sum, mass_of(kept_weight(x[i], 4u * mine + i)));
    }
  }
  sums[lid] = sum;
  workgroupBarrier();
  if (lid == 0u) {
    chosen = NONE;
    for (var thread = 0u; thread < rolled(THREADS) && chosen == NONE; thread += 1u) {
      let after = add(before, sums[thread]);
      if (is_less(target_mass, after)) {
        chosen = begin + thread;
      } else {
        before = after;
      }
    }
    let x = four(min(chosen, fours() - 1u));
    var i = 0u;
    for (; i < 3u; i += 1u) {
      before = add(before, mass_of(kept_weight(x[i], 4u * chosen + i)));
      if (is_less(target_mass, before)) {
        break;
      }
    }
    chosen = 4u * chosen + i;
  }
  workgroupBarrier();
  return chosen;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let draw = (p.first + block.x) * DRAW_WORDS;
  let row = draws[draw + ROW];
  let slot = draws[draw + SLOT];
  begin_row(slot != NONE, select(slot, row, slot == NONE), float_word(draw + TEMPERATURE));
  var token = find_largest(lid);
  var outcome = select(0u, 1u, !(most > NEVER));
  if (atomicLoad(&any_nan) != 0u) {
    outcome = 2u;
  }
  if (outcome == 0u && temperature > 0.0) {
    filter_tokens(draw, lid);
    let mass = mass_between(0u, fours(), lid);
    let target_mass = part_of(mass, two_words(draw + QUANTILE));
    token = token_at(target_mass.xy, lid);
  }
  if (lid == 0u) {
    let number = draws[draw + NUMBER];
    let at = number * RESULT_WORDS;
    token = select(0u, token, outcome == 0u);
    results[at] = outcome;
    results[at + 1u] = token;
    is_adjusted = false;
    first_four = row * (p.row / 4u);
    results[at + 2u] = bitcast<u32>(four(token / 4u)[token % 4u]);
    tokens[number] = token;
  }
}

// section top
// What log-probabilities are computed of: the largest logit, the mass of all, and the largest logits with their tokens.
var<workgroup> kept: atomic<u32>;
var<workgroup> kept_value: array<f32, ALTERNATIVES_MAX>;
var<workgroup> kept_id: array<u32, ALTERNATIVES_MAX>;

fn collect(lid: u32) {
  for (var u = lid; u < fours(); u += THREADS) {
    let x = four(u);
    for (var i = 0u; i < 4u; i += 1u) {
      if (x[i] > NEVER && is_above(value_cut, key_of(x[i]), 4u * u + i)) {
        let at = atomicAdd(&kept, 1u);
        if (at < ALTERNATIVES_MAX) {
          kept_value[at] = x[i];
          kept_id[at] = 4u * u + i;
        }
      }
    }
  }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let draw = (p.first + block.x) * DRAW_WORDS;
  let alternatives = draws[draw + ALTERNATIVES];
  if (alternatives == NONE) {
    return;
  }
  begin_row(false, draws[draw + ROW], 1.0);
  let id = find_largest(lid);
  let mass = mass_between(0u, fours(), lid);
  let at = draws[draw + NUMBER] * RESULT_WORDS;
  if (lid == 0u) {
    results[at + 3u] = bitcast<u32>(most);
    results[at + 4u] = mass.x;
    results[at + 5u] = mass.y;
    results[at + 6u] = 0u;
    atomicStore(&kept, 0u);
  }
  let count = min(alternatives, p.cols);
  // A row that is not finite has no alternatives.
  if (count == 0u || id == NONE || atomicLoad(&any_nan) != 0u) {
    return;
  }
  value_cut = cut_at_count(count, lid);
  workgroupBarrier();
  collect(lid);
  workgroupBarrier();
  let found = min(atomicLoad(&kept), ALTERNATIVES_MAX);
  if (lid < found) {
    var rank = 0u;
    for (var i = 0u; i < found; i += 1u) {
      let is_larger = kept_value[i] > kept_value[lid];
      rank += u32(is_larger || (kept_value[i] == kept_value[lid] && kept_id[i] < kept_id[lid]));
    }
    results[at + 8u + 2u * rank] = kept_id[lid];
    results[at + 9u + 2u * rank] = bitcast<u32>(kept_value[lid]);
  }
  if (lid == 0u) {
    results[at + 6u] = found;
  }
}
