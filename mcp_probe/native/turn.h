/* ---- Turn: BaseEventLoop._run_once, one turn of a loop that is followed ----
 *
 * What asyncio's own does, in its order. Turns that must tidy up (most of many timers are cancelled) are left to the
 * original, and so are loops in debug mode. Not for its own sake: of what the probe costs a
 * call, this wins back more than half.
 * Source: asyncio/base_events.py and selector_events.py, the same from CPython 3.10 to 3.13.
 */
#define MANY_TIMERS 100     /* base_events._MIN_SCHEDULED_TIMER_HANDLES */
#define LONGEST_POLL 86400. /* base_events.MAXIMUM_SELECT_TIMEOUT */

static PyObject *deque_popleft, *heap_pop, *poll_type, *add_callback, *wake_up_pipes;
static PyObject *loop_time, *loop_globals, *time_module, *time_names, *monotonic; /* asyncio's own, and what it stands on */
static PyObject *str_stopping, *str_selector, *str_select, *str_cancelled, *str_time, *str_monotonic, *str_clock_resolution, *str_process_events, *str_add_callback,
    *str_remove_reader, *str_remove_writer, *no_wait;

static int seconds_of(PyObject *owner, PyObject *name, double *found)
{
    PyObject *value = PyObject_GetAttr(owner, name);
    *found = value == NULL ? -1.0 : PyFloat_AsDouble(value);
    Py_XDECREF(value);
    return PyErr_Occurred() ? -1 : 0;
}

/* Whether the loop's time() is asyncio's own, and the clock that it reads is the machine's: tests like to put in others. */
static int is_own_time(PyObject *time)
{
    return Py_TYPE(time) == &PyMethod_Type && PyMethod_Function(time) == loop_time &&
           PyDict_GetItemWithError(loop_globals, str_time) == time_module &&
           PyDict_GetItemWithError(time_names, str_monotonic) == monotonic;
}

static int time_of(PyObject *loop, double *found)
{
    PyObject *time = PyObject_GetAttr(loop, str_time), *value = NULL;
    if (time != NULL && is_own_time(time))
        *found = (double)now_ns() / 1e9;
    else {
        value = time == NULL ? NULL : PyObject_CallNoArgs(time);
        *found = value == NULL ? -1.0 : PyFloat_AsDouble(value);
    }
    Py_XDECREF(time);
    Py_XDECREF(value);
    return PyErr_Occurred() ? -1 : 0;
}

static int is_cancelled(PyObject *handle)
{
    if (Py_TYPE(handle) == handle_type || Py_TYPE(handle) == timer_type)
        return ((Handle *)handle)->cancelled == Py_True;
    if (Py_TYPE(handle) == socket_type)
        handle = ((SocketReady *)handle)->handle;
    return truth_of(handle, str_cancelled);
}

static int due_of(PyObject *timer, double *found)
{
    if (Py_TYPE(timer) != timer_type)
        return seconds_of(timer, str_when, found);
    *found = ((Timer *)timer)->due;
    return 0;
}

/* The first of the timers, which is not scheduled any more: a new reference. */
static PyObject *pop_timer(PyObject *scheduled)
{
    PyObject *timer = call_with_one(heap_pop, scheduled);
    if (timer != NULL && Py_TYPE(timer) == timer_type)
        keep(&((Timer *)timer)->scheduled, Py_False);
    else if (timer != NULL && PyObject_SetAttr(timer, str_scheduled, Py_False) < 0)
        Py_CLEAR(timer);
    return timer;
}

/* Cancelled timers that come first go. 1: most of many are cancelled, and have to be tidied up. */
static int tidy_up(PyObject *loop, PyObject *scheduled)
{
    Py_ssize_t timers = PyList_Size(scheduled);
    if (timers > MANY_TIMERS) {
        double cancelled;
        if (seconds_of(loop, str_timer_cancelled_count, &cancelled) < 0)
            return -1;
        if (2 * cancelled > (double)timers)
            return 1;
    }
    while (PyList_Size(scheduled) > 0) {
        int cancelled = is_cancelled(PyList_GetItem(scheduled, 0));
        if (cancelled <= 0)
            return cancelled;
        if (count_cancelled(loop, -1) < 0)
            return -1;
        PyObject *timer = pop_timer(scheduled);
        Py_XDECREF(timer);
        if (timer == NULL)
            return -1;
    }
    return 0;
}

/* How long to wait for sockets, in seconds. */
static int patience(PyObject *loop, PyObject *ready, PyObject *scheduled, double *wait)
{
    int stopping = 0;
    *wait = 0.0;
    if (PyObject_Size(ready) > 0 || (stopping = truth_of(loop, str_stopping)) != 0)
        return stopping < 0 ? -1 : 0;
    *wait = FOREVER;
    if (PyList_Size(scheduled) == 0)
        return 0;
    double when, now;
    if (due_of(PyList_GetItem(scheduled, 0), &when) < 0 || time_of(loop, &now) < 0)
        return -1;
    double left = when - now;
    *wait = left <= 0 ? 0.0 : left > LONGEST_POLL ? LONGEST_POLL : left;
    return 0;
}

/* _process_events for one of (reader, writer): a handle or None. */
static int one_ready(PyObject *loop, PyObject *ready, Steps *steps, PyObject *key, PyObject *handle, PyObject *remove)
{
    if (handle == Py_None)
        return 0;
    int cancelled = is_cancelled(handle);
    if (cancelled != 0) {
        PyObject *done = cancelled < 0 ? NULL : call_method_with(loop, remove, PyTuple_GetItem(key, 0));
        Py_XDECREF(done);
        return done == NULL ? -1 : 0;
    }
    PyObject *found = handle == PyDict_GetItemWithError(wake_up_pipes, loop) ? Py_NewRef(handle) : socket_make(handle, steps);
    PyObject *done = found == NULL ? NULL : call_with_two(deque_append, ready, found);
    Py_XDECREF(found);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* Takes events, which may be NULL with an exception set. */
static int process_rows(PyObject *loop, PyObject *events)
{
    PyObject *done = events == NULL ? NULL : call_method_with(loop, str_process_events, events);
    Py_XDECREF(events);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* _process_events for one key; whose data is not (reader, writer) is asyncio's own to complain of. */
static int process_key(PyObject *loop, PyObject *ready, Steps *steps, PyObject *key, long mask)
{
    PyObject *data = PyTuple_Check(key) && PyTuple_Size(key) == 4 ? PyTuple_GetItem(key, 3) : Py_None;
    if (!PyTuple_Check(data) || PyTuple_Size(data) != 2)
        return process_rows(loop, Py_BuildValue("[(Ol)]", key, mask));
    if ((mask & 1) && one_ready(loop, ready, steps, key, PyTuple_GetItem(data, 0), str_remove_reader) < 0)
        return -1;
    return (mask & 2) ? one_ready(loop, ready, steps, key, PyTuple_GetItem(data, 1), str_remove_writer) : 0;
}

static int process_found(PyObject *loop, PyObject *ready, Steps *steps, Poll *poll, const polled_t *found)
{
    PyObject *hook = PyObject_GetAttr((PyObject *)Py_TYPE(loop), str_add_callback);
    Py_XDECREF(hook);
    PyErr_Clear();
    if (hook != add_callback)
        return process_rows(loop, rows_polled(poll, found));
    for (Py_ssize_t i = 0; i < found->count; i++) {
        long mask;
        PyObject *key = key_of(poll, found, i, &mask); /* held: what is cancelled takes it off the selector */
        int failed = key == NULL ? PyErr_Occurred() != NULL : process_key(loop, ready, steps, key, mask) < 0;
        Py_XDECREF(key);
        if (failed)
            return -1;
    }
    return 0;
}

static int poll_ours(PyObject *loop, PyObject *ready, Steps *steps, Poll *poll, double wait)
{
    polled_t found;
    int failed = poll_noted(poll, wait == FOREVER ? wait : whole_ms(wait), &found) < 0 ||
                 process_found(loop, ready, steps, poll, &found) < 0;
    Py_XDECREF(found.said);
    return failed ? -1 : 0;
}

static int poll_other(PyObject *loop, PyObject *select, double wait)
{
    PyObject *given = wait == FOREVER ? Py_NewRef(Py_None) : wait == 0.0 ? Py_NewRef(no_wait) : PyFloat_FromDouble(wait),
             *events = given == NULL ? NULL : call_with_one(select, given);
    Py_XDECREF(given);
    return process_rows(loop, events);
}

static int poll_once(PyObject *loop, PyObject *ready, Steps *steps, double wait)
{
    PyObject *selector = PyObject_GetAttr(loop, str_selector),
             *select = selector == NULL ? NULL : PyObject_GetAttr(selector, str_select);
    int failed = select == NULL;
    if (!failed && (PyObject *)Py_TYPE(select) == poll_type && ((Poll *)select)->steps->alive)
        failed = poll_ours(loop, ready, steps, (Poll *)select, wait) < 0;
    else if (!failed)
        failed = poll_other(loop, select, wait) < 0;
    Py_XDECREF(selector);
    Py_XDECREF(select);
    return failed ? -1 : 0;
}

/* Timers that are due go to the end of the queue. */
static int move_timers(PyObject *loop, PyObject *ready, PyObject *scheduled)
{
    double now, resolution, when;
    if (PyList_Size(scheduled) == 0)
        return 0;
    if (time_of(loop, &now) < 0 || seconds_of(loop, str_clock_resolution, &resolution) < 0)
        return -1;
    while (PyList_Size(scheduled) > 0) {
        if (due_of(PyList_GetItem(scheduled, 0), &when) < 0)
            return -1;
        if (when >= now + resolution)
            return 0;
        PyObject *timer = pop_timer(scheduled), *done = NULL;
        if (timer != NULL)
            done = call_with_two(deque_append, ready, timer);
        Py_XDECREF(timer);
        Py_XDECREF(done);
        if (done == NULL)
            return -1;
    }
    return 0;
}

static int run_ready(PyObject *ready)
{
    for (Py_ssize_t left = PyObject_Size(ready); left > 0; left--) {
        PyObject *handle = call_with_one(deque_popleft, ready), *done = NULL;
        int skipped = handle == NULL ? -1 : is_cancelled(handle);
        if (skipped > 0)
            done = Py_NewRef(Py_None);
        else if (skipped == 0)
            done = Py_TYPE(handle) == handle_type   ? handle_run((Handle *)handle, NULL)
                   : Py_TYPE(handle) == timer_type  ? timer_run((Timer *)handle, NULL)
                   : Py_TYPE(handle) == socket_type ? socket_run((SocketReady *)handle, NULL)
                                                    : run_plain(handle);
        Py_XDECREF(handle);
        Py_XDECREF(done);
        if (done == NULL)
            return -1;
    }
    return 0;
}

static PyObject *turn_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Schedule *self = (Schedule *)callable;
    Py_ssize_t nargs = NARGS(nargsf), keywords = kwnames == NULL ? 0 : PyTuple_Size(kwnames);
    Steps *steps = nargs == 1 && !keywords ? follow(self, args[0]) : NULL;
    if (steps == NULL || !steps->alive || !is_plain(args[0])) {
        Py_XDECREF((PyObject *)steps);
        return pass_on(self->original, args, nargs, kwnames);
    }
    PyObject *loop = args[0], *ready = PyObject_GetAttr(loop, str_ready),
             *scheduled = ready == NULL ? NULL : PyObject_GetAttr(loop, str_scheduled), *done = NULL;
    int untidy = scheduled == NULL ? -1 : PyList_Check(scheduled) ? tidy_up(loop, scheduled) : 1;
    if (untidy > 0)
        done = pass_on(self->original, args, nargs, kwnames);
    else if (untidy == 0) {
        double wait;
        if (patience(loop, ready, scheduled, &wait) == 0 && poll_once(loop, ready, steps, wait) == 0 &&
            move_timers(loop, ready, scheduled) == 0) {
            PyObject *before = steps->turn;
            steps->turn = ready;
            done = none_unless(run_ready(ready) < 0);
            steps->turn = before;
        }
    }
    Py_XDECREF(ready);
    Py_XDECREF(scheduled);
    Py_DECREF(steps);
    return done;
}

static PyObject *turn_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *original, *tracks, *popleft, *pop, *add, *pipes, *time, *globals, *module, *names, *clock;
    if (!PyArg_ParseTuple(args, "OO!OOOO!(OO!OO!O)", &original, &PyDict_Type, &tracks, &popleft, &pop, &add, &PyDict_Type,
                          &pipes, &time, &PyDict_Type, &globals, &module, &PyDict_Type, &names, &clock))
        return NULL;
    keep(&deque_popleft, popleft);
    keep(&heap_pop, pop);
    keep(&add_callback, add);
    keep(&wake_up_pipes, pipes);
    keep(&loop_time, time);
    keep(&loop_globals, globals);
    keep(&time_module, module);
    keep(&time_names, names);
    keep(&monotonic, clock);
    return schedule_made(type, turn_call, original, tracks, PyUnicode_FromString("_run_once"));
}

static int make_turn_names(void)
{
    static const name_t names[] = {{&str_stopping, "_stopping"},
                 {&str_selector, "_selector"},
                 {&str_select, "select"},
                 {&str_cancelled, "_cancelled"},
                 {&str_time, "time"},
                 {&str_monotonic, "monotonic"},
                 {&str_clock_resolution, "_clock_resolution"},
                 {&str_process_events, "_process_events"},
                 {&str_add_callback, "_add_callback"},
                 {&str_remove_reader, "_remove_reader"},
                 {&str_remove_writer, "_remove_writer"}};
    return INTERN(names) < 0 || (no_wait = PyLong_FromLong(0)) == NULL ? -1 : 0;
}

SCHEDULE_TYPE(turn, "Turn")
