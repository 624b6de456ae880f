//! Marks by turn, under loom.

use crate::explore;
use crate::turns::{TurnMark, Turns};
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// One place with two writers.
struct Place {
    turns: Turns,
    mark: TurnMark,
    list: Mutex<u32>,
    published: [AtomicU64; 2],
}

impl Place {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            turns: Turns::new(),
            mark: TurnMark::new(),
            list: Mutex::new(0),
            published: [AtomicU64::new(0), AtomicU64::new(0)],
        })
    }

    fn publish(&self, writer: usize, value: u64) {
        self.published[writer].store(value, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.turns.mark(&self.mark) {
            *self.list.lock().unwrap() += 1;
        }
    }

    /// One turn: what the collector reads if the place is listed.
    fn collect(&self, read: &mut [u64; 2]) {
        let listed = std::mem::take(&mut *self.list.lock().unwrap());
        assert!(listed <= 2, "a place has at most two entries");
        self.turns.begin();
        if listed > 0 {
            for (value, published) in read.iter_mut().zip(&self.published) {
                *value = published.load(Ordering::Acquire);
            }
        }
    }
}

/// Whatever the interleaving: after the writer's last mark, a turn that finds the list filled reads everything.
#[test]
fn nothing_of_one_writer_is_missed() {
    explore(3, || {
        let place = Place::new();
        let writer = Arc::clone(&place);
        let writer = thread::spawn(move || (1..=3).for_each(|value| writer.publish(0, value)));
        let mut read = [0; 2];
        place.collect(&mut read);
        place.collect(&mut read);
        writer.join().unwrap();
        place.collect(&mut read);
        assert_eq!(read, [3, 0]);
    });
}

#[test]
fn nothing_of_two_writers_is_missed() {
    explore(2, || {
        let place = Place::new();
        let writers = [0, 1].map(|number| {
            let place = Arc::clone(&place);
            thread::spawn(move || (1..=2).for_each(|value| place.publish(number, value)))
        });
        let mut read = [0; 2];
        place.collect(&mut read);
        place.collect(&mut read);
        for writer in writers {
            writer.join().unwrap();
        }
        place.collect(&mut read);
        assert_eq!(read, [2, 2]);
    });
}
