//! Control updates in messages: a byte whose bits name the parameters that follow, then the injected tokens.

use super::bytes::{Reader, push_f32, push_ids, push_varint};
use engine::{INJECT_TOKENS_MAX, RequestUpdate};

const TOP_K: u8 = 1 << 6;

/// The parameters that are floats, in the order of their bits.
fn floats(update: &RequestUpdate) -> [Option<f32>; 6] {
    [
        update.temperature,
        update.top_p,
        update.min_p,
        update.repetition_penalty,
        update.presence_penalty,
        update.frequency_penalty,
    ]
}

pub(super) fn push_update(out: &mut Vec<u8>, update: &RequestUpdate) {
    let floats = floats(update);
    let mut present = if update.top_k.is_some() { TOP_K } else { 0 };
    for (bit, value) in floats.iter().enumerate() {
        present |= u8::from(value.is_some()) << bit;
    }
    out.push(present);
    for value in floats.into_iter().flatten() {
        push_f32(out, value);
    }
    if let Some(top_k) = update.top_k {
        push_varint(out, top_k.into());
    }
    push_ids(out, &update.inject);
}

pub(super) fn take_update(reader: &mut Reader<'_>) -> Option<RequestUpdate> {
    let present = reader.take_u8()?;
    if present > TOP_K * 2 - 1 {
        return None;
    }
    let mut floats = [None; 6];
    for (bit, value) in floats.iter_mut().enumerate() {
        if present & 1 << bit != 0 {
            *value = Some(reader.take_f32()?);
        }
    }
    let [
        temperature,
        top_p,
        min_p,
        repetition_penalty,
        presence_penalty,
        frequency_penalty,
    ] = floats;
    let top_k = match present & TOP_K {
        0 => None,
        _ => Some(reader.take_u32()?),
    };
    Some(RequestUpdate {
        temperature,
        top_k,
        top_p,
        min_p,
        repetition_penalty,
        presence_penalty,
        frequency_penalty,
        inject: reader.take_ids(INJECT_TOKENS_MAX)?,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(in super::super) fn updates() -> impl Strategy<Value = RequestUpdate> {
        let float = || proptest::option::of(-9.0_f32..9.0);
        let floats = (float(), float(), float(), float(), float(), float());
        let ids = proptest::collection::vec(any::<u32>(), 0..5);
        (floats, any::<Option<u32>>(), ids).prop_map(|(floats, top_k, inject)| RequestUpdate {
            temperature: floats.0,
            top_k,
            top_p: floats.1,
            min_p: floats.2,
            repetition_penalty: floats.3,
            presence_penalty: floats.4,
            frequency_penalty: floats.5,
            inject,
        })
    }

    proptest! {
        #[test]
        fn updates_are_read_back(update in updates()) {
            let mut out = Vec::new();
            push_update(&mut out, &update);
            let mut reader = Reader(&out);
            prop_assert_eq!(take_update(&mut reader), Some(update));
            prop_assert!(reader.0.is_empty());
        }
    }

    #[test]
    fn too_many_injected_tokens_and_unknown_parameters_are_rejected() {
        let mut out = Vec::new();
        let inject = vec![1; INJECT_TOKENS_MAX + 1];
        let update = RequestUpdate {
            inject,
            ..RequestUpdate::default()
        };
        push_update(&mut out, &update);
        assert_eq!(take_update(&mut Reader(&out)), None);
        assert_eq!(take_update(&mut Reader(&[0x80, 0])), None);
    }
}
