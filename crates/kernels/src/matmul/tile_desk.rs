//! Each worker's desk for products on tiles.

use crate::layout::amx_gemm::Desk;
use crate::{Isa, Pool};
use std::cell::RefCell;

thread_local! {
    static DESK: RefCell<Option<Desk>> = const { RefCell::new(None) };
}

/// Makes each worker's desk, so that products allocate nothing.
pub(crate) fn make_desks(pool: &mut Pool) {
    pool.run_on_each(|| {
        DESK.with_borrow_mut(|desk| _ = desk.get_or_insert_with(Desk::new));
    });
}

/// Lends this thread's desk, with its tiles ready.
pub(super) fn on_desk(isa: Isa, work: impl FnOnce(&mut Desk)) {
    #[cfg(target_arch = "x86_64")]
    let _tiles = isa.tiles();
    #[cfg(not(target_arch = "x86_64"))]
    let _ = isa;
    DESK.with_borrow_mut(|desk| work(desk.get_or_insert_with(Desk::new)));
}
