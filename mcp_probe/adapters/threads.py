"""Work that leaves the loop: anyio worker threads, ``concurrent.futures`` pools, bare threads.

The request reaches anyio's and ``asyncio.to_thread``'s workers by context; plain
``executor.submit``, ``loop.run_in_executor`` and ``threading.Thread`` lose it, so it is lent there
for the length of the call.

Source: anyio/_backends/_asyncio.py and _trio.py, 4.5-4.16; concurrent/futures/thread.py.
"""

from __future__ import annotations

import io
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import BuiltinMethodType, MethodType
from typing import Any

from mcp_probe.adapters.patching import Patches
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.executor import Pool, Pools
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.places import place_of_caller
from mcp_probe.capture.transport import TransportCall
from mcp_probe.record.raw import Job

ANYIO_HOOK = "executors (anyio)"
FUTURES_HOOK = "executors (concurrent.futures)"
THREAD_HOOK = "executors (threading)"
DEFAULT_LIMITER = "anyio default limiter"
_WORKER_MODULES = ("anyio.", "concurrent.futures.", "trio.", "mcp_probe.")


class _Threads:
    """Stands for "a thread of its own per job" in the executor table."""


class ThreadHooks:
    """All hooks on worker threads."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._patches = Patches()
        self._backends: set[str] = set()
        self._off: set[str] = set()
        self._threads = _Threads()

    def install(self) -> None:
        """Patch what every process has; backends of anyio follow with :meth:`follow`."""
        self._patches.replace(ThreadPoolExecutor, "submit", self._make_submit(ThreadPoolExecutor.submit))
        self._hub.working(FUTURES_HOOK)
        self._patches.replace(threading.Thread, "start", self._make_start(threading.Thread.start))
        self._hub.working(THREAD_HOOK)

    def follow(self, loop_name: str) -> None:
        """Patch anyio's backend for ``loop_name`` (asyncio, uvloop, trio), once, if anyio is in use."""
        backend_name = "trio" if loop_name == "trio" else "asyncio"
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
            name = "run_sync_in_worker_thread"
            original = vars(backend)[name].__func__
        except Exception as exc:  # noqa: BLE001 - an unknown anyio must not stop the server
            self._hub.missing(ANYIO_HOOK, f"this anyio is not known to us ({type(exc).__name__}: {exc})")
            return
        self._patches.replace(backend, name, classmethod(self._make_run_sync(original, backend_name)))
        self._hub.working(ANYIO_HOOK)

    def restore(self) -> list[str]:
        """Undo everything."""
        self._backends.clear()
        self._off |= {ANYIO_HOOK, FUTURES_HOOK, THREAD_HOOK}
        return self._patches.restore()

    def _fail(self, hook: str, exc: Exception) -> None:
        self._off.add(hook)
        self._hub.fail(hook, exc)

    # --- anyio ---

    def _make_run_sync(self, original: Any, backend_name: str) -> Any:
        """Not a coroutine function, so that a job of the transport costs no frame of ours."""
        hooks = self

        def run_sync_in_worker_thread(
            cls: Any, func: Any, args: Any, abandon_on_cancel: bool = False, limiter: Any = None
        ) -> Any:
            if type(func) is TransportCall:
                if func.pool is None:
                    hooks._take_in(cls, func, limiter)
                func.submit()
                return original(cls, func, args, abandon_on_cancel, limiter)
            job = hooks._anyio_job(cls, func, limiter)
            if job is None:
                return original(cls, func, args, abandon_on_cancel, limiter)
            return hooks._follow_job(original, backend_name, job, cls, func, args, abandon_on_cancel, limiter)

        return run_sync_in_worker_thread

    async def _follow_job(
        self, original: Any, backend_name: str, job: Job, cls: Any, func: Any, args: Any, abandon: bool, limiter: Any
    ) -> Any:
        try:
            return await original(cls, self._hub.pools.run, (job, func, *args), abandon, limiter)
        finally:
            self._resumed(job, backend_name)

    def _take_in(self, backend: Any, call: TransportCall, limiter: Any) -> None:
        """A read, write or flush of the stdio transport comes for the first time: whose threads does it use?"""
        try:
            call.append = self._hub.pools.transitions.append
            call.pool = self._limiter_pool(backend, limiter)
        except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
            call.append = None
            self._fail(ANYIO_HOOK, exc)

    def _anyio_job(self, backend: Any, func: Any, limiter: Any) -> Job | None:
        if ANYIO_HOOK in self._off or self._hub.pools.off:
            return None
        try:
            pool = self._limiter_pool(backend, limiter)
            current = CURRENT.get()
            transport = _text_wrapper_of(func) is not None and (current is None or current.ended)
            job = self._hub.pools.submit(pool, transport=transport)
            job.awaited = True
            track = self._hub.track()
            if track is not None and track.name == "trio":
                track.jobs[track.unit] = job
            return job
        except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
            self._fail(ANYIO_HOOK, exc)
            return None

    def _limiter_pool(self, backend: Any, limiter: Any) -> Pool:
        default = backend.current_default_thread_limiter()
        owner = default if limiter is None else limiter
        is_default = owner is default
        known = self._hub.pools.known(owner)
        if known is not None:
            return known
        name = DEFAULT_LIMITER if is_default else f"CapacityLimiter({owner.total_tokens:g})"
        return self._hub.pools.pool_of(owner, name, None if is_default else place_of_caller(), _limiter_level)

    def _resumed(self, job: Job, backend_name: str) -> None:
        try:
            self._hub.pools.resumed(job)
            if backend_name == "trio":
                track = self._hub.track()
                if track is not None:
                    track.jobs.pop(track.unit, None)
        except Exception as exc:  # noqa: BLE001
            self._fail(ANYIO_HOOK, exc)

    # --- concurrent.futures ---

    def _make_submit(self, original: Any) -> Any:
        hooks = self
        pools = self._hub.pools

        def submit(self: ThreadPoolExecutor, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            job = hooks._futures_job(self)
            if job is None:
                return original(self, fn, *args, **kwargs)  # type: ignore[no-any-return]
            try:
                future: Future[Any] = original(self, pools.run_for, job, fn, *args, **kwargs)
            except BaseException:
                hooks._not_run(job, FUTURES_HOOK)
                raise
            future.add_done_callback(partial(hooks._settled, job))
            return future

        submit.__wrapped__ = original  # type: ignore[attr-defined]
        return submit

    def _futures_job(self, executor: ThreadPoolExecutor) -> Job | None:
        if FUTURES_HOOK in self._off or self._hub.pools.off:
            return None
        try:
            pool = self._hub.pools.known(executor)
            if pool is None:
                prefix = getattr(executor, "_thread_name_prefix", "") or "unnamed"
                default = prefix in ("asyncio", "uvloop")  # as the loops name it
                name = "asyncio default executor" if default else f"ThreadPoolExecutor {prefix}"
                site = None if default else place_of_caller()
                pool = self._hub.pools.pool_of(executor, name, site, _executor_level)
            return self._lent_job(pool)
        except Exception as exc:  # noqa: BLE001
            self._fail(FUTURES_HOOK, exc)
            return None

    def _settled(self, job: Job, future: Future[Any]) -> None:
        try:
            if job.start_ns is None:  # cancelled, or refused by a pool whose initializer failed: it will never run
                self._hub.pools.resumed(job)
        except Exception as exc:  # noqa: BLE001
            self._fail(FUTURES_HOOK, exc)

    def _lent_job(self, pool: Pool) -> Job:
        """A job whose thread would otherwise know neither the request nor its trace."""
        job = self._hub.pools.submit(pool)
        carry = self._hub.pools.carry
        if carry is not None and job.raw is not None and not job.raw.ended:
            job.carried = carry()
        return job

    # --- threading ---

    def _make_start(self, original: Any) -> Any:
        hooks = self

        def start(self: threading.Thread) -> None:
            lent = hooks._lend_to_thread(self)
            try:
                original(self)
            except BaseException:
                if lent is not None:
                    lent.put_back()
                    hooks._not_run(lent.job, THREAD_HOOK)
                raise

        start.__wrapped__ = original  # type: ignore[attr-defined]
        return start

    def _lend_to_thread(self, thread: threading.Thread) -> _Lent | None:
        raw = CURRENT.get()
        if raw is None or raw.ended or THREAD_HOOK in self._off or self._hub.pools.off:
            return None
        try:
            target = getattr(thread, "_target", None)
            modules = (type(thread).__module__ + ".", (getattr(target, "__module__", None) or "") + ".")
            if any(module.startswith(_WORKER_MODULES) for module in modules):
                return None
            pool = self._hub.pools.pool_of(self._threads, "threads started by requests", None, _no_level)
            job = self._lent_job(pool)
            return _Lent(thread, job, self._hub.pools)
        except Exception as exc:  # noqa: BLE001
            self._fail(THREAD_HOOK, exc)
            return None

    def _not_run(self, job: Job, hook: str) -> None:
        try:
            self._hub.pools.resumed(job)
        except Exception as exc:  # noqa: BLE001
            self._fail(hook, exc)


class _Lent:
    """Stands for a thread's ``run`` until it is called; then the thread is its own again."""

    def __init__(self, thread: threading.Thread, job: Job, pools: Pools) -> None:
        self.job = job
        self._pools = pools
        self._thread = thread
        self._own = vars(thread).get("run")
        self._run = thread.run
        thread.run = self  # type: ignore[method-assign]

    def __call__(self) -> None:
        self.put_back()
        self._pools.run_for(self.job, self._run)

    def put_back(self) -> None:
        """Undo it; also ends the reference cycle, which ``Thread.run`` takes care not to leave either."""
        if self._own is None:
            vars(self._thread).pop("run", None)
        else:
            self._thread.run = self._own  # type: ignore[method-assign]


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
