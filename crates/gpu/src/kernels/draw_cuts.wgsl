// Whole numbers of 64 bits, weights, and cuts: what choosing a token and finding the most likely ones have in common.

@group(0) @binding(0) var<storage, read> draws: array<u32>;
@group(0) @binding(1) var<storage, read> logits: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> results: array<u32>;
@group(0) @binding(3) var<storage, read_write> tokens: array<u32>;

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
  let x = logits[first_four + u];
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
  var cut = Cut(0u, NONE);
  var by = mode;
  var left = wanted;
  // The key, then the id among those that have it: a loop, since compilers copy `find` to each of its calls.
  for (var step = 0u; step < rolled(2u); step += 1u) {
    let found = find(by, left, cut.key, lid);
    if (step == 1u) {
      cut.last = ~found.key;
      break;
    }
    if (!found.reached) {
      break;
    }
    cut.key = found.key;
    let each = select(vec2<u32>(0u, 1u), mass_of(bitcast<f32>(found.key)), mode == BY_WEIGHT);
    let count = count_to(found.left, each);
    if (!is_less(times(each, count), found.mass)) {
      break;
    }
    by = select(BY_ID_OF_VALUE, BY_ID_OF_WEIGHT, mode == BY_WEIGHT);
    left = vec2<u32>(0u, count);
  }
  return cut;
}

// A lower bound of the `count` largest values.
fn set_least_value(count: u32, lid: u32) {
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
  // All threads add alike: whole numbers have one sum in every order.
  var all = vec2<u32>(0u);
  for (var thread = 0u; thread < rolled(THREADS); thread += 1u) {
    all = add(all, sums[thread]);
  }
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
    for (var i = 0u; i < rolled(4u); i += 1u) {
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
fn begin_row(begin: u32, row_temperature: f32) {
  first_four = begin;
  temperature = row_temperature;
  least_value = NEVER;
  least_weight = 0.0;
  value_cut = Cut(0u, NONE);
  weight_cut = Cut(0u, NONE);
}
