// Attention of a tile of rows of one span, for one query head: KEYS positions at a time, whose scores are weighed by the largest
// of those so far (online softmax). A position's key and value are read once for all rows of the tile. A thread computes
// the scores of Q queries, and the sums of values of V.

const TILE_THREADS: u32 = 128u;
// Rows of a tile of the record, which several workgroups may share.
const RECORD_ROWS: u32 = 32u;
const KEYS: u32 = 16u;
// Threads that weigh the scores of a query.
const LANES: u32 = TILE_THREADS / ROWS;
// Floats between the scores of two queries.
const SCORES: u32 = KEYS + 1u;
// Threads with the same column.
const GROUPS: u32 = TILE_THREADS / COLUMNS;

var<workgroup> query: array<vec4<f32>, ROWS * COLUMNS>;
var<workgroup> scores: array<f32, ROWS * SCORES>;
var<workgroup> partial: array<f32, TILE_THREADS>;
var<workgroup> factors: array<f32, ROWS>;
// Positions that each row sees, from 0 on.
var<workgroup> ends: array<u32, ROWS>;

fn load_queries(first_row: u32, count: u32, head: u32, lid: u32) {
  for (var i = lid; i < rolled(ROWS * STRIDE); i += TILE_THREADS) {
    let row = first_row + min(i / STRIDE, count - 1u);
    let within = i % STRIDE;
    var x = 0.0;
    if (within < HEAD_DIM) {
      x = queries[p.query_at + row * p.query_row + head * HEAD_DIM + within];
    }
    query[i / 4u][i % 4u] = x;
  }
}

// Scores of Q queries with one position. `position_of` is the position of the tile's first row.
fn score_keys(table: u32, kv_head: u32, key: u32, position_of: u32, end: u32, lid: u32) {
  let position = key + lid % KEYS;
  let first_query = lid / KEYS * Q;
  var sums: array<vec4<f32>, Q>;
  if (position < end) {
    let place = place_of(table, kv_head, position);
    for (var d = 0u; d < rolled(STRIDE / 8u); d++) {
      let of_key = key_eight(place, d);
      // each q below Q
      // each h below 2
      sums[q] = fma(query[(first_query + q) * COLUMNS + 2u * d + h], half_of(of_key, h), sums[q]);
      // end
      // end
    }
  }
  // each q below Q
  scores[(first_query + q) * SCORES + lid % KEYS] = (sums[q].x + sums[q].y) + (sums[q].z + sums[q].w);
  // end
  for (var i = first_query; i < first_query + rolled(Q); i++) {
    let at = i * SCORES + lid % KEYS;
    let of_query = position_of + i;
    let is_seen = position < ends[i] && (p.window == 0u || position + p.window > of_query);
    scores[at] = select(LOWEST, finished(scores[at]), is_seen && position < end);
  }
}

@compute @workgroup_size(TILE_THREADS)
fn main(@builtin(workgroup_id) own_block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let block = of_dispatch(own_block);
  let head = block.x;
  let kv_head = head / (p.heads / p.kv_heads);
  let tile_at = p.batch.spans_at + p.batch.spans * SPAN_WORDS + 2u * block.y;
  let rows = record[tile_at + 1u];
  let before = block.z * ROWS;
  if (before >= rows) {
    return;
  }
  let count = min(rows - before, ROWS);
  let first_row = record[tile_at] + before;
  let row_at = p.batch.rows_at + first_row * ROW_WORDS;
  let position_of = record[row_at + 1u];
  let table = p.batch.tables_at + record[row_at + 4u];
  load_queries(first_row, count, head, lid);
  // Rows ascend, and so do the ends of what they see.
  let end = position_of + count + record[row_at + (count - 1u) * ROW_WORDS + 8u] * p.blocks;
  if (lid < ROWS) {
    let row = min(lid, count - 1u);
    ends[lid] = position_of + row + 1u + record[row_at + row * ROW_WORDS + 8u] * p.blocks;
  }
  let start = select(0u, position_of + 1u - min(position_of + 1u, p.window), p.window != 0u);
  let mine = lid / LANES;
  let lane = lid % LANES;
  let column = lid % COLUMNS;
  let group = lid / COLUMNS;
  let first_query = min(group * V, ROWS - 1u);
  var most = LOWEST;
  var sum = 0.0;
  var totals: array<vec4<f32>, V>;
  workgroupBarrier();
  for (var key = start / KEYS * KEYS; key < end; key += KEYS) {
    score_keys(table, kv_head, key, position_of, end, lid);
    workgroupBarrier();
    var largest = LOWEST;
    for (var i = lane; i < rolled(KEYS); i += LANES) {
      largest = max(largest, scores[mine * SCORES + i]);
    }
    partial[lid] = largest;
    workgroupBarrier();
    largest = most;
    for (var i = 0u; i < rolled(LANES); i++) {
      largest = max(largest, partial[mine * LANES + i]);
    }
    let factor = exp(most - largest);
    most = largest;
    var added = 0.0;
    for (var i = lane; i < rolled(KEYS); i += LANES) {
      let score = scores[mine * SCORES + i];
      let weight = select(exp(score - most), 0.0, score <= LOWEST);
      scores[mine * SCORES + i] = weight;
      added += weight;
    }
    sum = fma(sum, factor, added);
    if (lane == 0u) {
      factors[mine] = factor;
    }
    workgroupBarrier();
    // each v below V
    totals[v] *= factors[min(first_query + v, ROWS - 1u)];
    // end
    for (var i = 0u; i < min(rolled(KEYS), end - key); i++) {
      let value = value_four(place_of(table, kv_head, key + i), column);
      // each v below V
      totals[v] = fma(vec4<f32>(scores[min(first_query + v, ROWS - 1u) * SCORES + i]), value, totals[v]);
      // end
    }
    workgroupBarrier();
  }
  partial[lid] = sum;
  workgroupBarrier();
  if (lane == 0u) {
    var weights = 0.0;
    for (var i = 0u; i < rolled(LANES); i++) {
      weights += partial[mine * LANES + i];
    }
    var factor = 1.0;
    if (p.sinks != NONE) {
      let merged = merge_factors(most, vectors[p.sinks + head]);
      factor = merged.x;
      weights = fma(weights, merged.x, merged.y);
    }
    factors[mine] = factor / weights;
  }
  workgroupBarrier();
  let last_query = min(first_query + V, count);
  let out_at = p.out_at + first_row * p.out_row + head * HEAD_DIM;
  if (group >= GROUPS || group * V >= ROWS) {
    return;
  }
  // each v below V
  if (first_query + v < last_query) {
    write_four(out_at + (first_query + v) * p.out_row, column * 4u, totals[v] * factors[first_query + v]);
  }
  // end
}
