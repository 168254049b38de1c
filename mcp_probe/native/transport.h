/* ---- TransportCall: readline, write or flush of the stdio transport (twin: capture/transport.py) ---- */

enum { READ = 0, WRITE = 1, FLUSH = 2 };
enum { TRANSPORT_START = 6, TRANSPORT_FINISH = 7, TRANSPORT_JOB = 8 }; /* capture/executor.py */

typedef struct {
    PyObject_HEAD
    vectorcall_t vectorcall;
    PyObject *original, *channel, *fail, *pool, *append;
    ns_t submitted;
    int kind;
    char alive;
} TransportCall;

#define TRANSPORT_OBJECTS(EACH) EACH(original) EACH(channel) EACH(fail) EACH(pool) EACH(append)
TRAVERSE_AND_CLEAR(TransportCall, transport, TRANSPORT_OBJECTS)
DEALLOCATE(TransportCall, transport, NOTHING_TO_FREE)

static void transport_broken(TransportCall *self)
{
    PyObject *error = caught(), *result = NULL;
    self->alive = 0;
    if (error != NULL)
        result = PyObject_CallFunctionObjArgs(self->fail, error, NULL);
    PyErr_Clear();
    Py_XDECREF(result);
    Py_XDECREF(error);
}

/* Steals transition. */
static int append_transition(TransportCall *self, PyObject *transition)
{
    PyObject *append = Py_NewRef(self->append);
    PyObject *done = transition == NULL ? NULL : PyObject_CallFunctionObjArgs(append, transition, NULL);
    Py_DECREF(append);
    Py_XDECREF(transition);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static PyObject *transport_submit(TransportCall *self, PyObject *ignored)
{
    if (!self->alive)
        Py_RETURN_NONE;
    self->submitted = now_ns();
    if (self->kind == WRITE) {
        PyObject *writing = PyObject_GetAttr(self->channel, str_writing);
        Request *request = as_request(writing);
        if (writing == NULL)
            transport_broken(self);
        else if (request != NULL && !is_set(request->encode_ns) && is_set(request->write_taken_ns)) {
            ns_t taken = PyLong_AsLongLong(request->write_taken_ns);
            if (PyErr_Occurred() || replace_with_int(&request->encode_ns, self->submitted - taken) < 0)
                transport_broken(self);
        }
        Py_XDECREF(writing);
    }
    Py_RETURN_NONE;
}

static int transport_ended(TransportCall *self, ns_t start, ns_t wait, ns_t now)
{
    if (!is_set(self->append))
        return 0;
    if (self->kind == READ)
        return append_transition(self, Py_BuildValue("(LiOi)", now, TRANSPORT_FINISH, self->pool, 0));
    return append_transition(self, Py_BuildValue("(LiO(LL))", now, TRANSPORT_JOB, self->pool, start, wait));
}

static int transport_returned(TransportCall *self, PyObject *result)
{
    if (self->kind == WRITE) {
        PyObject *writing = PyObject_GetAttr(self->channel, str_writing);
        Request *request = as_request(writing);
        if (request != NULL) {
            PyObject *before = request->response_bytes;
            request->response_bytes = Py_NewRef(result);
            Py_XDECREF(before);
        }
        Py_XDECREF(writing);
        return writing == NULL ? -1 : 0;
    }
    if (self->kind == FLUSH) {
        PyObject *done = PyObject_CallMethodObjArgs(self->channel, str_flushed, NULL);
        Py_XDECREF(done);
        return done == NULL ? -1 : 0;
    }
    return 0;
}

static PyObject *transport_invoke(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    TransportCall *self = (TransportCall *)callable;
    Py_ssize_t nargs = NARGS(nargsf);
    if (!self->alive)
        return pass_on(self->original, args, nargs, kwnames);
    ns_t submitted = self->submitted, start = now_ns();
    self->submitted = 0;
    if (submitted && self->kind == READ && is_set(self->append) && /* it may wait for ever */
        append_transition(self, Py_BuildValue("(LiOL)", start, TRANSPORT_START, self->pool, start - submitted)) < 0)
        transport_broken(self);
    PyObject *result = pass_on(self->original, args, nargs, kwnames), *type, *value, *traceback;
    if (!self->alive)
        return result;
    PyErr_Fetch(&type, &value, &traceback);
    if (submitted && transport_ended(self, start, start - submitted, now_ns()) < 0)
        transport_broken(self);
    if (result != NULL && self->alive && transport_returned(self, result) < 0)
        transport_broken(self);
    PyErr_Restore(type, value, traceback);
    return result;
}

static PyObject *transport_new(PyTypeObject *cls, PyObject *args, PyObject *kwargs)
{
    PyObject *original, *channel, *fail;
    int kind;
    if (!PyArg_ParseTuple(args, "iOOO", &kind, &original, &channel, &fail))
        return NULL;
    TransportCall *self = (TransportCall *)PyType_GenericAlloc(cls, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = transport_invoke;
    self->kind = kind;
    self->alive = 1;
    self->original = Py_NewRef(original);
    self->channel = Py_NewRef(channel);
    self->fail = Py_NewRef(fail);
    return (PyObject *)self;
}

static PyMemberDef transport_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(TransportCall, vectorcall), READONLY, NULL},
    {"original", T_OBJECT, offsetof(TransportCall, original), READONLY, NULL},
    {"channel", T_OBJECT, offsetof(TransportCall, channel), READONLY, NULL},
    {"pool", T_OBJECT, offsetof(TransportCall, pool), 0, NULL},
    {"append", T_OBJECT, offsetof(TransportCall, append), 0, NULL},
    {"kind", T_INT, offsetof(TransportCall, kind), READONLY, NULL},
    {"submitted_ns", T_LONGLONG, offsetof(TransportCall, submitted), 0, NULL},
    {"alive", T_BOOL, offsetof(TransportCall, alive), 0, NULL},
    {NULL}};
static PyMethodDef transport_methods[] = {{"submit", (PyCFunction)transport_submit, METH_NOARGS, NULL}, {NULL}};
static PyType_Slot transport_slots[] = {{Py_tp_new, transport_new},           {Py_tp_call, PyVectorcall_Call},
                                        {Py_tp_traverse, transport_traverse}, {Py_tp_clear, transport_clear},
                                        {Py_tp_dealloc, transport_dealloc},   {Py_tp_members, transport_members},
                                        {Py_tp_methods, transport_methods},   {0, NULL}};
static PyType_Spec transport_spec = {"mcp_probe.native._core.TransportCall", sizeof(TransportCall), 0,
                                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | HAVE_VECTORCALL, transport_slots};
