//! Reference implementation of the steps of a scan.

/// Before the first token of one head, or of some columns of its state, shape `(key_dim, columns)`: the state decays, and
/// `known` is what it says of the key.
pub(crate) fn delta_start(state: &mut [f32], key: &[f32], decay: f32, known: &mut [f32]) {
    known.fill(0.0);
    for (row, key) in state.chunks_exact_mut(known.len()).zip(key) {
        for (entry, sum) in row.iter_mut().zip(&mut *known) {
            *entry *= decay;
            *sum += *entry * key;
        }
    }
}

/// One token, after [`delta_start`] or the token before:
///
/// - what the state says of the key (`known`) is corrected towards the value, by the share `rate`;
/// - `out` is what the state says of the query;
/// - for the next token, if there is one, the state decays, and `known` is what it says of that key.
pub(crate) fn delta_step(
    state: &mut [f32],
    [key, query, value]: [&[f32]; 3],
    rate: f32,
    next: Option<(&[f32], f32)>,
    known: &mut [f32],
    out: &mut [f32],
) {
    let columns = value.len();
    for (delta, value) in known.iter_mut().zip(value) {
        *delta = (value - *delta) * rate;
    }
    out.fill(0.0);
    for ((row, key), query) in state.chunks_exact_mut(columns).zip(key).zip(query) {
        for ((entry, delta), sum) in row.iter_mut().zip(&*known).zip(&mut *out) {
            *entry += key * delta;
            *sum += *entry * query;
        }
    }
    if let Some((key, decay)) = next {
        delta_start(state, key, decay, known);
    }
}

/// One token without the correction (Mamba-2): the state decays, the value times `rate` is added where the key stands, and
/// `out` is what the state says of the query.
pub(crate) fn linear_step(
    state: &mut [f32],
    [key, query, value]: [&[f32]; 3],
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
