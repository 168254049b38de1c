-- Which processes have an event loop in trouble? The worst minute of the last hour: what share of it the loop was
-- busy, and how long a message arriving at a random instant of it waited.
SELECT
    ServiceName AS service,
    ResourceAttributes['host.name'] AS host,
    ResourceAttributes['process.pid'] AS pid,
    ResourceAttributes['service.instance.id'] AS instance,
    round(maxIf(Value, MetricName = 'mcp_probe.loop.utilization'), 3) AS utilization,
    round(maxIf(Value, MetricName = 'mcp_probe.loop.arrival_delay.p99'), 4) AS arrival_delay_p99_seconds,
    round(maxIf(Value, MetricName = 'mcp_probe.loop.arrival_delay.max'), 4) AS arrival_delay_max_seconds,
    maxIf(Value, MetricName = 'mcp_probe.request.outstanding') AS most_outstanding,
    maxIf(Value, MetricName = 'mcp_probe.transport.backlog') AS most_backlog_bytes
FROM otel.otel_metrics_gauge
WHERE MetricName IN (
        'mcp_probe.loop.utilization', 'mcp_probe.loop.arrival_delay.p99', 'mcp_probe.loop.arrival_delay.max',
        'mcp_probe.request.outstanding', 'mcp_probe.transport.backlog'
    )
    AND TimeUnix >= now() - INTERVAL 1 HOUR
GROUP BY service, host, pid, instance
ORDER BY arrival_delay_p99_seconds DESC
LIMIT 50
