# Checks of an instance's start. This file is the same in every cloud's module, so that each module
# works alone. A reboot takes the agent, its lease and the delayed shutdown with it, and EC2
# runs this script at the first boot only: without a controller nothing would end the instance.

require_first_boot() { # or fail; a unit then ends the instance at each later boot
  local unit=/etc/systemd/system/castor-reboot.service
  if [ -e "$unit" ]; then
    echo "castor: the instance has booted before (delete $unit from an image that was made of one)" >&2
    exit 1
  fi
  install -d -m 0711 /run/castor
  touch /run/castor/first-boot
  cat > "$unit" <<'END'
[Unit]
Description=End of an instance of Castor that boots again
ConditionPathExists=!/run/castor/first-boot

[Service]
Type=oneshot
ExecStart=/bin/systemctl --no-block poweroff

[Install]
WantedBy=multi-user.target
END
  systemctl daemon-reload
  systemctl enable castor-reboot.service
}

require_nft() { # or fail, before minutes are spent on installing Castor
  command -v nft > /dev/null && return 0
  echo 'castor: the image lacks nft, which closes the metadata service to jobs: install nftables there' >&2
  exit 1
}
