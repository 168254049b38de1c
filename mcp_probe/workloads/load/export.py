"""A mix as a script for another load generator, which runs it on many machines: Locust or k6. HTTP only.

The scripts need nothing of this package. Each sends what :mod:`mcp_probe.workloads.load` sends, but for the instant of
sending in ``_meta``, which means nothing on another machine.
"""

from __future__ import annotations

import json
import re
from math import ceil
from typing import Any, Literal
from urllib.parse import urlsplit

from mcp_probe.errors import OptionError
from mcp_probe.workloads.load.mix import Mix
from mcp_probe.workloads.load.peer import Target
from mcp_probe.workloads.load.wire import LEGACY, MODERN_META, Order, headers_of

Tool = Literal["locust", "k6"]

USER_RATE = 25.0
"""Requests a second that one Locust user sends at most: users are what Locust shares out among its machines."""


def script_of(tool: Tool, mix: Mix, target: Target) -> str:
    """The script's text.

    Raises: OptionError for what the tool cannot do: Poisson arrivals in k6.
    """
    if tool == "k6" and mix.arrivals == "poisson":
        raise OptionError("k6 has constant arrivals only; export to Locust, or make the arrivals constant.")
    modern = target.era != "legacy"
    users = max(1, ceil(mix.rate / USER_RATE))
    values: dict[str, Any] = {
        "URL": target.url,
        "RATE": mix.rate,
        "USERS": users,
        "POISSON": mix.arrivals == "poisson",
        "SECONDS": max(1, ceil(mix.window_s)),
        "WARM_UP": ceil(mix.warm_up),
        "RUN": max(1, ceil(mix.window_s)) + ceil(mix.warm_up),
        "DRAIN": ceil(mix.drain),
        "MODERN": modern,
        "META": MODERN_META if modern else {},
        "CALLS": [
            {
                "operation": call.operation,
                "weight": call.weight,
                "method": call.method,
                "orders": [_order(Order(call.method, variant), modern, target) for variant in call.variants],
            }
            for call in mix.calls
        ],
        "HEADERS": {**headers_of(Order("initialize", {}), modern=False), **target.headers},
        "VUS": min(10_000, max(10, ceil(mix.rate))),
    }
    text = _K6 if tool == "k6" else _LOCUST
    parts = urlsplit(target.url)
    values["HOST"] = f"{parts.scheme}://{parts.netloc}"
    told = {name: _literal(value) if tool == "k6" else repr(value) for name, value in values.items()}
    told["LEGACY"] = LEGACY
    return re.sub("@@([A-Z_]+)@@", lambda found: told[found[1]], text)  # at once: a value may look like a mark


def _order(order: Order, modern: bool, target: Target) -> dict[str, Any]:
    return {"params": dict(order.params), "headers": {**headers_of(order, modern=modern), **target.headers}}


def _literal(value: Any) -> str:
    # U+2028 and U+2029 end a line in older JavaScript; json escapes them, as it does all that is no ASCII.
    return json.dumps(value)


_LOCUST = '''\
"""A load of an MCP server over streamable HTTP; made by `mcp-probe load --export locust`.

One machine:    locust -f THIS_FILE --headless LENGTH
Many machines:  locust -f THIS_FILE --headless LENGTH --master --expect-workers 2     on the first
                locust -f - --worker --master-host THE_FIRST                        on each of the others
LENGTH:         --users @@USERS@@ --spawn-rate @@USERS@@ --run-time @@RUN@@s --stop-timeout @@DRAIN@@

@@USERS@@ users send @@RATE@@ requests a second together; twice the users, twice the rate. Each user is an open loop: it
sends when a request is due, whether or not earlier ones have been answered, and times from when it was due.
"""

import itertools
import json
import random
import time

import gevent
from gevent.pool import Group
from geventhttpclient import HTTPClient
from locust import User, constant, events, task

URL = @@URL@@
RATE_OF_A_USER = @@RATE@@ / @@USERS@@
POISSON = @@POISSON@@
WARM_UP_S = @@WARM_UP@@  # at the beginning of each user, and not counted
DRAIN_S = @@DRAIN@@
MODERN = @@MODERN@@  # 2026-07-28: no session, no handshake
META = @@META@@
HEADERS = @@HEADERS@@
CALLS = @@CALLS@@
WEIGHTS = [call["weight"] for call in CALLS]


class Failed(Exception):
    """What the server said instead of a result."""


class McpUser(User):
    host = @@HOST@@
    wait_time = constant(0)  # the wait until a request is due is in the task

    def on_start(self):
        self.http = HTTPClient.from_url(URL, concurrency=1000, connection_timeout=30, network_timeout=300)
        self.path = URL[URL.index("/", URL.index("://") + 3) :] if "/" in URL.split("://", 1)[1] else "/"
        self.session = {}
        self.numbers = itertools.count(1)
        self.turns = [itertools.cycle(call["orders"]) for call in CALLS]
        self.flying = Group()
        self.due = time.perf_counter() + random.random() / RATE_OF_A_USER  # users do not march in step
        self.counted_from = self.due + WARM_UP_S
        if not MODERN:
            self.shake_hands()

    def on_stop(self):
        self.flying.join(timeout=DRAIN_S)
        self.http.close()

    @task
    def next_request(self):
        gevent.sleep(max(0.0, self.due - time.perf_counter()))
        (number,) = random.choices(range(len(CALLS)), WEIGHTS)
        self.flying.spawn(self.send, number, self.due)
        self.due += random.expovariate(RATE_OF_A_USER) if POISSON else 1 / RATE_OF_A_USER

    def send(self, number, due):
        call = CALLS[number]
        order = next(self.turns[number])
        size, failure = 0, None
        try:
            size = len(self.post(call["method"], order["params"], order["headers"]))
        except gevent.GreenletExit:
            failure = Failed("unanswered when the drain was over")
        except Exception as exc:
            failure = exc
        if due < self.counted_from:
            return
        events.request.fire(
            request_type=call["method"],
            name=call["operation"],
            response_time=(time.perf_counter() - due) * 1000,
            response_length=size,
            exception=failure,
            context={},
        )

    def post(self, method, params, headers, notification=False):
        message = {"jsonrpc": "2.0", "method": method, "params": {**params, "_meta": META} if META else params}
        if not notification:
            message["id"] = next(self.numbers)
        response = self.http.request("POST", self.path, json.dumps(message).encode(), {**headers, **self.session})
        body = bytes(response.read())
        if response.status_code >= 400:
            raise Failed(f"HTTP {response.status_code}: {body[:200].decode(errors='replace')}")
        if response.get("mcp-session-id"):
            self.session["mcp-session-id"] = response.get("mcp-session-id")
        if not notification:
            self.look_at(body, (response.get("content-type") or "").startswith("text/event-stream"))
        return body

    def look_at(self, body, is_stream):
        """Raises Failed unless it holds a result that is none of an error."""
        data = [line[5:] for line in body.splitlines() if line.startswith(b"data:")] if is_stream else [body]
        for text in data:
            if not text.strip():
                continue
            message = json.loads(text)
            if "error" in message:
                raise Failed(str(message["error"].get("message")))
            if "result" in message:
                if message["result"].get("isError"):
                    raise Failed("isError: " + str(message["result"].get("content"))[:200])
                return
        raise Failed("no result among what was answered")

    def shake_hands(self):
        hello = {
            "protocolVersion": "@@LEGACY@@",
            "capabilities": {},
            "clientInfo": {"name": "locust", "version": "1"},
        }
        self.post("initialize", hello, HEADERS)
        self.session["mcp-protocol-version"] = "@@LEGACY@@"
        self.post("notifications/initialized", {}, HEADERS, notification=True)
'''

_K6 = """\
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
    ? response.body.split(/\\r\\n|\\n|\\r/).filter((line) => line.startsWith('data:')).map((line) => line.slice(5))
    : [response.body];
  return texts.some((text) => {
    if (!text.trim()) return false;
    const message = JSON.parse(text);
    return message.result !== undefined && !message.result.isError;
  });
}
"""
