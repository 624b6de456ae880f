use super::{REMOTE_REQUEST_BYTES_MAX, RecordPooling, RecordTerms, RemoteRequest, merged};
use crate::request::{CHOICES_MAX, GenerationParams};
use crate::request_record::PromptRecord;
use engine::{Account, CacheSalt, Clocks, Policy, Priority, RequestUpdate, Terms};
use std::time::Duration;

fn request() -> RemoteRequest {
    let terms = Terms {
        priority: Priority::Low,
        account: Account { id: 7, weight: 3 },
        salt: CacheSalt(u128::MAX - 5),
        policy: Policy::Keep,
        clocks: Clocks {
            idle: Some(Duration::from_millis(250)),
            ..Clocks::default()
        },
        since: None,
    };
    RemoteRequest {
        prompt: PromptRecord {
            ids: vec![1, 2, 3],
            ..PromptRecord::default()
        },
        params: GenerationParams::default(),
        n: 2,
        first_choice: 1,
        context_max: 100,
        seed: u64::MAX,
        credit_window: 64,
        terms: RecordTerms::new(&terms),
        in_effect: RequestUpdate {
            top_k: Some(4),
            ..RequestUpdate::default()
        },
        embedding: None,
        images: Vec::new(),
    }
}

#[test]
fn terms_survive_the_record() {
    let decoded = RemoteRequest::decode(&request().encode().unwrap()).unwrap();
    assert_eq!(decoded, request());
    let terms = decoded.terms.terms(None);
    assert_eq!(terms.priority, Priority::Low);
    assert_eq!(terms.account, Account { id: 7, weight: 3 });
    assert_eq!(terms.salt, CacheSalt(u128::MAX - 5));
    assert_eq!(terms.policy, Policy::Keep);
    assert_eq!(terms.clocks.idle, Some(Duration::from_millis(250)));
    assert_eq!(terms.clocks.total, None);
}

#[test]
fn values_out_of_bounds_name_their_field() {
    type Change = fn(&mut RemoteRequest);
    let rows: [(&str, Change); 10] = [
        ("n:", |request| request.n = 0),
        ("n:", |request| request.n = CHOICES_MAX + 1),
        ("first_choice:", |request| request.first_choice = 15),
        ("context_max:", |request| request.context_max = usize::MAX),
        ("credit_window:", |request| request.credit_window = u64::MAX),
        ("prompt.ids:", |request| request.prompt.ids.clear()),
        ("prompt.ids:", |request| request.context_max = 2),
        ("temperature:", |request| {
            request.params.sampling.temperature = -1.0;
        }),
        ("in_effect:", |request| request.in_effect.inject.push(1)),
        ("n:", |request| {
            request.embedding = Some(RecordPooling::Mean);
        }),
    ];
    for (field, change) in rows {
        let mut request = request();
        change(&mut request);
        let why = RemoteRequest::decode(&request.encode().unwrap()).unwrap_err();
        assert!(why.0.starts_with(field), "{field} {why}");
    }
}

#[test]
fn broken_bytes_are_no_request() {
    let good = request().encode().unwrap();
    for end in 0..good.len() {
        assert!(RemoteRequest::decode(&good[..end]).is_err(), "cut at {end}");
    }
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << bit;
            // Either another valid request or an error; no panic.
            let _ = RemoteRequest::decode(&bytes);
        }
    }
    let long = vec![b' '; REMOTE_REQUEST_BYTES_MAX + 1];
    let why = RemoteRequest::decode(&long).unwrap_err();
    assert!(why.0.starts_with("request: has "), "{why}");
}

#[test]
fn last_value_of_each_updated_parameter_is_in_effect() {
    let updates = [
        RequestUpdate {
            temperature: Some(0.5),
            top_k: Some(3),
            inject: vec![1],
            ..RequestUpdate::default()
        },
        RequestUpdate {
            temperature: Some(0.7),
            ..RequestUpdate::default()
        },
    ];
    let expected = RequestUpdate {
        temperature: Some(0.7),
        top_k: Some(3),
        ..RequestUpdate::default()
    };
    assert_eq!(merged(&updates), expected);
}
