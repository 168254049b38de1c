"""The thresholds from which findings are raised."""

from __future__ import annotations

from dataclasses import dataclass

from mcp_probe.aggregate.codes import check_codes


@dataclass(frozen=True, slots=True)
class FindingOptions:
    """Thresholds of all findings; each is explained in docs/findings.md. Shares are ratios from 0 to 1.

    A ``slow_step_ms`` below the fold's own finds no additional steps: the fold did not keep them.

    Raises:
        OptionError: ``disabled`` names a code that does not exist.
    """

    disabled: frozenset[str] = frozenset()

    # Source of each figure unless it says otherwise: the table of findings, docs/findings.md.
    min_requests: int = 30  # not-enough-data
    min_seconds: float = 1.0  # not-enough-data
    slow_step_ms: float = 10.0  # blocking-call, cpu-bound-step; one figure with the option of attach()
    critical_step_ms: float = 50.0  # the same; one event this long is certain, whatever the number of requests
    # Workload: a server whose tools ask a Redis of 1 ms by its synchronous client, on the loop; six calls at once.
    blocking_share: float = 0.20  # blocking-call: of a tool's time, or of the window, in calls that keep the loop
    # A hop to a worker thread and back takes 0.1 ms: moving shorter calls there gains little.
    blocking_ms: float = 0.25  # blocking-call: the same, of a call of the tool
    waited_share: float = 0.20  # head-of-line, crowding: of a tool's p95
    # Workload: a quiet server under bursts of ten calls of 1 ms each. Every call but the first waits for others, as
    # it must on one loop. A wait shorter than a slow step is no finding.
    waited_ms: float = 10.0  # head-of-line
    crowded_utilization: float = 0.90  # crowding
    # Workload: bursts of sixteen calls that share a semaphore of two, on a busy machine. The transport has them for
    # longer than usual, so that the semaphore is a sixth of their whole time.
    held_share: float = 0.20  # serial-handler: of the operation's time from taking a call up to its result
    held_ms: float = 10.0  # serial-handler: p95 of its waits; a shorter one is no longer than a step that is not slow
    pool_wait_ms: float = 10.0  # pool-exhausted: p95 of the waits
    # Workload: SQLAlchemy's pool of 2 under bursts of two calls. Now and then a third one waits for a millisecond.
    pool_share: float = 0.05  # pool-exhausted: as held_share
    client_calls: int = 10  # client-per-request
    client_opened_share: float = 0.90  # client-per-request: connections per call
    # Workload: a client per call on a loopback backend without TLS. A connection takes 0.3 ms of a call of 20 ms.
    connect_share: float = 0.05  # client-per-request: of the operation's time; below it its severity is info
    serial_awaits: int = 5  # serial-awaits: mean of the calls that have several
    # Workload: six requests in a row, in bursts of four calls beside a CPU hog. They wait for the loop longer than for
    # the backend, which is no part of this.
    serial_saved_share: float = 0.20  # serial-awaits: of the operation's own time, what a task group would save
    serial_saved_ms: float = 10.0  # serial-awaits: the same, of a call
    backend_share: float = 0.50  # slow-backend: of a tool's time near p95
    first_byte_ms: float = 200.0  # slow-backend: p95
    # Workload: a loopback backend of 100 ms on a busy machine. Its medians at 1 and at 8 calls at once differ by up
    # to a fifth; those of a backend that serves one at a time, by the number of calls.
    growth_ratio: float = 1.5  # slow-backend, long-wait: median at the highest level over that at the lowest
    growth_awaits: int = 10  # slow-backend, long-wait: awaits a level needs
    unexplained_share: float = 0.20  # unexplained-wait: of a tool's time near p95
    unexplained_ms: float = 10.0  # unexplained-wait: of a call near p95; shorter waits are seldom looked at
    long_wait_share: float = 0.20  # long-wait: of a tool's time near p95
    long_wait_ms: float = 10.0  # long-wait: of a call near p95; for growth, between the two medians
    # Workload: bursts of sixteen calls of 1 ms on a quiet stdio server. They wait 12 ms on average to be read and for
    # their answers to be written, which takes the SDK's transport a thread's turn each.
    lost_share: float = 0.5  # long-wait: of the operation's time, all its waits together
    lost_ms: float = 20.0  # long-wait: the same, mean of a call
    gc_second_ms: float = 100.0  # gc-pause: paused in any second
    gc_request_share: float = 0.10  # gc-pause: of one request
    # Workload: ten healthy servers, each looked at for two seconds. One full collection of what they have imported
    # takes 0.1 s of these.
    gc_total_ms: float = 400.0  # gc-pause: paused in all; below it, it is info
    gil_share: float = 0.20  # gil-contention: of the loop's busy time
    run_queue_share: float = 0.10  # host-pressure, own-threads: of the loop's busy time
    # Workload: a server on one CPU, beside two processes that compute. Its own threads use 0.02 of that CPU while its
    # loop waits, and 0.07 if they hash now and then.
    own_threads_share: float = 0.50  # own-threads: of the CPUs it may use, meanwhile
    throttled_ms: float = 10.0  # host-pressure; a tenth of the 100 ms period of a CPU limit (kernel, cgroup-v2 cpu.max)
    # Workload: an idle stdio server on a quiet machine. Its busy time is almost 0, so a few late wake-ups may be a
    # fifth of it. A loss of less than 1 % of the window does not count.
    window_share: float = 0.01  # gil-contention, host-pressure, own-threads
    # Every machine is short of a CPU now and then: the healthy mcp-server-time on a busy one lost up to 1 % to it.
    # A GIL that others hold makes the one answer of `initialize` slow to write.
    # Of many steps of 4 ms a few take 12, beside two processes that compute.
    # A server that does next to nothing while its calls await a lock: 70 ms of waits for the GIL as it starts are a
    # fifth of its busy time, and 1 % of the window.
    surroundings_share: float = 0.05  # host-pressure, GIL, gc-pause, slow-reader, pools, slow steps: info below
    at_limit_share: float = 0.05  # executor-saturated: of the window
    executor_wait_ms: float = 10.0  # executor-saturated: p99 of its jobs
    transport_wait_ms: float = 50.0  # transport-starvation
    serial_requests: int = 30  # serial-client
    # The table says "gaps < 1 ms". A client that parses a large answer may take longer, so only most gaps must be.
    serial_gap_share: float = 0.5  # serial-client
    serial_awaiting_share: float = 0.5  # serial-client: "awaiting-bound" means most of the time
    serial_example: int = 10  # serial-client: in flight, in the sentence
    flush_ms: float = 50.0  # slow-reader: p95
    flush_answers: int = 10  # slow-reader: info below; p95 of one answer, `initialize`, is no percentile
    notifications: float = 20.0  # chatty-notifications: mean of a call
    notification_share: float = 0.20  # chatty-notifications: of the time in which the transport writes
    # Workload: a tool that reports each percent of its two seconds. Writing that takes 0.1 s on a busy machine.
    notification_time_share: float = 0.10  # chatty-notifications: of the operation's time; below it, it is info
    growth_calls: int = 50  # memory-growth, where no leak hunt was on
    # Workload: a server whose cache of results fills up. Its calls keep less than this; a leak exceeds it some day.
    kept_bytes: int = 10_000_000  # memory-growth: kept by all calls; a hunt's finding is critical from here on
    rss_share: float = 0.5  # memory-growth: this share of what the calls keep must show in the process
    peak_bytes: int = 64_000_000  # memory-peak
    peak_share: float = 0.10  # memory-peak: of the memory limit
    peak_critical_share: float = 0.5  # memory-peak: of the memory limit; two such calls at once use it up
    payload_bytes: int = 1_000_000  # large-payload
    coding_share: float = 0.20  # large-payload: of the operation's time
    # Workload: `add` of a stdio server. Coding its 300 bytes takes a fifth of its 0.5 ms, which is no finding.
    coding_ms: float = 5.0  # large-payload: mean of a call
    lookup_share: float = 0.10  # schema-lookup: of the operation's time
    lookup_ms: float = 5.0  # schema-lookup: mean of a call
    # Workload: mcp-server-motherduck over stateless HTTP, six calls at once. Its loop is busy for 78 to 81 % of the
    # window, 19 to 27 % of that with look-ups, some 2 ms each: all calls wait longer for the loop.
    lookup_busy_share: float = 0.15  # schema-lookup: of the loop's busy time
    lookup_utilization: float = 0.50  # schema-lookup: the same, how busy the loop must be
    # Workload: a tool that fails, logged as plain text. Its traceback takes 1 ms, and 6 ms on a busy machine.
    error_log_ms: float = 20.0  # slow-error-logging: mean of a traceback
    error_logs: int = 3  # slow-error-logging: the first one imports what formats it
    fan_out_tasks: int = 1000  # unbounded-fan-out
    spin_share: float = 0.5  # busy-spin: of a call's steps
    # Workload: 4,000 items through a stream of anyio. Each takes two steps that wait for nothing, 90 ms in all.
    spin_ms: float = 100.0  # busy-spin: a call, in such steps
    # Workload: a tool that computes in chunks with a checkpoint after each. Its steps do work; those of a poll, none.
    spin_step_ms: float = 0.2  # busy-spin: mean of a step
    backlog_requests: int = 10  # dispatch-backlog: by how many those in flight grew
    # Workload: clients that join one by one over a minute. Those in flight grow by their number, a small part of what
    # they send.
    backlog_share: float = 0.1  # dispatch-backlog: the same, of the requests that came meanwhile
    backlog_ratio: float = 1.5  # dispatch-backlog: mean time of the last quarter's answers over that of the first
    backlog_answers: int = 10  # dispatch-backlog: answers in that time
    abandoned_ms: float = 1000.0  # abandoned-work: the longest job; below it a job would hardly have looked
    # Workload: mounted servers of fastmcp. The first call makes what later ones use, in a step of 40 to 70 ms.
    cold_ms: float = 100.0  # cold-start, cold-start-stampede: work of a first call; blocking-call, cpu-bound-step: info
    cold_ratio: float = 10.0  # the same, over the median of the later calls
    # Workload: a tool that is slow now and then. Its first call may be a slow one by chance; among enough later calls
    # there is another.
    cold_warm_calls: int = 10  # the same: later calls
    cold_repeat_share: float = 0.5  # the same: no later call worked for a larger share of what the first one did

    def __post_init__(self) -> None:
        check_codes(self.disabled)
