# Start of the controller's host, at each boot (retry.sh). Its state is on a separate disk, which survives the
# host.

disk=/dev/disk/by-id/google-castor-state
until [ -e "$disk" ]; do sleep 2; done
# A disk that merely can't be read must keep its state: only one full of zeros is new.
blkid "$disk" > /dev/null || {
  cmp -s -n 1048576 "$disk" /dev/zero || {
    echo "castor: $disk has no file system that can be read, and is not new: look at it before anything else" >&2
    exit 1
  }
  mkfs.ext4 -q "$disk"
}
install -d -m 0700 /var/lib/castor
mount=$(systemd-escape --path --suffix=mount /var/lib/castor)
cat > "/etc/systemd/system/$mount" <<END
[Unit]
Description=What Castor must not forget

[Mount]
What=$disk
Where=/var/lib/castor
Type=ext4
END
systemctl daemon-reload
systemctl start "$mount"
# The controller has a user of its own, who can read nothing else of this host.
id castor > /dev/null 2>&1 ||
  useradd --system --user-group --home-dir /var/lib/castor --shell /usr/sbin/nologin castor
chown -R castor:castor /var/lib/castor
chmod 0700 /var/lib/castor

# Terraform's options, and secrets that jobs may name. The operator writes the secrets here.
options=" $serve_options"
install -d -m 0750 /etc/castor
chgrp castor /etc/castor
if [ -n "$secrets" ]; then
  install -d -m 2750 "$secrets"
  chgrp castor "$secrets"
  options="$options --secrets $secrets"
fi
[ -z "$secret_variables" ] || options="$options --secret-variables $secret_variables"
case "$options " in
  *' --tls-cert '* | *' --insecure '* | *' --public-url https://'*) ;;
  *) options="$options --tls-cert auto" ;;
esac

install_castor controller server,oidc,telemetry,gcp,training

address=$(ask instance/network-interfaces/0/ip)

# Lighthouses are child processes that must survive the service: only its main process is ended.
cat > /etc/systemd/system/castor.service <<END
[Unit]
Description=Castor's controller
After=network-online.target
Wants=network-online.target
RequiresMountsFor=/var/lib/castor
StartLimitIntervalSec=0

[Service]
User=castor
Group=castor
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
ReadWritePaths=/var/lib/castor
UMask=0077
EnvironmentFile=-/etc/castor/secrets.env
ExecStart=/opt/castor/bin/castor serve --state /var/lib/castor --host $address --port $port --pools $pools$options
KillMode=process
# A control loop that does not tick for three minutes is ended, with its stack in the journal.
WatchdogSec=180
NotifyAccess=main
Restart=always
RestartSec=5
LimitNOFILE=1048576
END
systemctl daemon-reload
systemctl start castor.service
