-- Where did the time of slow calls go, in the last hour? Mean seconds per call and part, per tool.
-- Traces under one second are sampled, those above are all kept.
SELECT
    ServiceName AS service,
    SpanAttributes['gen_ai.tool.name'] AS tool,
    count() AS calls,
    round(avg(Duration) / 1e9, 3) AS seconds,
    round(avg(toFloat64OrZero(SpanAttributes['mcp_probe.queue_wait.transport'])), 3) AS in_transport,
    round(avg(toFloat64OrZero(SpanAttributes['mcp_probe.queue_wait.dispatch'])), 3) AS in_dispatch,
    round(avg(toFloat64OrZero(SpanAttributes['mcp_probe.busy'])), 3) AS on_the_loop,
    round(avg(toFloat64OrZero(SpanAttributes['mcp_probe.ready_wait'])), 3) AS waiting_for_the_loop,
    round(avg(toFloat64OrZero(SpanAttributes['mcp_probe.executor.wait'])), 3) AS waiting_for_a_thread,
    round(avg(toFloat64OrZero(SpanAttributes['mcp_probe.executor.run'])), 3) AS on_a_thread,
    round(avg(toFloat64OrZero(SpanAttributes['mcp_probe.awaiting'])), 3) AS awaiting,
    round(avg(toFloat64OrZero(SpanAttributes['mcp_probe.unaccounted'])), 3) AS unaccounted,
    argMax(TraceId, Duration) AS slowest_trace
FROM otel.otel_traces
WHERE Timestamp >= now() - INTERVAL 1 HOUR
    AND SpanKind = 'Server'
    AND SpanAttributes['mcp.method.name'] = 'tools/call'
    AND Duration >= 1e9
GROUP BY service, tool
ORDER BY sum(Duration) DESC
LIMIT 20
