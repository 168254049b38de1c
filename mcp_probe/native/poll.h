/* ---- Poll: EpollSelector.select, with its two instants (twin: asyncio_loop.py noted_select) ---- */

typedef struct {
    PyObject_HEAD
    vectorcall_t vectorcall;
    PyObject *original, *epoll, *keys; /* epoll: its poll() */
    PyObject *object;                  /* the select.epoll, where it is one */
    int descriptor;                    /* its own; -1 where it is none */
    Steps *steps;
} Poll;

#define POLL_OBJECTS(EACH) EACH(original) EACH(epoll) EACH(keys) EACH(object) EACH(steps)
TRAVERSE_AND_CLEAR(Poll, poll, POLL_OBJECTS)
DEALLOCATE(Poll, poll, NOTHING_TO_FREE)

#define POLLIN_BIT 1UL  /* select.EPOLLIN */
#define POLLOUT_BIT 4UL /* select.EPOLLOUT */
#define EVENTS 64       /* with more descriptors, or for longer, select.epoll itself is asked */
#define LONGEST_WAIT 1e6
#define FOREVER -1.0

static PyObject *epoll_class, *str_epoll_closed;

/* What select.epoll.poll does: [(descriptor, bits), ...], or NULL. */
static PyObject *ask_epoll(Poll *self, double timeout, Py_ssize_t room)
{
    PyObject *seconds = PyFloat_FromDouble(timeout), *most = PyLong_FromSsize_t(room), *events = NULL;
    if (seconds != NULL && most != NULL)
        events = PyObject_CallFunctionObjArgs(self->epoll, seconds, most, NULL);
    Py_XDECREF(seconds);
    Py_XDECREF(most);
    return events;
}

#ifndef __linux__ /* no Poll is made there: it stands in for EpollSelector only */
struct epoll_event {
    unsigned int events;
    struct {
        int fd;
    } data;
};
#define epoll_wait(descriptor, events, most, wait) (errno = ENOSYS, -1)
#endif

/* When the system's answer came, before the GIL did; and whether it had to wait, so that what it found came just then. */
typedef struct {
    ns_t at;
    int waited;
} answer_t;

/* What one poll found, as the system wrote it, or as select.epoll says it. */
typedef struct {
    struct epoll_event written[EVENTS];
    PyObject *said; /* [(descriptor, bits), ...]; NULL: see `written` */
    Py_ssize_t count;
} polled_t;

/* As ask_epoll(), written out. -1 with an exception set. It is asked first what is there already, but for the pipe that
 * other threads wake the loop by: those leave stamps of their own. */
static int wait_for_events(int descriptor, double timeout, struct epoll_event *events, int most, answer_t *answer)
{
    ns_t deadline = timeout > 0 ? now_ns() + (ns_t)(timeout * 1e9) : 0;
    int wait = timeout < 0 ? -1 : (int)ceil(timeout * 1e3), asked = wait != 0 && most > 1;
    int there = asked ? epoll_wait(descriptor, events, most, 0) : 0;
    if (there > 0)
        return there;
    for (asked &= there == 0;; asked = 0) {
        PyThreadState *state = PyEval_SaveThread();
        int count = epoll_wait(descriptor, events, most, wait), error = errno;
        *answer = (answer_t){now_ns(), asked};
        PyEval_RestoreThread(state);
        if (count >= 0)
            return count;
        if (error != EINTR) {
            errno = error;
            PyErr_SetFromErrno(PyExc_OSError);
            return -1;
        }
        if (PyErr_CheckSignals() < 0)
            return -1;
        ns_t left = deadline - now_ns();
        if (wait >= 0 && left <= 0)
            return 0;
        if (wait > 0)
            wait = (int)((left + 999999) / 1000000);
    }
}

/* Whether the descriptor may be asked itself. */
static int is_epoll_open(Poll *self)
{
    PyObject *closed = self->descriptor < 0 ? NULL : PyObject_GetAttr(self->object, str_epoll_closed);
    int open = closed == Py_False;
    Py_XDECREF(closed);
    PyErr_Clear();
    return open;
}

/* What is ready, at most `timeout` seconds from now. */
static int find_ready(Poll *self, double timeout, polled_t *found, answer_t *answer)
{
    Py_ssize_t room = PyDict_Size(self->keys);
    room = room < 1 ? 1 : room;
    if (room <= EVENTS && timeout < LONGEST_WAIT && is_epoll_open(self))
        found->count = wait_for_events(self->descriptor, timeout, found->written, (int)room, answer);
    else {
        int waits = timeout != 0 && is_epoll_open(self) && epoll_wait(self->descriptor, found->written, 1, 0) == 0;
        found->said = ask_epoll(self, timeout, room);
        found->count = found->said == NULL ? -1 : PyList_Size(found->said);
        *answer = (answer_t){now_ns(), waits};
    }
    if (found->count < 0 && PyErr_ExceptionMatches(PyExc_InterruptedError)) {
        PyErr_Clear();
        found->count = 0;
    }
    return found->count < 0 ? -1 : 0;
}

/* The key that was registered for one event, a new reference, and what of it is ready; NULL where there is none. */
static PyObject *key_of(Poll *self, const polled_t *found, Py_ssize_t i, long *mask)
{
    PyObject *said = found->said == NULL ? NULL : PyList_GetItem(found->said, i);
    PyObject *descriptor = said == NULL ? PyLong_FromLong(found->written[i].data.fd) : Py_NewRef(PyTuple_GetItem(said, 0));
    unsigned long bits = said == NULL ? found->written[i].events : PyLong_AsUnsignedLong(PyTuple_GetItem(said, 1));
    PyObject *key = descriptor == NULL || PyErr_Occurred() ? NULL : PyDict_GetItemWithError(self->keys, descriptor);
    Py_XINCREF(key);
    Py_XDECREF(descriptor);
    if (key == NULL)
        return NULL;
    *mask = ((bits & ~POLLIN_BIT) ? 2 : 0) | ((bits & ~POLLOUT_BIT) ? 1 : 0);
    *mask &= PyLong_AsLong(PyTuple_GetItem(key, 2)); /* SelectorKey(fileobj, fd, events, data) */
    if (PyErr_Occurred())
        Py_CLEAR(key);
    return key;
}

/* [(key, mask), ...], as select() returns it. */
static PyObject *rows_polled(Poll *self, const polled_t *found)
{
    PyObject *rows = PyList_New(0);
    for (Py_ssize_t i = 0; rows != NULL && i < found->count; i++) {
        long mask;
        PyObject *key = key_of(self, found, i, &mask), *row = key == NULL ? NULL : Py_BuildValue("(Ol)", key, mask);
        if (row == NULL ? PyErr_Occurred() != NULL : PyList_Append(rows, row) < 0)
            Py_CLEAR(rows);
        Py_XDECREF(key);
        Py_XDECREF(row);
    }
    return rows;
}

/* One poll of a loop that is followed, with its two instants. */
static int poll_noted(Poll *self, double timeout, polled_t *found)
{
    Steps *steps = (Steps *)Py_NewRef((PyObject *)self->steps);
    ns_t began = now_ns();
    found->said = NULL;
    if (began - steps->now >= RING_NS && steps_stretch(steps, began) < 0 && give_up(steps) < 0) {
        Py_DECREF(steps);
        return -1;
    }
    steps_begin_poll(steps, began);
    answer_t answer = {0, 0};
    int failed = find_ready(self, timeout, found, &answer);
    if (steps->alive) {
        ns_t ended = now_ns();
        steps_end_poll(steps, ended);
        if (answer.at)
            steps->event_ready = answer.at;
        if (answer.waited)
            steps->event_earliest = answer.at;
        read_at_poll(steps, ended);
        steps->since = ended;
        rouse();
    }
    Py_DECREF(steps);
    return failed;
}

/* As select.epoll has it: whole milliseconds, none left out. */
static double whole_ms(double timeout)
{
    return timeout <= 0 ? 0.0 : ceil(timeout * 1e3) * 1e-3;
}

static PyObject *poll_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Poll *self = (Poll *)callable;
    Py_ssize_t nargs = NARGS(nargsf);
    if (nargs > 1 || (kwnames != NULL && PyTuple_Size(kwnames)) || !self->steps->alive)
        return pass_on(self->original, args, nargs, kwnames);
    double timeout = FOREVER;
    if (nargs == 1 && args[0] != Py_None) {
        timeout = PyFloat_AsDouble(args[0]);
        if (timeout == -1.0 && PyErr_Occurred())
            return NULL;
        timeout = whole_ms(timeout);
    }
    polled_t found;
    PyObject *rows = poll_noted(self, timeout, &found) < 0 ? NULL : rows_polled(self, &found);
    Py_XDECREF(found.said);
    return rows;
}

static int find_epoll(Poll *self)
{
    if (epoll_class == NULL) {
        PyObject *module = PyImport_ImportModule("select");
        epoll_class = module == NULL ? NULL : PyObject_GetAttrString(module, "epoll");
        Py_XDECREF(module);
        if (epoll_class == NULL || (str_epoll_closed = PyUnicode_InternFromString("closed")) == NULL)
            return -1;
    }
    self->descriptor = -1;
    self->object = PyObject_GetAttr(self->epoll, str_self);
    if (self->object == NULL || (PyObject *)Py_TYPE(self->object) != epoll_class) {
        PyErr_Clear();
        return 0;
    }
    PyObject *number = PyObject_CallMethod(self->object, "fileno", NULL);
    self->descriptor = number == NULL ? -1 : (int)PyLong_AsLong(number);
    Py_XDECREF(number);
    PyErr_Clear();
    return 0;
}

static PyObject *poll_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *steps, *original, *epoll, *keys;
    if (!PyArg_ParseTuple(args, "O!OOO!", steps_type, &steps, &original, &epoll, &PyDict_Type, &keys))
        return NULL;
    Poll *self = (Poll *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = poll_call;
    self->steps = (Steps *)Py_NewRef(steps);
    self->original = Py_NewRef(original);
    self->epoll = Py_NewRef(epoll);
    self->keys = Py_NewRef(keys);
    if (find_epoll(self) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static PyMemberDef poll_members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(Poll, vectorcall), READONLY, NULL},
                                     {"__wrapped__", T_OBJECT, offsetof(Poll, original), READONLY, NULL},
                                     {NULL}};
static PyType_Slot poll_slots[] = {{Py_tp_new, poll_new},           {Py_tp_call, PyVectorcall_Call},
                                   {Py_tp_traverse, poll_traverse}, {Py_tp_clear, poll_clear},
                                   {Py_tp_dealloc, poll_dealloc},   {Py_tp_members, poll_members},
                                   {0, NULL}};
static PyType_Spec poll_spec = {"mcp_probe.native._core.Poll", sizeof(Poll), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | HAVE_VECTORCALL, poll_slots};
