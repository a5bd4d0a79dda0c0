# Puts docker, nftables and Castor on an image of Ubuntu with NVIDIA's driver, as root, and removes
# all that is of this machine or of who built it. Both clouds' templates run it.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
wheels=/tmp/castor-wheels

refuse() {
  echo "castor: $1" >&2
  exit 1
}

cloud-init status --wait > /dev/null || true # the first boot's own packages come first
command -v nvidia-smi > /dev/null || refuse "the base image lacks NVIDIA's driver: use one that has it"
[ -e "$wheels/requirements-node.txt" ] || refuse 'no requirements-node.txt: run make wheels'

packages=(nftables python3-venv curl gnupg)
command -v docker > /dev/null || packages+=(docker.io)
if ! command -v nvidia-ctk > /dev/null; then
  site=https://nvidia.github.io/libnvidia-container
  key=/usr/share/keyrings/nvidia-container-toolkit.gpg
  curl -fsSL "$site/gpgkey" | gpg --dearmor --yes -o "$key"
  echo "deb [signed-by=$key] $site/stable/deb/amd64 /" > /etc/apt/sources.list.d/nvidia-container-toolkit.list
  packages+=(nvidia-container-toolkit)
fi
apt-get update -qq
apt-get install -qq --yes --no-install-recommends "${packages[@]}"
nvidia-ctk runtime configure --runtime=docker
systemctl enable docker.service

# No /opt/castor/installed: a deployment with wheels_directory installs its own pins over these.
python3 -m venv /opt/castor
pip=(/opt/castor/bin/pip install --quiet --disable-pip-version-check --no-cache-dir --no-deps)
"${pip[@]}" --require-hashes --only-binary :all: -r "$wheels/requirements-node.txt"
"${pip[@]}" --no-index "$(ls "$wheels"/castor_autoscaler-*.whl)"
cp "$wheels/requirements-node.txt" /opt/castor/
# Packages that do not fit fail here, and not at each start.
/opt/castor/bin/castor --version
/opt/castor/bin/python -P -c 'import torch; assert torch.version.cuda, "PyTorch has no CUDA"'

apt-get clean
rm -rf "$wheels" /var/lib/apt/lists/* /root/.cache /home/*/.cache
rm -rf /root/.ssh /home/*/.ssh /root/.docker /home/*/.docker /root/.aws /home/*/.aws \
  /root/.config/gcloud /home/*/.config/gcloud /root/.bash_history /home/*/.bash_history
rm -f /etc/ssh/ssh_host_*
cloud-init clean --logs --machine-id
