/* ---- Steps: who is on one loop, and its polls (twin: capture/loop_steps.py) ---- */

typedef struct {
    PyObject_HEAD
    PyObject *owner;
    ns_t unit, since, suspended, earliest, ready, now, poll_end, steps, ordinal;
    ns_t event_earliest, event_ready; /* of what the last poll found: since, and by */
    ns_t looked;                      /* what the next one finds came since then */
    ns_t inherit_earliest, inherit_ready;
    ns_t polls, poll_ns, poll_began, iteration_max;
    ns_t poll_counted; /* up to then the running poll is in poll_ns */
    unsigned __int128 sum_sq;
    unsigned long thread_id;
    Switches before_poll;          /* of its thread, as the last poll that may wait began */
    int wake, inherit_wake, shows; /* shows: what can be seen of a request that steps here */
    char alive, stretches, inherits, polling, may_wait; /* may_wait: the poll that is to end */
    unsigned long long loop_id;                         /* address of the loop; never followed */
    PyObject *readings; /* Readings of this loop's thread, while it is watched */
    PyObject *meter;    /* reads counters around steps of requests; NULL or None: nothing */
    PyObject *reading;  /* to be called with the owner as the running step ends */
    unsigned int counts[BUCKETS];
    ns_t sums[BUCKETS];
} Steps;

/* While every loop is in its poll the watchdog waits for one of them to begin something. */
static sem_t watchdog_woken;
static char watchdog_parked;

static inline void wake(void)
{
    if (__atomic_load_n(&watchdog_parked, __ATOMIC_SEQ_CST) &&
        __atomic_exchange_n(&watchdog_parked, 0, __ATOMIC_SEQ_CST))
        sem_post(&watchdog_woken);
}

/* The watchdog reads `since` without the GIL. It parks only where it is 0, after it has said so;
 * whoever takes it from 0 asks afterwards whether it has. Both in the one order of sequentially
 * consistent operations: one of them sees the other. */
static inline void set_since(Steps *self, ns_t since)
{
    if (since == 0 || self->since != 0)
        __atomic_store_n(&self->since, since, __ATOMIC_RELAXED);
    else {
        __atomic_store_n(&self->since, since, __ATOMIC_SEQ_CST);
        wake();
    }
}

static PyObject *steps_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    Steps *self = (Steps *)PyType_GenericAlloc(type, 0);
    if (self != NULL) {
        self->owner = Py_NewRef(Py_None);
        self->alive = self->may_wait = 1;
        self->shows = ALL_SEEN;
        self->now = self->poll_end = self->event_earliest = self->event_ready = now_ns();
        self->looked = self->suspended = self->earliest = self->ready = self->now;
        self->thread_id = PyThread_get_thread_ident();
    }
    return (PyObject *)self;
}

#define STEPS_OBJECTS(EACH) EACH(owner) EACH(readings) EACH(meter) EACH(reading)
TRAVERSE_AND_CLEAR(Steps, steps, STEPS_OBJECTS)
DEALLOCATE(Steps, steps, NOTHING_TO_FREE)

static void set_owner(Steps *self, PyObject *owner)
{
    PyObject *before = self->owner;
    self->owner = Py_NewRef(owner);
    Py_XDECREF(before);
}

static int steps_begin(Steps *self, PyObject *owner, ns_t unit, ns_t earliest, ns_t ready, int wake,
                       ns_t since)
{
    if (self->owner != owner)
        set_owner(self, owner);
    self->unit = unit;
    set_since(self, since);
    self->earliest = earliest;
    self->ready = ready;
    self->wake = wake;
    Request *request = as_request(owner);
    if (request != NULL && !request->ended) {
        unit_t *known = find_unit(request, unit);
        self->suspended = known != NULL ? known->end : earliest;
        if (request->first_step_ns == NO_NS) {
            request->first_step_ns = since;
            request->loop = self->ordinal;
            request->seen = self->shows;
            request->handler = unit;
        }
    }
    int failed = 0;
    if (request != NULL && !request->ended && is_set(self->meter)) {
        Py_XSETREF(self->reading, call_method(self->meter, str_begin));
        failed = self->reading == NULL;
    }
    if (memory_hooks != NULL)
        memory_hooks->begin(request);
    return failed ? -1 : 0;
}

/* What the meter read belongs to the owner of the step, which ends. */
static int steps_meter(Steps *self)
{
    PyObject *reading = self->reading;
    self->reading = NULL;
    PyObject *result = PyObject_CallOneArg(reading, self->owner);
    Py_DECREF(reading);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

static int tell_between(PyObject *self, PyObject *name, PyObject *owner, ns_t since, ns_t now)
{
    PyObject *a = PyLong_FromLongLong(since), *b = PyLong_FromLongLong(now), *result = NULL;
    if (a != NULL && b != NULL)
        result = owner == NULL ? PyObject_CallMethodObjArgs(self, name, a, b, NULL)
                               : PyObject_CallMethodObjArgs(self, name, owner, a, b, NULL);
    Py_XDECREF(a);
    Py_XDECREF(b);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

static int steps_stretch(Steps *self, ns_t now)
{
    int failed = tell_between((PyObject *)self, str_keep, Py_None, self->now, now);
    self->now = now;
    set_since(self, now);
    return failed;
}

/* Everything but the plainest case is Python's: nested requests, ends of tasks that settle a
 * request, many marks. */
static int steps_charge(Steps *self, PyObject *owner, ns_t since, ns_t now, int done)
{
    Request *request = as_request(owner);
    if (request != NULL && !request->ended &&
        (request->parent == NULL || request->parent == Py_None) &&
        request->mark_count < MAX_MARKS) {
        if (add_mark(request, self->unit, self->suspended, self->earliest, self->ready, since, now,
                     self->wake) < 0)
            return -1;
        if (!self->unit)
            return 0;
        if (!done)
            return set_unit(request, self->unit, now);
        drop_unit(request, self->unit);
        if (!request->settles || self->unit != request->handler || request->result_ns != NO_NS)
            return 0;
        PyObject *at = PyLong_FromLongLong(now), *result = NULL;
        if (at != NULL)
            result = PyObject_CallMethodObjArgs((PyObject *)self, str_settle, owner, at, NULL);
        Py_XDECREF(at);
        Py_XDECREF(result);
        return result == NULL ? -1 : 0;
    }
    PyObject *a = PyLong_FromLongLong(since), *b = PyLong_FromLongLong(now), *result = NULL;
    if (a != NULL && b != NULL)
        result = PyObject_CallMethodObjArgs((PyObject *)self, str_charge, owner, a, b,
                                            done ? Py_True : Py_False, NULL);
    Py_XDECREF(a);
    Py_XDECREF(b);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

static int steps_close(Steps *self, ns_t now, int done)
{
    if (memory_hooks != NULL)
        memory_hooks->close();
    ns_t since = self->since;
    PyObject *owner = Py_NewRef(self->owner);
    int failed = self->reading == NULL ? 0 : steps_meter(self);
    self->now = now;
    if (!failed && owner != Py_None)
        failed = steps_charge(self, owner, since, now, done);
    if (!failed && now - since >= RING_NS)
        failed = tell_between((PyObject *)self, str_keep, owner, since, now);
    self->steps++;
    set_owner(self, Py_None);
    set_since(self, self->stretches ? now : 0);
    Py_DECREF(owner);
    return failed;
}

static int bucket_of(ns_t value)
{
    if (value < 16)
        return value > 0 ? (int)value : 0;
    int shift = 63 - __builtin_clzll((unsigned long long)value) - 4;
    return (shift << 4) + (int)(value >> shift);
}

static void count_iteration(Steps *self, ns_t length)
{
    if (length <= 0)
        return;
    int bucket = bucket_of(length);
    self->counts[bucket]++;
    self->sums[bucket] += length;
    self->sum_sq += (unsigned __int128)length * length;
    if (length > self->iteration_max)
        self->iteration_max = length;
}

static void steps_begin_poll(Steps *self, ns_t now)
{
    count_iteration(self, now - self->poll_end);
    if (self->may_wait)
        self->before_poll = switches_so_far();
    self->polling = 1;
    self->poll_began = self->poll_counted = self->now = now;
    set_since(self, 0);
}

/* Since when at the earliest what a poll has found may have come, if the poll had to wait; else
 * NO_NS. What came before is found at once; but where the thread then has to wait for a CPU, or for
 * the GIL, or on an emulated host, even that takes its time. */
static ns_t came_since(Steps *self, ns_t now)
{
    ns_t length = now - self->poll_began;
    if (length < WAITED_NS)
        return NO_NS;
    if (length < GIL_NS)
        return self->poll_began - self->poll_end < WORK_NS ? now : NO_NS;
    Switches before = self->before_poll, after = switches_so_far();
    if (after.sleeps + after.taken == 0)
        return now;
    long sleeps = after.sleeps - before.sleeps;
    if (after.taken != before.taken || sleeps < 1 || sleeps * GIL_NS >= length)
        return NO_NS;
    return now - (sleeps - 1) * GIL_NS;
}

/* What a poll finds that did not have to wait came since the poll before it looked. One that was
 * told not to wait takes long where its thread was kept from the CPU. */
static void steps_end_poll(Steps *self, ns_t now)
{
    ns_t since = self->polling && self->may_wait ? came_since(self, now) : NO_NS;
    self->event_earliest = since == NO_NS ? self->looked : since;
    if (self->polling) {
        self->poll_ns += now - self->poll_counted;
        self->polls++;
        self->polling = 0;
        self->looked = since == NO_NS ? self->poll_began : since;
    }
    self->poll_end = self->now = self->event_ready = now;
}

static PyObject *steps_take_polls(Steps *self, PyObject *until)
{
    if (until != Py_None && self->polling) {
        ns_t now = PyLong_AsLongLong(until);
        if (now == -1 && PyErr_Occurred())
            return NULL;
        if (now > self->poll_counted) {
            self->poll_ns += now - self->poll_counted;
            self->poll_counted = now;
        }
    }
    PyObject *rows = PyList_New(0);
    for (int i = 0; rows != NULL && i < BUCKETS; i++) {
        if (!self->counts[i])
            continue;
        unsigned int count = self->counts[i]; /* taken before anything is allocated: a collection
                                                 lets other threads run */
        ns_t sum = self->sums[i];
        self->counts[i] = 0;
        self->sums[i] = 0;
        PyObject *row = Py_BuildValue("(iIL)", i, count, sum);
        if (row == NULL || PyList_Append(rows, row) < 0)
            Py_CLEAR(rows);
        Py_XDECREF(row);
    }
    if (rows == NULL)
        return NULL;
    ns_t polls = self->polls, poll_ns = self->poll_ns, longest = self->iteration_max;
    unsigned __int128 sum_sq = self->sum_sq;
    self->polls = self->poll_ns = self->iteration_max = 0;
    self->sum_sq = 0;
    return Py_BuildValue("(LLNKKL)", polls, poll_ns, rows, (unsigned long long)(sum_sq >> 64),
                         (unsigned long long)sum_sq, longest);
}

static PyObject *steps_py_begin(Steps *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 6) {
        PyErr_SetString(PyExc_TypeError, "begin(owner, unit, earliest, ready, wake, since)");
        return NULL;
    }
    ns_t unit = PyLong_AsLongLong(args[1]), earliest = PyLong_AsLongLong(args[2]),
         ready = PyLong_AsLongLong(args[3]), since = PyLong_AsLongLong(args[5]);
    long wake = PyLong_AsLong(args[4]);
    if (PyErr_Occurred())
        return NULL;
    return none_unless(steps_begin(self, args[0], unit, earliest, ready, (int)wake, since) < 0);
}

static PyObject *steps_py_close(Steps *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "close(now, done)");
        return NULL;
    }
    ns_t now = PyLong_AsLongLong(args[0]);
    if (PyErr_Occurred())
        return NULL;
    return none_unless(steps_close(self, now, PyObject_IsTrue(args[1])));
}

static PyObject *steps_py_stretch(Steps *self, PyObject *at)
{
    ns_t now = PyLong_AsLongLong(at);
    if (now == -1 && PyErr_Occurred())
        return NULL;
    return none_unless(steps_stretch(self, now));
}

static int steps_split(Steps *self, PyObject *owner, ns_t now)
{
    ns_t unit = self->unit;
    int failed = 0;
    if (self->owner != Py_None || (self->since && !self->stretches))
        failed = steps_close(self, now, 0) < 0;
    else if (self->stretches && now - self->now >= RING_NS)
        failed = steps_stretch(self, now) < 0;
    if (failed)
        return -1;
    return steps_begin(self, owner, unit, now, now, WAKE_SPLIT, now);
}

static PyObject *steps_py_split(Steps *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "split(owner, now)");
        return NULL;
    }
    ns_t now = PyLong_AsLongLong(args[1]);
    if (PyErr_Occurred())
        return NULL;
    return none_unless(steps_split(self, args[0], now) < 0);
}

static PyObject *steps_py_begin_poll(Steps *self, PyObject *at)
{
    ns_t now = PyLong_AsLongLong(at);
    if (now == -1 && PyErr_Occurred())
        return NULL;
    steps_begin_poll(self, now);
    Py_RETURN_NONE;
}

static PyObject *steps_py_end_poll(Steps *self, PyObject *at)
{
    ns_t now = PyLong_AsLongLong(at);
    if (now == -1 && PyErr_Occurred())
        return NULL;
    steps_end_poll(self, now);
    Py_RETURN_NONE;
}

static PyObject *steps_get_inherit(Steps *self, void *closure)
{
    if (!self->inherits)
        Py_RETURN_NONE;
    return Py_BuildValue("(LLi)", self->inherit_earliest, self->inherit_ready, self->inherit_wake);
}

static int steps_set_inherit(Steps *self, PyObject *value, void *closure)
{
    if (value == NULL || value == Py_None) {
        self->inherits = 0;
        return 0;
    }
    ns_t earliest, ready;
    int wake;
    if (!PyArg_Parse(value, "(LLi)", &earliest, &ready, &wake))
        return -1;
    self->inherit_earliest = earliest;
    self->inherit_ready = ready;
    self->inherit_wake = wake;
    self->inherits = 1;
    return 0;
}

static PyObject *steps_get_since(Steps *self, void *closure)
{
    return PyLong_FromLongLong(self->since);
}

static int steps_set_since(Steps *self, PyObject *value, void *closure)
{
    ns_t since = value == NULL ? 0 : PyLong_AsLongLong(value);
    if (since == -1 && PyErr_Occurred())
        return -1;
    set_since(self, since);
    return 0;
}

#define NUMBER(field) {#field, T_LONGLONG, offsetof(Steps, field), 0, NULL}
static PyMemberDef steps_members[] = {
    {"owner", T_OBJECT, offsetof(Steps, owner), 0, NULL},
    {"meter", T_OBJECT, offsetof(Steps, meter), 0, NULL},
    NUMBER(unit),
    NUMBER(suspended),
    NUMBER(earliest),
    NUMBER(ready),
    NUMBER(now),
    NUMBER(poll_end),
    NUMBER(looked),
    NUMBER(event_earliest),
    NUMBER(event_ready),
    NUMBER(steps),
    NUMBER(ordinal),
    {"wake", T_INT, offsetof(Steps, wake), 0, NULL},
    {"shows", T_INT, offsetof(Steps, shows), 0, NULL},
    {"alive", T_BOOL, offsetof(Steps, alive), 0, NULL},
    {"stretches", T_BOOL, offsetof(Steps, stretches), 0, NULL},
    {"may_wait", T_BOOL, offsetof(Steps, may_wait), 0, NULL},
    {"polling", T_BOOL, offsetof(Steps, polling), READONLY, NULL},
    {"thread_id", T_ULONG, offsetof(Steps, thread_id), READONLY, NULL},
    {"loop_id", T_ULONGLONG, offsetof(Steps, loop_id), 0, NULL},
    {NULL}};
static PyGetSetDef steps_getset[] = {
    {"inherit", (getter)steps_get_inherit, (setter)steps_set_inherit, NULL, NULL},
    {"since", (getter)steps_get_since, (setter)steps_set_since, NULL, NULL},
    {NULL}};
static PyMethodDef steps_methods[] = {
    {"begin", (PyCFunction)(void (*)(void))steps_py_begin, METH_FASTCALL, NULL},
    {"close", (PyCFunction)(void (*)(void))steps_py_close, METH_FASTCALL, NULL},
    {"stretch", (PyCFunction)steps_py_stretch, METH_O, NULL},
    {"split", (PyCFunction)(void (*)(void))steps_py_split, METH_FASTCALL, NULL},
    {"begin_poll", (PyCFunction)steps_py_begin_poll, METH_O, NULL},
    {"end_poll", (PyCFunction)steps_py_end_poll, METH_O, NULL},
    {"take_poll_counts", (PyCFunction)steps_take_polls, METH_O, NULL},
    {NULL}};
static PyType_Slot steps_slots[] = {
    {Py_tp_new, steps_new},         {Py_tp_traverse, steps_traverse},
    {Py_tp_clear, steps_clear},     {Py_tp_dealloc, steps_dealloc},
    {Py_tp_members, steps_members}, {Py_tp_getset, steps_getset},
    {Py_tp_methods, steps_methods}, {0, NULL}};
static PyType_Spec steps_spec = {"mcp_probe.native._core.Steps", sizeof(Steps), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
                                 steps_slots};

/* A fault of ours: tell LoopMonitor.broken. -1 where it is none, such as a Ctrl-C that came while
 * Python ran for us. */
static int give_up(Steps *steps)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    PyObject *error = caught();
    steps->alive = 0;
    if (memory_hooks != NULL)
        memory_hooks->close();
    PyObject *broken = PyObject_GetAttr((PyObject *)steps, str_broken), *result = NULL;
    if (broken != NULL && error != NULL)
        result = PyObject_CallFunctionObjArgs(broken, error, NULL);
    PyErr_Clear();
    Py_XDECREF(broken);
    Py_XDECREF(result);
    Py_XDECREF(error);
    return 0;
}
