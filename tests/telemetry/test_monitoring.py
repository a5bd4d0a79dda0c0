"""docs/monitoring.md, its alert rules and its dashboard, beside the metrics of the code."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.errors import InsufficientCapacity
from autoscaler.domain.gpu_use import GpuUse
from autoscaler.telemetry import catalogue
from autoscaler.telemetry.catalogue import JOB_LABELS, MetricKind, MetricSpec
from tests.conformance.store_examples import model
from tests.controller.world import World
from tests.telemetry.conftest import Scraped, objective

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "monitoring.md"
ALERTS = DOCS / "monitoring" / "alerts.yaml"
DASHBOARD = DOCS / "monitoring" / "grafana-dashboard.json"

SPECS = {spec.name: spec for spec in vars(catalogue).values() if isinstance(spec, MetricSpec)}
# Samples of each metric, and the labels of each.
SAMPLES = {
    f"{spec.name}{suffix}": {*spec.labels, *(("le",) if suffix == "_bucket" else ())}
    for spec in SPECS.values()
    for suffix in (("_bucket", "_count", "_sum") if spec.kind is MetricKind.HISTOGRAM else ("",))
}
OF_PROMETHEUS = {"instance"}  # label of each scrape


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return json.loads(DASHBOARD.read_text())["panels"]  # type: ignore[no-any-return]


def queries() -> Iterator[tuple[str, str]]:
    """Yield each expression of rules, dashboard and page, with its place."""
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for variable in json.loads(DASHBOARD.read_text())["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["definition"]
    for block in re.findall(r"^```promql\n(.*?)```", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        yield from (("page", line) for line in block.splitlines())


def names(expression: str) -> set[str]:
    return set(re.findall(r"\bcastor_\w+", expression))


@pytest.mark.parametrize(("place", "expression"), list(queries()))
def test_queries_name_metrics_and_labels_that_the_code_emits(place: str, expression: str) -> None:
    assert names(expression) <= SAMPLES.keys(), place
    for name, matchers in re.findall(r"\b(castor_\w+)\{([^}]*)\}", expression):
        labels = set(re.findall(r"(\w+)\s*[=!]", matchers))
        assert labels <= SAMPLES[name] | OF_PROMETHEUS, (place, name)
    known = set().union(OF_PROMETHEUS, *(SAMPLES[name] for name in names(expression)))
    for grouped in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression):
        assert {label.strip() for label in grouped.split(",")} <= known, place


def test_the_texts_of_alerts_name_labels_that_their_query_has() -> None:
    for rule in rules():
        labels = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
        known = set().union(OF_PROMETHEUS, *(SAMPLES[name] for name in names(rule["expr"])))
        assert labels <= known, rule["alert"]
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"].keys() == {"summary", "description"}


def test_every_alert_is_on_the_page_with_its_severity() -> None:
    section = PAGE.read_text().split("## Alerts\n")[1]
    rows = re.findall(r"^\| (?:controller|fleet|jobs) \|(.*)\|(.*)\|$", section, re.MULTILINE)
    columns = ("page", "ticket")
    named = {
        (alert, severity)
        for row in rows
        for severity, cell in zip(columns, row, strict=True)
        for alert in re.findall(r"`(\w+)`", cell)
    }
    assert named == {(rule["alert"], rule["labels"]["severity"]) for rule in rules()}


def row_of(spec: MetricSpec) -> str:
    labels = spec.labels[3:] if spec.labels[:3] == JOB_LABELS else spec.labels
    cell = f" {', '.join(labels)} " if labels else " "
    return f"| `{spec.name}` | {spec.kind.value} |{cell}| {spec.meaning} |"


def test_the_page_has_the_table_of_the_catalogue() -> None:
    rows = re.findall(r"^\| `castor_.*$", PAGE.read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(map(row_of, SPECS.values()))


def test_names_follow_the_rules_of_prometheus() -> None:
    for name, spec in SPECS.items():
        assert re.fullmatch(r"castor(_[a-z]+)+", name)
        assert name.endswith("_total") == (spec.kind is MetricKind.COUNTER), name
        assert name.endswith("_seconds") or spec.kind is not MetricKind.HISTOGRAM, name
        assert list(spec.buckets) == sorted(spec.buckets)


def test_the_dashboard_can_be_imported() -> None:
    grids = [panel["gridPos"] for panel in panels()]
    assert len({panel["id"] for panel in panels()}) == len(grids)
    assert all(grid["x"] + grid["w"] <= 24 for grid in grids)
    cells = [
        (x, y)
        for grid in grids
        for x in range(grid["x"], grid["x"] + grid["w"])
        for y in range(grid["y"], grid["y"] + grid["h"])
    ]
    assert len(cells) == len(set(cells)), "panels overlap"
    for panel in panels():
        assert panel["type"] == "row" or panel["datasource"]["uid"] == "${datasource}"


def test_everything_in_the_catalogue_is_emitted(tmp_path: Path, scraped: Scraped) -> None:
    """Run a deployment in which every metric has a value."""
    limit_usd = Decimal(100)
    world = World(tmp_path, ControllerSettings(fleet_usd=limit_usd))
    status, clock = world.controller.status, world.clock
    scraped.world = world
    scraped.show(store=world.store, status=status, clock=clock, fleet_usd=limit_usd)
    scraped.show(certificate_end_seconds=lambda: 2e9)
    job = world.submit("a", objective=objective())
    scraped.report(scraped.train(job))
    world.store.measurements.save_models(job, {"core": model(0.1, "core")})
    (held,) = world.training(job)
    scraped.sources.gpu_uses.note(held.id, GpuUse(1, 0.9, 0.9, 10, 80))
    scraped.show(billed_seconds=lambda job, now_seconds: {"useful": 60.0, "boot": 30.0})
    status.shadow_prices = {"devices": 1.0}
    meters = scraped.meters
    meters.answered("GET", "/v1/jobs", 200, 0.1)
    meters.launched("small", InsufficientCapacity("none left"))
    with meters.call("file", "launch"):
        pass
    emitted = {name for name in scraped.scrape() if name.startswith("castor_")}
    assert emitted == SAMPLES.keys()


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Prometheus' promtool")
def test_prometheus_takes_the_rules(tmp_path: Path, scraped: Scraped) -> None:
    subprocess.run(["promtool", "check", "rules", ALERTS], check=True)
    records = [
        {"record": "a", "expr": query}
        for place, query in queries()
        if not query.startswith("label_values")
    ]
    dashboard = tmp_path / "dashboard.yaml"
    dashboard.write_text(json.dumps({"groups": [{"name": "a", "rules": records}]}))
    subprocess.run(["promtool", "check", "rules", "--lint=none", dashboard], check=True)
    text = scraped.page.text("")[0]
    subprocess.run(["promtool", "check", "metrics"], input=text, check=True)
