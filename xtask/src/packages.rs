//! Installs what the suites need, so that it can happen while the code is compiled.

use crate::shell::{Outcome, node_modules, python};
use crate::{arm, chart, clients, conformance, deny, lavapipe, page};

/// A Vulkan driver, virtual environments of Python, modules of npm, the browser and the root for AArch64 of every suite that
/// `.ci/run` runs. A
/// suite installs what is missing itself, so a failure here is told and nothing more.
pub(crate) fn run() -> Outcome {
    // First: the tests of the workspace use it, before any suite.
    lavapipe::install();
    let environments = [
        ("clients", &clients::PACKAGES[..]),
        ("agents", &clients::AGENT_PACKAGES),
        ("chart", &chart::PACKAGES),
        ("deny", &deny::PACKAGES),
        ("conformance", &conformance::PACKAGES),
        ("page", &page::PACKAGES),
    ];
    for (name, packages) in environments {
        python(name, packages, &[])?;
    }
    node_modules("clients", &clients::NODE_PACKAGES)?;
    page::chromium();
    // After the browser: the package manager lets one program in.
    if let Err(why) = arm::prepare() {
        println!("no root for AArch64: {why}");
    }
    Ok(())
}
