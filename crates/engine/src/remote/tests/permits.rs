use super::*;

#[test]
fn choice_without_credit_gives_its_permit_back_and_gets_credit_with_the_next_one() {
    let mut bench = bench(EngineConfig::default());
    let (mut request, mut readers) = bench.request(1, &[]);
    let (free, held) = (Arc::new(AtomicUsize::new(1)), Arc::default());
    request.permits = Some(Box::new(Permits {
        free: Arc::clone(&free),
        held: Arc::clone(&held),
    }));
    bench.handle.submit(request).unwrap();
    let (mut relayed, mut now) = (bench.take(), bench.now);
    let is_held = || held.load(Ordering::Relaxed) == 1;
    assert!(relayed.update_permits(now));
    for id in 1..5 {
        relayed.append(0, token(id), &[], now).unwrap();
    }
    assert!(relayed.update_permits(now) && is_held(), "for a while");
    now += Duration::from_millis(600);
    assert!(!relayed.update_permits(now) && !is_held());
    // Another request has the permit when the reader comes back.
    free.store(0, Ordering::Relaxed);
    assert_eq!(read(&mut readers[0]).0, [1, 2, 3, 4]);
    readers[0].accept(4);
    assert!(!relayed.update_permits(now) && !relayed.may_credit(0));
    free.store(1, Ordering::Relaxed);
    assert!(relayed.update_permits(now) && relayed.may_credit(0) && is_held());
}
