"""Traces by OpenTelemetry: from the request or report that wakes the loop to the calls of a cloud.

A tick follows from all that woke the loop since the last one, so its span has links to them. Its
calls to clouds are made in workers, and are parts of the tick's trace.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from autoscaler.domain.errors import SpecError
from autoscaler.extras import from_extras
from autoscaler.log_fields import log_fields
from autoscaler.spans import SpanOpener, TraceSpan, no_span

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Link
    from opentelemetry.trace import Span as OtelSpan

ENDPOINT_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""Variables of OpenTelemetry that name the receiver of traces."""
_OPTION: Final = "--traces"
_PATH: Final = "/v1/traces"
_MOST_LINKS: Final = 32
_SCOPE: Final = "castor"


class NoTraces:
    """Traces that are not recorded, and cost nothing."""

    span: SpanOpener = staticmethod(no_span)

    @contextmanager
    def tick(self) -> Iterator[None]:
        """Open nothing for a tick."""
        yield

    def woke(self) -> None:
        """Note nothing."""

    def close(self) -> None:
        """End nothing."""


class Traces(NoTraces):
    """Traces of one deployment. Threads may share them."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer(_SCOPE)
        self._lock = threading.Lock()
        self._waking: deque[Link] = deque(maxlen=_MOST_LINKS)
        self.span = self._span

    @contextmanager
    def _span(self, name: str, **attributes: str | int) -> Iterator[TraceSpan]:
        """Open a span for the body; its error is recorded, and raised.

        Log lines of the body have the trace's id.
        """
        with self._open(name, attributes) as span:
            yield span

    @contextmanager
    def tick(self) -> Iterator[None]:
        """Open the span of a tick for the body, with links to the spans that woke the loop."""
        with self._lock:
            links = tuple(self._waking)
            self._waking.clear()
        with self._open("tick", {}, links):
            yield

    def woke(self) -> None:
        """Note that the span that is open now has woken the loop."""
        from opentelemetry.trace import Link, get_current_span

        context = get_current_span().get_span_context()
        if context.is_valid:
            with self._lock:
                self._waking.append(Link(context))

    def close(self) -> None:
        """Send the last spans, and end."""
        self._provider.shutdown()

    @contextmanager
    def _open(
        self, name: str, attributes: Mapping[str, str | int], links: tuple[Link, ...] = ()
    ) -> Iterator[_OpenSpan]:
        from opentelemetry.trace import format_trace_id

        named = {f"castor.{key}": value for key, value in attributes.items()}
        with self._tracer.start_as_current_span(name, attributes=named, links=links) as span:
            trace_id = format_trace_id(span.get_span_context().trace_id)
            with log_fields(trace_id=trace_id):
                yield _OpenSpan(span)


class _OpenSpan:
    """Span of OpenTelemetry."""

    def __init__(self, span: OtelSpan) -> None:
        self._span = span

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def put(self, key: str, value: str | int) -> None:
        self._span.set_attribute(f"castor.{key}", value)


def require_traces(url: str | None, environment: Mapping[str, str]) -> None:
    """Check that traces can be sent, if they are wanted.

    Raises:
        SpecError: the URL is none, or the extra is not installed.
    """
    if not _is_wanted(url, environment):
        return
    if url is not None and (
        urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname
    ):
        raise SpecError(f"{url!r} must be like http://localhost:4318", _OPTION)
    with from_extras("telemetry", _OPTION):
        import opentelemetry.exporter.otlp.proto.http
        import opentelemetry.sdk.trace  # noqa: F401


def open_traces(url: str | None, environment: Mapping[str, str], version: str) -> NoTraces:
    """Return the traces of a controller, which are recorded if a receiver is named.

    The receiver is that at `url`, by OTLP over HTTP; None: the one in OpenTelemetry's variables of
    the environment, which also set the headers, the sampling and the limits.
    """
    if not _is_wanted(url, environment):
        return NoTraces()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    named = {} if "OTEL_SERVICE_NAME" in environment else {"service.name": "castor"}
    provider = TracerProvider(
        resource=Resource.create({**named, "service.version": version}), shutdown_on_exit=False
    )
    exporter = OTLPSpanExporter(endpoint=None if url is None else _endpoint(url))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Traces(provider)


def _is_wanted(url: str | None, environment: Mapping[str, str]) -> bool:
    return url is not None or any(environment.get(name) for name in ENDPOINT_VARIABLES)


def _endpoint(url: str) -> str:
    """Return the address that takes traces: that of the URL's host, unless it names a path."""
    return url if urlsplit(url).path.strip("/") else f"{url.rstrip('/')}{_PATH}"
