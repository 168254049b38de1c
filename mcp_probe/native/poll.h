/* ---- Poll: EpollSelector.select, with its two instants (twin: asyncio_loop.py noted_select) ---- */

typedef struct {
    PyObject_HEAD
    vectorcall_t vectorcall;
    PyObject *original, *epoll, *keys;
    Steps *steps;
} Poll;

#define POLL_OBJECTS(EACH) EACH(original) EACH(epoll) EACH(keys) EACH(steps)
TRAVERSE_AND_CLEAR(Poll, poll, POLL_OBJECTS)
DEALLOCATE(Poll, poll, NOTHING_TO_FREE)

#define POLLIN_BIT 1UL  /* select.EPOLLIN */
#define POLLOUT_BIT 4UL /* select.EPOLLOUT */

/* [(key, mask), …] of the events that have a key. */
static PyObject *ready_keys(Poll *self, PyObject *events)
{
    PyObject *found = PyList_New(0);
    Py_ssize_t count = found == NULL ? 0 : PyList_Size(events);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *event = PyList_GetItem(events, i);
        PyObject *key = PyDict_GetItemWithError(self->keys, PyTuple_GetItem(event, 0));
        if (key == NULL) {
            if (PyErr_Occurred())
                goto fail;
            continue;
        }
        unsigned long bits = PyLong_AsUnsignedLong(PyTuple_GetItem(event, 1));
        long wanted = PyLong_AsLong(PyTuple_GetItem(key, 2)); /* SelectorKey(fileobj, fd, events, data) */
        if (PyErr_Occurred())
            goto fail;
        long mask = ((bits & ~POLLIN_BIT) ? 2 : 0) | ((bits & ~POLLOUT_BIT) ? 1 : 0);
        PyObject *row = Py_BuildValue("(Ol)", key, mask & wanted);
        if (row == NULL || PyList_Append(found, row) < 0) {
            Py_XDECREF(row);
            goto fail;
        }
        Py_DECREF(row);
    }
    return found;
fail:
    Py_XDECREF(found);
    return NULL;
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
    Py_ssize_t room = PyDict_Size(self->keys);
    PyObject *seconds = PyFloat_FromDouble(timeout), *most = PyLong_FromSsize_t(room < 1 ? 1 : room), *events = NULL;
    if (seconds != NULL && most != NULL)
        events = PyObject_CallFunctionObjArgs(self->epoll, seconds, most, NULL);
    Py_XDECREF(seconds);
    Py_XDECREF(most);
    PyObject *found = NULL;
    if (events == NULL && PyErr_ExceptionMatches(PyExc_InterruptedError)) {
        PyErr_Clear();
        found = PyList_New(0);
    }
    else if (events != NULL)
        found = ready_keys(self, events);
    Py_XDECREF(events);
    if (steps->alive) {
        ns_t ended = now_ns();
        steps_end_poll(steps, ended);
        read_at_poll(steps, ended);
        steps->since = ended;
        rouse();
    }
    Py_DECREF(steps);
    return found;
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
