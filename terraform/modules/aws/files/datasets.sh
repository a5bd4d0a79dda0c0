# Read-only mounts of datasets in buckets. This file is the same in every cloud's module, so that
# each module works alone; node.sh sets the image's mount program and its arguments.

refuse() { # the start, because of an error in a dataset
  echo "castor: dataset $path: $1" >&2
  exit 1
}

# Each dataset has its own unit, which mounts it again if its program ends, and stops after the
# agent's unit. It is outside the agent's unit, as it needs the instance's credentials.
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
      refuse "$mounter could not mount $place: ${said:-it gave no reason}"
    }
  done <<< "$datasets"
}
