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

// section choose
// Filters and the draw: outcome 0 with a token, 1 where none is possible, 2 where a logit is not finite.
var<workgroup> chosen: u32;

fn filter_tokens(draw: u32, lid: u32) {
  let top_k = draws[draw + TOP_K];
  let min_p = float_word(draw + MIN_P);
  let rest = float_word(draw + TOP_P_REST);
  var count = p.cols;
  // By value, then by weight: a loop, since compilers copy `cut_at` to each of its calls.
  for (var stage = 0u; stage < rolled(2u); stage += 1u) {
    var mode = BY_VALUE;
    var wanted = vec2<u32>(0u, top_k);
    if (stage == 0u) {
      if (top_k == 0u || top_k >= p.cols) {
        continue;
      }
      count = top_k;
      set_least_value(top_k, lid);
    } else {
      if (!(rest > 0.0)) {
        break;
      }
      let mass = mass_between(0u, fours(), lid);
      let part = part_of(mass, two_words(draw + TOP_P));
      // All tokens below an even share of the rest have together less than the rest.
      let whole = f32(mass.x) / 4096.0;
      least_weight = max(rest * whole / f32(count), min_p);
      mode = BY_WEIGHT;
      wanted = add(part.xy, vec2<u32>(0u, part.z));
    }
    let cut = cut_at(mode, wanted, lid);
    if (stage == 0u) {
      least_value = NEVER;
      value_cut = cut;
    } else {
      weight_cut = cut;
    }
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
    token = select(0u, min(token, p.cols - 1u), outcome == 0u);
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
  set_least_value(count, lid);
  let cut = cut_at(BY_VALUE, vec2<u32>(0u, count), lid);
  least_value = NEVER;
  value_cut = cut;
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
