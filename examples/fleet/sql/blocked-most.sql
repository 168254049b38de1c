-- Which tool held others up most, fleet-wide, in the last hour?
-- From metrics: every request counts, whether its trace was kept or not. One row per blocking tool and victim.
-- The first half reads servers whose OTLP the probe set up, the second those that export through providers of
-- their own, where the histogram arrives as a sum and a count. Totals of a process only grow: what it gained in
-- the hour is its last value less the one it had when the hour began.
WITH now() - INTERVAL 1 HOUR AS since
SELECT
    blocker,
    victim,
    round(sum(gained), 3) AS blocked_seconds,
    uniqExact(instance) AS processes,
    groupUniqArray(ServiceName) AS services
FROM
(
    SELECT
        ServiceName,
        ResourceAttributes['service.instance.id'] AS instance,
        Attributes['mcp_probe.blocker'] AS blocker,
        Attributes['gen_ai.tool.name'] AS victim,
        max(Sum) - if(countIf(TimeUnix < since) > 0, maxIf(Sum, TimeUnix < since), if(StartTimeUnix < since, min(Sum), 0)) AS gained
    FROM otel.otel_metrics_exponential_histogram
    WHERE MetricName = 'mcp_probe.request.blocked' AND TimeUnix >= since - INTERVAL 10 MINUTE
    GROUP BY ServiceName, instance, StartTimeUnix, Attributes

    UNION ALL

    SELECT
        ServiceName,
        ResourceAttributes['service.instance.id'] AS instance,
        Attributes['mcp_probe.blocker'] AS blocker,
        Attributes['gen_ai.tool.name'] AS victim,
        max(Value) - if(countIf(TimeUnix < since) > 0, maxIf(Value, TimeUnix < since), if(StartTimeUnix < since, min(Value), 0)) AS gained
    FROM otel.otel_metrics_sum
    WHERE MetricName = 'mcp_probe.request.blocked_sum' AND TimeUnix >= since - INTERVAL 10 MINUTE
    GROUP BY ServiceName, instance, StartTimeUnix, Attributes
)
GROUP BY blocker, victim
ORDER BY blocked_seconds DESC
LIMIT 20
