/* ---- park: the watchdog's sleep, over every loop that is watched (twin: capture/readings.py) ----
 */

#define MAX_WATCHED 16
#define MAX_PIPES 8
#define LOOK_NS 10000000LL
#define LEAST_SLEEP_NS 200000LL
#define IDLE_TICKS 2
#define PARK_NS 900000000L

/* One tick over all watched loops, without the GIL: what it reads of Steps are single words that
 * one thread writes. Returns 0 where a step is over the limit or a loop is no longer watched, else
 * how long no step can be. */
static ns_t tick(Readings **watched, int count, ns_t limit)
{
    ns_t wait = limit;
    for (int i = 0; i < count; i++) {
        if (__atomic_load_n(&watched[i]->closed, __ATOMIC_RELAXED))
            return 0;
        ns_t since = __atomic_load_n(&watched[i]->steps->since, __ATOMIC_RELAXED),
             age = now_ns() - since;
        if (since == 0)
            continue;
        if (age >= limit)
            return 0;
        if (limit - age < wait)
            wait = limit - age;
    }
    return wait;
}

static int all_idle(Readings **watched, int count)
{
    for (int i = 0; i < count; i++)
        if (__atomic_load_n(&watched[i]->steps->since, __ATOMIC_SEQ_CST) ||
            __atomic_load_n(&watched[i]->closed, __ATOMIC_SEQ_CST))
            return 0;
    return 1;
}

/* Somebody wants the watchdog back, whatever the loops do. */
static char watchdog_wanted;

/* Wait until a loop begins something, or for PARK_NS. */
static void wait_for_loops(Readings **watched, int count)
{
    while (sem_trywait(&watchdog_woken) == 0)
        ; /* of an earlier wait that had ended by itself */
    __atomic_store_n(&watchdog_parked, 1, __ATOMIC_SEQ_CST);
    if (all_idle(watched, count) &&
        !__atomic_load_n(
            &watchdog_wanted,
            __ATOMIC_SEQ_CST)) { /* else it began before it could have seen us parked */
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += PARK_NS;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        sem_timedwait(&watchdog_woken, &until);
    }
    __atomic_store_n(&watchdog_parked, 0, __ATOMIC_SEQ_CST);
}

static PyObject *core_wake(PyObject *module, PyObject *ignored)
{
    __atomic_store_n(&watchdog_wanted, 1, __ATOMIC_SEQ_CST);
    wake();
    Py_RETURN_NONE;
}

static PyObject *core_park(PyObject *module, PyObject *args)
{
    PyObject *list, *looked_at = NULL;
    ns_t limit, wait, most_ns;
    if (!PyArg_ParseTuple(args, "O!LLL|O!", &PyTuple_Type, &list, &limit, &wait, &most_ns,
                          &PyTuple_Type, &looked_at))
        return NULL;
    Readings *watched[MAX_WATCHED];
    PipeLooks *pipes[MAX_PIPES];
    int count = 0, piped = 0;
    for (Py_ssize_t i = 0; i < PyTuple_Size(list) && count < MAX_WATCHED; i++) {
        PyObject *one = PyTuple_GetItem(list, i);
        if (!PyObject_TypeCheck(one, readings_type)) {
            PyErr_SetString(PyExc_TypeError, "park() takes a tuple of Readings");
            return NULL;
        }
        watched[count++] = (Readings *)one; /* the tuple holds them */
    }
    for (Py_ssize_t i = 0; looked_at != NULL && i < PyTuple_Size(looked_at) && piped < MAX_PIPES;
         i++) {
        PyObject *one = PyTuple_GetItem(looked_at, i);
        if (!PyObject_TypeCheck(one, pipe_looks_type)) {
            PyErr_SetString(PyExc_TypeError, "park() looks at a tuple of PipeLooks");
            return NULL;
        }
        pipes[piped++] = (PipeLooks *)one;
    }
    Py_BEGIN_ALLOW_THREADS ns_t until = now_ns() + most_ns;
    int idle_ticks = 0;
    do {
        ns_t left = until - now_ns(); /* the limit may be an hour */
        wait = wait < left ? wait : left > 0 ? left : 0;
        if (piped > 0 && wait > LOOK_NS)
            wait = LOOK_NS;
        struct timespec pause = {wait / 1000000000LL, wait % 1000000000LL};
        nanosleep(&pause, NULL);
        for (int i = 0; i < piped; i++)
            look(pipes[i]);
        wait = tick(watched, count, limit);
        if (wait > 0 && wait < LEAST_SLEEP_NS)
            wait = LEAST_SLEEP_NS;
        idle_ticks = all_idle(watched, count) ? idle_ticks + 1 : 0;
        if (idle_ticks >= IDLE_TICKS && wait > 0) {
            wait_for_loops(watched, count);
            idle_ticks = 0;
            wait = tick(watched, count, limit);
        }
    } while (wait > 0 && now_ns() < until &&
             !__atomic_exchange_n(&watchdog_wanted, 0, __ATOMIC_SEQ_CST));
    Py_END_ALLOW_THREADS return PyBool_FromLong(wait == 0);
}

/* The innermost frame of a thread of the main interpreter. sys._current_frames() makes frames of
 * every interpreter's threads here, and another interpreter would free them by an allocator that
 * they are not of. */
static PyObject *core_frame_of(PyObject *module, PyObject *thread)
{
    unsigned long wanted = PyLong_AsUnsignedLong(thread);
    if (PyErr_Occurred())
        return NULL;
    PyThreadState *state = PyInterpreterState_ThreadHead(PyInterpreterState_Main());
    while (state != NULL && state->thread_id != wanted)
        state = PyThreadState_Next(state);
    PyObject *frame = state == NULL ? NULL : (PyObject *)PyThreadState_GetFrame(state);
    return frame == NULL ? Py_NewRef(Py_None) : frame;
}
