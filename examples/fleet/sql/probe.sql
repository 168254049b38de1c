-- What does the probe itself cost, and has it dropped anything, in the last hour? Per service.
SELECT
    service,
    round(max(overhead), 4) AS highest_share_of_cpu,
    sum(dropped) AS dropped
FROM
(
    SELECT
        ServiceName AS service,
        max(Value) AS overhead,
        0 AS dropped
    FROM otel.otel_metrics_gauge
    WHERE MetricName = 'mcp_probe.probe.overhead' AND TimeUnix >= now() - INTERVAL 1 HOUR
    GROUP BY service

    UNION ALL

    SELECT
        ServiceName AS service,
        0 AS overhead,
        max(Value) AS dropped
    FROM otel.otel_metrics_sum
    WHERE MetricName = 'mcp_probe.probe.dropped' AND TimeUnix >= now() - INTERVAL 1 HOUR
    GROUP BY service, ResourceAttributes['service.instance.id'], Attributes
)
GROUP BY service
ORDER BY dropped DESC, highest_share_of_cpu DESC
