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
  adjusted: u32,    // floats before the adjusted rows
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
@group(0) @binding(1) var<storage, read_write> logits: array<f32>;

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
  let to = p.adjusted + slot * p.row;
  for (var col = begin + lid; col < end; col += THREADS) {
    let x = select(IMPOSSIBLE, values[col - begin], is_allowed(allowed, col));
    logits[to + col] = select(x, bitcast<f32>(p.nan), is_broken);
  }
}

// section choose
// Filters and the draw: outcome 0 with a token, 1 where none is possible, 2 where a logit is not finite. Then what
// log-probabilities are computed of: the largest logit, the mass of all, and the largest logits with their tokens.
//
// Compilers copy a function to each of its calls, so the long ones have one call each, in a loop over what is to be done.
var<workgroup> words: array<u32, DRAW_WORDS>;
var<workgroup> chosen: u32;
var<workgroup> chosen_thread: u32;
var<workgroup> mass_before: vec2<u32>;
var<workgroup> kept: atomic<u32>;
var<workgroup> kept_value: array<f32, ALTERNATIVES_MAX>;
var<workgroup> kept_id: array<u32, ALTERNATIVES_MAX>;

// The next stage of a row.
const CUT_VALUES: u32 = 0u;
const CUT_WEIGHTS: u32 = 1u;
const OF_ALL: u32 = 2u;
const OF_BLOCK: u32 = 3u;

// The token at a part of the mass among 1024 of them, of which those before have a mass.
fn token_within(begin: u32, before: vec2<u32>, target_mass: vec2<u32>, lid: u32) -> u32 {
  workgroupBarrier();
  let mine = begin + lid;
  var x = vec4<f32>(IMPOSSIBLE);
  if (mine < fours()) {
    x = four(mine);
  }
  var sum = vec2<u32>(0u);
  for (var i = 0u; i < rolled(4u); i += 1u) {
    sum = add(sum, mass_of(kept_weight(x[i], 4u * mine + i)));
  }
  sums[lid] = sum;
  workgroupBarrier();
  if (lid == 0u) {
    chosen = p.cols - 1u;
    chosen_thread = NONE;
    mass_before = before;
    for (var thread = 0u; thread < rolled(THREADS); thread += 1u) {
      let after = add(mass_before, sums[thread]);
      if (is_less(target_mass, after)) {
        chosen_thread = thread;
        break;
      }
      mass_before = after;
    }
  }
  workgroupBarrier();
  if (lid == chosen_thread) {
    var after = mass_before;
    var i = 0u;
    for (; i < rolled(3u); i += 1u) {
      after = add(after, mass_of(kept_weight(x[i], 4u * mine + i)));
      if (is_less(target_mass, after)) {
        break;
      }
    }
    chosen = 4u * mine + i;
  }
  workgroupBarrier();
  return chosen;
}

// Where a draw is, and what it is for.
struct Search {
  turn: u32,
  begin: u32,       // fours whose mass is next
  size: u32,
  before: vec2<u32>,
  target_mass: vec2<u32>,
}

// The next block of 16384 tokens, then of 1024, of which one has the target.
fn next_block(search: Search, mass: vec2<u32>) -> Search {
  var next = search;
  let after = add(search.before, mass);
  if (is_less(search.target_mass, after)) {
    next.size /= 16u;
  } else {
    next.before = after;
    next.begin += search.size;
  }
  return next;
}

// Cuts by value, then by weight, and the mass of what is kept; if `draws_token` the token at the quantile, else the mass and the
// largest values, `count` of them.
fn search_row(draws_token: bool, count: u32, lid: u32) -> u32 {
  let rest = bitcast<f32>(words[TOP_P_REST]);
  let min_p = bitcast<f32>(words[MIN_P]);
  let cuts_values = count != 0u && (count < p.cols || !draws_token);
  var search = Search(select(OF_ALL, CUT_VALUES, draws_token), 0u, fours(), vec2<u32>(0u), vec2<u32>(0u));
  loop {
    // The last block that is left has the target.
    while (search.turn == OF_BLOCK && search.size >= THREADS && search.begin + search.size >= fours()) {
      search.size /= 16u;
    }
    if (search.turn == OF_BLOCK && search.size < THREADS) {
      break;
    }
    var mass = vec2<u32>(0u);
    if (search.turn != CUT_VALUES) {
      mass = mass_between(search.begin, search.begin + search.size, lid);
    }
    if (search.turn == OF_BLOCK) {
      search = next_block(search, mass);
      continue;
    }
    if (search.turn == OF_ALL) {
      if (draws_token) {
        search.target_mass = part_of(mass, vec2<u32>(words[QUANTILE], words[QUANTILE + 1u])).xy;
        search.turn = OF_BLOCK;
        search.size = rolled(16u * THREADS);
        continue;
      }
      if (lid == 0u) {
        write_mass(mass);
      }
      search.turn = CUT_VALUES;
    }
    var wanted = vec2<u32>(0u, count);
    var mode = BY_VALUE;
    var cuts = cuts_values;
    if (search.turn == CUT_WEIGHTS) {
      let part = part_of(mass, vec2<u32>(words[TOP_P], words[TOP_P + 1u]));
      // All tokens below an even share of the rest have together less than the rest.
      let whole = f32(mass.x) / 4096.0;
      least_weight = max(rest * whole / f32(select(p.cols, count, cuts_values)), min_p);
      mode = BY_WEIGHT;
      wanted = add(part.xy, vec2<u32>(0u, part.z));
      cuts = true;
    } else if (cuts) {
      set_least_value(count, lid);
    }
    if (cuts) {
      let cut = cut_at(mode, wanted, lid);
      if (mode == BY_WEIGHT) {
        weight_cut = cut;
      } else {
        least_value = NEVER;
        value_cut = cut;
      }
    }
    if (!draws_token) {
      return 0u;
    }
    search.turn = select(OF_ALL, CUT_WEIGHTS, search.turn == CUT_VALUES && rest > 0.0);
    if (search.turn == OF_ALL) {
      least_weight = max(least_weight, min_p);
    }
  }
  return token_within(search.begin, search.before, search.target_mass, lid);
}

fn write_mass(mass: vec2<u32>) {
  let at = words[NUMBER] * RESULT_WORDS;
  results[at + 3u] = bitcast<u32>(most);
  results[at + 4u] = mass.x;
  results[at + 5u] = mass.y;
  results[at + 6u] = 0u;
}

fn write_token(outcome: u32, found: u32) {
  let number = words[NUMBER];
  let at = number * RESULT_WORDS;
  let token = select(0u, min(found, p.cols - 1u), outcome == 0u);
  results[at] = outcome;
  results[at + 1u] = token;
  results[at + 2u] = bitcast<u32>(logits[words[ROW] * (p.row / 4u) + token / 4u][token % 4u]);
  tokens[number] = token;
}

// Lists the kept values, the largest first.
fn write_kept(lid: u32) {
  if (lid == 0u) {
    atomicStore(&kept, 0u);
  }
  workgroupBarrier();
  for (var u = lid; u < fours(); u += THREADS) {
    let x = four(u);
    for (var i = 0u; i < rolled(4u); i += 1u) {
      if (x[i] > NEVER && is_above(value_cut, key_of(x[i]), 4u * u + i)) {
        let at = atomicAdd(&kept, 1u);
        if (at < ALTERNATIVES_MAX) {
          kept_value[at] = x[i];
          kept_id[at] = 4u * u + i;
        }
      }
    }
  }
  workgroupBarrier();
  let at = words[NUMBER] * RESULT_WORDS;
  let found = min(atomicLoad(&kept), ALTERNATIVES_MAX);
  if (lid < found) {
    let value = kept_value[lid];
    let id = kept_id[lid];
    var rank = 0u;
    for (var i = 0u; i < found; i += 1u) {
      rank += u32(kept_value[i] > value || (kept_value[i] == value && kept_id[i] < id));
    }
    results[at + 8u + 2u * rank] = id;
    results[at + 9u + 2u * rank] = bitcast<u32>(value);
  }
  if (lid == 0u) {
    results[at + 6u] = found;
  }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  if (lid < DRAW_WORDS) {
    words[lid] = draws[(p.first + block.x) * DRAW_WORDS + lid];
  }
  workgroupBarrier();
  let row = words[ROW] * (p.row / 4u);
  let slot = words[SLOT];
  let alternatives = min(words[ALTERNATIVES], p.cols);
  // The token, then log-probabilities if they are wanted.
  for (var turn = 0u; turn < rolled(select(2u, 1u, words[ALTERNATIVES] == NONE)); turn += 1u) {
    let draws_token = turn == 0u;
    workgroupBarrier();
    if (draws_token && slot != NONE) {
      begin_row((p.adjusted + slot * p.row) / 4u, bitcast<f32>(words[TEMPERATURE]));
    } else {
      begin_row(row, select(1.0, bitcast<f32>(words[TEMPERATURE]), draws_token));
    }
    let largest_token = find_largest(lid);
    let is_broken = atomicLoad(&any_nan) != 0u;
    let searches = !draws_token || (!is_broken && most > NEVER && temperature > 0.0);
    var token = largest_token;
    if (searches) {
      let found = search_row(draws_token, select(alternatives, words[TOP_K], draws_token), lid);
      token = found;
    }
    if (draws_token) {
      if (lid == 0u) {
        write_token(select(select(0u, 1u, !(most > NEVER)), 2u, is_broken), token);
      }
    } else if (alternatives != 0u && largest_token != NONE && !is_broken) {
      write_kept(lid);
    }
  }
}
