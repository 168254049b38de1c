"""The probe in an interpreter where one module cannot be imported."""

from __future__ import annotations

import asyncio
import sys

MISSING = sys.argv[2]


class Refuse:
    """A finder that knows one module not to exist."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == MISSING or name.startswith(MISSING + "."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


if MISSING != "nothing":
    for name in [name for name in sys.modules if name == MISSING or name.startswith(MISSING + ".")]:
        del sys.modules[name]
    sys.meta_path.insert(0, Refuse())

from tests.harm.programs.probing import Watched, tell  # noqa: E402


async def work() -> int:
    await asyncio.sleep(0.001)
    return await asyncio.get_running_loop().run_in_executor(None, int, "7")


def main() -> None:
    with Watched() as watched:
        answer = watched.run(work)
        if watched.probe is None:
            return tell({"answer": answer})
        from mcp_probe import native

        requests = watched.probe.snapshot().requests.count
        tell({"answer": answer, "requests": requests, "accelerator": native.state()})
    return None


if __name__ == "__main__":
    main()
