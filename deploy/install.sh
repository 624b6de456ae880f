#!/bin/sh
# Installs a release archive of Millrace for Linux on x86-64 or AArch64, after its checksum was compared.
#
#   MILLRACE_RELEASES=URL sh install.sh [ARCHIVE]
#
# MILLRACE_RELEASES   URL of the folder with ARCHIVE and ARCHIVE.sha256 (a release's downloads); file:// works, too
# MILLRACE_PREFIX     where to install; default: ~/.local
# MILLRACE_GPU        1: the archive with support of GPUs, for systems with glibc 2.28 or later
# ARCHIVE             name of the archive; default: the newest known to this script
#
# Beside the binary: manual pages, completions for bash, zsh and fish, licenses. No other file is touched.
set -eu

case "${MILLRACE_GPU:-0}" in
1) archive=${1:-millrace-0.1.0-$(uname -m)-unknown-linux-gnu-gpu.tar.gz} ;;
*) archive=${1:-millrace-0.1.0-$(uname -m)-unknown-linux-musl.tar.gz} ;;
esac
prefix=${MILLRACE_PREFIX:-$HOME/.local}

fail() {
    echo "install.sh: $*" >&2
    exit 1
}

[ -n "${MILLRACE_RELEASES:-}" ] || fail "MILLRACE_RELEASES is not set: the URL of the folder with $archive"
case "$(uname -s)-$(uname -m)" in
Linux-x86_64 | Linux-aarch64) ;;
*) fail "this script is for Linux on x86-64 and AArch64; this is $(uname -s) on $(uname -m)" ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fetch() {
    if command -v curl >/dev/null 2>&1; then
        curl --proto '=https,http,file' --fail --silent --show-error --location --output "$work/$1" "$MILLRACE_RELEASES/$1"
    elif command -v wget >/dev/null 2>&1; then
        wget --quiet --output-document "$work/$1" "$MILLRACE_RELEASES/$1"
    else
        fail "neither curl nor wget is installed"
    fi || fail "$MILLRACE_RELEASES/$1 cannot be fetched"
}

fetch "$archive"
fetch "$archive.sha256"
(cd "$work" && sha256sum --check --status "$archive.sha256") ||
    fail "the checksum of $archive is not that of $archive.sha256: nothing was installed"

tar -xzf "$work/$archive" -C "$work"
unpacked=$work/${archive%.tar.gz}
[ -x "$unpacked/millrace" ] || fail "$archive has no millrace"
"$unpacked/millrace" version >/dev/null ||
    fail "the millrace of $archive does not run on this system (with support of GPUs it needs glibc 2.28): nothing was installed"

share=$prefix/share
install -D -m 755 "$unpacked/millrace" "$prefix/bin/millrace"
for page in "$unpacked"/man/*.1; do
    install -D -m 644 "$page" "$share/man/man1/${page##*/}"
done
install -D -m 644 "$unpacked/completions/millrace.bash" "$share/bash-completion/completions/millrace"
install -D -m 644 "$unpacked/completions/_millrace" "$share/zsh/site-functions/_millrace"
install -D -m 644 "$unpacked/completions/millrace.fish" "$share/fish/vendor_completions.d/millrace.fish"
for license in LICENSE-MIT LICENSE-APACHE THIRD-PARTY-LICENSES.txt; do
    install -D -m 644 "$unpacked/$license" "$share/doc/millrace/$license"
done

echo "$("$prefix/bin/millrace" version) is installed: $prefix/bin/millrace"
case "$archive" in
*-gpu.tar.gz)
    PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -q 'libvulkan\.so\.1' ||
        echo "libvulkan.so.1 was not found; without it there are no GPUs (Debian: libvulkan1, and a driver such as mesa-vulkan-drivers)"
    ;;
esac
case ":$PATH:" in
*":$prefix/bin:"*) ;;
*) echo "$prefix/bin is not in PATH" ;;
esac
