from __future__ import annotations

import asyncio

from autoscaler.service.notifier import Notifier


def test_a_closed_notifier_ends_its_polls_and_holds_no_later_one() -> None:
    notifier = Notifier()

    async def poll_and_close() -> list[tuple[int, ...]]:
        looked = asyncio.Event()
        loop = asyncio.get_running_loop()

        def look() -> tuple[int, ...]:
            loop.call_soon_threadsafe(looked.set)
            return ()

        poll = asyncio.create_task(notifier.wait_for("a", look, 600.0))
        await looked.wait()
        notifier.close()
        return [await poll, await notifier.wait_for("b", look, 600.0)]

    assert asyncio.run(asyncio.wait_for(poll_and_close(), 60.0)) == [(), ()]


def test_a_poll_of_a_closed_notifier_still_returns_what_there_is() -> None:
    notifier = Notifier()
    notifier.close()
    assert asyncio.run(notifier.wait_for("a", lambda: (1,), 600.0)) == (1,)
