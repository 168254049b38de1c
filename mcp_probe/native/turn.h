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

/* What select() is given: a new reference. */
static PyObject *patience(PyObject *loop, PyObject *ready, PyObject *scheduled)
{
    int stopping;
    if (PyObject_Size(ready) > 0)
        return Py_NewRef(no_wait);
    if ((stopping = truth_of(loop, str_stopping)) != 0)
        return stopping < 0 ? NULL : Py_NewRef(no_wait);
    if (PyList_Size(scheduled) == 0)
        Py_RETURN_NONE;
    double when, now;
    if (due_of(PyList_GetItem(scheduled, 0), &when) < 0 || time_of(loop, &now) < 0)
        return NULL;
    double left = when - now;
    return left <= 0 ? Py_NewRef(no_wait) : PyFloat_FromDouble(left > LONGEST_POLL ? LONGEST_POLL : left);
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

/* Whether _process_events does what is written out here, with events such as these. */
static int is_known_batch(PyObject *loop, PyObject *events)
{
    PyObject *hook = PyObject_GetAttr((PyObject *)Py_TYPE(loop), str_add_callback);
    int known = hook == add_callback && PyList_Check(events);
    Py_XDECREF(hook);
    PyErr_Clear();
    for (Py_ssize_t i = 0; known && i < PyList_Size(events); i++) {
        PyObject *row = PyList_GetItem(events, i);
        PyObject *key = PyTuple_Check(row) && PyTuple_Size(row) == 2 ? PyTuple_GetItem(row, 0) : Py_None;
        PyObject *data = PyTuple_Check(key) && PyTuple_Size(key) == 4 ? PyTuple_GetItem(key, 3) : Py_None;
        known = PyTuple_Check(data) && PyTuple_Size(data) == 2;
    }
    return known;
}

static int process_events(PyObject *loop, PyObject *ready, Steps *steps, PyObject *events)
{
    if (!is_known_batch(loop, events)) {
        PyObject *done = call_method_with(loop, str_process_events, events);
        Py_XDECREF(done);
        return done == NULL ? -1 : 0;
    }
    for (Py_ssize_t i = 0; i < PyList_Size(events); i++) {
        PyObject *row = PyList_GetItem(events, i), *key = PyTuple_GetItem(row, 0), *data = PyTuple_GetItem(key, 3);
        long mask = PyLong_AsLong(PyTuple_GetItem(row, 1));
        if (mask == -1 && PyErr_Occurred())
            return -1;
        if (((mask & 1) && one_ready(loop, ready, steps, key, PyTuple_GetItem(data, 0), str_remove_reader) < 0) ||
            ((mask & 2) && one_ready(loop, ready, steps, key, PyTuple_GetItem(data, 1), str_remove_writer) < 0))
            return -1;
    }
    return 0;
}

static int poll_once(PyObject *loop, PyObject *ready, Steps *steps, PyObject *wait)
{
    PyObject *selector = PyObject_GetAttr(loop, str_selector),
             *select = selector == NULL ? NULL : PyObject_GetAttr(selector, str_select), *events = NULL;
    if (select != NULL)
        events = (PyObject *)Py_TYPE(select) == poll_type ? poll_call(select, &wait, 1, NULL)
                                                          : call_with_one(select, wait);
    int failed = events == NULL || process_events(loop, ready, steps, events) < 0;
    Py_XDECREF(selector);
    Py_XDECREF(select);
    Py_XDECREF(events);
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
        PyObject *wait = patience(loop, ready, scheduled);
        if (wait != NULL && poll_once(loop, ready, steps, wait) == 0 && move_timers(loop, ready, scheduled) == 0) {
            PyObject *before = steps->turn;
            steps->turn = ready;
            done = none_unless(run_ready(ready) < 0);
            steps->turn = before;
        }
        Py_XDECREF(wait);
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
