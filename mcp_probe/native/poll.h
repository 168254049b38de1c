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

static PyObject *epoll_class, *str_epoll_closed;

/* Adds (key, mask) of one event, if there is a key. */
static int add_ready(Poll *self, PyObject *found, PyObject *descriptor, unsigned long bits)
{
    PyObject *key = descriptor == NULL ? NULL : PyDict_GetItemWithError(self->keys, descriptor);
    if (key == NULL)
        return PyErr_Occurred() ? -1 : 0;
    long wanted = PyLong_AsLong(PyTuple_GetItem(key, 2)); /* SelectorKey(fileobj, fd, events, data) */
    if (PyErr_Occurred())
        return -1;
    long mask = ((bits & ~POLLIN_BIT) ? 2 : 0) | ((bits & ~POLLOUT_BIT) ? 1 : 0);
    PyObject *row = Py_BuildValue("(Ol)", key, mask & wanted);
    int failed = row == NULL || PyList_Append(found, row) < 0;
    Py_XDECREF(row);
    return failed ? -1 : 0;
}

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

/* [(key, mask), ...] of what is ready, at most `timeout` seconds from now; forever where that is negative. */
static PyObject *wait_for_keys(Poll *self, double timeout, answer_t *answer)
{
    Py_ssize_t room = PyDict_Size(self->keys), count;
    room = room < 1 ? 1 : room;
    struct epoll_event written[EVENTS];
    PyObject *events = NULL, *found = NULL;
    if (room <= EVENTS && timeout < LONGEST_WAIT && is_epoll_open(self))
        count = wait_for_events(self->descriptor, timeout, written, (int)room, answer);
    else {
        int waits = timeout != 0 && is_epoll_open(self) && epoll_wait(self->descriptor, written, 1, 0) == 0;
        count = (events = ask_epoll(self, timeout, room)) == NULL ? -1 : PyList_Size(events);
        *answer = (answer_t){now_ns(), waits};
    }
    if (count < 0 && PyErr_ExceptionMatches(PyExc_InterruptedError)) {
        PyErr_Clear();
        count = 0;
    }
    if (count >= 0)
        found = PyList_New(0);
    for (Py_ssize_t i = 0; found != NULL && i < count; i++) {
        PyObject *event = events == NULL ? NULL : PyList_GetItem(events, i);
        PyObject *descriptor = event == NULL ? PyLong_FromLong(written[i].data.fd) : Py_NewRef(PyTuple_GetItem(event, 0));
        unsigned long bits = event == NULL ? written[i].events : PyLong_AsUnsignedLong(PyTuple_GetItem(event, 1));
        if (PyErr_Occurred() || add_ready(self, found, descriptor, bits) < 0)
            Py_CLEAR(found);
        Py_XDECREF(descriptor);
    }
    Py_XDECREF(events);
    return found;
}

static PyObject *poll_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Poll *self = (Poll *)callable;
    Py_ssize_t nargs = NARGS(nargsf);
    Steps *steps = self->steps;
    if (nargs > 1 || (kwnames != NULL && PyTuple_Size(kwnames)) || !steps->alive)
        return pass_on(self->original, args, nargs, kwnames);
    double timeout = -1.0;
    if (nargs == 1 && args[0] != Py_None) {
        timeout = PyFloat_AsDouble(args[0]);
        if (timeout == -1.0 && PyErr_Occurred())
            return NULL;
        timeout = timeout <= 0 ? 0.0 : ceil(timeout * 1e3) * 1e-3;
    }
    Py_INCREF(steps);
    ns_t began = now_ns();
    if (began - steps->now >= RING_NS && steps_stretch(steps, began) < 0 && give_up(steps) < 0) {
        Py_DECREF(steps);
        return NULL;
    }
    steps_begin_poll(steps, began);
    answer_t answer = {0, 0};
    PyObject *found = wait_for_keys(self, timeout, &answer);
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
    return found;
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
