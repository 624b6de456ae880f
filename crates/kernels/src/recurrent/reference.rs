//! Reference implementation of the steps of a scan.

/// One token of one head, or of some columns of its state, shape `(key_dim, columns)`:
///
/// - the state decays;
/// - what the state says of the key is corrected towards the value, by the share `rate`;
/// - `out` is what the state says of the query.
pub(crate) fn delta_step(
    state: &mut [f32],
    key: &[f32],
    query: &[f32],
    value: &[f32],
    [decay, rate]: [f32; 2],
    out: &mut [f32],
) {
    let columns = value.len();
    out.fill(0.0);
    for (row, key) in state.chunks_exact_mut(columns).zip(key) {
        for (entry, sum) in row.iter_mut().zip(&mut *out) {
            *entry *= decay;
            *sum += *entry * key;
        }
    }
    for (delta, value) in out.iter_mut().zip(value) {
        *delta = (value - *delta) * rate;
    }
    for column in 0..columns {
        let (delta, mut sum) = (out[column], 0.0);
        for ((row, key), query) in state.chunks_exact_mut(columns).zip(key).zip(query) {
            row[column] += key * delta;
            sum += row[column] * query;
        }
        out[column] = sum;
    }
}

/// As [`delta_step`] without the correction (Mamba-2): the state decays, and the value times `rate` is added where the key
/// stands.
pub(crate) fn linear_step(
    state: &mut [f32],
    key: &[f32],
    query: &[f32],
    value: &[f32],
    [decay, rate]: [f32; 2],
    out: &mut [f32],
) {
    let columns = value.len();
    out.fill(0.0);
    for ((row, key), query) in state.chunks_exact_mut(columns).zip(key).zip(query) {
        for ((entry, value), sum) in row.iter_mut().zip(value).zip(&mut *out) {
            *entry = *entry * decay + key * (value * rate);
            *sum += *entry * query;
        }
    }
}
