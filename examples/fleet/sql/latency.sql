-- How long do calls take, per tool, in the last hour, from received to sent?
-- From the histogram: every call counts. Percentiles are interpolated within buckets, as Prometheus does; above
-- the last boundary (300 s) they are that boundary.
WITH
    now() - INTERVAL 1 HOUR AS since,
    per_process AS
    (
        SELECT
            ServiceName,
            Attributes['gen_ai.tool.name'] AS tool,
            any(ExplicitBounds) AS bounds,
            maxForEach(BucketCounts) AS last,
            if(countIf(TimeUnix < since) > 0, maxForEachIf(BucketCounts, TimeUnix < since), if(StartTimeUnix < since, minForEach(BucketCounts), arrayMap(n -> 0, last))) AS before,
            arrayMap((a, b) -> toInt64(a) - toInt64(b), last, before) AS gained,
            max(Sum) - if(countIf(TimeUnix < since) > 0, maxIf(Sum, TimeUnix < since), if(StartTimeUnix < since, min(Sum), 0)) AS gained_seconds
        FROM otel.otel_metrics_histogram
        WHERE MetricName = 'mcp.server.operation.duration'
            AND Attributes['mcp.method.name'] = 'tools/call'
            AND TimeUnix >= since - INTERVAL 10 MINUTE
        GROUP BY ServiceName, ResourceAttributes['service.instance.id'], StartTimeUnix, Attributes
    ),
    per_tool AS
    (
        SELECT
            ServiceName AS service,
            tool,
            any(bounds) AS upper,
            sumForEach(gained) AS buckets,
            arrayCumSum(buckets) AS upto,
            arraySum(buckets) AS calls,
            sum(gained_seconds) AS seconds
        FROM per_process
        GROUP BY service, tool
        HAVING calls > 0
    ),
    shares AS (SELECT *, arrayJoin([0.5, 0.9, 0.99]) AS share FROM per_tool),
    percentiles AS
    (
        SELECT
            *,
            arrayFirstIndex(n -> n >= share * calls, upto) AS at,
            if(at = 1, 0, upper[at - 1]) AS low,
            if(at > length(upper), upper[-1], low + (upper[at] - low) * (share * calls - upto[at] + buckets[at]) / buckets[at]) AS value
        FROM shares
    )
SELECT
    service,
    tool,
    any(calls) AS calls,
    round(any(seconds) / calls, 4) AS mean_seconds,
    round(maxIf(value, share = 0.5), 4) AS p50_seconds,
    round(maxIf(value, share = 0.9), 4) AS p90_seconds,
    round(maxIf(value, share = 0.99), 4) AS p99_seconds
FROM percentiles
GROUP BY service, tool
ORDER BY any(seconds) DESC
LIMIT 50
