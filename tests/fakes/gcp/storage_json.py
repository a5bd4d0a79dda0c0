"""JSON API of Cloud Storage, as far as start data and pools need it."""

from __future__ import annotations

import email
import email.policy
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import unquote

from tests.fakes.gcp import tokens
from tests.fakes.gcp.buckets import Bucket, Stored
from tests.fakes.gcp.discovery import Method, api
from tests.fakes.gcp.errors import Refusal, invalid, unknown
from tests.fakes.gcp.http_messages import (
    Answer,
    Prepared,
    Request,
    json_answer,
    json_refusal,
    read_json,
)
from tests.fakes.gcp.project import Body, Project, utc_timestamp

_MAXIMUM: Final = 1000
_PATH: Final = "/storage/v1/"
_UPLOAD: Final = "/upload"
_DOWNLOAD: Final = "/download"
Find = Callable[[str], Bucket | None]


def prepare_json_storage_call(
    request: Request, find: Find, project_of: Callable[[str], Project]
) -> Prepared | None:
    """Return the call of a request; None if this API does not have it."""
    path = request.path.removeprefix(_UPLOAD).removeprefix(_DOWNLOAD)
    match = api("storage.v1").find(request.verb, path) if path.startswith(_PATH) else None
    if match is None:
        return None
    method, quoted = match
    path_parameters = {name: unquote(text) for name, text in quoted.items()}
    bucket = find(path_parameters["bucket"]) if "bucket" in path_parameters else None
    owner = request.first("project") or request.headers.get("x-goog-user-project", "nobody")
    project = project_of(owner) if bucket is None else bucket.project
    query = {name: texts[0] for name, texts in request.query.items()}

    def serve(_: str) -> Answer:
        parameters = api("storage.v1").parameters(
            method, path_parameters, _query_without_upload(request)
        )
        with project.lock:
            return _serve(method, parameters, request, project, bucket, find)

    return Prepared(method.id, project, {**query, **path_parameters}, {}, serve, json_refusal)


def _query_without_upload(request: Request) -> dict[str, list[str]]:
    """Return the query without the parameters that the upload front end reads."""
    upload_parameters = {"uploadType", "upload_id"}
    return {name: texts for name, texts in request.query.items() if name not in upload_parameters}


def _serve(
    method: Method,
    parameters: dict[str, Any],
    request: Request,
    project: Project,
    bucket: Bucket | None,
    find: Find,
) -> Answer:
    if method.id == "storage.buckets.insert":
        body = api("storage.v1").check_request(method, read_json(request.content))
        return _checked_answer(method, _create_bucket(body, project, find))
    if bucket is None:
        raise Refusal(404, "notFound", "The specified bucket does not exist.")
    if method.id != "storage.objects.insert":  # the object's name may be in the upload
        place = parameters.get("object") or parameters.get("prefix", "")
        tokens.check(bucket, request, method.id, place)
    match method.id:
        case "storage.buckets.get":
            return _checked_answer(method, _bucket(bucket))
        case "storage.objects.insert":
            return _checked_answer(method, _insert_object(bucket, method, parameters, request))
        case "storage.objects.get":
            return _get_object(bucket, method, parameters, request)
        case "storage.objects.list":
            return _checked_answer(method, _list_objects(bucket, parameters))
        case "storage.objects.delete":
            bucket.delete(parameters["object"], _generation(parameters))
            return Answer(204, b"", ())
    raise Refusal(501, "notImplemented", f"This fake does not do {method.id}.")


def _create_bucket(body: Body, project: Project, find: Find) -> Body:
    name = body.get("name", "")
    if not 3 <= len(name) <= 63:
        raise invalid("name", name, "Bucket names have from 3 to 63 characters.")
    if find(name) is not None:
        raise Refusal(409, "conflict", "The requested bucket name is not available.")
    made = project.buckets[name] = Bucket(name, project)
    return _bucket(made)


def _insert_object(
    bucket: Bucket, method: Method, parameters: dict[str, Any], request: Request
) -> Body:
    kind = request.headers.get("content-type", "application/octet-stream")
    resource: Body = {}
    match request.first("uploadType") if request.path.startswith(_UPLOAD) else "":
        case "media":
            content = request.content
        case "multipart":
            resource, kind, content = _parts(method, kind, request.content)
        case other:
            raise invalid("uploadType", other, "This fake takes media and multipart.")
    name = resource.get("name") or parameters.get("name")
    if not name:
        raise Refusal(400, "required", "Required")
    tokens.check(bucket, request, method.id, name)
    stored = bucket.put(name, content, resource.get("contentType", kind), _generation(parameters))
    return _object(bucket, stored)


def _parts(method: Method, kind: str, content: bytes) -> tuple[Body, str, bytes]:
    """Return the metadata, the content type and the content of a multipart upload."""
    head = f"Content-Type: {kind}\r\n\r\n".encode()
    whole = email.message_from_bytes(head + content, policy=email.policy.HTTP)
    parts = list(whole.iter_parts())
    if len(parts) != 2:
        raise unknown("An upload has two parts.")
    about, media = (part.get_payload(decode=True) for part in parts)
    assert isinstance(about, bytes)
    assert isinstance(media, bytes)
    resource = api("storage.v1").check_request(method, read_json(about))
    return resource, parts[1].get_content_type(), media


def _get_object(
    bucket: Bucket, method: Method, parameters: dict[str, Any], request: Request
) -> Answer:
    stored = bucket.get(parameters["object"])
    bucket.check(stored.name, _generation(parameters))
    if request.first("alt") == "media":
        generation = ("x-goog-generation", str(stored.generation))
        return Answer(200, stored.content, (("Content-Type", stored.content_type), generation))
    return _checked_answer(method, _object(bucket, stored))


def _list_objects(bucket: Bucket, parameters: dict[str, Any]) -> Body:
    maximum = min(parameters.get("maxResults") or _MAXIMUM, bucket.project.page or _MAXIMUM)
    objects, prefixes, last = bucket.page(
        parameters.get("prefix", ""),
        parameters.get("delimiter", ""),
        parameters.get("pageToken", ""),
        maximum,
    )
    answer: Body = {"kind": "storage#objects"}
    if objects:
        answer["items"] = [_object(bucket, stored) for stored in objects]
    if prefixes:
        answer["prefixes"] = prefixes
    return answer | ({"nextPageToken": last} if last else {})


def _checked_answer(method: Method, body: Body) -> Answer:
    api("storage.v1").check_response(method, body)
    return json_answer(body)


def _bucket(bucket: Bucket) -> Body:
    return {
        "kind": "storage#bucket",
        "id": bucket.name,
        "name": bucket.name,
        "projectNumber": bucket.project.number,
        "location": "US",
        "storageClass": "STANDARD",
    }


def _object(bucket: Bucket, stored: Stored) -> Body:
    moment = utc_timestamp(stored.updated_seconds)
    return {
        "kind": "storage#object",
        "id": f"{bucket.name}/{stored.name}/{stored.generation}",
        "name": stored.name,
        "bucket": bucket.name,
        "generation": str(stored.generation),
        "metageneration": "1",
        "contentType": stored.content_type,
        "size": str(len(stored.content)),
        "md5Hash": stored.md5_in_json,
        "etag": stored.etag.strip('"'),
        "timeCreated": moment,
        "updated": moment,
        "storageClass": "STANDARD",
    }


def _generation(parameters: dict[str, Any]) -> int | None:
    text = parameters.get("ifGenerationMatch")
    return None if text is None else int(text)
