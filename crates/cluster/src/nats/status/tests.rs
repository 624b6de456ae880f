use super::*;
use std::time::Duration;

fn start() -> Instant {
    tokio::time::Instant::now().into_std()
}

fn server(version: &str) -> NatsServer {
    NatsServer {
        name: "n1".to_owned(),
        version: version.to_owned(),
        cluster: None,
        max_payload: PAYLOAD_FLOOR,
    }
}

fn problem(status: &mut ConnectionStatus, now: Instant) -> String {
    status.problem(now).expect("a problem")
}

#[test]
fn reason_of_a_missing_connection_is_told_once() {
    let now = start();
    let mut status = ConnectionStatus::new(1, now);
    assert!(problem(&mut status, now).contains("not reachable yet"));
    let reason = "nats://a: refused";
    assert!(status.attempt_failed(reason).is_some());
    assert_eq!(status.attempt_failed(reason), None);
    assert!(problem(&mut status, now).contains(reason));
    assert!(!status.is_usable());
    assert_eq!(status.connected(server("2.12.8"), now).len(), 1);
    assert_eq!((status.is_usable(), status.problem(now)), (true, None));
    assert_eq!(status.attempt_failed(reason), None, "an old attempt");
    assert!(status.disconnected(now).is_some());
    assert_eq!(status.disconnected(now), None);
    assert!(!problem(&mut status, now).contains(reason));
}

#[test]
fn old_and_small_servers_are_refused_with_the_bound() {
    let now = start();
    for (version, max_payload, expected) in [
        ("2.9.9", PAYLOAD_FLOOR, "2.9.9: at least 2.9.10 is required"),
        (
            "mine",
            PAYLOAD_FLOOR,
            "\"mine\": at least 2.9.10 is required",
        ),
        (
            "2.12.8",
            PAYLOAD_FLOOR - 1,
            "max_payload must be at least 1048576",
        ),
    ] {
        let mut status = ConnectionStatus::new(1, now);
        let server = NatsServer {
            max_payload,
            ..server(version)
        };
        let news = status.connected(server, now);
        assert!(matches!(&news[..], [News::Error(why)] if why.contains(expected)));
        assert!(!status.is_usable());
        assert!(problem(&mut status, now).contains(expected));
    }
}

#[test]
fn servers_that_are_no_cluster_are_told() {
    let now = start();
    let of = |cluster: Option<&str>| NatsServer {
        cluster: cluster.map(str::to_owned),
        ..server("2.12.8")
    };
    let told = |status: &mut ConnectionStatus, server| {
        let news = status.connected(server, now);
        let is_error = |news: &&News| matches!(news, News::Error(_));
        news.iter().filter(is_error).count()
    };
    let mut single = ConnectionStatus::new(1, now);
    assert_eq!(told(&mut single, of(None)), 0);
    let mut three = ConnectionStatus::new(3, now);
    assert_eq!(told(&mut three, of(None)), 1);
    assert_eq!(told(&mut three, of(Some("a"))), 0);
    assert_eq!(told(&mut three, of(Some("a"))), 0);
    assert_eq!(told(&mut three, of(Some("b"))), 1);
    assert!(three.is_usable());
}

#[test]
fn old_servers_above_the_floor_are_used_with_a_warning() {
    let now = start();
    let mut status = ConnectionStatus::new(1, now);
    let news = status.connected(server("2.10.22"), now);
    assert!(matches!(&news[..], [News::Info(_), News::Warning(why)] if why.contains("2.12.3")));
    assert!(status.is_usable());
}

#[test]
fn denied_subjects_are_named_until_the_next_connection() {
    let now = start();
    let mut status = ConnectionStatus::new(1, now);
    status.connected(server("2.12.8"), now);
    let error = "Permissions Violation for Subscription to \"mr.a.hb\"";
    assert!(matches!(
        status.server_error(error, now),
        Some(News::Error(_))
    ));
    assert_eq!(status.server_error(error, now), None, "told once");
    let later = now + Duration::from_secs(3600);
    assert!(problem(&mut status, later).contains("subscribe to \"mr.a.hb\""));
    assert_eq!(status.denials(later).len(), 1);
    status.connected(server("2.12.8"), later);
    assert_eq!(status.problem(later), None);
    let other = status.server_error("maximum connections exceeded", now);
    assert!(matches!(other, Some(News::Warning(_))));
    assert_eq!(status.problem(later), None);
}

fn denial(text: &str) -> Denial {
    Denial::parse(text).unwrap()
}

#[test]
fn errors_of_all_versions_name_the_subject() {
    let rows = [
        (
            "Permissions Violation for Publish to \"mr.Prod.hb\"",
            "may not publish to \"mr.Prod.hb\"",
        ),
        (
            "Permissions Violation for Subscription to \"mr.a.find\"",
            "may not subscribe to \"mr.a.find\"",
        ),
        (
            "Permissions Violation for Subscription to \"mr.a.w\" using queue \"q\"",
            "may not subscribe to \"mr.a.w\"",
        ),
    ];
    for (error, expected) in rows {
        let told = denial(error).to_string();
        assert!(told.ends_with(expected), "{told}");
    }
    let records = "Permissions Violation for Publish to \"$JS.API.STREAM.INFO.mr_a_records\"";
    assert!(denial(records).concerns_records() && !denial(rows[0].0).concerns_records());
    for other in ["", "Unknown Protocol Operation", "permissions violation"] {
        assert_eq!(Denial::parse(other), None, "{other}");
    }
}

#[test]
fn publications_expire_and_subscriptions_stay() {
    let start = tokio::time::Instant::now().into_std();
    let mut denials = Denials::default();
    let publish = denial("Permissions Violation for Publish to \"a\"");
    let subscribe = denial("Permissions Violation for Subscription to \"b\"");
    assert!(denials.add(publish.clone(), start));
    assert!(denials.add(subscribe.clone(), start));
    assert!(!denials.add(publish, start), "not new");
    denials.expire(start + PUBLICATION_SHOWN);
    assert_eq!(denials.iter().collect::<Vec<_>>(), [&subscribe]);
    denials.clear();
    assert_eq!(denials.iter().count(), 0);
}

#[test]
fn denials_are_bounded() {
    let start = tokio::time::Instant::now().into_std();
    let mut denials = Denials::default();
    for n in 0..DENIALS_MAX + 9 {
        let text = format!("Permissions Violation for Publish to \"a.{n}\"");
        assert_eq!(denials.add(denial(&text), start), n < DENIALS_MAX);
    }
    assert_eq!(denials.iter().count(), DENIALS_MAX);
}

const BEAT: Duration = Duration::from_millis(250);

#[expect(clippy::disallowed_methods, reason = "a start of virtual time")]
fn started() -> (Hearing, Instant) {
    let now = Instant::now();
    let hearing = Hearing::new(now);
    hearing.expect_confirmations();
    hearing.begin(BEAT, now);
    (hearing, now)
}

#[test]
fn tokens_are_held_from_the_silence_until_the_owners_are_known() {
    let (hearing, start) = started();
    let before = start + BEAT * (SILENT - 1);
    hearing.note_heartbeat(before);
    assert!(!hearing.is_held(before));
    let back = before + BEAT * SILENT;
    assert!(hearing.is_held(back), "deaf");
    hearing.note_heartbeat(back);
    assert!(hearing.is_held(back), "not confirmed");
    hearing.confirm(0);
    assert!(hearing.is_held(back), "of an earlier return");
    hearing.confirm(hearing.returns());
    assert!(!hearing.is_held(back));
}

#[test]
fn hold_without_an_answer_ends() {
    let (hearing, start) = started();
    let back = start + BEAT * SILENT;
    let heard = |until: Duration| {
        let mut at = back;
        while at < back + until {
            hearing.note_heartbeat(at);
            at += BEAT;
        }
    };
    heard(HELD_MAX);
    assert!(hearing.is_held(back + HELD_MAX - BEAT));
    assert!(!hearing.is_held(back + HELD_MAX));
    assert_eq!(hearing.returns(), 1);
}

#[test]
fn nothing_is_held_where_nobody_confirms() {
    #[expect(clippy::disallowed_methods, reason = "a start of virtual time")]
    let start = Instant::now();
    let hearing = Hearing::new(start);
    hearing.begin(BEAT, start);
    assert!(!hearing.is_held(start + BEAT * 100));
}
