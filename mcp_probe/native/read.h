/* ---- LineStamps and StampedBuffer: when each line's bytes came off the pipe (twins: capture/read.py) ---- */
#define WAITED_NS 50000LL

static PyObject *deque_class, *str_append, *str_popleft, *str_clear, *str_read, *str_read1, *str_fileno;

typedef struct {
    PyObject_HEAD
    PyObject *waiting, *descriptor;
    ns_t read_bytes, consumed_bytes, last_read, empty, partial, peak; /* last_read: -1 before the first */
    char stopped, after_cr;
} LineStamps;

#define LINES_OBJECTS(EACH) EACH(waiting) EACH(descriptor)
TRAVERSE_AND_CLEAR(LineStamps, lines, LINES_OBJECTS)
DEALLOCATE(LineStamps, lines, NOTHING_TO_FREE)

static PyObject *lines_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *since = Py_None;
    if (!PyArg_ParseTuple(args, "|O", &since))
        return NULL;
    ns_t empty = since == Py_None ? now_ns() : PyLong_AsLongLong(since);
    if (PyErr_Occurred())
        return NULL;
    LineStamps *self = (LineStamps *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->descriptor = Py_NewRef(Py_None);
    self->waiting = PyObject_CallFunctionObjArgs(deque_class, NULL);
    self->last_read = -1;
    self->empty = empty;
    if (self->waiting == NULL)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static PyObject *lines_stop(LineStamps *self, PyObject *ignored)
{
    self->stopped = 1;
    return PyObject_CallMethodObjArgs(self->waiting, str_clear, NULL);
}

/* -1 where that cannot be told. It keeps the GIL: the call never waits, and to be given it back may take long. */
static int bytes_ready(LineStamps *self)
{
    int count = 0;
    long descriptor = is_set(self->descriptor) ? PyLong_AsLong(self->descriptor) : -1;
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return -1;
    }
    return descriptor < 0 || ioctl((int)descriptor, FIONREAD, &count) < 0 ? -1 : count;
}

static PyObject *lines_ready_to_read(LineStamps *self, PyObject *ignored)
{
    int count = bytes_ready(self);
    if (count < 0)
        Py_RETURN_NONE;
    return PyLong_FromLong(count);
}

static PyObject *lines_in_pipe(LineStamps *self, PyObject *ignored)
{
    int count = bytes_ready(self);
    return PyLong_FromLong(count < 0 ? 0 : count);
}

/* Behind the next line end from `at` on, with \r\n as one; 0 where there is none. */
static Py_ssize_t line_end(const char *chunk, Py_ssize_t at, Py_ssize_t size, int has_cr)
{
    const char *found = memchr(chunk + at, '\n', (size_t)(size - at));
    if (has_cr) {
        const char *cr = memchr(chunk + at, '\r', (size_t)((found == NULL ? chunk + size : found) - (chunk + at)));
        if (cr != NULL)
            return cr + 1 - chunk + (cr + 1 == found);
    }
    return found == NULL ? 0 : found + 1 - chunk;
}

static PyObject *lines_read(LineStamps *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs < 4 || nargs > 5 || !PyBytes_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "read(chunk, asked, began_ns, ended_ns[, ready_before])");
        return NULL;
    }
    const char *chunk = PyBytes_AsString(args[0]);
    Py_ssize_t size = PyBytes_Size(args[0]);
    ns_t asked = PyLong_AsLongLong(args[1]), began = PyLong_AsLongLong(args[2]), ended = PyLong_AsLongLong(args[3]);
    int told = nargs == 5 && args[4] != Py_None, waited = told ? PyObject_Not(args[4]) : ended - began >= WAITED_NS;
    if (PyErr_Occurred())
        return NULL;
    ns_t earliest = waited || self->empty > ended ? ended : self->empty;
    self->last_read = ended;
    if (size < asked)
        self->empty = waited ? ended : began;
    if (self->after_cr && size && *chunk == '\n') { /* the other half of a line end that was counted as one */
        chunk++;
        size--;
        self->after_cr = 0;
    }
    if (size == 0)
        Py_RETURN_NONE;
    self->read_bytes += size;
    self->after_cr = chunk[size - 1] == '\r';
    Py_ssize_t done = (Py_ssize_t)-self->partial, end = 0;
    int has_cr = memchr(chunk, '\r', (size_t)size) != NULL;
    while (end < size && (end = line_end(chunk, end, size, has_cr)) != 0) {
        PyObject *stamp = Py_BuildValue("(LLn)", ended, earliest, end - done), *added = NULL;
        if (stamp != NULL)
            added = PyObject_CallMethodObjArgs(self->waiting, str_append, stamp, NULL);
        Py_XDECREF(stamp);
        Py_XDECREF(added);
        if (added == NULL)
            return NULL;
        done = end;
    }
    self->partial = size - done;
    if (self->read_bytes - self->consumed_bytes > self->peak)
        self->peak = self->read_bytes - self->consumed_bytes;
    Py_RETURN_NONE;
}

static PyObject *lines_consumed(LineStamps *self, PyObject *ignored)
{
    if (PyObject_Size(self->waiting) > 0) {
        PyObject *stamp = PyObject_CallMethodObjArgs(self->waiting, str_popleft, NULL);
        if (stamp != NULL)
            self->consumed_bytes += PyLong_AsLongLong(PyTuple_GetItem(stamp, 2));
        return stamp;
    }
    if (self->partial == 0 || self->last_read < 0)
        Py_RETURN_NONE;
    ns_t size = self->partial;
    self->partial = 0;
    self->consumed_bytes += size;
    return Py_BuildValue("(LLL)", self->last_read, self->last_read, size);
}

static PyObject *lines_waiting_bytes(LineStamps *self, void *closure)
{
    ns_t left = self->read_bytes - self->consumed_bytes;
    return PyLong_FromLongLong(left > 0 ? left : 0);
}

static PyMemberDef lines_members[] = {{"waiting", T_OBJECT, offsetof(LineStamps, waiting), READONLY, NULL},
                                      {"descriptor", T_OBJECT, offsetof(LineStamps, descriptor), 0, NULL},
                                      {"waiting_bytes_peak", T_LONGLONG, offsetof(LineStamps, peak), 0, NULL},
                                      {"stopped", T_BOOL, offsetof(LineStamps, stopped), READONLY, NULL},
                                      {NULL}};
static PyGetSetDef lines_getset[] = {{"waiting_bytes", (getter)lines_waiting_bytes, NULL, NULL, NULL}, {NULL}};
static PyMethodDef lines_methods[] = {{"stop", (PyCFunction)lines_stop, METH_NOARGS, NULL},
                                      {"ready_to_read", (PyCFunction)lines_ready_to_read, METH_NOARGS, NULL},
                                      {"in_pipe", (PyCFunction)lines_in_pipe, METH_NOARGS, NULL},
                                      {"read", (PyCFunction)(void (*)(void))lines_read, METH_FASTCALL, NULL},
                                      {"consumed", (PyCFunction)lines_consumed, METH_NOARGS, NULL},
                                      {NULL}};
static PyType_Slot lines_slots[] = {{Py_tp_new, lines_new},         {Py_tp_traverse, lines_traverse},
                                    {Py_tp_clear, lines_clear},     {Py_tp_dealloc, lines_dealloc},
                                    {Py_tp_members, lines_members}, {Py_tp_getset, lines_getset},
                                    {Py_tp_methods, lines_methods}, {0, NULL}};
static PyType_Spec lines_spec = {"mcp_probe.native._core.LineStamps", sizeof(LineStamps), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, lines_slots};
static PyTypeObject *lines_type;

typedef struct {
    PyObject_HEAD
    PyObject *buffer, *fail;
    LineStamps *stamps;
} StampedBuffer;

#define BUFFER_OBJECTS(EACH) EACH(buffer) EACH(fail) EACH(stamps)
TRAVERSE_AND_CLEAR(StampedBuffer, buffer, BUFFER_OBJECTS)
DEALLOCATE(StampedBuffer, buffer, NOTHING_TO_FREE)

static PyObject *buffer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *buffer, *stamps, *fail = Py_None;
    if (!PyArg_ParseTuple(args, "OO!|O", &buffer, lines_type, &stamps, &fail))
        return NULL;
    PyObject *descriptor = PyObject_CallMethodObjArgs(buffer, str_fileno, NULL);
    if (descriptor == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError) && !PyErr_ExceptionMatches(PyExc_OSError) &&
            !PyErr_ExceptionMatches(PyExc_ValueError))
            return NULL;
        PyErr_Clear();
        descriptor = Py_NewRef(Py_None);
    }
    keep(&((LineStamps *)stamps)->descriptor, descriptor);
    Py_DECREF(descriptor);
    StampedBuffer *self = (StampedBuffer *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->buffer = Py_NewRef(buffer);
    self->stamps = (LineStamps *)Py_NewRef(stamps);
    self->fail = Py_NewRef(fail);
    return (PyObject *)self;
}

/* A fault of ours: the server gets its bytes, and nothing is stamped any more. -1 where it is none of ours. */
static int buffer_give_up(StampedBuffer *self)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    PyObject *error = caught(), *done = NULL;
    int first = !self->stamps->stopped;
    Py_XDECREF(lines_stop(self->stamps, NULL));
    if (first && error != NULL && is_set(self->fail))
        done = PyObject_CallFunctionObjArgs(self->fail, error, NULL);
    PyErr_Clear();
    Py_XDECREF(done);
    Py_XDECREF(error);
    return 0;
}

static PyObject *buffer_read1(StampedBuffer *self, PyObject *const *args, Py_ssize_t nargs)
{
    LineStamps *stamps = self->stamps;
    int ready = stamps->stopped ? -1 : bytes_ready(stamps);
    ns_t began = now_ns();
    PyObject *asked = nargs ? Py_NewRef(args[0]) : PyLong_FromLong(-1);
    PyObject *chunk = asked == NULL ? NULL : PyObject_CallMethodObjArgs(self->buffer, str_read1, asked, NULL);
    if (chunk != NULL && !stamps->stopped) {
        PyObject *before = ready < 0 ? Py_NewRef(Py_None) : PyLong_FromLong(ready), *since = PyLong_FromLongLong(began),
                 *now = PyLong_FromLongLong(now_ns()), *done = NULL;
        if (before != NULL && since != NULL && now != NULL)
            done = PyObject_CallMethodObjArgs((PyObject *)stamps, str_read, chunk, asked, since, now, before, NULL);
        if (done == NULL && buffer_give_up(self) < 0)
            Py_CLEAR(chunk);
        Py_XDECREF(before);
        Py_XDECREF(since);
        Py_XDECREF(now);
        Py_XDECREF(done);
    }
    Py_XDECREF(asked);
    return chunk;
}

static PyObject *buffer_getattro(PyObject *self, PyObject *name)
{
    return attribute_of(self, ((StampedBuffer *)self)->buffer, name);
}

static PyMethodDef buffer_methods[] = {
    {"read1", (PyCFunction)(void (*)(void))buffer_read1, METH_FASTCALL, "As io.BufferedReader.read1."}, {NULL}};
static PyType_Slot buffer_slots[] = {{Py_tp_new, buffer_new},           {Py_tp_traverse, buffer_traverse},
                                     {Py_tp_clear, buffer_clear},       {Py_tp_dealloc, buffer_dealloc},
                                     {Py_tp_methods, buffer_methods},   {Py_tp_getattro, buffer_getattro},
                                     {0, NULL}};
static PyType_Spec buffer_spec = {"mcp_probe.native._core.StampedBuffer", sizeof(StampedBuffer), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, buffer_slots};

static int make_read_names(void)
{
    static const name_t names[] = {{&str_append, "append"}, {&str_popleft, "popleft"}, {&str_clear, "clear"},
                 {&str_read, "read"},     {&str_read1, "read1"},     {&str_fileno, "fileno"}};
    if (INTERN(names) < 0)
        return -1;
    PyObject *collections = PyImport_ImportModule("collections");
    deque_class = collections == NULL ? NULL : PyObject_GetAttrString(collections, "deque");
    Py_XDECREF(collections);
    return deque_class == NULL ? -1 : 0;
}
