//! Control updates as JSON.

use super::*;
use proptest::prelude::*;

fn update(inject: Vec<u32>) -> RequestUpdate {
    RequestUpdate {
        temperature: Some(0.1),
        top_k: Some(40),
        inject,
        ..RequestUpdate::default()
    }
}

fn state() -> ControlState {
    ControlState {
        count: 3,
        applied: 1,
        in_effect: RequestUpdate {
            top_p: Some(0.9),
            min_p: Some(0.05),
            repetition_penalty: Some(1.1),
            presence_penalty: Some(-0.5),
            frequency_penalty: Some(0.3),
            ..update(Vec::new())
        },
        pending: vec![
            update(vec![1, 2]),
            RequestUpdate {
                inject: vec![7],
                ..RequestUpdate::default()
            },
        ],
        history: vec![TimedUpdate {
            at_unix_us: 1_753_600_000_000_001,
            update: ControlUpdate {
                after_tokens: 5,
                pause: Some(true),
                temperature: Some(0.1),
                injected: 2,
                ..ControlUpdate::default()
            },
        }],
    }
}

#[test]
fn control_state_is_golden() {
    let golden = concat!(
        r#"{"count":3,"applied":1,"in_effect":{"temperature":0.1,"top_k":40,"top_p":0.9,"min_p":0.05,"#,
        r#""repetition_penalty":1.1,"presence_penalty":-0.5,"frequency_penalty":0.3},"#,
        r#""pending":[{"temperature":0.1,"top_k":40,"inject":[1,2]},{"inject":[7]}],"#,
        r#""history":[{"at_unix_us":1753600000000001,"update":{"after_tokens":5,"pause":true,"temperature":0.1,"#,
        r#""injected":2}}]}"#,
    );
    let body = state().encode().expect("short");
    assert_eq!(String::from_utf8_lossy(&body), golden);
    assert_eq!(ControlState::decode(&body), Ok(state()));
    assert_eq!(ControlState::decode(b"{}"), Ok(ControlState::default()));
    let newer = br#"{"count":1,"color":"red"}"#;
    assert_eq!(ControlState::decode(newer).map(|state| state.count), Ok(1));
}

#[test]
fn control_state_out_of_bounds_is_rejected() {
    for (body, field) in [
        (r#"{"count":-1}"#, "count"),
        (r#"{"applied":1.5}"#, "applied"),
        (r#"{"in_effect":{"temperature":101}}"#, "in_effect"),
        (
            r#"{"in_effect":{"temperature":null,"top_p":1e39}}"#,
            "in_effect.top_p",
        ),
        (r#"{"in_effect":{"inject":[1]}}"#, "in_effect"),
        (r#"{"pending":[{"inject":[2147483648]}]}"#, "pending"),
        (r#"{"pending":[{"min_p":-1}]}"#, "pending"),
        (r#"{"pending":{}}"#, "pending"),
        (
            r#"{"history":[{"at_unix_us":18446744073709551615}]}"#,
            "history",
        ),
        (
            r#"{"history":[{"update":{"stop":1}}]}"#,
            "history[0].update.stop",
        ),
    ] {
        let error = ControlState::decode(body.as_bytes()).expect_err(body);
        assert!(error.to_string().starts_with(field), "{body}: {error}");
    }
    let many = |pending: usize, inject: usize| ControlState {
        pending: vec![update(vec![1; inject]); pending],
        ..ControlState::default()
    };
    let most = many(2 * UPDATES_MAX, 100);
    let body = most.encode().expect("short");
    assert_eq!(ControlState::decode(&body), Ok(most));
    for state in [many(2 * UPDATES_MAX + 1, 1), many(1, INJECT_TOKENS_MAX + 1)] {
        let body = state.encode().expect("short");
        assert!(ControlState::decode(&body).is_err());
    }
    let long = many(2 * UPDATES_MAX, INJECT_TOKENS_MAX).encode();
    let most = journal::SAMPLING_BYTES_MAX;
    assert_eq!(long, Err(DescriptionError::TooLong(most)));
    let spaces = vec![b' '; most + 1];
    assert_eq!(
        ControlState::decode(&spaces),
        Err(DescriptionError::TooLong(most))
    );
}

proptest! {
    #[test]
    fn control_states_survive_json(
        temperature in 0f32..=100.0, top_p in 0f32..=1.0, ids in prop::collection::vec(0u32..1 << 31, 0..50),
        count in any::<u64>(),
    ) {
        let waiting = RequestUpdate { temperature: Some(temperature), inject: ids, ..RequestUpdate::default() };
        let in_effect = RequestUpdate { top_p: Some(top_p), ..RequestUpdate::default() };
        let state = ControlState { count, applied: count, in_effect, pending: vec![waiting; 3], ..state() };
        let body = state.encode().expect("short");
        prop_assert_eq!(ControlState::decode(&body), Ok(state));
    }

    #[test]
    fn any_bytes_are_control_states_or_errors(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = ControlState::decode(&bytes);
    }
}
