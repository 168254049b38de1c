"""Every field case with its variants, in the order of the table."""

from __future__ import annotations

from tests.field.cases.cancel_spin.case import ROWS as CANCEL_SPIN
from tests.field.cases.case import Row
from tests.field.cases.child_reads_stdin.case import ROWS as CHILD_READS_STDIN
from tests.field.cases.descriptors.case import ROWS as DESCRIPTORS
from tests.field.cases.lazy_model_stampede.case import ROWS as LAZY_MODEL_STAMPEDE
from tests.field.cases.loop_thread_deadlock.case import ROWS as LOOP_THREAD_DEADLOCK
from tests.field.cases.module_list_leak.case import ROWS as MODULE_LIST_LEAK
from tests.field.cases.open_sessions.case import ROWS as OPEN_SESSIONS
from tests.field.cases.orphan.case import ROWS as ORPHAN
from tests.field.cases.rlock.case import ROWS as RLOCK
from tests.field.cases.sleep_zero_poll.case import ROWS as SLEEP_ZERO_POLL
from tests.field.cases.slow_start.case import ROWS as SLOW_START
from tests.field.cases.token_verification.case import ROWS as TOKEN_VERIFICATION

ROWS: tuple[Row, ...] = (
    *OPEN_SESSIONS,
    *CANCEL_SPIN,
    *CHILD_READS_STDIN,
    *ORPHAN,
    *DESCRIPTORS,
    *LOOP_THREAD_DEADLOCK,
    *TOKEN_VERIFICATION,
    *RLOCK,
    *SLOW_START,
    *LAZY_MODEL_STAMPEDE,
    *MODULE_LIST_LEAK,
    *SLEEP_ZERO_POLL,
)
