//! Thread-local workspaces of the AMX GEMM.

use crate::layout::amx_gemm::AmxWorkspace;
use crate::{Isa, Pool};
use std::cell::RefCell;

thread_local! {
    static WORKSPACE: RefCell<Option<AmxWorkspace>> = const { RefCell::new(None) };
}

/// Allocates the workspace of each worker, so that matmuls allocate nothing.
pub(crate) fn allocate_workspaces(pool: &mut Pool) {
    pool.run_on_each(|| {
        WORKSPACE.with_borrow_mut(|workspace| _ = workspace.get_or_insert_with(AmxWorkspace::new));
    });
}

/// Calls `work` with this thread's workspace and with configured AMX tiles.
pub(super) fn with_workspace(isa: Isa, work: impl FnOnce(&mut AmxWorkspace)) {
    #[cfg(target_arch = "x86_64")]
    let _tiles = isa.tiles();
    #[cfg(not(target_arch = "x86_64"))]
    let _ = isa;
    WORKSPACE.with_borrow_mut(|workspace| work(workspace.get_or_insert_with(AmxWorkspace::new)));
}
