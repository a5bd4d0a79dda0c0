# Start of an instance: find its id and fetch its user data. agent.sh does the rest.

end_it() { shutdown -h now "castor: $1"; }

# Shut down if the start fails or hangs: an instance without an agent is useless and costs money. A
# trap of ERR is not enough, since a failure in a function ends the script without it.
trap 'end_it "the start failed"' EXIT
shutdown -h "+$boot_minutes" "castor: no agent after $boot_minutes minutes"
require_first_boot
require_nft

# The pool's own programs, in Base64: an error in their text must not end this one unnoticed.
run_own() { [ -z "$1" ] || bash -eu -o pipefail -c "$(base64 -d <<< "$1")"; }
run_own "$pre_bootstrap"

metadata=http://169.254.169.254/latest
session=$(curl -sf --retry 10 --retry-connrefused -X PUT \
  -H 'X-aws-ec2-metadata-token-ttl-seconds: 21600' "$metadata/api/token")
ask() { curl -sf --retry 5 -H "X-aws-ec2-metadata-token: $session" "$metadata/$1"; }

instance=$(ask meta-data/instance-id)
address=$(ask meta-data/local-ipv4)
order=$(ask meta-data/tags/instance/castor:token)

install -d -m 0711 /run/castor /var/lib/castor /var/lib/castor/instance /var/lib/castor/cache
# Errors of datasets show before minutes are spent on installing Castor.
mounter=mount-s3
mounting() { echo "--read-only --allow-other ${2:+--prefix=$2 }$1 $3"; } # bucket, prefix, path
mount_datasets
(umask 077 && fetch "$parcels/$order" /run/castor/user-data)
# Identity document signed by AWS, which the controller verifies when the agent joins.
(umask 077 && ask dynamic/instance-identity/rsa2048 > /run/castor/identity)
install_castor node training

# Prints a password for a registry of ECR, which the node role may read.
registry_user=AWS
cat > /run/castor/registry-password <<END
#!/bin/bash
region=\${1#*.dkr.ecr.}
exec $(command -v aws) ecr get-login-password --region "\${region%%.*}"
END

# Writes the time of a reclaim, in seconds since the epoch.
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

# EC2 presses the power button of what it ends; systemd would end the agent and its job at once.
# ExecStop therefore writes a notice first and waits for the agent; the unit has 110 s to stop.
cat > /run/castor/leave <<'END'
#!/bin/bash
[ -n "${MAINPID:-}" ] || exit 0
[ -e /run/castor/reclaim ] || {
  echo $(($(date +%s) + 90)) > /run/castor/reclaim.new && mv /run/castor/reclaim.new /run/castor/reclaim
}
while kill -0 "$MAINPID" 2> /dev/null; do sleep 0.2; done
END

run_own "$post_bootstrap"
