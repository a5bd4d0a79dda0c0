# Start of the controller's host in a unit, which runs this script at each boot and, until it
# succeeds, every 30 s: at the first boot the ways out of the network may not be there yet. This
# file is the same in every cloud's module, so that each module works alone.

if [ -z "${CASTOR_START:-}" ]; then
  install -d -m 0700 /etc/castor
  install -m 0700 "$0" /etc/castor/start
  cat > /etc/systemd/system/castor-start.service <<'END'
[Unit]
Description=Start of Castor's host
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
Type=oneshot
RemainAfterExit=yes
Environment=CASTOR_START=yes
ExecStart=/bin/bash /etc/castor/start
StandardOutput=journal+console
StandardError=journal+console
Restart=on-failure
RestartSec=30

[Install]
WantedBy=multi-user.target
END
  systemctl daemon-reload
  systemctl enable castor-start.service
  systemctl start --no-block castor-start.service
  exit 0
fi
