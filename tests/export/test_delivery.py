"""What could not be delivered: counted, said once, and kept out of the server's log."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from mcp_probe.aggregate.fold import Fold
from mcp_probe.export.delivery import Once, Overheard, Tally, shown, with_deliveries
from mcp_probe.model import Delivery

NAME = "opentelemetry.exporter.overheard"


@pytest.fixture
def exporter_log() -> Iterator[logging.Logger]:
    log = logging.getLogger(NAME)
    yield log
    log.setLevel(logging.NOTSET)
    assert log.filters == []


def on_a_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_what_an_exporter_logs_on_our_thread_is_the_reason_and_stays_out_of_the_log(
    exporter_log: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    overheard, reasons = Overheard(), []

    def work() -> None:
        overheard.listen()
        exporter_log.debug("trying")
        exporter_log.error("refused with %d", 400)
        reasons.extend([overheard.take_reason(), overheard.take_reason()])
        overheard.leave_thread()

    with caplog.at_level(logging.DEBUG):
        on_a_thread(work)
    assert reasons == ["refused with 400", None]
    assert caplog.records == []


def test_the_applications_own_exporters_log_as_they_would_without_us(
    exporter_log: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    overheard = Overheard()
    exporter_log.setLevel(logging.ERROR)

    def work() -> None:
        overheard.listen()
        on_a_thread(lambda: exporter_log.warning("too low for the application"))
        on_a_thread(lambda: exporter_log.error("heard"))
        exporter_log.warning("ours, which the application's level would have kept from us too")
        assert overheard.take_reason() == "ours, which the application's level would have kept from us too"
        overheard.leave_thread()

    on_a_thread(work)
    assert [record.getMessage() for record in caplog.records] == ["heard"]
    assert exporter_log.level == logging.ERROR


def test_a_level_above_the_exporters_logger_counts_too(
    exporter_log: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    overheard = Overheard()
    with caplog.at_level(logging.CRITICAL, logger="opentelemetry"):

        def work() -> None:
            overheard.listen()
            on_a_thread(lambda: exporter_log.error("not for the application"))
            exporter_log.error("for us")
            assert overheard.unanswered(threading.get_ident()).endswith(": for us")
            overheard.leave_thread()

        on_a_thread(work)
    assert caplog.records == []
    assert exporter_log.level == logging.NOTSET


def test_losses_of_several_signals_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    say = Once()
    spans, pushes = Tally("spans", "http://there", say), Tally("metric exports", "http://there", say)
    spans.lost(0, "nothing was lost")
    spans.lost(2, "down\nand out")
    pushes.lost(1, "down")
    spans.lost(3, "later reason")
    spans.delivered(4)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert spans.value("") == Delivery("spans", "http://there", 4, 5, "down and out")
    assert pushes.value("") == Delivery("metric exports", "http://there", 0, 1, "down")


def test_the_report_has_a_sentence_for_what_was_lost_and_figures_for_the_rest() -> None:
    lost = Delivery("spans", "http://there", 5, 1, "down")
    fine = Delivery("metric exports", "http://there", 3, 0, None)
    summary = with_deliveries(Fold().summary(), (lost, fine))
    assert summary.probe.notes == ("telemetry: 1 span could not be delivered to http://there (down); 5 delivered",)
    assert summary.to_json()["probe"]["telemetry"] == (
        {"signal": "spans", "destination": "http://there", "delivered": 5, "undelivered": 1, "reason": "down"},
        {"signal": "metric exports", "destination": "http://there", "delivered": 3, "undelivered": 0, "reason": None},
    )


@pytest.mark.parametrize(
    ("endpoint", "said"),
    [
        ("https://user:secret@host:4318/v1?key=secret", "https://host:4318/v1"),
        ("http://[::1]:4317", "http://[::1]:4317"),
        ("collector:4317", "collector:4317"),
    ],
)
def test_secrets_of_an_endpoint_are_not_shown(endpoint: str, said: str) -> None:
    assert shown(endpoint) == said
