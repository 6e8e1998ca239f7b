#!/bin/sh
# Tenon on AArch64, on a machine that is none: compiled by the cross compiler of Debian, then the C tests and
# the samples of operators under qemu-user: `./dev images aarch64`, with the network the first time.
# The system that it is compiled for is unpacked into $IMAGES/aarch64, once; nothing in it is installed.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
work=${IMAGES:-$source/.cache/images}/aarch64
mirror=${MIRROR:-http://deb.debian.org/debian}
root=$work/root
libraries=$root/usr/lib/aarch64-linux-gnu
cd "$source"

say() { printf 'aarch64: %s\n' "$*" >&2; }

# foreign COMMAND...: apt-get with lists and a state of its own, in which no package is installed.
foreign() {
    apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Install-Recommends=false \
        -o Dir::State::status="$work/apt/status" -o Dir::State::Lists="$work/apt/lists" \
        -o Dir::Cache="$work/apt" -o Dir::Cache::archives="$work/apt/archives" \
        -o Dir::Etc::sourcelist="$work/apt/sources.list" -o Dir::Etc::sourceparts=- "$@"
}

unpack() {
    say "fetching Debian's packages for it (once)"
    rm -rf "$root" "$work/apt"
    mkdir -p "$root" "$work/apt/lists/partial" "$work/apt/archives/partial"
    : >"$work/apt/status"
    echo "deb $mirror bookworm main" >"$work/apt/sources.list"
    foreign update
    foreign -y --download-only install libc6-dev libstdc++6 libopenblas-dev libffi-dev libcmocka-dev \
        python3.11-minimal libpython3.11-stdlib
    for package in "$work"/apt/archives/*.deb; do dpkg-deb -x "$package" "$root"; done
    # What a package's script would have chosen among the builds of OpenBLAS.
    (cd "$libraries" && ln -sf openblas-pthread/*.so* .)
    ln -sf ../openblas-pthread/pkgconfig/openblas.pc "$libraries/pkgconfig/"
    say "fetching Python's packages for it (once)"
    python -m pip install -q --target "$work/packages" --only-binary=:all: --python-version 3.11 \
        --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 \
        --platform manylinux2014_aarch64 numpy scipy pytest pytest-xdist
    touch "$work/complete"
}

PATH=$source/.venv/bin:$PATH
for program in aarch64-linux-gnu-gcc qemu-aarch64-static dpkg-deb meson; do
    command -v "$program" >/dev/null ||
        { say "needs $program (gcc-aarch64-linux-gnu, qemu-user-static; ./dev build)"; exit 2; }
done
[ -f "$work/complete" ] || unpack
cat >"$work/cross.ini" <<END
[binaries]
c = 'aarch64-linux-gnu-gcc'
ar = 'aarch64-linux-gnu-ar'
strip = 'aarch64-linux-gnu-strip'
pkg-config = 'pkg-config'
exe_wrapper = ['qemu-aarch64-static', '-L', '$root']
[properties]
sys_root = '$root'
pkg_config_libdir = '$libraries/pkgconfig'
[built-in options]
c_args = ['--sysroot=$root']
c_link_args = ['--sysroot=$root']
[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'aarch64'
endian = 'little'
END
build=$work/build
[ -f "$build/build.ninja" ] ||
    meson setup "$build" --cross-file "$work/cross.ini" -Dcuda=disabled -Dblas=system >"$work/setup.log" ||
    { tail -n 5 "$work/setup.log"; exit 1; }
say "compiling"
ninja -C "$build" --quiet
say "C tests"
meson test -C "$build" --no-rebuild --suite c --timeout-multiplier 20 --print-errorlogs
[ $# -gt 0 ] || set -- tests/ops/test_elementary.py tests/ops/test_ops.py
say "Python tests (those of the operators take some fifteen minutes)"
# The interpreter of the tests is a program of this machine's only through qemu: no test may start another.
exec qemu-aarch64-static -L "$root" -E PYTHONHOME="$root/usr" \
    -E PYTHONPATH="$build/site:$work/packages" -E PYTHONDONTWRITEBYTECODE=1 -E TENON_CPU_ISA=baseline \
    "$root/usr/bin/python3.11" -m pytest -q -n 0 -p no:cacheprovider "$@"
