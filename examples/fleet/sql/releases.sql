-- Did the new release make it worse? Calls of the last day per tool and version of the service: how many, how
-- long, how many failed. Set the version as a resource attribute: OTEL_RESOURCE_ATTRIBUTES=service.version=1.2.3
WITH now() - INTERVAL 1 DAY AS since
SELECT
    ServiceName AS service,
    tool,
    version,
    sum(gained) AS calls,
    round(sum(gained_seconds) / calls, 4) AS mean_seconds,
    round(sumIf(gained, error != '') / calls, 4) AS failed_share,
    min(first_seen) AS first_seen
FROM
(
    SELECT
        ServiceName,
        ResourceAttributes['service.version'] AS version,
        Attributes['gen_ai.tool.name'] AS tool,
        Attributes['error.type'] AS error,
        max(Count) - if(countIf(TimeUnix < since) > 0, maxIf(Count, TimeUnix < since), if(StartTimeUnix < since, min(Count), 0)) AS gained,
        max(Sum) - if(countIf(TimeUnix < since) > 0, maxIf(Sum, TimeUnix < since), if(StartTimeUnix < since, min(Sum), 0)) AS gained_seconds,
        min(TimeUnix) AS first_seen
    FROM otel.otel_metrics_histogram
    WHERE MetricName = 'mcp.server.operation.duration'
        AND Attributes['mcp.method.name'] = 'tools/call'
        AND TimeUnix >= since - INTERVAL 10 MINUTE
    GROUP BY ServiceName, version, ResourceAttributes['service.instance.id'], StartTimeUnix, Attributes
)
GROUP BY service, tool, version
HAVING calls > 0
ORDER BY service, tool, first_seen
