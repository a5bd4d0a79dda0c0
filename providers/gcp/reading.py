"""Sources of the settings: a file, or a Cloud Storage object that Terraform wrote."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from autoscaler.domain.errors import NotFound, ProviderError, SpecError
from autoscaler.spec.form_file import POOLS_FILE, read_text, validated
from autoscaler.spec.located_yaml import read_yaml
from providers.gcp.calls import object_text_url
from providers.gcp.errors import Call
from providers.gcp.rest import send_for_text
from providers.gcp.session import Session, open_session
from providers.gcp.settings import GcpSettings

_STORAGE: Final = "gs://"
_ANSWER_SECONDS: Final = 30.0


def fetch_settings(source: str, session: Session | None = None) -> str:
    """Return the text of the settings in a file, or in the object ``gs://BUCKET/NAME``.

    Args:
        source: path of the file, or URL of the object.
        session: session with credentials; by default from the environment. STORAGE_EMULATOR_HOST
            may name an emulator of Cloud Storage.

    Raises:
        SpecError: the file can't be read, or the source is not an object's URL.
        ProviderError: Cloud Storage did not return the object.
    """
    if not source.startswith(_STORAGE):
        return read_text(Path(source), POOLS_FILE)
    bucket, _, key = source.removeprefix(_STORAGE).partition("/")
    if not bucket or not key:
        raise SpecError(f"{source}: write it like gs://BUCKET/pools.json", "--pools")
    session = session or open_session(os.environ.get("STORAGE_EMULATOR_HOST") or None)
    call = Call(source, "objects.get")
    try:
        return send_for_text(session, call, object_text_url(session, bucket, key), _ANSWER_SECONDS)
    except NotFound as error:
        raise NotFound(
            f"--pools {source}: there is no such object: apply Terraform first"
        ) from error
    except ProviderError as error:
        raise type(error)(f"--pools {error}") from error


def parse_settings(text: str, origin: str) -> GcpSettings:
    """Return the settings in a JSON text.

    Raises:
        SpecError: the settings are invalid; each problem is a line with the place, the key and the
            expected value.
    """
    return validated(read_yaml(text, origin), GcpSettings)
