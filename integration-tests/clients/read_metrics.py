"""Reads metrics from standard input with Prometheus' own parsers and prints what they found as JSON.

Argument: `openmetrics` (strict: it refuses what the format forbids) or `prometheus`.
"""
import json
import sys

from prometheus_client import parser
from prometheus_client.openmetrics import parser as strict

read = {"openmetrics": strict, "prometheus": parser}[sys.argv[1]].text_string_to_metric_families
families = list(read(sys.stdin.read()))
print(
    json.dumps(
        {
            family.name: {"type": family.type, "help": family.documentation, "samples": len(family.samples)}
            for family in families
        }
    )
)
