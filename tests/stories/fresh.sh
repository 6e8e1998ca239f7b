# Sourced by the stories in shell, with the folder that holds the wheel as $1: a Python environment with
# nothing but Tenon, no network, no settings of the user; leaves the caller in its empty folder $work.
# Sets `stories`, the folder of the scripts, and `step`, which announces what comes.
stories=$(cd "$(dirname "$0")" && pwd)
PIP_FIND_LINKS=$(cd "$1" && pwd)
export PIP_FIND_LINKS PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
unset PYTHONPATH PYTHONHOME PYTHONMALLOC TENON_PLUGIN_PATH TENON_PLUGINS LD_PRELOAD || true
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HOME="$work" XDG_CACHE_HOME="$work/cache" TENON_CACHE="$work/cache" TENON_FALLBACK=allow

step() { printf '== %s\n' "$*"; }

step "an environment with nothing but Tenon"
"${PYTHON:-python3}" -m venv "$work/venv"
PATH=$work/venv/bin:$PATH
pip install -q tenon
cd "$work"
