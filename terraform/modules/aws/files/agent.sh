# Start of the agent. node.sh has set the instance's id and written /run/castor/watch, which watches
# for reclaims, /run/castor/leave, which makes the agent leave before the system shuts down, and
# /run/castor/registry-password, which prints a password for private registries. The agent starts
# the last outside of castor.slice, where the metadata service can be reached.
# This file is the same in every cloud's module, so that each module works alone.

# One rank for each GPU; without GPUs, one for each processor. The controller ends an instance whose
# driver lists fewer GPUs than its type has.
accelerators=$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU') || true
count=$accelerators
[ "$count" -gt 0 ] || count=$(nproc)

# The instance's own disks, as one, in place of the boot disk: they are faster, and end with it.
# AWS's image for GPUs has mounted them. Only disks without a file system are taken.
own_disks() {
  if mountpoint -q /opt/dlami/nvme; then
    echo /opt/dlami/nvme/castor
    return
  fi
  local disks
  disks=$(for link in /dev/disk/by-id/nvme-Amazon_EC2_NVMe_Instance_Storage_* \
    /dev/disk/by-id/google-local-nvme-ssd-*; do
    [ -e "$link" ] && readlink -f "$link"
  done | sort -u | while read -r disk; do blkid "$disk" > /dev/null || echo "$disk"; done)
  [ -n "$disks" ] || return 1
  local disk=$disks
  if [ "$(echo "$disks" | wc -l)" -gt 1 ]; then
    disk=/dev/md/castor
    # shellcheck disable=SC2086 # one word for each disk
    mdadm --create "$disk" --run --level=0 --raid-devices="$(echo "$disks" | wc -l)" $disks >&2 || return 1
  fi
  mkfs.ext4 -q -m 0 -E nodiscard "$disk" >&2 && install -d -m 0711 /var/lib/castor/own &&
    mount -o noatime,discard "$disk" /var/lib/castor/own >&2 && echo /var/lib/castor/own
}
files=$(own_disks) || files=/var/lib/castor

cat > /run/castor/environment <<END
CASTOR_INSTANCE=$instance
CASTOR_DEVICES=$(seq -s, 0 $((count - 1)))
CASTOR_ACCELERATORS=$accelerators
CASTOR_INSTANCE_DIRECTORY=$files/instance
CASTOR_CACHE_DIRECTORY=$files/cache
CASTOR_BIND_ADDRESS=$address
CASTOR_RECLAIM_NOTICE=/run/castor/reclaim
CASTOR_IDENTITY=/run/castor/identity
CASTOR_CONTAINER_PARENT=castor.slice
CASTOR_REGISTRIES=$registries
CASTOR_REGISTRY_USER=$registry_user
CASTOR_REGISTRY_PASSWORD=systemd-run --quiet --collect --pipe --wait /bin/bash /run/castor/registry-password
END

# The agent shuts the instance down with SIGTERM to its parent, this program.
cat > /run/castor/machine <<'END'
#!/bin/bash
trap 'kill -TERM $!; wait $!; exit 0' TERM
/opt/castor/bin/castor node --user-data /run/castor/user-data &
wait $!
END

# Jobs can't reach the metadata service at any address, on EC2 or GCE, and so can't use the instance's
# permissions. IPAddressDeny holds in the agent's unit only. Containers run outside of it, in the
# same slice and on the host's network, some as root. So nobody reaches the service but root outside
# the slice. Port 53 is Compute Engine's resolver.
cat > /run/castor/close <<'END'
#!/bin/bash
nft -f - <<'TABLE' || {
table inet castor {
  chain metadata {
    meta l4proto { tcp, udp } th dport 53 accept
    socket cgroupv2 level 1 "castor.slice" reject
    meta skuid 0 accept
    reject
  }
  chain output {
    type filter hook output priority filter; policy accept;
    ip daddr 169.254.169.254 jump metadata
    ip6 daddr { fd00:ec2::254, fd20:ce::254 } jump metadata
  }
  chain forward {
    type filter hook forward priority filter; policy accept;
    ip daddr 169.254.169.254 reject
    ip6 daddr { fd00:ec2::254, fd20:ce::254 } reject
  }
}
TABLE
  echo 'castor: nft could not close the metadata service to jobs: the image needs Linux 5.13 or newer and control groups of version 2' > /dev/console
  exit 1
}
END

chmod 0700 /run/castor/machine /run/castor/watch /run/castor/close /run/castor/registry-password

# The watch has its own unit.
# /run may be mounted noexec; hence bash runs the programs.
# The unit counts as started when the agent has joined. The agent then reports every 10 s; systemd
# ends an agent that has not reported for five minutes.
cat > /etc/systemd/system/castor-node.service <<'END'
[Unit]
Description=Castor's agent
After=network-online.target
Wants=castor-watch.service

[Service]
Type=notify
NotifyAccess=all
WatchdogSec=300
TimeoutStartSec=infinity
EnvironmentFile=/run/castor/environment
Slice=castor.slice
ExecStartPre=/bin/bash /run/castor/close
ExecStart=/bin/bash /run/castor/machine
ExecStop=/bin/bash /run/castor/leave
ExecStopPost=/bin/systemctl --no-block poweroff
IPAddressDeny=169.254.169.254/32 fd00:ec2::254/128 fd20:ce::254/128
TimeoutStopSec=110
LimitNOFILE=1048576
LimitMEMLOCK=infinity
END
cat > /etc/systemd/system/castor-watch.service <<'END'
[Unit]
Description=Looks out for the notice of a reclaim

[Service]
ExecStart=/bin/bash /run/castor/watch
Restart=always
END
systemctl daemon-reload
systemctl start castor-node.service
shutdown -c
trap - EXIT
