-- Which calls fail, and how, in the last hour? Every call counts, sampled or not.
-- error.type is tool_error where the tool's result says so, else the JSON-RPC code or the exception.
WITH now() - INTERVAL 1 HOUR AS since
SELECT
    ServiceName AS service,
    operation,
    sumIf(gained, error != '') AS failed,
    sum(gained) AS calls,
    round(failed / calls, 4) AS failed_share,
    groupUniqArrayIf(error, error != '' AND gained > 0) AS errors
FROM
(
    SELECT
        ServiceName,
        concat(Attributes['mcp.method.name'], ' ', Attributes['gen_ai.tool.name'], Attributes['gen_ai.prompt.name']) AS operation,
        Attributes['error.type'] AS error,
        max(Count) - if(countIf(TimeUnix < since) > 0, maxIf(Count, TimeUnix < since), if(StartTimeUnix < since, min(Count), 0)) AS gained
    FROM otel.otel_metrics_histogram
    WHERE MetricName = 'mcp.server.operation.duration' AND TimeUnix >= since - INTERVAL 10 MINUTE
    GROUP BY ServiceName, ResourceAttributes['service.instance.id'], StartTimeUnix, Attributes
)
GROUP BY service, operation
HAVING failed > 0
ORDER BY failed DESC
LIMIT 50
