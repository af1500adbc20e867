#!/usr/bin/env bash
# A Slurm for the tests, from Debian's packages, unpacked into a folder and not installed (3.5 MB).
#   tools/slurm.sh [FOLDER]        default: .slurm in the clone; tests/slurm.py starts it on loopback
set -euo pipefail
folder="${1:-$(dirname "$0")/../.slurm}"
[ -x "$folder/usr/sbin/slurmctld" ] || [ -x "$folder/usr/sbin/slurmctld-wlm" ] && exit 0
mkdir -p "$folder/packages"
cd "$folder/packages"
apt-get download -qq slurmctld slurmd slurm-client slurm-wlm-basic-plugins libmunge2 libhwloc15 liblua5.1-0
for package in *.deb; do dpkg -x "$package" ..; done
