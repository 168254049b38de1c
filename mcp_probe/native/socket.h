/* ---- SocketReady: a socket's handle in the queue, ready since between two polls (twin: asyncio_loop.py) ---- */

typedef struct {
    PyObject_HEAD
    PyObject *handle;
    Steps *steps;
} SocketReady;

#define SOCKET_OBJECTS(EACH) EACH(handle) EACH(steps)
TRAVERSE_AND_CLEAR(SocketReady, socket, SOCKET_OBJECTS)
DEALLOCATE(SocketReady, socket, NOTHING_TO_FREE)

static int socket_begin(SocketReady *self)
{
    Steps *steps = self->steps;
    ns_t now = now_ns();
    PyObject *context = PyObject_GetAttr(self->handle, str__context), *owner = NULL;
    int failed = context == NULL || carried_by(context, &owner) < 0;
    Py_XDECREF(context);
    if (failed)
        return -1;
    steps->inherit_earliest = steps->event_earliest;
    steps->inherit_ready = steps->event_ready;
    steps->inherit_wake = WAKE_SOCKET;
    steps->inherits = 1;
    failed = steps_close_stale(steps, now) < 0 || (now - steps->now >= RING_NS && steps_stretch(steps, now) < 0);
    if (!failed)
        failed = steps_begin(steps, owner, 0, steps->event_earliest, steps->event_ready, WAKE_SOCKET, now) < 0;
    Py_DECREF(owner);
    return failed ? -1 : 0;
}

static PyObject *socket_run(SocketReady *self, PyObject *ignored)
{
    Steps *steps = (Steps *)Py_NewRef((PyObject *)self->steps);
    PyObject *handle = Py_NewRef(self->handle);
    int seen = steps->alive;
    int stopped = seen && socket_begin(self) < 0 ? give_up(steps) : 0;
    PyObject *result = stopped ? NULL : run_plain(handle);
    if (!stopped && seen && steps->alive) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        steps->inherits = 0;
        if (steps_close(steps, now_ns(), 0) < 0 && give_up(steps) < 0) {
            Py_CLEAR(result);
            Py_XDECREF(type);
            Py_XDECREF(value);
            Py_XDECREF(traceback);
        }
        else
            PyErr_Restore(type, value, traceback);
    }
    else if (seen)
        memory_close();
    Py_DECREF(handle);
    Py_DECREF(steps);
    return result;
}

static PyObject *socket_getattro(PyObject *self, PyObject *name)
{
    return attribute_of(self, ((SocketReady *)self)->handle, name); /* debug mode looks at more of it than _run */
}

static PyObject *socket_repr(PyObject *self)
{
    return PyObject_Repr(((SocketReady *)self)->handle);
}

static PyTypeObject *socket_type;

static PyObject *socket_make(PyObject *handle, Steps *steps)
{
    SocketReady *self = (SocketReady *)PyType_GenericAlloc(socket_type, 0);
    if (self == NULL)
        return NULL;
    self->handle = Py_NewRef(handle);
    self->steps = (Steps *)Py_NewRef((PyObject *)steps);
    return (PyObject *)self;
}

static PyObject *socket_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *handle, *steps;
    if (!PyArg_ParseTuple(args, "OO!", &handle, steps_type, &steps))
        return NULL;
    return socket_make(handle, (Steps *)steps);
}

static PyMethodDef socket_methods[] = {{"_run", (PyCFunction)socket_run, METH_NOARGS, NULL}, {NULL}};
static PyType_Slot socket_slots[] = {{Py_tp_new, socket_new},           {Py_tp_traverse, socket_traverse},
                                     {Py_tp_clear, socket_clear},       {Py_tp_dealloc, socket_dealloc},
                                     {Py_tp_methods, socket_methods},   {Py_tp_getattro, socket_getattro},
                                     {Py_tp_repr, socket_repr},         {0, NULL}};
static PyType_Spec socket_spec = {"mcp_probe.native._core.SocketReady", sizeof(SocketReady), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, socket_slots};
