"""Work that leaves the loop: anyio worker threads, ``concurrent.futures`` pools, bare threads.

The request reaches anyio's and ``asyncio.to_thread``'s workers by context; plain
``executor.submit``, ``loop.run_in_executor`` and ``threading.Thread`` lose it, so it is lent there
for the length of the call.

Source: anyio/_backends/_asyncio.py and _trio.py, 4.5-4.16; concurrent/futures/thread.py.
"""

from __future__ import annotations

import asyncio
import io
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial, wraps
from types import BuiltinMethodType, MethodType
from typing import Any

from mcp_probe.adapters.hook import Hook, guarded
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.executor import Pool, Pools
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.places import place_of_caller
from mcp_probe.capture.stdio_jobs import TransportCall
from mcp_probe.model import DEFAULT_LIMITER
from mcp_probe.record.raw import Job

ANYIO_HOOK = "executors (anyio)"
FUTURES_HOOK = "executors (concurrent.futures)"
THREAD_HOOK = "executors (threading)"
_ON_ASYNCIO = "anyio._backends._asyncio"
_RUN_SYNC = "run_sync_in_worker_thread"
_WORKER_MODULES = (
    "anyio.", "concurrent.futures.", "trio.", "mcp_probe.", "aiosqlite.", "psycopg_pool.", "asyncio.unix_events.",
)  # fmt: skip
"""Libraries' own threads are nobody's jobs. The last of these is asyncio's that waits for the end of a process."""


class _Threads:
    """Stands for "a thread of its own per job" in the executor table."""


class ThreadHooks:
    """All hooks on worker threads."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._hooks = (AnyioHook(hub), FuturesHook(hub), StartHook(hub))

    def install(self) -> None:
        """Patch what every process has; backends of anyio follow with :meth:`follow`."""
        _, futures, start = self._hooks
        futures.install()
        start.install()

    def follow(self, loop_name: str) -> None:
        """Patch anyio's backend for ``loop_name`` (asyncio, uvloop, trio), once, if anyio is in use."""
        self._hooks[0].follow("trio" if loop_name == "trio" else "asyncio")

    def restore(self) -> list[str]:
        """Undo everything."""
        return [sentence for hook in self._hooks for sentence in hook.guard.restore()]


class _JobHook:
    """What the three have in common: jobs that are handed to a pool."""

    name: str

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.guard = Hook(hub, self.name)

    def _works(self) -> bool:
        return self.guard.active and self._hub.pools.guard.active

    def _lent_job(self, pool: Pool) -> Job:
        """A job whose thread would otherwise know neither the request nor its trace."""
        job = self._hub.pools.submit(pool)
        carry = self._hub.pools.carry
        if carry is not None and job.raw is not None and not job.raw.ended:
            job.carried = carry()
        return job

    @guarded
    def _not_run(self, job: Job) -> None:
        self._hub.pools.resumed(job)


class AnyioHook(_JobHook):
    """``run_sync_in_worker_thread`` of anyio's backends."""

    name = ANYIO_HOOK

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self._backends: set[str] = set()

    def follow(self, backend_name: str) -> None:
        """Patch the backend once, if anyio is in use."""
        if backend_name in self._backends or "anyio" not in sys.modules:
            return
        self._backends.add(backend_name)
        try:
            if backend_name == "trio":
                import anyio._backends._trio as trio_backend

                backend: Any = trio_backend.TrioBackend
            else:
                import anyio._backends._asyncio as asyncio_backend

                backend = asyncio_backend.AsyncIOBackend
            if not isinstance(vars(backend)[_RUN_SYNC], classmethod):
                raise TypeError(f"{_RUN_SYNC} is no class method")
        except Exception as exc:  # noqa: BLE001 - an unknown anyio must not stop the server
            self._hub.missing(ANYIO_HOOK, f"this anyio is not known to us ({type(exc).__name__}: {exc})")
            return
        self.guard.replace(backend, _RUN_SYNC, self._make_run_sync)
        self._hub.working(ANYIO_HOOK)

    def _make_run_sync(self, original: Any) -> Any:
        """Not a coroutine function, so that a job of the transport costs no frame of ours."""
        hook = self

        @wraps(original)
        def run_sync_in_worker_thread(
            cls: Any, func: Any, args: Any, abandon_on_cancel: bool = False, limiter: Any = None
        ) -> Any:
            if type(func) is TransportCall:
                if func.pool is None:
                    hook._take_in(cls, func, limiter)
                func.submit()
                return original(cls, func, args, abandon_on_cancel, limiter)
            job = hook._job(cls, func, limiter) if hook._works() else None
            if job is None:
                return original(cls, func, args, abandon_on_cancel, limiter)
            return hook._follow_job(original, job, cls, func, args, abandon_on_cancel, limiter)

        return run_sync_in_worker_thread

    async def _follow_job(
        self, original: Any, job: Job, cls: Any, func: Any, args: Any, abandon: bool, limiter: Any
    ) -> Any:
        try:
            return await original(cls, self._hub.pools.run, (job, func, *args), abandon, limiter)
        finally:
            self._resumed(job)

    @guarded
    def _take_in(self, backend: Any, call: TransportCall, limiter: Any) -> None:
        """The stdio transport reads, writes or flushes for the first time: find out which pool's threads it uses."""
        call.pool = self._limiter_pool(backend, limiter)
        call.append = self._hub.pools.transitions.append
        if backend.__module__ == _ON_ASYNCIO:  # trio's threads take their tokens on behalf of something else
            self._hub.awaits.pass_over(asyncio.current_task(), limiter or backend.current_default_thread_limiter())

    @guarded
    def _job(self, backend: Any, func: Any, limiter: Any) -> Job:
        pool = self._limiter_pool(backend, limiter)
        current = CURRENT.get()
        transport = _text_wrapper_of(func) is not None and (current is None or current.ended)
        job = self._hub.pools.submit(pool, transport=transport)
        job.awaited = True
        monitor = self._hub.monitor()
        if monitor is not None:
            monitor.waits_for(job)
        return job

    def _limiter_pool(self, backend: Any, limiter: Any) -> Pool:
        default = backend.current_default_thread_limiter()
        owner = default if limiter is None else limiter
        is_default = owner is default
        known = self._hub.pools.known(owner)
        if known is not None:
            return known
        name = DEFAULT_LIMITER if is_default else f"CapacityLimiter({owner.total_tokens:g})"
        return self._hub.pools.pool_of(owner, name, None if is_default else place_of_caller(), _limiter_level)

    @guarded
    def _resumed(self, job: Job) -> None:
        self._hub.pools.resumed(job)
        monitor = self._hub.monitor()
        if monitor is not None:
            monitor.waits_no_more()


class FuturesHook(_JobHook):
    """``ThreadPoolExecutor.submit``."""

    name = FUTURES_HOOK

    def install(self) -> None:
        """Patch it."""
        self.guard.replace(ThreadPoolExecutor, "submit", self._make_submit)
        self._hub.working(FUTURES_HOOK)

    def _make_submit(self, original: Any) -> Any:
        hook = self
        pools = self._hub.pools

        @wraps(original)
        def submit(self: ThreadPoolExecutor, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            job = hook._job(self) if hook._works() else None
            if job is None:
                return original(self, fn, *args, **kwargs)  # type: ignore[no-any-return]
            try:
                future: Future[Any] = original(self, pools.run_for, job, fn, *args, **kwargs)
            except BaseException:
                hook._not_run(job)
                raise
            future.add_done_callback(partial(hook._settled, job))
            return future

        return submit

    @guarded
    def _job(self, executor: ThreadPoolExecutor) -> Job:
        pool = self._hub.pools.known(executor)
        if pool is None:
            prefix = getattr(executor, "_thread_name_prefix", "") or "unnamed"
            default = prefix in ("asyncio", "uvloop")  # as the loops name it
            name = "asyncio default executor" if default else f"ThreadPoolExecutor {prefix}"
            site = None if default else place_of_caller()
            pool = self._hub.pools.pool_of(executor, name, site, _executor_level)
        return self._lent_job(pool)

    @guarded
    def _settled(self, job: Job, future: Future[Any]) -> None:
        if job.start_ns is None:  # cancelled, or refused by a pool whose initializer failed: it will never run
            self._hub.pools.resumed(job)


class StartHook(_JobHook):
    """``threading.Thread.start``."""

    name = THREAD_HOOK

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self._threads = _Threads()

    def install(self) -> None:
        """Patch it."""
        self.guard.wrap(threading.Thread, "start", before=self._lend, after=self._started)
        self._hub.working(THREAD_HOOK)

    def _lend(self, thread: threading.Thread) -> tuple[threading.Thread, _Lent] | None:
        raw = CURRENT.get()
        if raw is None or raw.ended or not self._works():
            return None
        target = getattr(thread, "_target", None)
        modules = (type(thread).__module__ + ".", (getattr(target, "__module__", None) or "") + ".")
        if any(module.startswith(_WORKER_MODULES) for module in modules):
            return None
        pool = self._hub.pools.pool_of(self._threads, "threads started by requests", None, _no_level)
        return thread, _Lent(thread, self._lent_job(pool), self._hub.pools)

    def _started(self, state: tuple[threading.Thread, _Lent] | None, _: Any, error: BaseException | None) -> None:
        if state is not None and error is not None:
            thread, lent = state
            lent.put_back(thread)
            self._not_run(lent.job)


class _Lent:
    """Stands for a thread's ``run`` until it is called; then the thread is its own again.

    The thread gets a bound method of it, as ``run`` usually is one: a wrapper of ``run`` may call its ``__func__`` with
    the thread. If somebody has wrapped it, theirs stays. After its first call this one only passes calls on.
    Source: sentry_sdk/integrations/threading.py @2.75.0.
    """

    __slots__ = ("_own", "_pools", "_run", "job")  # functools.wraps would copy a __dict__

    def __init__(self, thread: threading.Thread, job: Job, pools: Pools) -> None:
        self.job = job
        self._pools = pools
        self._own = vars(thread).get("run")
        self._run: Callable[[], Any] | None = thread.run
        thread.run = MethodType(self, thread)  # type: ignore[method-assign]

    def __call__(self, thread: threading.Thread) -> None:
        run = self.put_back(thread)
        if run is not None:
            self._pools.run_for(self.job, run)
        elif self._own is not None:
            self._own()
        else:
            type(thread).run(thread)

    def put_back(self, thread: threading.Thread) -> Callable[[], Any] | None:
        """Undo it. The first time, return what stood there. This breaks the reference cycle, as ``Thread.run`` does."""
        run, self._run = self._run, None
        if getattr(vars(thread).get("run"), "__func__", None) is self:
            if self._own is None:
                del vars(thread)["run"]
            else:
                thread.run = self._own  # type: ignore[method-assign]
        return run


def _text_wrapper_of(func: Any) -> io.TextIOWrapper | None:
    """The text stream whose method ``func`` is. Looks at types only: proxies answer to any attribute name."""
    if type(func) in (MethodType, BuiltinMethodType) and issubclass(type(func.__self__), io.TextIOWrapper):
        stream: io.TextIOWrapper = func.__self__
        return stream
    return None


def _limiter_level(limiter: Any) -> tuple[float | None, int]:
    total = limiter.total_tokens
    return (None if total == float("inf") else total), limiter.borrowed_tokens


def _executor_level(executor: Any) -> tuple[float | None, int]:
    return getattr(executor, "_max_workers", None), 0


def _no_level(_: Any) -> tuple[float | None, int]:
    return None, 0
