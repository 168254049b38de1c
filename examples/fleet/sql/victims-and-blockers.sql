-- Who waited for whom: each victim with the request that held it up, the longest waits of the last hour first.
-- The link on the victim's span leads to the blocker's, in another trace; how long is in the victim's event.
SELECT
    victim.Timestamp AS at,
    victim.ServiceName AS service,
    victim.SpanAttributes['gen_ai.tool.name'] AS victim_tool,
    blocker.SpanAttributes['gen_ai.tool.name'] AS blocker_tool,
    round(arrayMax(arrayMap(event -> if(event['mcp_probe.blocker'] = blocker_tool, toFloat64OrZero(event['mcp_probe.duration']), 0), victim.Events.Attributes)), 3) AS waited_seconds,
    round(blocker.Duration / 1e9, 3) AS blocker_seconds,
    victim.TraceId AS victim_trace,
    blocker.TraceId AS blocker_trace
FROM
(
    SELECT Timestamp, ServiceName, TraceId, SpanAttributes, Events.Attributes, link_span
    FROM otel.otel_traces
    ARRAY JOIN Links.SpanId AS link_span, Links.Attributes AS link
    WHERE Timestamp >= now() - INTERVAL 1 HOUR AND SpanKind = 'Server' AND link['mcp_probe.link'] = 'blocked_by'
) AS victim
INNER JOIN
(
    SELECT SpanId, TraceId, Duration, SpanAttributes
    FROM otel.otel_traces
    WHERE Timestamp >= now() - INTERVAL 2 HOUR AND SpanKind = 'Server'
) AS blocker ON blocker.SpanId = victim.link_span
WHERE waited_seconds > 0
ORDER BY waited_seconds DESC
LIMIT 50
