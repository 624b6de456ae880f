// Experts: the choice of each row, products with the chosen ones, and their sum.

// section route
// Chooses `used` of `count` experts for each row, in ascending order, with their shares: `choices` has (expert, share) pairs.
struct P {
  batch: Batch,
  count: u32,
  used: u32,
  scores_at: u32,
  scores_row: u32,
  out_at: u32,
  out_row: u32,
  mode: u32,        // 1: sigmoid; 2: shares of the chosen add up to `scale`; 4: chosen by the scores themselves
  bias: u32,        // of the choice: first element, or NONE
  factors: u32,     // of the shares: first element, or NONE
  scale: f32,
  groups: u32,      // of experts, of which `groups_used` are used; 0: none
  groups_used: u32,
}
var<immediate> p: P;

@group(0) @binding(0) var<storage, read> vectors: array<f32>;
@group(0) @binding(1) var<storage, read> scores: array<f32>;
@group(0) @binding(2) var<storage, read_write> choices: array<f32>;

const THREADS: u32 = 64u;
const EXPERTS_MAX: u32 = 1024u;
// Below each rank.
const LEAST: f32 = -1.0e38;
// The least sum of the parts that shares are divided by.
const SUM_LEAST: f32 = 6.1035156e-5;

var<workgroup> parts: array<f32, EXPERTS_MAX>;
// What experts are chosen by.
var<workgroup> ranks: array<f32, EXPERTS_MAX>;
// Of each group, the sum of its best two.
var<workgroup> sums: array<f32, EXPERTS_MAX>;
// A bit for each expert that was chosen.
var<workgroup> taken: array<u32, 32>;
var<workgroup> best_rank: array<f32, THREADS>;
var<workgroup> best_expert: array<u32, THREADS>;

// Whether expert `b` of rank `y` is better than `a` of rank `x`; of equal ranks the lower number is.
fn is_better(y: f32, b: u32, x: f32, a: u32) -> bool {
  return b != NONE && (a == NONE || y > x || (y == x && b < a));
}

fn is_taken(expert: u32) -> bool {
  return (taken[expert / 32u] & (1u << (expert % 32u))) != 0u;
}

// Leaves out all but the groups with the largest sums.
fn leave_out_groups(lid: u32) {
  let size = p.count / p.groups;
  for (var group = lid; group < p.groups; group += THREADS) {
    var first = LEAST;
    var second = LEAST;
    for (var i = group * size; i < (group + 1u) * size; i += 1u) {
      second = max(second, min(first, ranks[i]));
      first = max(first, ranks[i]);
    }
    sums[group] = first + second;
  }
  workgroupBarrier();
  for (var group = lid; group < p.groups; group += THREADS) {
    var better = 0u;
    for (var other = 0u; other < p.groups; other += 1u) {
      better += u32(sums[other] > sums[group] || (sums[other] == sums[group] && other < group));
    }
    if (better >= p.groups_used) {
      for (var i = group * size; i < (group + 1u) * size; i += 1u) {
        ranks[i] = LEAST;
      }
    }
  }
}

fn best_of_threads(lid: u32) {
  workgroupBarrier();
  for (var apart = THREADS / 2u; apart > 0u; apart /= 2u) {
    if (lid < apart) {
      if (is_better(best_rank[lid + apart], best_expert[lid + apart], best_rank[lid], best_expert[lid])) {
        best_rank[lid] = best_rank[lid + apart];
        best_expert[lid] = best_expert[lid + apart];
      }
    }
    workgroupBarrier();
  }
}

fn find_best(lid: u32) {
  var rank = 0.0;
  var expert = NONE;
  for (var i = lid; i < p.count; i += THREADS) {
    if (!is_taken(i) && is_better(ranks[i], i, rank, expert)) {
      rank = ranks[i];
      expert = i;
    }
  }
  best_rank[lid] = rank;
  best_expert[lid] = expert;
  best_of_threads(lid);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let begin = p.scores_at + block.y * p.scores_row;
  for (var i = lid; i < p.count; i += THREADS) {
    ranks[i] = scores[begin + i];
  }
  if (lid < 32u) {
    taken[lid] = 0u;
  }
  workgroupBarrier();
  find_best(lid);
  let most = best_rank[0];
  workgroupBarrier();
  for (var i = lid; i < p.count; i += THREADS) {
    let score = ranks[i];
    if ((p.mode & 1u) != 0u) {
      parts[i] = sigmoid(score);
    } else {
      parts[i] = exp(score - most);
    }
  }
  workgroupBarrier();
  // The sum of all parts, in the order of the experts, by every thread alike.
  var sum = 0.0;
  if ((p.mode & 1u) == 0u) {
    for (var i = 0u; i < p.count; i += 1u) {
      sum += parts[i];
    }
  }
  workgroupBarrier();
  if ((p.mode & 4u) == 0u) {
    for (var i = lid; i < p.count; i += THREADS) {
      if ((p.mode & 1u) == 0u) {
        parts[i] /= sum;
      }
      ranks[i] = parts[i];
      if (p.bias != NONE) {
        ranks[i] += vectors[p.bias + i];
      }
    }
  }
  if (p.groups > 0u) {
    workgroupBarrier();
    leave_out_groups(lid);
  }
  var of_chosen = 0.0;
  for (var i = 0u; i < p.used; i += 1u) {
    workgroupBarrier();
    find_best(lid);
    if (lid == 0u) {
      let expert = best_expert[0];
      of_chosen += parts[expert];
      taken[expert / 32u] |= 1u << (expert % 32u);
    }
  }
  workgroupBarrier();
  if (lid != 0u) {
    return;
  }
  var divisor = 1.0;
  if ((p.mode & 2u) != 0u) {
    divisor = select(max(of_chosen, SUM_LEAST), of_chosen, (p.mode & 4u) != 0u);
  } else if ((p.mode & 4u) != 0u) {
    divisor = sum;
  }
  var place = p.out_at + block.y * p.out_row;
  for (var i = 0u; i < p.count; i += 1u) {
    if (is_taken(i)) {
      var share = parts[i] / divisor * p.scale;
      if (p.factors != NONE) {
        share *= vectors[p.factors + i];
      }
      choices[place] = f32(i);
      choices[place + 1u] = share;
      place += 2u;
    }
  }
}

// section product
// Products of each row with the experts that it chose: the results of choice `c` begin at column `c * out_stride`. A
// workgroup computes 8 outputs of one choice of one row, each by 32 lanes, in the order of other products.
struct P {
  batch: Batch,
  outputs: u32,     // of one expert
  units: u32,
  low_row: u32,
  high_row: u32,
  scale_row: u32,
  x_at: u32,        // vectors of four
  x_row: u32,
  x_stride: u32,    // between the inputs of two choices; 0: they have one input
  out_at: u32,
  out_row: u32,
  out_stride: u32,
  choices_at: u32,
  choices_row: u32,
  first: u32,       // the first expert of the part, and their number
  experts: u32,
  bias: u32,        // of the first expert, or NONE
}
var<immediate> p: P;

@group(0) @binding(3) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> vectors: array<f32>;
@group(0) @binding(5) var<storage, read> choices: array<f32>;
@group(0) @binding(6) var<storage, read_write> out: array<f32>;

const VALUES: u32 = 4u * R;

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) own_block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let block = of_dispatch(own_block);
  prepare(lid);
  let choice = block.z;
  let expert = u32(choices[p.choices_at + block.y * p.choices_row + 2u * choice]) - p.first;
  if (expert >= p.experts) {
    return;
  }
  let lane = lid % LANES;
  let group = lid / LANES;
  let first_output = block.x * (4u * R);
  let begin = p.x_at + block.y * p.x_row + choice * p.x_stride;
  var sums: array<f32, R>;
  for (var u = lane; u < p.units; u += LANES) {
    var x_of: array<vec4<f32>, 4>;
    var inputs = vec4<f32>(0.0);
    // each q below 4
    x_of[q] = x[begin + u * 4u + q];
    inputs += x_of[q];
    // end
    // each r below R
    let w = unit(expert * p.outputs + min(first_output + group * R + r, p.outputs - 1u), u);
    var products = vec4<f32>(0.0);
    // every q below 4
    products = fma(quad_of(w, q), x_of[q], products);
    // end
    sums[r] = with_product(w, products, inputs, sums[r]);
    // end
  }
  // each r below R
  partial[(group * R + r) * PITCH + lane] = sums[r];
  // end
  workgroupBarrier();
  let output = first_output + lid;
  if (lid >= VALUES || output >= p.outputs) {
    return;
  }
  var value = sum_of_lanes(lid);
  if (p.bias != NONE) {
    value += vectors[p.bias + expert * p.outputs + output];
  }
  out[p.out_at + block.y * p.out_row + choice * p.out_stride + output] = value;
}

// section combine
// `out = out + sum of share * output` over the choices of a row, in ascending order of the experts.
struct P {
  batch: Batch,
  cols: u32,
  used: u32,
  in_at: u32,
  in_row: u32,
  in_stride: u32,
  choices_at: u32,
  choices_row: u32,
  out_at: u32,
  out_row: u32,
  add: u32,
}
var<immediate> p: P;

@group(0) @binding(0) var<storage, read> outputs: array<f32>;
@group(0) @binding(1) var<storage, read> choices: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let col = block.x * 256u + lid;
  if (col >= p.cols) {
    return;
  }
  let at = p.out_at + block.y * p.out_row + col;
  var sum = 0.0;
  if (p.add != 0u) {
    sum = out[at];
  }
  for (var i = 0u; i < p.used; i += 1u) {
    let share = choices[p.choices_at + block.y * p.choices_row + 2u * i + 1u];
    sum = fma(share, outputs[p.in_at + block.y * p.in_row + i * p.in_stride + col], sum);
  }
  out[at] = sum;
}
