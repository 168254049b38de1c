/* ---- Finished: requests that have ended and wait for the collector (twin: capture/queueing.py PythonFinished) ---- */

typedef struct {
    PyObject_HEAD
    PyObject *wake;   /* called when half of the room is taken */
    PyObject **slots; /* a ring */
    Py_ssize_t most, first, used;
    ns_t dropped;
    char closed, woken;
} Finished;

static PyObject *finished_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    Py_ssize_t most;
    PyObject *wake;
    if (!PyArg_ParseTuple(args, "nO", &most, &wake))
        return NULL;
    if (most < 1) {
        PyErr_Format(PyExc_ValueError, "room for %zd requests; expected at least one", most);
        return NULL;
    }
    Finished *self = (Finished *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->most = most;
    self->wake = Py_NewRef(wake);
    if ((self->slots = PyMem_Calloc(most, sizeof(PyObject *))) == NULL) {
        Py_DECREF((PyObject *)self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

/* A new reference to the oldest one. */
static PyObject *finished_pop(Finished *self)
{
    PyObject *raw = self->slots[self->first];
    self->first = (self->first + 1) % self->most;
    self->used--;
    if (!PyObject_GC_IsTracked(raw))
        PyObject_GC_Track(raw);
    return raw;
}

static void forget_all(Finished *self)
{
    while (self->used > 0) {
        PyObject *raw = finished_pop(self);
        Py_DECREF(raw);
    }
}

static int finished_clear(Finished *self)
{
    forget_all(self);
    Py_CLEAR(self->wake);
    return 0;
}

static int finished_traverse(Finished *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->wake);
    for (Py_ssize_t i = 0; i < self->used; i++)
        Py_VISIT(self->slots[(self->first + i) % self->most]);
    return 0;
}

static void free_slots(Finished *self)
{
    forget_all(self);
    PyMem_Free(self->slots);
}

DEALLOCATE(Finished, finished, free_slots)

/* Kept from the garbage collector until they are taken: all that a server ends within a second would be young, and each of
 * its collections would look at every one of them. What refers to them while they wait is this queue. */
static PyObject *finished_put(Finished *self, PyObject *raw)
{
    if (request_arg(raw) == NULL)
        return NULL;
    if (self->closed)
        Py_RETURN_NONE;
    if (self->used == self->most) {
        self->dropped++;
        Py_RETURN_NONE;
    }
    PyObject_GC_UnTrack(raw);
    self->slots[(self->first + self->used) % self->most] = Py_NewRef(raw);
    self->used++;
    if (self->woken || 2 * self->used < self->most || self->wake == NULL)
        Py_RETURN_NONE;
    self->woken = 1;
    return PyObject_CallNoArgs(self->wake);
}

static PyObject *finished_take(Finished *self, PyObject *arg)
{
    Py_ssize_t most = PyLong_AsSsize_t(arg);
    if (most == -1 && PyErr_Occurred())
        return NULL;
    PyObject *taken = PyList_New(0);
    while (taken != NULL && self->used > 0 && PyList_Size(taken) < most) {
        PyObject *raw = finished_pop(self);
        if (PyList_Append(taken, raw) < 0)
            Py_CLEAR(taken);
        Py_DECREF(raw);
    }
    self->woken = 2 * self->used >= self->most;
    return taken;
}

static PyObject *finished_close(Finished *self, PyObject *ignored)
{
    self->closed = 1;
    forget_all(self);
    Py_RETURN_NONE;
}

static Py_ssize_t finished_length(PyObject *self)
{
    return ((Finished *)self)->used;
}

static PyMemberDef finished_members[] = {{"dropped", T_LONGLONG, offsetof(Finished, dropped), READONLY, NULL}, {NULL}};
static PyMethodDef finished_methods[] = {
    {"put", (PyCFunction)finished_put, METH_O, "One more has ended; dropped and counted where there is no room."},
    {"take", (PyCFunction)finished_take, METH_O, "Up to so many, oldest first."},
    {"close", (PyCFunction)finished_close, METH_NOARGS, "Forget all, and take none from now on."},
    {NULL}};
static PyType_Slot finished_slots[] = {{Py_tp_new, finished_new},           {Py_tp_traverse, finished_traverse},
                                       {Py_tp_clear, finished_clear},       {Py_tp_dealloc, finished_dealloc},
                                       {Py_tp_members, finished_members},   {Py_tp_methods, finished_methods},
                                       {Py_sq_length, finished_length},     {0, NULL}};
static PyType_Spec finished_spec = {"mcp_probe.native._core.Finished", sizeof(Finished), 0,
                                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, finished_slots};
