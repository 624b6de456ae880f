#!/usr/bin/env python3
"""Builds llama.cpp's server from the source package of llama-cpp-python, whose library is measured beside it.

    python llama_server.py --folder target/rivals/llama-server

Prints the binary's path. CFLAGS and CXXFLAGS are used as they are; ten to thirty minutes on two cores. cmake and ninja are from PyPI.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tarfile

VERSION = "0.3.36"
BUILD_PACKAGES = ("cmake>=4,<5", "ninja")
# The web UI is not in the package and would be downloaded; TLS is not needed on a loopback address.
OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release", "GGML_NATIVE": "ON", "LLAMA_BUILD_SERVER": "ON", "LLAMA_BUILD_TESTS": "OFF", "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_APP": "OFF", "LLAMA_BUILD_UI": "OFF", "LLAMA_USE_PREBUILT_UI": "OFF", "LLAMA_OPENSSL": "OFF",
}


def run(*words, **options):
    """A step of the build; what it prints goes to standard error, so that standard output is the path."""
    subprocess.run([str(word) for word in words], check=True, stdout=sys.stderr, **options)


def source(folder):
    """The unpacked source package."""
    unpacked = folder / f"llama_cpp_python-{VERSION}"
    if not unpacked.exists():
        run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "llama-cpp-python",
            "--dest", folder, f"llama-cpp-python=={VERSION}")
        with tarfile.open(folder / f"{unpacked.name}.tar.gz") as package:
            package.extractall(folder, filter="data")
    return unpacked / "vendor" / "llama.cpp"


def tools(folder):
    """The folder with cmake and ninja."""
    environment = folder / "tools"
    if not (environment / "bin" / "cmake").exists():
        run(sys.executable, "-m", "venv", environment)
        run(environment / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *BUILD_PACKAGES)
    return environment / "bin"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="for the package, the tools and the build")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    folder = args.folder.resolve()
    binary = folder / "build" / "bin" / "llama-server"
    if not binary.exists():
        folder.mkdir(parents=True, exist_ok=True)
        cmake, variables = tools(folder), dict(os.environ)
        variables["PATH"] = f"{cmake}{os.pathsep}{variables['PATH']}"
        options = [f"-D{name}={value}" for name, value in OPTIONS.items()]
        run(cmake / "cmake", "-G", "Ninja", "-S", source(folder), "-B", folder / "build", *options, env=variables)
        run(cmake / "cmake", "--build", folder / "build", "--target", "llama-server", "-j", args.jobs, env=variables)
    print(binary)


if __name__ == "__main__":
    main()
