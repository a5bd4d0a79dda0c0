# Datasets in buckets, mounted read-only. This file is the same in every cloud's module, for each
# has to work alone; node.sh says which program of the image mounts them, and how.

refuse() { # the start, for what is wrong with a dataset
  echo "castor: dataset $path: $1" >&2
  exit 1
}

# Each has a unit of its own, which mounts it again should its program die, and is stopped after the
# agent's. It is outside of the agent's, for it needs the credentials of the instance.
mount_datasets() {
  local path place bucket prefix name said
  while read -r path place; do
    [ -n "$path" ] || continue
    command -v "$mounter" > /dev/null || refuse "the image lacks $mounter, which mounts $place: install it there"
    bucket=${place#*://} prefix=${place#*://*/}
    bucket=${bucket%%/*} name=${path#*/datasets/}
    name=castor-dataset-${name//\//:}.service
    mkdir -p "$path"
    cat > "/etc/systemd/system/$name" <<END
[Unit]
Description=Castor's dataset $path
After=network-online.target
Before=castor-node.service
StartLimitIntervalSec=0

[Service]
Type=forking
ExecStart=$(command -v "$mounter") $(mounting "$bucket" "$prefix" "$path")
ExecStopPost=-/bin/umount --lazy $path
Restart=always
RestartSec=2
END
    systemctl daemon-reload
    systemctl start "$name" || {
      said=$(journalctl --quiet --output=cat --lines=5 "_SYSTEMD_UNIT=$name" | tr -s '\n' ' ') || said=
      refuse "$mounter could not mount $place: ${said:-it did not say why}"
    }
  done <<< "$datasets"
}
