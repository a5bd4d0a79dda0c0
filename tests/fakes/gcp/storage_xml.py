"""XML API of Cloud Storage, which obstore uses: paths are ``/BUCKET/OBJECT``."""

from __future__ import annotations

import re
from collections.abc import Callable
from email.utils import formatdate
from typing import Final
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from tests.fakes.gcp import tokens
from tests.fakes.gcp.buckets import Bucket, Stored, Upload
from tests.fakes.gcp.errors import Refusal
from tests.fakes.gcp.http_messages import Answer, Prepared, Request
from tests.fakes.gcp.project import Project, utc_timestamp

_XML: Final = (("Content-Type", "application/xml; charset=UTF-8"),)
_RANGE: Final = re.compile(r"bytes=(\d*)-(\d*)")
_CODES: Final = {
    403: "AccessDenied",
    404: "NoSuchKey",
    412: "PreconditionFailed",
    503: "ServiceUnavailable",
}
_MAXIMUM: Final = 1000
_ANY: Final = {"if-match", "if-none-match"}
Find = Callable[[str], Bucket | None]


def prepare_xml_storage_call(
    request: Request, find: Find, default_project: Project
) -> Prepared | None:
    """Return the call of a request; this API takes the requests that no other API has."""
    bucket_name, _, name = (unquote(part) for part in request.path[1:].partition("/"))
    bucket = find(bucket_name)
    action = _action(request, name)
    if action is None or not bucket_name:
        return None

    def serve(_: str) -> Answer:
        if bucket is None:
            raise Refusal(404, "NoSuchBucket", "The specified bucket does not exist.")
        tokens.check(bucket, request, action, name or request.first("prefix"))
        with bucket.project.lock:
            return _SERVING[action](bucket, name, request)

    project = default_project if bucket is None else bucket.project
    parameters = {"bucket": bucket_name, **({"object": name} if name else {})}
    return Prepared(action, project, parameters, {}, serve, _refused)


def _action(request: Request, name: str) -> str | None:
    """Return the action of a request, with the JSON API's name if there is one."""
    query, verb = request.query, request.verb
    if not name:
        return "storage.objects.list" if verb == "GET" else None
    if "uploads" in query and verb == "POST":
        return "storage.multipart.initiate"
    if "uploadId" in query:
        multipart = {"PUT": "upload", "POST": "complete", "DELETE": "abort"}
        return f"storage.multipart.{multipart[verb]}" if verb in multipart else None
    if verb == "PUT" and "x-goog-copy-source" in request.headers:
        return "storage.objects.copy"
    actions = {"PUT": "insert", "GET": "get", "HEAD": "get", "DELETE": "delete"}
    return f"storage.objects.{actions[verb]}" if verb in actions else None


def _put(bucket: Bucket, name: str, request: Request) -> Answer:
    kind = request.headers.get("content-type", "application/octet-stream")
    stored = bucket.put(name, request.content, kind, _generation(request))
    return Answer(200, b"", _headers(stored))


def _copy(bucket: Bucket, name: str, request: Request) -> Answer:
    source = unquote(request.headers["x-goog-copy-source"]).removeprefix("/")
    bucket_name, _, source_name = source.partition("/")
    if bucket_name != bucket.name:
        raise Refusal(501, "NotImplemented", "This fake copies within a bucket only.")
    tokens.check(bucket, request, "storage.objects.get", source_name)
    source_object = bucket.get(source_name)
    stored = bucket.put(
        name, source_object.content, source_object.content_type, _generation(request)
    )
    body = f"<CopyObjectResult><ETag>{stored.etag}</ETag></CopyObjectResult>"
    return Answer(200, body.encode(), (*_XML, *_headers(stored)))


def _get(bucket: Bucket, name: str, request: Request) -> Answer:
    stored = bucket.get(name)
    is_head = request.verb == "HEAD"
    wanted, refused = (request.headers.get(name, "") for name in sorted(_ANY))
    if wanted not in ("", "*", stored.etag):
        raise Refusal(412, "PreconditionFailed", "The object has changed.")
    if refused in ("*", stored.etag):
        return Answer(304, b"", _headers(stored))
    kind = ("Content-Type", stored.content_type)
    size = len(stored.content)
    match = _RANGE.fullmatch(request.headers.get("range", ""))
    if match is None or is_head:
        length = ("Content-Length", str(size))
        content = b"" if is_head else stored.content
        return Answer(200, content, (*_headers(stored), kind, length))
    first, last = _ends(match[1], match[2], size)
    if first >= size:
        raise Refusal(416, "InvalidRange", "The requested range cannot be satisfied.")
    content_range = ("Content-Range", f"bytes {first}-{last}/{size}")
    return Answer(206, stored.content[first : last + 1], (*_headers(stored), kind, content_range))


def _ends(first: str, last: str, whole: int) -> tuple[int, int]:
    """Return the first and the last byte of a range; without a first byte it is a suffix."""
    if not first:
        return max(0, whole - int(last)), whole - 1
    return int(first), min(int(last) if last else whole - 1, whole - 1)


def _delete(bucket: Bucket, name: str, request: Request) -> Answer:
    bucket.delete(name, _generation(request))
    return Answer(204, b"", ())


def _list(bucket: Bucket, _: str, request: Request) -> Answer:
    first = request.first
    after = max(first("continuation-token"), first("start-after"))
    maximum = min(int(first("max-keys") or _MAXIMUM), bucket.project.page or _MAXIMUM)
    objects, prefixes, last = bucket.page(first("prefix"), first("delimiter"), after, maximum)
    contents = "".join(
        f"<Contents><Key>{escape(stored.name)}</Key><ETag>{stored.etag}</ETag>"
        f"<Size>{len(stored.content)}</Size><Generation>{stored.generation}</Generation>"
        f"<LastModified>{utc_timestamp(stored.updated_seconds)}</LastModified>"
        "</Contents>"
        for stored in objects
    )
    common = "".join(
        f"<CommonPrefixes><Prefix>{escape(prefix)}</Prefix></CommonPrefixes>"
        for prefix in prefixes
    )
    more = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>" if last else ""
    body = (
        f"<ListBucketResult><Name>{bucket.name}</Name><IsTruncated>{str(bool(last)).lower()}"
        f"</IsTruncated>{contents}{common}{more}</ListBucketResult>"
    )
    return Answer(200, body.encode(), _XML)


def _initiate(bucket: Bucket, name: str, request: Request) -> Answer:
    number = f"upload-{bucket.project.next_number()}"
    kind = request.headers.get("content-type", "application/octet-stream")
    bucket.uploads[number] = Upload(name, kind)
    body = (
        f"<InitiateMultipartUploadResult><Bucket>{bucket.name}</Bucket>"
        f"<Key>{escape(name)}</Key><UploadId>{number}</UploadId></InitiateMultipartUploadResult>"
    )
    return Answer(200, body.encode(), _XML)


def _part(bucket: Bucket, name: str, request: Request) -> Answer:
    number = int(request.first("partNumber"))
    _upload(bucket, name, request).parts[number] = request.content
    part = Stored(name, request.content, number, 0.0)
    return Answer(200, b"", (("ETag", part.etag),))


def _complete(bucket: Bucket, name: str, request: Request) -> Answer:
    """Combine the named parts, which must be in order."""
    upload = _upload(bucket, name, request)
    numbers = [
        int(element.text or 0)
        for element in ElementTree.fromstring(request.content).iter()
        if element.tag.endswith("PartNumber")
    ]
    if not numbers or numbers != sorted(set(numbers) & upload.parts.keys()):
        raise Refusal(400, "InvalidPart", "One or more of the parts could not be found.")
    content = b"".join(upload.parts[number] for number in numbers)
    stored = bucket.put(name, content, upload.content_type, _generation(request))
    del bucket.uploads[request.first("uploadId")]
    body = (
        f"<CompleteMultipartUploadResult><Bucket>{bucket.name}</Bucket><Key>{escape(name)}</Key>"
        f"<ETag>{stored.etag}</ETag></CompleteMultipartUploadResult>"
    )
    return Answer(200, body.encode(), (*_XML, *_headers(stored)))


def _abort(bucket: Bucket, name: str, request: Request) -> Answer:
    _upload(bucket, name, request)
    del bucket.uploads[request.first("uploadId")]
    return Answer(204, b"", ())


def _upload(bucket: Bucket, name: str, request: Request) -> Upload:
    upload = bucket.uploads.get(request.first("uploadId"))
    if upload is None or upload.name != name:
        raise Refusal(404, "NoSuchUpload", "The requested upload was not found.")
    return upload


def _generation(request: Request) -> int | None:
    text = request.headers.get("x-goog-if-generation-match")
    return None if text is None else int(text)


def _headers(stored: Stored) -> tuple[tuple[str, str], ...]:
    return (
        ("ETag", stored.etag),
        ("Last-Modified", formatdate(stored.updated_seconds, usegmt=True)),
        ("x-goog-generation", str(stored.generation)),
    )


def _refused(refusal: Refusal) -> Answer:
    code = refusal.reason if refusal.reason[0].isupper() else _CODES.get(refusal.status, "Error")
    body = f"<Error><Code>{code}</Code><Message>{escape(refusal.message)}</Message></Error>"
    return Answer(refusal.status, body.encode(), _XML)


_SERVING: Final[dict[str, Callable[[Bucket, str, Request], Answer]]] = {
    "storage.objects.copy": _copy,
    "storage.objects.delete": _delete,
    "storage.objects.get": _get,
    "storage.objects.insert": _put,
    "storage.objects.list": _list,
    "storage.multipart.abort": _abort,
    "storage.multipart.complete": _complete,
    "storage.multipart.initiate": _initiate,
    "storage.multipart.upload": _part,
}
