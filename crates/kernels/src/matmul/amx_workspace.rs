//! Each worker's workspace for products on tiles.

use crate::layout::amx_gemm::AmxWorkspace;
use crate::{Isa, Pool};
use std::cell::RefCell;

thread_local! {
    static WORKSPACE: RefCell<Option<AmxWorkspace>> = const { RefCell::new(None) };
}

/// Makes each worker's workspace, so that products allocate nothing.
pub(crate) fn allocate_workspaces(pool: &mut Pool) {
    pool.run_on_each(|| {
        WORKSPACE.with_borrow_mut(|workspace| _ = workspace.get_or_insert_with(AmxWorkspace::new));
    });
}

/// Lends this thread's workspace, with its tiles ready.
pub(super) fn with_workspace(isa: Isa, work: impl FnOnce(&mut AmxWorkspace)) {
    #[cfg(target_arch = "x86_64")]
    let _tiles = isa.tiles();
    #[cfg(not(target_arch = "x86_64"))]
    let _ = isa;
    WORKSPACE.with_borrow_mut(|workspace| work(workspace.get_or_insert_with(AmxWorkspace::new)));
}
