"""Options, from code and from the environment."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_probe.errors import OptionError
from mcp_probe.options import Options, parse_otlp


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTLP", "TELEMETRY", "DETAIL", "CAPTURE_CONTENT", "OTLP_EXIT_MS", "SLOW_REQUEST_MS"):
        monkeypatch.delenv(f"MCP_PROBE_{name}", raising=False)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", True),
        ("True", True),
        ("on", True),
        ("0", False),
        ("no", False),
        ("http://collector:4318", "http://collector:4318"),
        (" https://[::1]:4317/x ", "https://[::1]:4317/x"),
    ],
)
def test_otlp_of_the_environment_is_a_switch_or_a_url(
    text: str, value: bool | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_PROBE_OTLP", text)
    assert Options.from_environment({}).otlp == value
    assert parse_otlp(text) == value


@pytest.mark.parametrize("bad", ["collector:4318", "localhost", "grpc://a:4317", "http://", "http://a:port", 7])
def test_an_endpoint_that_is_no_url_is_refused_with_an_example(bad: object) -> None:
    with pytest.raises(OptionError, match=r"otlp is .*http://localhost:4318"):
        Options(otlp=bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"telemetry": "on"}, "telemetry is 'on'; expected one of \"auto\""),
        ({"detail": 1.5}, "detail is 1.5; expected a share"),
        ({"otlp_exit_ms": -1}, "otlp_exit_ms is -1"),
        ({"otlp_exit_ms": True}, "otlp_exit_ms is True"),
        ({"slow_request_ms": "1"}, "slow_request_ms is '1'"),
        ({"capture_content": "arguments"}, "expected a tuple of names"),
        ({"capture_content": ("arguments", "everything")}, "capture_content names 'everything'"),
        ({"redact": 3}, "redact is 3"),
        ({"replay_histograms": 1}, "replay_histograms is 1; expected True or False"),
        ({"awaits": "on"}, "awaits is 'on'; expected True or False"),
        ({"await_hosts": 1}, "await_hosts is 1; expected True or False"),
        ({"wait_ms": 0}, "wait_ms is 0; expected a number of milliseconds from 0.5"),
        ({"memory": "much"}, 'memory is \'much\'; expected one of "off", "light", "detailed", "leaks".'),
        ({"memory": True}, "memory is True; expected one of"),
        ({"otpl": True}, "Unknown option 'otpl'"),
    ],
)
def test_a_value_that_makes_no_sense_is_named_with_what_was_expected(given: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError) as caught:
        Options.from_environment(given)
    assert words in str(caught.value)


def test_every_telemetry_option_can_come_from_the_environment_and_code_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_PROBE_TELEMETRY", "enrich")
    monkeypatch.setenv("MCP_PROBE_DETAIL", "0.25")
    monkeypatch.setenv("MCP_PROBE_CAPTURE_CONTENT", "arguments, result")
    monkeypatch.setenv("MCP_PROBE_OTLP_EXIT_MS", "250")
    monkeypatch.setenv("MCP_PROBE_SLOW_REQUEST_MS", "2000")
    options = Options.from_environment({"detail": 1.0})
    assert (options.telemetry, options.detail, options.capture_content) == ("enrich", 1.0, ("arguments", "result"))
    assert (options.otlp_exit_ms, options.slow_request_ms) == (250.0, 2000.0)


@pytest.mark.parametrize(("text", "value"), [("off", False), ("0", False), ("on", True), ("1", True)])
def test_awaits_can_be_switched_from_the_environment(text: str, value: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_PROBE_AWAITS", text)
    monkeypatch.setenv("MCP_PROBE_WAIT_MS", "2.5")
    options = Options.from_environment({})
    assert (options.awaits, options.wait_ms) == (value, 2.5)
    assert Options.from_environment({"awaits": not value}).awaits is not value


def test_a_variable_that_is_empty_is_as_good_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_PROBE_OTLP", "")
    assert Options.from_environment({}).otlp is False


def test_a_variable_that_is_no_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_PROBE_DETAIL", "some")
    with pytest.raises(OptionError, match="MCP_PROBE_DETAIL is 'some'; expected a share from 0 to 1"):
        Options.from_environment({})


@pytest.mark.parametrize(("text", "value"), [("1", True), ("Off", False)])
def test_a_replay_of_histograms_is_asked_for_by_the_environment_too(
    text: str, value: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_PROBE_REPLAY_HISTOGRAMS", text)
    assert Options.from_environment({}).replay_histograms is value


def test_a_switch_that_is_neither_on_nor_off_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_PROBE_REPLAY_HISTOGRAMS", "maybe")
    with pytest.raises(OptionError, match="MCP_PROBE_REPLAY_HISTOGRAMS is 'maybe'; expected 1 or 0"):
        Options.from_environment({})


def test_memory_is_light_unless_asked_otherwise_and_code_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Options.from_environment({}).memory == "light"
    monkeypatch.setenv("MCP_PROBE_MEMORY", "detailed")
    assert Options.from_environment({}).memory == "detailed"
    assert Options.from_environment({"memory": "off"}).memory == "off"
