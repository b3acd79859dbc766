#!/bin/sh
# What a fresh Debian or Ubuntu lacks: a C compiler and linker. Rust itself is for the user to install.
set -u
if ! command -v cargo >/dev/null 2>&1; then
    echo "make: cargo is not installed: install Rust with rustup (the package 'rustup', or rustup.rs), then run this again" >&2
    exit 2
fi
command -v cc >/dev/null 2>&1 && exit 0
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "make: installing a C compiler and linker, which Rust needs (apt-get install gcc libc6-dev)" >&2
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq gcc libc6-dev >/dev/null && exit 0
fi
echo "make: no C compiler and linker: install them (as root: apt-get install gcc libc6-dev), then run this again" >&2
exit 2
