#!/bin/sh
# What a fresh Debian or Ubuntu lacks: a C compiler and linker. Rust itself is for the user to install.
# `setup.sh codespell` prints the path of codespell, which it installs if needed. Without a network it prints none.
# `setup.sh rocksdb` installs what compiling RocksDB needs: a C++ compiler, and libclang, which reads its header.
set -u
if [ "${1:-}" = codespell ]; then
    own=target/codespell/bin/codespell
    # A Python of its own: what codespell needs must not touch the system's.
    if ! [ -x "$own" ] && ! command -v codespell >/dev/null 2>&1; then
        { python3 -m venv target/codespell && target/codespell/bin/pip install --quiet --retries 1 'codespell>=2.4,<2.5'; } >&2 2>/dev/null ||
            { rm -rf target/codespell && [ "$(id -u)" -eq 0 ] && apt-get install -y -qq codespell; } >/dev/null 2>&1
    fi
    { [ -x "$own" ] && echo "$own"; } || command -v codespell ||
        echo "make: spelling is not checked: codespell cannot be installed (python3-venv and a network, or apt-get)" >&2
    exit 0
fi
if ! command -v cargo >/dev/null 2>&1; then
    echo "make: cargo is not installed: install Rust with rustup (the package 'rustup', or rustup.rs), then run this again" >&2
    exit 2
fi
if [ "${1:-}" = rocksdb ]; then
    # Both the library (libclang-cpp is another one) and the compiler's own headers, which are in another package.
    has_libclang() {
        find /usr/lib /usr/lib64 \( -name 'libclang.so*' -o -name 'libclang-[0-9]*.so*' \) 2>/dev/null | grep -q . &&
            find /usr/lib /usr/lib64 -path '*/clang/*/include/stddef.h' 2>/dev/null | grep -q .
    }
    command -v c++ >/dev/null 2>&1 && { [ -n "${LIBCLANG_PATH:-}" ] || has_libclang; } && exit 0
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "make: installing what compiling RocksDB needs (apt-get install g++ libclang-dev)" >&2
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq g++ libclang-dev >/dev/null && exit 0
    fi
    echo "make: no C++ compiler or no libclang: install them (as root: apt-get install g++ libclang-dev), then run this again" >&2
    exit 2
fi
command -v cc >/dev/null 2>&1 && exit 0
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "make: installing a C compiler and linker, which Rust needs (apt-get install gcc libc6-dev)" >&2
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq gcc libc6-dev >/dev/null && exit 0
fi
echo "make: no C compiler and linker: install them (as root: apt-get install gcc libc6-dev), then run this again" >&2
exit 2
