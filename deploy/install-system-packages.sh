#!/usr/bin/env bash
# Install what the tests need from Debian: PostgreSQL's server programs, Python's venv module, a browser
# for the dashboard, and what the test cluster makes its network and its certificates with.
#
# Needs root, or sudo. What is present is left alone, and when nothing is missing no network is
# used. Debian starts a PostgreSQL server of its own on installation; the tests do not use it, they
# start throw-away ones (tests/postgres.py).
set -euo pipefail

missing=()
compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || missing+=(postgresql)
"${PYTHON:-python3}" -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3-venv)
command -v ip >/dev/null || missing+=(iproute2)
command -v openssl >/dev/null || missing+=(openssl)
command -v chromium >/dev/null || missing+=(chromium)
command -v git >/dev/null || missing+=(git)
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo)
"${as_root[@]}" apt-get update
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install --yes --no-install-recommends "${missing[@]}"
