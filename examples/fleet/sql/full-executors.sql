-- Which thread pools are full? The highest number of tokens taken in the last hour against the limit, and of jobs
-- that waited for one. One row per executor of a service, over all its processes.
SELECT
    ServiceName AS service,
    Attributes['mcp_probe.executor.name'] AS executor,
    maxIf(Value, MetricName = 'mcp_probe.executor.max') AS size,
    maxIf(Value, MetricName = 'mcp_probe.executor.borrowed') AS most_taken,
    maxIf(Value, MetricName = 'mcp_probe.executor.pending') AS most_waiting,
    round(most_taken / size, 3) AS fullness,
    uniqExactIf(ResourceAttributes['service.instance.id'], MetricName = 'mcp_probe.executor.borrowed') AS processes
FROM otel.otel_metrics_gauge
WHERE MetricName IN ('mcp_probe.executor.max', 'mcp_probe.executor.borrowed', 'mcp_probe.executor.pending')
    AND TimeUnix >= now() - INTERVAL 1 HOUR
GROUP BY service, executor
HAVING size > 0
ORDER BY fullness DESC, most_waiting DESC
LIMIT 50
