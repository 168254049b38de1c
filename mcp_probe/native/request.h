/* ---- Request: one request while it lives (twin: record/raw.py PythonRequest) ---- */

typedef struct {
    ns_t unit, suspended, earliest, ready, start, end;
    int wake;
} mark_t;

typedef struct {
    ns_t unit, end;
} unit_t;

enum { ALL_SEEN = 15 };

typedef struct {
    PyObject_HEAD
    PyObject *request_id, *session, *channel, *parent, *jobs, *pauses, *client_waits, *metered, *ambient, *lend_span,
        *spilled; /* may hold others */
    PyObject *id, *kind, *method, *name, *transport, *protocol_version, *loop, *arrival_ns, *arrival_earliest_ns, *taken_ns,
        *first_step_ns, *result_ns, *write_taken_ns, *flushed_ns, *end_ns, *outcome, *error, *decode_ns, *encode_ns,
        *request_bytes, *response_bytes, *trace_id, *span_id, *parent_span_id, *trace_flags, *trace_state, *server_span,
        *resource_uri, *session_id, *error_code, *sent_ns, *sized; /* numbers and text */
    ns_t handler, detached_ns, blocked_others_ns;
    PyObject *weak_references;
    ns_t requested, allocations, requested_owned; /* see memory.h */
    account_ref account;
    unsigned int memory_epoch;
    char memory_charged, memory_sealed;
    char settles, ended, transport_seen, write_seen, partial, seen_open;
    int seen; /* bits of model.py */
    int mark_count, mark_room, unit_count, unit_room, unit_peak; /* unit_peak: alive at once at most */
    mark_t *marks, own_marks[6];
    unit_t *units, own_units[4];
} Request;

#define FIRST_OBJECT offsetof(Request, request_id)
#define LAST_CONTAINER offsetof(Request, spilled)
#define LAST_OBJECT offsetof(Request, sized)

static PyObject *ok_outcome, *cancelled_outcome;
static unsigned int memory_epoch; /* of the hooks that are installed; 0: none are */

static Request *make_request(PyTypeObject *type, PyObject *id, PyObject *kind, PyObject *method, PyObject *name,
                             PyObject *transport)
{
    Request *self = (Request *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->id = Py_NewRef(id);
    self->kind = Py_NewRef(kind);
    self->method = Py_NewRef(method);
    self->name = Py_NewRef(name);
    self->transport = Py_NewRef(transport);
    self->outcome = Py_NewRef(ok_outcome);
    self->jobs = Py_NewRef(empty_tuple);
    self->pauses = Py_NewRef(empty_tuple);
    self->client_waits = Py_NewRef(empty_tuple);
    self->transport_seen = 1;
    self->seen = ALL_SEEN;
    self->memory_epoch = memory_epoch;
    self->marks = self->own_marks;
    self->mark_room = sizeof(self->own_marks) / sizeof(mark_t);
    self->units = self->own_units;
    self->unit_room = sizeof(self->own_units) / sizeof(unit_t);
    return self;
}

static PyObject *request_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *id, *kind, *method, *name, *transport;
    if (kwargs != NULL && PyDict_Size(kwargs) != 0) {
        PyErr_SetString(PyExc_TypeError, "a request takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_UnpackTuple(args, "Request", 5, 5, &id, &kind, &method, &name, &transport))
        return NULL;
    return (PyObject *)make_request(type, id, kind, method, name, transport);
}

static int request_traverse(Request *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    for (size_t at = FIRST_OBJECT; at <= LAST_CONTAINER; at += sizeof(PyObject *))
        Py_VISIT(*(PyObject **)((char *)self + at));
    return 0;
}

static int request_clear(Request *self)
{
    for (size_t at = FIRST_OBJECT; at <= LAST_OBJECT; at += sizeof(PyObject *)) {
        PyObject **slot = (PyObject **)((char *)self + at);
        Py_CLEAR(*slot);
    }
    return 0;
}

#define FREE_HELD(self) \
    if ((self)->weak_references != NULL) \
        PyObject_ClearWeakRefs((PyObject *)(self)); \
    if ((self)->marks != (self)->own_marks) \
        PyMem_Free((self)->marks); \
    if ((self)->units != (self)->own_units) \
        PyMem_Free((self)->units); \
    if ((self)->account != 0) \
        drop_account((self)->account)
DEALLOCATE(Request, request, FREE_HELD)

static int add_mark(Request *self, ns_t unit, ns_t suspended, ns_t earliest, ns_t ready, ns_t start, ns_t end, int wake)
{
    if (self->mark_count == self->mark_room) {
        int room = self->mark_room * 4;
        mark_t *marks = PyMem_Malloc(room * sizeof(mark_t));
        if (marks == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        memcpy(marks, self->marks, self->mark_count * sizeof(mark_t));
        if (self->marks != self->own_marks)
            PyMem_Free(self->marks);
        self->marks = marks;
        self->mark_room = room;
    }
    self->marks[self->mark_count++] = (mark_t){unit, suspended, earliest, ready, start, end, wake};
    return 0;
}

static unit_t *find_unit(Request *self, ns_t unit)
{
    for (int i = self->unit_count - 1; i >= 0; i--)
        if (self->units[i].unit == unit)
            return &self->units[i];
    return NULL;
}

static int set_unit(Request *self, ns_t unit, ns_t end)
{
    unit_t *known = find_unit(self, unit);
    if (known != NULL) {
        known->end = end;
        return 0;
    }
    if (self->unit_count == self->unit_room) {
        int room = self->unit_room * 4;
        unit_t *units = PyMem_Malloc(room * sizeof(unit_t));
        if (units == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        memcpy(units, self->units, self->unit_count * sizeof(unit_t));
        if (self->units != self->own_units)
            PyMem_Free(self->units);
        self->units = units;
        self->unit_room = room;
    }
    self->units[self->unit_count++] = (unit_t){unit, end};
    if (self->unit_count > self->unit_peak)
        self->unit_peak = self->unit_count;
    return 0;
}

static void drop_unit(Request *self, ns_t unit)
{
    unit_t *known = find_unit(self, unit);
    if (known != NULL) {
        memmove(known, known + 1, (char *)(self->units + self->unit_count) - (char *)(known + 1));
        self->unit_count--;
    }
}

static PyObject *request_get_marks(Request *self, void *closure)
{
    int count = self->mark_count;
    PyObject *marks = PyTuple_New(count);
    for (int i = 0; marks != NULL && i < count; i++) {
        mark_t m = self->marks[i];
        PyObject *mark = Py_BuildValue("(LLLLLLi)", m.unit, m.suspended, m.earliest, m.ready, m.start, m.end, m.wake);
        if (mark == NULL || PyTuple_SetItem(marks, i, mark) < 0)
            Py_CLEAR(marks);
    }
    return marks;
}

static PyObject *request_add_mark(Request *self, PyObject *mark)
{
    ns_t unit, suspended, earliest, ready, start, end;
    int wake;
    if (!PyArg_ParseTuple(mark, "LLLLLLi", &unit, &suspended, &earliest, &ready, &start, &end, &wake))
        return NULL;
    if (add_mark(self, unit, suspended, earliest, ready, start, end, wake) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *request_set_unit(Request *self, PyObject *args)
{
    ns_t unit, end;
    if (!PyArg_ParseTuple(args, "LL", &unit, &end) || set_unit(self, unit, end) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *request_drop_unit(Request *self, PyObject *arg)
{
    ns_t unit = PyLong_AsLongLong(arg);
    if (unit == -1 && PyErr_Occurred())
        return NULL;
    drop_unit(self, unit);
    Py_RETURN_NONE;
}

static PyObject *request_clear_marks(Request *self, PyObject *ignored)
{
    self->mark_count = 0;
    Py_RETURN_NONE;
}

static PyObject *request_get_units(Request *self, void *closure)
{
    PyObject *units = PyDict_New();
    for (int i = 0; units != NULL && i < self->unit_count; i++) {
        PyObject *key = PyLong_FromLongLong(self->units[i].unit), *end = PyLong_FromLongLong(self->units[i].end);
        if (key == NULL || end == NULL || PyDict_SetItem(units, key, end) < 0)
            Py_CLEAR(units);
        Py_XDECREF(key);
        Py_XDECREF(end);
    }
    PyObject *view = units == NULL ? NULL : PyDictProxy_New(units);
    Py_XDECREF(units);
    return view;
}

static int request_set_units(Request *self, PyObject *units, void *closure)
{
    if (units == NULL || !PyDict_Check(units)) {
        PyErr_SetString(PyExc_TypeError, "units must be a dict");
        return -1;
    }
    PyObject *key, *end;
    Py_ssize_t at = 0;
    self->unit_count = 0;
    while (PyDict_Next(units, &at, &key, &end)) {
        ns_t unit = PyLong_AsLongLong(key), value = PyLong_AsLongLong(end);
        if (PyErr_Occurred() || set_unit(self, unit, value) < 0)
            return -1;
    }
    return 0;
}

/* How many steps are shorter than RING_NS; their lengths are added to *total. */
static int small_steps_of(const Request *self, ns_t *total)
{
    int count = 0;
    for (int i = 0; i < self->mark_count; i++) {
        ns_t length = self->marks[i].end - self->marks[i].start;
        if (length < RING_NS) {
            count++;
            *total += length;
        }
    }
    return count;
}

static PyObject *request_small_steps(Request *self, PyObject *ignored)
{
    ns_t total = 0;
    int count = small_steps_of(self, &total);
    return Py_BuildValue("(iL)", count, total);
}

static PyObject *request_fold_single(Request *self, PyObject *const *args, Py_ssize_t nargs); /* record.h */
static PyObject *request_record(Request *r, PyObject *ended);
static PyObject *request_span_attributes(Request *r, PyObject *const *args, Py_ssize_t nargs); /* attributes.h */
static PyObject *request_memory(Request *self, PyObject *ignored); /* memory.h */
static PyObject *request_keep_memory(Request *self, PyObject *ignored);

static PyObject *request_operation(Request *self, void *closure)
{
    PyObject *named = is_set(self->name) && PyObject_IsTrue(self->name) ? self->name : self->method;
    return Py_NewRef(named == NULL ? Py_None : named);
}

#define OBJECT(field) {#field, T_OBJECT, offsetof(Request, field), 0, NULL}
#define FLAG(field) {#field, T_BOOL, offsetof(Request, field), 0, NULL}
static PyMemberDef request_members[] = {
    OBJECT(id), OBJECT(kind), OBJECT(method), OBJECT(name), OBJECT(transport), OBJECT(request_id),
    OBJECT(protocol_version), OBJECT(session), OBJECT(channel), OBJECT(parent), OBJECT(loop), OBJECT(arrival_ns),
    OBJECT(arrival_earliest_ns), OBJECT(taken_ns), OBJECT(first_step_ns), OBJECT(result_ns), OBJECT(write_taken_ns),
    OBJECT(flushed_ns), OBJECT(end_ns), OBJECT(outcome), OBJECT(error), OBJECT(jobs), OBJECT(pauses),
    OBJECT(client_waits), OBJECT(spilled), OBJECT(decode_ns), OBJECT(encode_ns), OBJECT(request_bytes),
    OBJECT(response_bytes), OBJECT(trace_id), OBJECT(span_id), OBJECT(parent_span_id), OBJECT(trace_flags),
    OBJECT(trace_state), OBJECT(server_span), OBJECT(resource_uri), OBJECT(session_id), OBJECT(error_code),
    OBJECT(sent_ns), OBJECT(sized), OBJECT(metered), OBJECT(ambient), OBJECT(lend_span),
    FLAG(settles), FLAG(ended), FLAG(transport_seen), FLAG(write_seen), FLAG(partial), FLAG(seen_open),
    {"seen", T_INT, offsetof(Request, seen), 0, NULL},
    {"mark_count", T_INT, offsetof(Request, mark_count), READONLY, NULL},
    {"unit_peak", T_INT, offsetof(Request, unit_peak), READONLY, NULL},
    {"handler", T_LONGLONG, offsetof(Request, handler), 0, NULL},
    {"detached_ns", T_LONGLONG, offsetof(Request, detached_ns), 0, NULL},
    {"blocked_others_ns", T_LONGLONG, offsetof(Request, blocked_others_ns), 0, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Request, weak_references), READONLY, NULL}, {NULL}};
static PyGetSetDef request_getset[] = {{"marks", (getter)request_get_marks, NULL, NULL, NULL},
                                       {"units", (getter)request_get_units, (setter)request_set_units, NULL, NULL},
                                       {"operation", (getter)request_operation, NULL, NULL, NULL},
                                       {NULL}};
static PyMethodDef request_methods[] = {
    {"add_mark", (PyCFunction)request_add_mark, METH_O, NULL},
    {"set_unit", (PyCFunction)request_set_unit, METH_VARARGS, NULL},
    {"drop_unit", (PyCFunction)request_drop_unit, METH_O, NULL},
    {"clear_marks", (PyCFunction)request_clear_marks, METH_NOARGS, NULL},
    {"small_steps", (PyCFunction)request_small_steps, METH_NOARGS, NULL},
    {"span_attributes", (PyCFunction)(void (*)(void))request_span_attributes, METH_FASTCALL, NULL},
    {"fold_single", (PyCFunction)(void (*)(void))request_fold_single, METH_FASTCALL, NULL},
    {"record", (PyCFunction)request_record, METH_O, NULL},
    {"memory", (PyCFunction)request_memory, METH_NOARGS, NULL},
    {"keep_memory", (PyCFunction)request_keep_memory, METH_NOARGS,
     "A bare request that holds the account of this one, which has ended and has none from now on: what the probe itself\n"
     "hung on this one is no longer held by it."},
    {NULL}};
static PyType_Slot request_slots[] = {{Py_tp_new, request_new},          {Py_tp_traverse, request_traverse},
                                      {Py_tp_clear, request_clear},      {Py_tp_dealloc, request_dealloc},
                                      {Py_tp_members, request_members},  {Py_tp_getset, request_getset},
                                      {Py_tp_methods, request_methods},  {0, NULL}};
static PyType_Spec request_spec = {"mcp_probe.native._core.Request", sizeof(Request), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, request_slots};

static inline Request *as_request(PyObject *owner)
{
    return is_set(owner) && PyObject_TypeCheck(owner, request_type) ? (Request *)owner : NULL;
}
