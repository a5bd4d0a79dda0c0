set -euo pipefail

fetch() { # an object of the bucket, to a file
  aws s3 cp --region "$region" --only-show-errors "s3://$bucket/$1" "$2"
}

install_castor() { # into /opt/castor, with the named extras; without wheels the image contains it
  [ ! -e /opt/castor/installed ] || return 0
  if [ "$has_wheels" != true ]; then
    [ -x /opt/castor/bin/castor ] && return 0
    echo 'castor: the image has no /opt/castor/bin/castor: set wheels_directory, or use an image that has it' >&2
    exit 1
  fi
  local from=(--find-links /opt/castor/wheels) wheel
  [ "$has_index" = true ] || from+=(--no-index)
  "$python" -m venv /opt/castor
  aws s3 cp --region "$region" --only-show-errors --recursive "s3://$bucket/wheels/" /opt/castor/wheels
  wheel=$(ls /opt/castor/wheels/castor_autoscaler-*.whl | sort -V | tail -n 1)
  /opt/castor/bin/pip install --quiet --disable-pip-version-check "${from[@]}" "${wheel}[$1]"
  touch /opt/castor/installed
}
