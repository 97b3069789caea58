"""On an event loop nothing begins while the owner gives no ids: that is Overloaded, and `run` tries again."""

import asyncio
import signal
from pathlib import Path

import pytest
from process_kit import Other

import planstep


async def test_run_on_an_event_loop_begins_once_the_owner_answers(tmp_path: Path) -> None:
    with Other(tmp_path / "s") as owner:
        owner.run("db.create_table('n')")
        async with planstep.open_async(tmp_path / "s") as db:
            owner.signal(signal.SIGSTOP)
            try:
                with pytest.raises(
                    planstep.Overloaded, match=r"is stopped \(SIGSTOP\).*: try again"
                ):
                    while True:
                        db.transaction()

                async def put(tx: planstep.AsyncTransaction) -> int:
                    await tx.put("n", "k", 1)
                    return 7

                running = asyncio.ensure_future(db.run(put))
                await asyncio.sleep(0)  # it has tried once
            finally:
                owner.signal(signal.SIGCONT)
            assert await running == 7
            assert owner("db.table('n').get('k')") == 1
