// A load of an MCP server over streamable HTTP; made by `mcp-probe load --export k6`.
//
// One machine:    k6 run THIS_FILE
// Many machines:  --execution-segment 0:1/2 on the first and 1/2:1 on the second, each with
//                 --execution-segment-sequence 0,1/2,1; or the k6 operator
//
// An open loop: requests start when they are due. dropped_iterations counts those for which no VU was free.

import http from 'k6/http';
import exec from 'k6/execution';
import { check, fail } from 'k6';
import { Rate, Trend } from 'k6/metrics';

const URL = @@URL@@;
const MODERN = @@MODERN@@; // 2026-07-28: no session, no handshake
const META = @@META@@;
const HEADERS = @@HEADERS@@;
const CALLS = @@CALLS@@;
const ALL = CALLS.reduce((sum, call) => sum + call.weight, 0);

// k6 takes whole numbers only: so many in a thousand seconds.
const ARRIVALS = {
  executor: 'constant-arrival-rate',
  rate: Math.max(1, Math.round(@@RATE@@ * 1000)),
  timeUnit: '1000s',
  preAllocatedVUs: @@VUS@@,
  maxVUs: 10 * @@VUS@@,
  gracefulStop: '@@DRAIN@@s',
};
const scenarios = { load: { ...ARRIVALS, duration: '@@SECONDS@@s', startTime: '@@WARM_UP@@s' } };
if (@@WARM_UP@@ > 0) {
  scenarios.warm_up = { ...ARRIVALS, duration: '@@WARM_UP@@s', gracefulStop: '0s' };
}
export const options = {
  scenarios,
  // A threshold on a tag is how k6 is made to report that tag by itself.
  thresholds: { 'mcp_latency{scenario:load}': ['max>=0'], 'mcp_failed{scenario:load}': ['rate>=0'] },
  summaryTrendStats: ['count', 'avg', 'med', 'p(90)', 'p(99)', 'p(99.9)', 'max'],
};

const latency = new Trend('mcp_latency', true); // from the start of the request, its connection included
const failed = new Rate('mcp_failed');

export function setup() {
  if (MODERN) return {};
  const hello = { protocolVersion: '@@LEGACY@@', capabilities: {}, clientInfo: { name: 'k6', version: '1' } };
  const response = post('initialize', hello, HEADERS, 1);
  const session = { 'mcp-protocol-version': '@@LEGACY@@' };
  const id = response.headers['Mcp-Session-Id'];
  if (id) session['mcp-session-id'] = id;
  if (response.status !== 200) fail(`initialize: HTTP ${response.status}`);
  post('notifications/initialized', {}, { ...HEADERS, ...session });
  return session;
}

export default function (session) {
  let left = Math.random() * ALL;
  const call = CALLS.find((each) => (left -= each.weight) < 0) || CALLS[CALLS.length - 1];
  const turn = exec.scenario.iterationInTest;
  const order = call.orders[turn % call.orders.length];
  const response = post(call.method, order.params, { ...order.headers, ...session }, turn + 1, call.operation);
  const good = check(response, { 'a result': (answer) => answer.status === 200 && isResult(answer) });
  const times = response.timings;
  latency.add(times.blocked + times.connecting + times.tls_handshaking + times.duration, { name: call.operation });
  failed.add(!good);
}

function post(method, params, headers, id, name) {
  const message = { jsonrpc: '2.0', method, params: Object.keys(META).length ? { ...params, _meta: META } : params };
  if (id !== undefined) message.id = id;
  return http.post(URL, JSON.stringify(message), { headers, tags: { name: name || method } });
}

function isResult(response) {
  const type = response.headers['Content-Type'] || '';
  const texts = type.startsWith('text/event-stream')
    ? response.body.split(/\r\n|\n|\r/).filter((line) => line.startsWith('data:')).map((line) => line.slice(5))
    : [response.body];
  return texts.some((text) => {
    if (!text.trim()) return false;
    const message = JSON.parse(text);
    return message.result !== undefined && !message.result.isError;
  });
}
