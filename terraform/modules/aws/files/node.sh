# The start of an instance: it finds out who it is. The rest is in agent.sh.

end_it() { shutdown -h now "castor: $1"; }

# Whatever fails or hangs, an instance without an agent costs money for nothing. A trap of ERR
# would not do: what fails in a function ends this script past it.
trap 'end_it "the start failed"' EXIT
shutdown -h "+$boot_minutes" "castor: no agent after $boot_minutes minutes"

metadata=http://169.254.169.254/latest
session=$(curl -sf --retry 10 --retry-connrefused -X PUT \
  -H 'X-aws-ec2-metadata-token-ttl-seconds: 21600' "$metadata/api/token")
ask() { curl -sf --retry 5 -H "X-aws-ec2-metadata-token: $session" "$metadata/$1"; }

instance=$(ask meta-data/instance-id)
address=$(ask meta-data/local-ipv4)
order=$(ask meta-data/tags/instance/castor:token)

install -d -m 0711 /run/castor /var/lib/castor /var/lib/castor/instance /var/lib/castor/cache
# What a dataset lacks is known before minutes are spent on Castor.
mounter=mount-s3
mounting() { echo "--read-only --allow-other ${2:+--prefix=$2 }$1 $3"; } # bucket, prefix, path
mount_datasets
(umask 077 && fetch "$parcels/$order" /run/castor/user-data)
# AWS's word of which instance this is, which the controller checks before it lets the agent in.
(umask 077 && ask dynamic/instance-identity/rsa2048 > /run/castor/identity)
install_castor training

# When this instance will be taken back, in seconds since the epoch.
cat > /run/castor/watch <<'END'
#!/bin/bash
metadata=http://169.254.169.254/latest
while sleep 5; do
  session=$(curl -sf -m 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "$metadata/api/token") || continue
  notice=$(curl -sf -m 5 -H "X-aws-ec2-metadata-token: $session" "$metadata/meta-data/spot/instance-action") || continue
  moment=$(sed -n 's/.*"time" *: *"\([^"]*\)".*/\1/p' <<< "$notice")
  date -d "$moment" +%s > /run/castor/reclaim.new && mv /run/castor/reclaim.new /run/castor/reclaim
done
END
