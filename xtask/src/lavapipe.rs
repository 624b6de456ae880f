//! Mesa's Vulkan driver for processors, on which the tests of the GPU run.

use crate::shell::{self, root};
use std::path::PathBuf;
use std::process::Command;

/// Installs the driver where it is missing or too old: version 22.3 of Debian 12 ends loops after 65,535 rounds without an
/// error, so the driver comes from its backports. Needs root, or `sudo` without a password, and the system's archive.
const INSTALL: &str = r#"
installed=$(dpkg-query -W -f='${Version}' mesa-vulkan-drivers 2>/dev/null)
dpkg --compare-versions "${installed:-0}" ge 25 && dpkg-query -W libvulkan1 >/dev/null 2>&1 && exit 0
. /etc/os-release
sudo=
[ "$(id -u)" = 0 ] || sudo="sudo -n"
if [ "$ID" != debian ]; then
  $sudo apt-get update && $sudo apt-get install -y --no-install-recommends mesa-vulkan-drivers libvulkan1
  exit
fi
lists=$PWD/apt-sources.list
printf 'deb http://deb.debian.org/debian %s main\n' "$VERSION_CODENAME" "$VERSION_CODENAME-backports" > "$lists"
options="-o Dir::Etc::sourcelist=$lists -o Dir::Etc::sourceparts=-"
$sudo apt-get $options update
$sudo apt-get $options install -y --no-install-recommends -t "$VERSION_CODENAME-backports" mesa-vulkan-drivers libvulkan1
outcome=$?
# The lists of packages are those of the system again, for the next program.
$sudo apt-get update
exit $outcome
"#;

/// Variables of programs that use the driver. It compiles a kernel with LLVM when it first runs, for 128-bit vectors twice as fast as
/// for its usual 256, and most kernels of tests run once. What it compiled is there for the next program, unless the caller names a
/// folder; the driver does not ask for which vectors, so the folder is of these alone.
pub(crate) fn variables() -> Vec<(&'static str, PathBuf)> {
    const FOLDER: &str = "MESA_SHADER_CACHE_DIR";
    if std::env::var_os(FOLDER).is_some() {
        return Vec::new();
    }
    let folder = root().join("target/shaders-128");
    vec![(FOLDER, folder), ("LP_NATIVE_VECTOR_WIDTH", "128".into())]
}

/// Makes the driver available, if that is possible. Without it, the tests of the GPU say so and pass, unless
/// `MILLRACE_GPU_TESTS` is 1.
pub(crate) fn install() {
    let folder = root().join("target/lavapipe");
    let installed = std::fs::create_dir_all(&folder)
        .map_err(|why| format!("{}: {why}", folder.display()))
        .and_then(|()| {
            let mut bash = Command::new("bash");
            shell::run(bash.args(["-c", INSTALL]).current_dir(&folder))
        });
    if let Err(why) = installed {
        println!("no Vulkan driver for the tests of the GPU: {why}");
    }
}
