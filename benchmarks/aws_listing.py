"""Time to list a large deployment on EC2 page by page, on the controller's host.

python benchmarks/aws_listing.py [--instances 1000 10000 100000]

A local server answers DescribeInstances with pages of 1,000 instances in EC2's format (a real
reply of moto for one instance, repeated with other ids). So only the client is measured: HTTP, the
parsing of XML, and the provider's register. The budget of calls, which would spread 100 pages over
10 s, is disabled. The second list contains known instances only.
"""

from __future__ import annotations

import argparse
import json
import re
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, make_server

import boto3

from autoscaler.clock import Clock, SystemClock
from providers.aws.provider import AwsProvider
from providers.aws.reading import parse_settings
from providers.cloud.budget import CallRateLimiter, Rate

_PAGE = 1000
_INSTANCE = """<item><instanceId>i-{number:017x}</instanceId>
<imageId>ami-0123456789abcdef0</imageId><instanceState><code>16</code><name>running</name>
</instanceState><privateDnsName>ip-10-80-0-1.ec2.internal</privateDnsName><dnsName/><reason/>
<amiLaunchIndex>0</amiLaunchIndex><instanceType>g5.xlarge</instanceType>
<launchTime>2026-11-21T10:00:00.000Z</launchTime><placement>
<availabilityZone>us-east-1a</availabilityZone><groupName/><tenancy>default</tenancy></placement>
<monitoring><state>disabled</state></monitoring><subnetId>subnet-0123456789abcdef0</subnetId>
<vpcId>vpc-0123456789abcdef0</vpcId><privateIpAddress>10.80.0.1</privateIpAddress>
<sourceDestCheck>true</sourceDestCheck><groupSet><item><groupId>sg-0123456789abcdef0</groupId>
<groupName>castor-prod-nodes</groupName></item></groupSet><architecture>x86_64</architecture>
<rootDeviceType>ebs</rootDeviceType><rootDeviceName>/dev/sda1</rootDeviceName>
<blockDeviceMapping><item><deviceName>/dev/sda1</deviceName><ebs><volumeId>vol-{number:017x}
</volumeId><status>attached</status><attachTime>2026-11-21T10:00:00.000Z</attachTime>
<deleteOnTermination>true</deleteOnTermination></ebs></item></blockDeviceMapping>
<virtualizationType>hvm</virtualizationType><clientToken>{number:064x}</clientToken><tagSet>
<item><key>castor:controller</key><value>bench</value></item>
<item><key>castor:job</key><value>job-{job}</value></item>
<item><key>castor:instance</key><value>job-{job}-{number}-1</value></item>
<item><key>castor:token</key><value>{number:048x}</value></item>
<item><key>castor:offer</key><value>gpu/g5.xlarge/us-east-1a/spot</value></item>
<item><key>castor:deployment</key><value>bench</value></item>
<item><key>castor:pool</key><value>gpu</value></item></tagSet><hypervisor>xen</hypervisor>
<networkInterfaceSet/><ebsOptimized>false</ebsOptimized></item>"""

SETTINGS = {
    "schema": 1,
    "deployment": "bench",
    "regions": {
        "us-east-1": {
            "subnets": {"us-east-1a": "subnet-0123456789abcdef0"},
            "user_data": "s3://castor-bench/user-data",
        }
    },
    "pools": {
        "gpu": {
            "region": "us-east-1",
            "launch_template": {"id": "lt-0123456789abcdef0", "version": "1"},
            "instance_types": ["g5.xlarge"],
            "purchases": ["spot"],
            "max_instances": 100000,
            "max_usd_per_hour": 100000,
        }
    },
    "max_usd_per_hour": 100000,
}


class Unbounded(CallRateLimiter):
    """Call budget without a limit."""

    def take(self, *arguments: Any, **options: Any) -> None:
        """Return at once."""


class Pages:
    """WSGI server of DescribeInstances for a number of instances; no other action is supported."""

    def __init__(self, count: int) -> None:
        self._bodies = [self._body(page, count) for page in range(0, count, _PAGE)]
        self.bytes = sum(len(body) for body in self._bodies)

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Return the page that the request's token names, as WSGI requires."""
        length = int(environ.get("CONTENT_LENGTH") or 0)
        query = parse_qs(environ["wsgi.input"].read(length).decode())
        assert query["Action"] == ["DescribeInstances"], query
        body = self._bodies[int(query.get("NextToken", ["0"])[0])]
        start("200 OK", [("Content-Type", "text/xml"), ("Content-Length", str(len(body)))])
        return [body]

    @staticmethod
    def _body(first: int, count: int) -> bytes:
        """Return the XML page of the instances from `first` on."""
        last = min(first + _PAGE, count)
        items = "".join(
            "<item><reservationId>r-0</reservationId><ownerId>0</ownerId><instancesSet>"
            + re.sub(r"\n", "", _INSTANCE.format(number=number, job=number % 500))
            + "</instancesSet></item>"
            for number in range(first, last)
        )
        following = f"<nextToken>{last // _PAGE}</nextToken>" if last < count else ""
        return (
            '<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
            f"<requestId>0</requestId><reservationSet>{items}</reservationSet>{following}"
            "</DescribeInstancesResponse>"
        ).encode()


class _Quiet(WSGIRequestHandler):
    """Request handler without a log."""

    def log_message(self, format: str, *arguments: Any) -> None:
        """Discard the message."""


def measure(count: int, clock: Clock) -> dict[str, float]:
    """Return wall-clock and processor seconds of a first and a second list."""
    pages = Pages(count)
    server = make_server("127.0.0.1", 0, pages, handler_class=_Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    document = {**SETTINGS, "endpoint_url": f"http://127.0.0.1:{server.server_port}"}
    session = boto3.session.Session("key", "secret", region_name="us-east-1")
    provider = AwsProvider(parse_settings(json.dumps(document), "bench"), "bench", clock, session)
    for calls in provider._calls.values():
        calls._budget = Unbounded(clock, {}, Rate(1, 1))
    figures: dict[str, float] = {"instances": count, "megabytes": round(pages.bytes / 1e6, 1)}
    for name in ("first", "again"):
        began, began_cpu = time.perf_counter(), time.thread_time()
        assert len(provider.instances()) == count
        figures[f"{name}_seconds"] = round(time.perf_counter() - began, 2)
        figures[f"{name}_processor_seconds"] = round(time.thread_time() - began_cpu, 2)
    server.shutdown()
    server.server_close()
    return figures


def main() -> None:
    """Print a line of JSON for each number of instances."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, nargs="+", default=[1000, 10_000, 100_000])
    for count in parser.parse_args().instances:
        print(json.dumps(measure(count, SystemClock())), flush=True)


if __name__ == "__main__":
    main()
