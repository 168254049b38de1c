/* ---- Poll: a selector's select(), with its two instants (twin: adapters/asyncio_loop.py) ---- */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *original; /* the function of the selector's class */
    PyObject *selector; /* a weak reference */
    Steps *steps;
} Poll;

#define POLL_OBJECTS(EACH) EACH(original) EACH(selector) EACH(steps)
TRAVERSE_AND_CLEAR(Poll, poll, POLL_OBJECTS)
DEALLOCATE(Poll, poll, NOTHING_TO_FREE)

static int begin_poll(Steps *steps)
{
    ns_t now = now_ns();
    if (steps->owner != Py_None) { /* a request began in a step that we did not see end */
        if (steps_close(steps, now, 0) < 0)
            return -1;
    } else if (now - steps->now >= RING_NS && steps_stretch(steps, now) < 0)
        return -1;
    steps_begin_poll(steps, now);
    return steps_here() == steps ? 0 : take_place(steps); /* loops may take turns on a thread */
}

/* A timeout of 0: the loop has something to run. */
static int is_instant(PyObject *timeout)
{
    if (PyFloat_CheckExact(timeout))
        return PyFloat_AS_DOUBLE(timeout) == 0.0;
    return PyLong_CheckExact(timeout) && PyObject_Not(timeout) == 1;
}

static void end_poll(Steps *steps)
{
    ns_t now = now_ns();
    steps_end_poll(steps, now);
    read_at_poll(steps, now);
    set_since(steps, now);
}

static PyObject *poll_call(PyObject *callable, PyObject *const *args, size_t nargsf,
                           PyObject *kwnames)
{
    Poll *self = (Poll *)callable;
    Py_ssize_t nargs = NARGS(nargsf), named = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames);
    PyObject *selector = referent_of(self->selector), *with_self[4] = {selector}, *found = NULL;
    if (nargs + named > 3 || selector == NULL) {
        Py_XDECREF(selector);
        PyErr_SetString(PyExc_TypeError, "select() takes a timeout");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < nargs + named; i++)
        with_self[i + 1] = args[i];
    Steps *steps = (Steps *)Py_NewRef((PyObject *)self->steps);
    steps->may_wait = nargs + named == 0 || !is_instant(args[0]);
    if (!steps->alive || begin_poll(steps) == 0 || give_up(steps) == 0) {
        found = PyObject_Vectorcall(self->original, with_self, (size_t)nargs + 1, kwnames);
        if (steps->alive)
            end_poll(steps);
    }
    Py_DECREF(selector);
    Py_DECREF(steps);
    return found;
}

static PyObject *poll_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *steps, *original, *selector;
    if (!PyArg_ParseTuple(args, "O!OO", steps_type, &steps, &original, &selector))
        return NULL;
    PyObject *weak = PyWeakref_NewRef(selector, NULL);
    Poll *self = weak == NULL ? NULL : (Poll *)PyType_GenericAlloc(type, 0);
    if (self == NULL) {
        Py_XDECREF(weak);
        return NULL;
    }
    self->vectorcall = poll_call;
    self->steps = (Steps *)Py_NewRef(steps);
    self->original = Py_NewRef(original);
    self->selector = weak;
    return (PyObject *)self;
}

static PyMemberDef poll_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Poll, vectorcall), READONLY, NULL},
    {"__wrapped__", T_OBJECT, offsetof(Poll, original), READONLY, NULL},
    {NULL}};
static PyType_Slot poll_slots[] = {{Py_tp_new, poll_new},
                                   {Py_tp_call, PyVectorcall_Call},
                                   {Py_tp_traverse, poll_traverse},
                                   {Py_tp_clear, poll_clear},
                                   {Py_tp_dealloc, poll_dealloc},
                                   {Py_tp_members, poll_members},
                                   {0, NULL}};
static PyType_Spec poll_spec = {
    "mcp_probe.native._core.Poll", sizeof(Poll), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, poll_slots};
