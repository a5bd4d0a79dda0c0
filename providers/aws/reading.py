"""Sources of the settings: a file, or an SSM parameter that Terraform wrote."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from autoscaler.domain.errors import NotFound, PermissionDenied, ProviderError, SpecError
from autoscaler.spec.form_file import POOLS_FILE, read_text, validated
from autoscaler.spec.located_yaml import read_yaml
from providers.aws.errors import CALL_ERRORS, Call, error_code, provider_error
from providers.aws.settings import AwsSettings

_SSM: Final = "ssm:"


def open_session() -> boto3.session.Session:
    """Return a session with the credentials and the region of the environment.

    AWS_REGION is what other AWS tools read; boto3 reads AWS_DEFAULT_REGION only.

    Raises:
        PermissionDenied: the environment names a profile that can't be used.
    """
    try:
        return boto3.session.Session(region_name=os.environ.get("AWS_REGION") or None)
    except BotoCoreError as error:
        raise PermissionDenied(
            f"AWS_PROFILE: {' '.join(str(error).split())}: name a profile that ~/.aws/config has, "
            "or unset it"
        ) from error


def read_settings(
    source: str, session: boto3.session.Session | None = None, endpoint_url: str | None = None
) -> AwsSettings:
    """Return the settings in a file, or in the SSM parameter ``ssm:/NAME``.

    Args:
        source: path of the file, or name of the parameter.
        session: session with credentials and, for SSM, a region; by default from the environment.
        endpoint_url: endpoint of SSM; AWS's own by default.

    Raises:
        SpecError: the settings can't be read or are invalid; each problem is a line with the
            place, the key and the expected value.
        ProviderError: AWS did not return the parameter.
    """
    return parse_settings(fetch_settings(source, session, endpoint_url), source)


def fetch_settings(
    source: str, session: boto3.session.Session | None = None, endpoint_url: str | None = None
) -> str:
    """Return the text of the settings for `parse_settings`. Arguments as in `read_settings`.

    Raises:
        SpecError: the file can't be read, or no region is set.
        ProviderError: AWS did not return the parameter.
    """
    if not source.startswith(_SSM):
        return read_text(Path(source), POOLS_FILE)
    session = session or open_session()
    if session.region_name is None:
        raise SpecError(f"{source}: no region is set: set AWS_REGION to the parameter's region")
    return _fetch_parameter(source, session, endpoint_url)


def parse_settings(text: str, origin: str) -> AwsSettings:
    """Return the settings in a JSON text.

    Raises:
        SpecError: the settings are invalid; the error names `origin` and the line.
    """
    return validated(read_yaml(text, origin), AwsSettings)


def _fetch_parameter(source: str, session: boto3.session.Session, endpoint_url: str | None) -> str:
    call = Call(session.region_name or "", "GetParameter")
    try:
        client = session.client(
            "ssm",
            endpoint_url=endpoint_url,
            config=Config(retries={"total_max_attempts": 3, "mode": "standard"}),
        )
        reply = client.get_parameter(Name=source.removeprefix(_SSM), WithDecryption=True)
        return str(reply["Parameter"]["Value"])
    except CALL_ERRORS as error:
        raise _with_source(source, provider_error(error, call), error_code(error)) from error


def _with_source(source: str, error: ProviderError, code: str) -> ProviderError:
    if code == "ParameterNotFound":
        return NotFound(
            f"--pools {source}: there is no such parameter in this account and region: set "
            "AWS_REGION, or apply Terraform first"
        )
    return type(error)(f"--pools {source}: {error}")
