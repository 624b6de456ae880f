//! The Helm chart: rendered by Helm's own library, checked against Kubernetes' schemas and against what the chart promises.

use crate::shell::{self, Outcome, python, root};
use std::process::Command;

/// Helm's library with Python's bindings, and the schemas of Kubernetes' objects.
pub(crate) const PACKAGES: [&str; 3] = [
    "helm-python-sdk==0.2.2",
    "kubernetes-validate==1.37.0",
    "pyyaml>=6,<7",
];

/// Checks the chart, and its settings with the release binary or with the one that `--debug` or `--binary PATH` chooses.
pub(crate) fn run(args: &[String]) -> Outcome {
    let (binary, _) = shell::binary(args)?;
    let script = root().join("tools/chart/check.py");
    shell::run(
        Command::new(python("chart", &PACKAGES, &[])?)
            .arg(script)
            .arg(&binary),
    )
}
