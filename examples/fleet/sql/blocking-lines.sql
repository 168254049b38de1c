-- Which line of code held others up, in the last hour?
-- From the events on victims' spans, of which the certain part counts; the Collector keeps the trace of every victim
-- that waited 100 ms.
SELECT
    event['mcp_probe.blocker'] AS blocker,
    concat(event['code.file.path'], ':', event['code.line.number']) AS line,
    event['code.function.name'] AS function,
    count() AS victims,
    round(sum(toFloat64OrZero(event['mcp_probe.duration'])), 3) AS blocked_seconds,
    round(max(toFloat64OrZero(event['mcp_probe.duration'])), 3) AS longest_seconds,
    groupUniqArray(ServiceName) AS services
FROM otel.otel_traces
ARRAY JOIN Events.Name AS event_name, Events.Attributes AS event
WHERE Timestamp >= now() - INTERVAL 1 HOUR
    AND SpanKind = 'Server'
    AND event_name = 'mcp_probe.blocked_by'
    AND toFloat64OrZero(event['mcp_probe.duration']) > 0 -- else the wait is only what it can have been at most
    AND event['code.file.path'] != ''
GROUP BY blocker, line, function
ORDER BY blocked_seconds DESC
LIMIT 20
