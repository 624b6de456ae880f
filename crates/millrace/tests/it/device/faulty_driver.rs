//! A driver that fails on request, between Vulkan's loader and the program: `faulty_vulkan.c`, compiled by the linker's compiler.

use crate::support::Folder;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// A library instead of the machine's loader, and what it does.
pub(crate) struct FaultyDriver {
    library: PathBuf,
    faults: String,
    /// Files that ask for faults.
    requests: Folder,
}

impl FaultyDriver {
    /// A driver with these faults of `faulty_vulkan.c`. Each has a folder of this name.
    pub(crate) fn new(name: &str, faults: &str) -> Self {
        static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
        let library = LIBRARY.get_or_init(|| compiled("driver", Some("faulty_vulkan.c")));
        Self {
            library: library.clone(),
            faults: faults.to_owned(),
            requests: Folder::new(name),
        }
    }

    /// A library without a function, as packages for linkers have it.
    pub(crate) fn stub(name: &str) -> Self {
        Self {
            library: compiled("stub", None),
            ..Self::new(name, "")
        }
    }

    /// The variables with which a program meets this driver.
    pub(crate) fn variables(&self) -> [(&'static str, String); 3] {
        [
            ("LD_LIBRARY_PATH", self.library.display().to_string()),
            ("VULKAN_FAULTS", self.faults.clone()),
            ("VULKAN_REQUESTS", self.requests.0.display().to_string()),
        ]
    }

    /// Loses the device that is open with its next submit.
    pub(crate) fn lose(&self) {
        self.ask("lose");
    }

    /// Gives no answer from the next submit on, until the device is opened again.
    pub(crate) fn hang(&self) {
        self.ask("hang");
    }

    /// Numbers of calls of the program so far: submits, allocations of memory, and buffers made.
    pub(crate) fn counts(&self) -> [u64; 3] {
        let bytes = std::fs::read(self.requests.0.join("counts")).unwrap();
        let mut counts = bytes.as_chunks().0.iter();
        [(); 3].map(|()| u64::from_ne_bytes(*counts.next().unwrap()))
    }

    /// Refuses the next buffer for lack of memory.
    pub(crate) fn refuse(&self) {
        self.ask("refuse");
    }

    /// Has no memory until [`Self::empty`].
    pub(crate) fn fill(&self) {
        self.ask("full");
    }

    /// Has memory again.
    pub(crate) fn empty(&self) {
        std::fs::remove_file(self.requests.0.join("full")).unwrap();
    }

    fn ask(&self, fault: &str) {
        std::fs::write(self.requests.0.join(fault), "").unwrap();
    }
}

/// The folder of a `libvulkan.so.1` that is made of this source, or of nothing.
fn compiled(name: &str, source: Option<&str>) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("vulkan-{name}"));
    std::fs::create_dir_all(&folder).unwrap();
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/device");
    let source = source.map_or_else(
        || "/dev/null".to_owned(),
        |file| format!("{sources}/{file}"),
    );
    // Test programs may run at the same time: each has a file of its own until it is whole.
    let made = folder.join(format!("made-{}", std::process::id()));
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-pthread", "-x", "c", &source, "-ldl"]);
    // A library that was unloaded between two devices would not be found again: the machine's loader has its name.
    compiler.args(["-Wl,-z,nodelete", "-o"]);
    let status = compiler.arg(&made).status().expect("a compiler");
    assert!(status.success(), "{source}");
    std::fs::rename(made, folder.join("libvulkan.so.1")).unwrap();
    folder
}
