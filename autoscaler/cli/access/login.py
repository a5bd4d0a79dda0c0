"""Commands `castor login`, `logout` and `open`. They import what they need when called."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Annotated, Final

from typer import Argument, Option

from autoscaler.domain.errors import (
    CastorError,
    Forbidden,
    NotAllowed,
    NotFound,
    SpecError,
    Unavailable,
)

if TYPE_CHECKING:
    from pathlib import Path

    from autoscaler.clock import Clock
    from autoscaler.wire.access_messages import BegunLogin, NewToken
    from autoscaler.wire.connection import SavedLogin
    from autoscaler.wire.login_client import LoginClient

_LEAST_INTERVAL_SECONDS: Final = 1.0
_EXPIRED: Final = (
    "nobody approved the login in time, or the controller has changed: run castor login again"
)


def login(
    url: Annotated[
        str | None,
        Argument(help="URL of the controller. Default: CASTOR_URL, or that of the last login."),
    ] = None,
    browser: Annotated[
        bool, Option("--browser/--no-browser", help="Open the page in a browser of this machine.")
    ] = True,
) -> None:
    """Log in through the identity provider of a controller.

    A browser of any machine will do. The token is kept in login.json in ~/.config/castor (or
    XDG_CONFIG_HOME), until it expires or castor logout revokes it. All commands use it, unless
    CASTOR_TOKEN or CASTOR_STATE is set.
    """
    from autoscaler.clock import SystemClock
    from autoscaler.wire.connection import Address, SavedLogin

    earlier = _earlier_login()
    address = url or os.environ.get("CASTOR_URL") or (earlier.url if earlier else "")
    _require_private(address)
    authority = _authority(earlier, address)
    client = Address(address, "", authority).login_client()
    token = _approved(client, _begun(client, address), browser, SystemClock())
    file = None if authority is None else str(authority)
    saved = SavedLogin(address, token.person, token.name, token.token, file)
    try:
        _save(saved)
    except SpecError:
        _revoke_quietly(saved)
        raise
    print(f"logged in as {token.person} at {address}{_until(token)}; castor logout ends it")
    if earlier is not None:
        _revoke_quietly(earlier)
    for variable in _set_before(saved):
        print(f"castor: {variable} is set and comes first: unset it", file=sys.stderr)


def logout() -> None:
    """Revoke the token of castor login, and delete its file."""
    from autoscaler.wire.connection import login_file

    saved = _earlier_login()
    login_file().unlink(missing_ok=True)
    if saved is None:
        print("nobody is logged in here")
        return
    try:
        _revoke(saved)
    except Unavailable as error:
        raise Unavailable(
            f"logged out here, but the token {saved.name} of {saved.person} is valid until it "
            f"expires: castor token revoke {saved.name} ({error})"
        ) from None
    print(f"logged out of {saved.url}")


def open_pages(
    browser: Annotated[
        bool, Option("--browser/--no-browser", help="Open the page in a browser of this machine.")
    ] = True,
) -> None:
    """Open the controller's pages in a browser, signed in as you.

    The printed address signs one browser in, once, within a minute. The session ends after 12
    hours, with the present token, or when you sign out.
    """
    import webbrowser

    from autoscaler.wire.connection import connect

    link = connect().browser_link()
    print(link.url)
    if browser and not webbrowser.open(link.url):
        text = f"no browser here: open the address above within {link.valid_seconds:.0f} s"
        print(f"castor: {text}", file=sys.stderr)


def _earlier_login() -> SavedLogin | None:
    """Return the login of before; None if there is none, or its file can't be used."""
    from autoscaler.wire.connection import saved_login

    try:
        return saved_login()
    except NotAllowed:
        return None


def _set_before(saved: SavedLogin) -> list[str]:
    """Return the variables because of which commands don't use a login."""
    variables = ["CASTOR_TOKEN", "CASTOR_STATE"]
    if not saved.is_for(os.environ.get("CASTOR_URL")):
        variables.append("CASTOR_URL")
    return [variable for variable in variables if os.environ.get(variable)]


def _require_private(url: str) -> None:
    """Check that there is a URL, and that no network can read the token.

    Raises:
        SpecError: there is none, or it is one of HTTP on a network.
    """
    from autoscaler.wire.connection import is_private

    if not url:
        raise SpecError("name the controller: castor login https://HOST:PORT", "URL")
    for part in url.split(","):
        if not is_private(part.strip()):
            raise SpecError(
                f"{part.strip()!r} must be https://HOST:PORT: over http the network reads the "
                "token",
                "URL",
            )


def _authority(earlier: SavedLogin | None, url: str) -> Path | None:
    """Return the file of CASTOR_CA, or that of an earlier login at the same controller."""
    from pathlib import Path

    given = os.environ.get("CASTOR_CA")
    if given is None and earlier is not None and earlier.is_for(url):
        given = earlier.authority
    return Path(given).absolute() if given else None


def _begun(client: LoginClient, url: str) -> BegunLogin:
    """Begin a login at a controller.

    Raises:
        NotFound: the controller has no identity provider.
    """
    from platform import node

    from autoscaler.wire.access_messages import LoginRequest

    try:
        return client.begin(LoginRequest(node()))
    except NotAllowed:  # a release from before logins wants a token
        raise NotFound(
            f"{url} has no identity provider: ask its admin for a token (castor invite)"
        ) from None


def _approved(
    client: LoginClient, begun: BegunLogin, opens_browser: bool, clock: Clock
) -> NewToken:
    """Return the token of a login once a person has approved it.

    Raises:
        Forbidden: the person has denied it.
        NotAllowed: nobody has approved it in time.
    """
    minutes = f"{begun.valid_seconds / 60:.0f} minutes"
    print(
        f"Open this page in a browser, here or on another machine:\n\n  {begun.url}\n\n"
        f"It shows the code {begun.user_code}. Waiting for {minutes}.",
        flush=True,
    )
    if opens_browser and _has_display():
        _open(begun.url)
    ends_seconds = clock.monotonic() + begun.valid_seconds
    interval_seconds = begun.interval_seconds
    while clock.monotonic() < ends_seconds:
        clock.sleep(max(interval_seconds, _LEAST_INTERVAL_SECONDS))
        try:
            reply = client.token(begun.device_code)
        except Unavailable:  # the controller starts again, or a request was lost
            continue
        if reply.token is not None:
            return reply.token
        _require_pending(reply.status)
        interval_seconds = reply.interval_seconds
    raise NotAllowed(_EXPIRED)


def _require_pending(status: str) -> None:
    """Check that a login still awaits an approval.

    Raises:
        Forbidden: it was denied.
        NotAllowed: it has expired.
    """
    from autoscaler.wire.access_messages import LoginStatus

    if status == LoginStatus.DENIED:
        raise Forbidden("the login was denied in the browser")
    if status == LoginStatus.EXPIRED:
        raise NotAllowed(_EXPIRED)


def _has_display() -> bool:
    """Return whether a browser can show a page to the person at this terminal."""
    if os.environ.get("SSH_CONNECTION"):
        return False
    return sys.platform == "darwin" or any(
        os.environ.get(variable) for variable in ("DISPLAY", "WAYLAND_DISPLAY")
    )


def _open(url: str) -> None:
    """Open a page of the web in a browser; a failure is no error, since the URL was printed."""
    import webbrowser

    if url.startswith(("https://", "http://")):
        webbrowser.open(url)


def _save(saved: SavedLogin) -> None:
    """Write a login to its file, which only its owner can read.

    Raises:
        SpecError: the file can't be written.
    """
    from autoscaler.state_directory import write_private
    from autoscaler.wire.connection import login_file

    path = login_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(path, json.dumps(saved._asdict()).encode())
    except OSError as error:
        raise SpecError(f"{path} can't be written: {error.strerror}", "XDG_CONFIG_HOME") from None


def _revoke(saved: SavedLogin) -> None:
    """Revoke the token of a login; one that is not valid any more needs nothing.

    Raises:
        Unavailable: the controller does not answer.
    """
    client = saved.address(authority=os.environ.get("CASTOR_CA")).client()
    try:
        client.revoke_token(saved.name)
    except (NotAllowed, NotFound):
        return
    finally:
        client.close()


def _revoke_quietly(saved: SavedLogin) -> None:
    """Revoke the token of a login that is not used any more, if that is possible."""
    try:
        _revoke(saved)
    except CastorError as error:
        print(
            f"castor: the token {saved.name} stays valid until it expires: {error}",
            file=sys.stderr,
        )


def _until(token: NewToken) -> str:
    """Return words for the time at which a token expires; empty for never."""
    from autoscaler.cli.tables import utc_minute

    if token.expires_seconds is None:
        return ""
    return f" until {utc_minute(token.expires_seconds)} UTC"
