"""Reads long lists of instances by a parser in C: botocore's own takes 0.5 ms an instance.

Only what `replies.told_instance` looks at is read. botocore hands a reply to whoever asks for it
before it parses it itself (``before-parse``), and takes over what it is given; all the rest of a
call, errors too, stays botocore's.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from xml.etree import ElementTree

_EVENT: Final = "before-parse.ec2.DescribeInstances"
_NOTHING_LEFT: Final = b"<DescribeInstancesResponse/>"


def read_lists_quickly(client: Any) -> None:
    """Have the replies of this client of EC2 to DescribeInstances read here."""
    client.meta.events.register(_EVENT, _read)


def _read(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
) -> None:
    """Take the list out of the reply; what can't be read is left to botocore and its errors."""
    if response_dict["status_code"] != 200:
        return
    try:
        found = _listed(ElementTree.fromstring(response_dict["body"]))
    except (ElementTree.ParseError, AttributeError, KeyError, TypeError, ValueError):
        return
    if found is not None:
        customized_response_dict.update(found)
        response_dict["body"] = _NOTHING_LEFT


def _listed(reply: ElementTree.Element) -> dict[str, Any] | None:
    """The reply as botocore would give it; None if there is no list in it."""
    names = _Names(reply)
    reservations = reply.find(names.reservations)
    if reservations is None:
        return None
    told = [
        {"Instances": [names.instance(one) for one in reservation.iterfind(names.instances)]}
        for reservation in reservations
    ]
    token = reply.findtext(names.next_token)
    return {"Reservations": told, **({"NextToken": token} if token else {})}


class _Names:
    """The names of what is read, in the reply's own namespace: to look in any takes longer."""

    def __init__(self, reply: ElementTree.Element) -> None:
        space = reply.tag[: reply.tag.find("}") + 1]
        self.reservations = f"{space}reservationSet"
        self.instances = f"{space}instancesSet/{space}item"
        self.next_token = f"{space}nextToken"
        self._id = f"{space}instanceId"
        self._state = f"{space}instanceState"
        self._state_name = f"{space}name"
        self._launched = f"{space}launchTime"
        self._reason = f"{space}reason"
        self._tags = f"{space}tagSet"
        self._key, self._value = f"{space}key", f"{space}value"

    def instance(self, told: ElementTree.Element) -> dict[str, Any]:
        """One instance.

        Raises:
            AttributeError, KeyError, TypeError, ValueError: a field is missing, or unreadable.
        """
        parts = {part.tag: part for part in told}
        tags = [
            {"Key": tag.find(self._key).text or "", "Value": tag.find(self._value).text or ""}  # type: ignore[union-attr]
            for tag in parts.get(self._tags, ())
        ]
        reason = parts.get(self._reason)
        return {
            "InstanceId": parts[self._id].text,
            "State": {"Name": parts[self._state].find(self._state_name).text},  # type: ignore[union-attr]
            "LaunchTime": datetime.fromisoformat(parts[self._launched].text),  # type: ignore[arg-type]
            "StateTransitionReason": "" if reason is None else reason.text or "",
            "Tags": tags,
        }
