/* ---- park: the watchdog's sleep, over every watched loop (twin: capture/readings.py) ---- */

#define MAX_WATCHED 16
#define MAX_PIPES 8
#define LOOK_NS 10000000LL
#define LEAST_SLEEP_NS 200000LL
#define IDLE_TICKS 2
#define PARK_NS 900000000L
#define MAX_DEPTH 400

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

/* ---- PipeLooker: a thread that looks at pipes while the watchdog is not parked, and so may wait
 * for the GIL itself: a C call that keeps it stops every thread of Python. ---- */

typedef struct {
    PyObject_HEAD
    PyObject *held;              /* the tuple that keeps the pipes */
    PipeLooks *pipes[MAX_PIPES]; /* changed while the watchdog is not parked, under the lock */
    int count;
    char lock, parked, closed;
    sem_t left; /* the watchdog has left its park */
} PipeLooker;

static PyTypeObject *pipe_looker_type;

static void lock_pipes(PipeLooker *self)
{
    while (__atomic_test_and_set(&self->lock, __ATOMIC_ACQUIRE))
        sched_yield(); /* held for one look at each pipe */
}

static void look_at_all(PipeLooker *self)
{
    lock_pipes(self);
    for (int i = 0; i < self->count; i++)
        look(self->pipes[i]);
    __atomic_clear(&self->lock, __ATOMIC_RELEASE);
}

/* Nobody looks at a pipe as a read begins while its reader has no thread: the watchdog must. */
static int any_unattended(PipeLooker *self)
{
    for (int i = 0; i < self->count; i++)
        if (__atomic_load_n(&self->pipes[i]->unattended, __ATOMIC_SEQ_CST))
            return 1;
    return 0;
}

static void park_looker(PipeLooker *self, char parked)
{
    __atomic_store_n(&self->parked, parked, __ATOMIC_SEQ_CST);
    if (!parked && self->count > 0)
        sem_post(&self->left);
}

static PyObject *pipe_looker_look_at(PipeLooker *self, PyObject *pipes)
{
    if (!PyTuple_Check(pipes))
        return PyErr_Format(PyExc_TypeError, "look_at() takes a tuple of PipeLooks");
    Py_ssize_t count = PyTuple_Size(pipes);
    for (Py_ssize_t i = 0; i < count; i++)
        if (!PyObject_TypeCheck(PyTuple_GetItem(pipes, i), pipe_looks_type))
            return PyErr_Format(PyExc_TypeError, "look_at() takes a tuple of PipeLooks");
    PyObject *before = self->held;
    lock_pipes(self);
    self->held = Py_NewRef(pipes);
    self->count = 0;
    for (Py_ssize_t i = 0; i < count && i < MAX_PIPES; i++)
        self->pipes[self->count++] = (PipeLooks *)PyTuple_GetItem(pipes, i);
    __atomic_clear(&self->lock, __ATOMIC_RELEASE);
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

static PyObject *pipe_looker_run(PipeLooker *self, PyObject *ignored)
{
    const struct timespec pause = {0, LOOK_NS};
    Py_BEGIN_ALLOW_THREADS while (!__atomic_load_n(&self->closed, __ATOMIC_SEQ_CST))
    {
        if (__atomic_load_n(&self->parked, __ATOMIC_SEQ_CST)) {
            sem_wait(&self->left);
            while (sem_trywait(&self->left) == 0)
                ; /* it has left more often than this thread has slept */
        }
        nanosleep(&pause, NULL);
        if (!__atomic_load_n(&self->parked, __ATOMIC_SEQ_CST))
            look_at_all(self);
    }
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static PyObject *pipe_looker_close(PipeLooker *self, PyObject *ignored)
{
    __atomic_store_n(&self->closed, 1, __ATOMIC_SEQ_CST);
    sem_post(&self->left);
    Py_RETURN_NONE;
}

static PyObject *pipe_looker_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    if (!PyArg_ParseTuple(args, ""))
        return NULL;
    PipeLooker *self = (PipeLooker *)PyType_GenericAlloc(type, 0);
    if (self != NULL)
        sem_init(&self->left, 0, 0);
    return (PyObject *)self;
}

static void pipe_looker_dealloc(PipeLooker *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(self->held);
    sem_destroy(&self->left);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef pipe_looker_methods[] = {
    {"look_at", (PyCFunction)pipe_looker_look_at, METH_O, NULL},
    {"run", (PyCFunction)pipe_looker_run, METH_NOARGS, NULL},
    {"close", (PyCFunction)pipe_looker_close, METH_NOARGS, NULL},
    {NULL}};
static PyType_Slot pipe_looker_slots[] = {{Py_tp_new, pipe_looker_new},
                                          {Py_tp_dealloc, pipe_looker_dealloc},
                                          {Py_tp_methods, pipe_looker_methods},
                                          {0, NULL}};
static PyType_Spec pipe_looker_spec = {"mcp_probe.native._core.PipeLooker", sizeof(PipeLooker), 0,
                                       Py_TPFLAGS_DEFAULT, pipe_looker_slots};

/* Somebody wants the watchdog back, whatever the loops do. */
static char watchdog_wanted;

/* Wait until a loop begins something, or for PARK_NS. */
static void wait_for_loops(Readings **watched, int count)
{
    while (sem_trywait(&watchdog_woken) == 0)
        ; /* of an earlier wait that had ended by itself */
    __atomic_store_n(&watchdog_parked, 1, __ATOMIC_SEQ_CST);
    /* Else it began before it could have seen us parked. */
    if (all_idle(watched, count) && !__atomic_load_n(&watchdog_wanted, __ATOMIC_SEQ_CST)) {
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
    PyObject *list;
    PipeLooker *looker;
    ns_t limit, wait, most_ns;
    if (!PyArg_ParseTuple(args, "O!LLLO!", &PyTuple_Type, &list, &limit, &wait, &most_ns,
                          pipe_looker_type, &looker))
        return NULL;
    Readings *watched[MAX_WATCHED];
    int count = 0;
    for (Py_ssize_t i = 0; i < PyTuple_Size(list) && count < MAX_WATCHED; i++) {
        PyObject *one = PyTuple_GetItem(list, i);
        if (!PyObject_TypeCheck(one, readings_type))
            return PyErr_Format(PyExc_TypeError, "park() takes a tuple of Readings");
        watched[count++] = (Readings *)one; /* the tuple holds them */
    }
    park_looker(looker, 1);
    Py_BEGIN_ALLOW_THREADS ns_t until = now_ns() + most_ns;
    int idle_ticks = 0;
    do {
        ns_t left = until - now_ns(); /* the limit may be an hour */
        wait = wait < left ? wait : left > 0 ? left : 0;
        if (looker->count > 0 && wait > LOOK_NS)
            wait = LOOK_NS;
        struct timespec pause = {wait / 1000000000LL, wait % 1000000000LL};
        nanosleep(&pause, NULL);
        look_at_all(looker);
        wait = tick(watched, count, limit);
        if (wait > 0 && wait < LEAST_SLEEP_NS)
            wait = LEAST_SLEEP_NS;
        idle_ticks = all_idle(watched, count) ? idle_ticks + 1 : 0;
        if (idle_ticks >= IDLE_TICKS && wait > 0 && !any_unattended(looker)) {
            wait_for_loops(watched, count);
            idle_ticks = 0;
            wait = tick(watched, count, limit);
        }
    } while (wait > 0 && now_ns() < until &&
             !__atomic_exchange_n(&watchdog_wanted, 0, __ATOMIC_SEQ_CST));
    park_looker(looker, 0);
    Py_END_ALLOW_THREADS return PyBool_FromLong(wait == 0);
}

/* The innermost frame of a thread of the main interpreter; its callers have frames, too, from then
 * on. sys._current_frames() makes frames of every interpreter's threads here, and another one would
 * free them by an allocator that they are not of. No collection: see places.py. */
static PyObject *core_frame_of(PyObject *module, PyObject *thread)
{
    unsigned long wanted = PyLong_AsUnsignedLong(thread);
    if (PyErr_Occurred())
        return NULL;
    PyThreadState *state = PyInterpreterState_ThreadHead(PyInterpreterState_Main());
    while (state != NULL && state->thread_id != wanted)
        state = PyThreadState_Next(state);
    int collects = PyGC_Disable();
    PyFrameObject *frame = state == NULL ? NULL : PyThreadState_GetFrame(state), *at = frame;
    for (int depth = 0; at != NULL && depth < MAX_DEPTH; depth++) {
        at = PyFrame_GetBack(at);
        Py_XDECREF(at); /* who is called keeps it */
    }
    if (collects)
        PyGC_Enable();
    return frame == NULL ? Py_NewRef(Py_None) : (PyObject *)frame;
}
