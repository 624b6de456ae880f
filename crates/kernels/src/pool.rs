//! The barrier thread pool. (Stub: one thread.)

/// A fixed set of threads that run one closure together; the caller is worker 0.
pub struct Pool {
    threads: usize,
}

impl Pool {
    /// A pool of `threads` workers in all, the caller included.
    pub fn new(threads: usize) -> Self {
        Self { threads }
    }
    /// Workers in all.
    pub fn threads(&self) -> usize {
        self.threads
    }
    /// Runs `work(worker)` on every worker and returns when all are done. A panic in any is re-raised here.
    pub fn run(&mut self, work: impl Fn(usize) + Sync) {
        for worker in 0..self.threads {
            work(worker);
        }
    }
}
