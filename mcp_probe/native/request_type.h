/* ---- Request: one request while it lives (twin: record/raw.py PythonRequest) ---- */

static PyObject *empty_tuple, *ok_outcome;
static const memory_hooks_t *memory_hooks; /* NULL: memory is not measured in this process */

static Request *make_request(PyTypeObject *type, PyObject *id, PyObject *kind, PyObject *method,
                             PyObject *name, PyObject *transport)
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
    PyObject **empty[] = {&self->jobs,   &self->pauses, &self->client_waits,
                          &self->awaits, &self->looks,  &self->starved};
    for (size_t at = 0; at < sizeof(empty) / sizeof(*empty); at++)
        *empty[at] = Py_NewRef(empty_tuple);
    self->transport_seen = 1;
    self->seen = ALL_SEEN;
    for (size_t at = FIRST_NS; at <= LAST_NS; at += sizeof(ns_t))
        *(ns_t *)((char *)self + at) = NO_NS;
    self->memory.epoch = memory_hooks == NULL ? 0 : *memory_hooks->epoch;
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
    if ((self)->memory.account != 0) \
    memory_hooks->drop((self)->memory.account)
DEALLOCATE(Request, request, FREE_HELD)

static int add_mark(Request *self, ns_t unit, ns_t suspended, ns_t earliest, ns_t ready, ns_t start,
                    ns_t end, int wake)
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
    PyObject *marks = PyTuple_New(self->mark_count);
    for (int i = 0; marks != NULL && i < PyTuple_GET_SIZE(marks); i++) {
        mark_t m = self->marks[i];
        PyObject *mark = Py_BuildValue("(LLLLLLi)", m.unit, m.suspended, m.earliest, m.ready,
                                       m.start, m.end, m.wake);
        PyTuple_SET_ITEM(marks, i, mark); /* gc.get_objects() may have found the tuple by now */
        if (mark == NULL)
            Py_CLEAR(marks);
    }
    return marks;
}

static PyObject *request_add_mark(Request *self, PyObject *mark)
{
    ns_t unit, suspended, earliest, ready, start, end;
    int wake;
    if (!PyArg_Parse(mark, "(LLLLLLi)", &unit, &suspended, &earliest, &ready, &start, &end, &wake))
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
        PyObject *key = PyLong_FromLongLong(self->units[i].unit),
                 *end = PyLong_FromLongLong(self->units[i].end);
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

/* (count, total) of the steps that are shorter than RING_NS. */
static PyObject *request_small_steps(Request *self, PyObject *ignored)
{
    ns_t total = 0;
    int count = 0;
    for (int i = 0; i < self->mark_count; i++) {
        ns_t length = self->marks[i].end - self->marks[i].start;
        if (length < RING_NS) {
            count++;
            total += length;
        }
    }
    return Py_BuildValue("(iL)", count, total);
}

/* The numbers that may be None; closure: where they are. */
static PyObject *request_get_ns(Request *self, void *closure)
{
    return ns_or_none(*(ns_t *)((char *)self + (size_t)closure));
}

static int request_set_ns(Request *self, PyObject *value, void *closure)
{
    ns_t number = value == NULL || value == Py_None ? NO_NS : PyLong_AsLongLong(value);
    if (number == -1 && PyErr_Occurred())
        return -1;
    *(ns_t *)((char *)self + (size_t)closure) = number;
    return 0;
}

static PyObject *request_operation(Request *self, void *closure)
{
    PyObject *named = is_set(self->name) && PyObject_IsTrue(self->name) ? self->name : self->method;
    return Py_NewRef(named == NULL ? Py_None : named);
}

/* (requested, allocations, owned, held, peak, blocks), bytes and numbers; None: not measured. */
static PyObject *request_memory(Request *self, PyObject *ignored)
{
    if (memory_hooks == NULL)
        Py_RETURN_NONE;
    return memory_hooks->use_of(self);
}

static PyObject *request_keep_memory(Request *self, PyObject *ignored)
{
    Request *kept =
        make_request(request_type, self->id, self->kind, self->method, self->name, self->transport);
    if (kept != NULL && memory_hooks != NULL)
        memory_hooks->move(self, kept);
    if (kept != NULL)
        kept->ended = 1;
    return (PyObject *)kept;
}

/* Ended at this instant, with what it has used by then. False where it had ended before. */
static PyObject *request_end_at(Request *self, PyObject *at)
{
    ns_t now = PyLong_AsLongLong(at);
    if (now == -1 && PyErr_Occurred())
        return NULL;
    if (self->ended)
        Py_RETURN_FALSE;
    if (memory_hooks != NULL)
        memory_hooks->end(self);
    self->ended = 1;
    self->end_ns = now;
    Py_RETURN_TRUE;
}

#define OBJECT(field) {#field, T_OBJECT, offsetof(Request, field), 0, NULL}
#define FLAG(field) {#field, T_BOOL, offsetof(Request, field), 0, NULL}
#define NS(field) \
    {#field, (getter)request_get_ns, (setter)request_set_ns, NULL, (void *)offsetof(Request, field)}
#define OBJECTS \
    OBJECT(id), OBJECT(kind), OBJECT(method), OBJECT(name), OBJECT(transport), OBJECT(request_id), \
        OBJECT(protocol_version), OBJECT(session), OBJECT(channel), OBJECT(parent), \
        OBJECT(outcome), OBJECT(error), OBJECT(jobs), OBJECT(pauses), OBJECT(client_waits), \
        OBJECT(awaits), OBJECT(looks), OBJECT(spilled), OBJECT(trace_id), OBJECT(span_id), \
        OBJECT(parent_span_id), OBJECT(trace_flags), OBJECT(trace_state), OBJECT(server_span), \
        OBJECT(resource_uri), OBJECT(session_id), OBJECT(error_code), OBJECT(starved), \
        OBJECT(write_waits), OBJECT(sized), OBJECT(metered), OBJECT(measured), OBJECT(ambient), \
        OBJECT(lend_span)
#define TIMES \
    NS(arrival_ns), NS(arrival_earliest_ns), NS(taken_ns), NS(first_step_ns), NS(result_ns), \
        NS(write_taken_ns), NS(flushed_ns), NS(end_ns), NS(gone_ns), NS(sent_ns), NS(decode_ns), \
        NS(encode_ns), NS(request_bytes), NS(response_bytes), NS(loop)
static PyMemberDef request_members[] = {
    OBJECTS,
    FLAG(settles),
    FLAG(ended),
    FLAG(transport_seen),
    FLAG(new_connection),
    FLAG(write_seen),
    FLAG(partial),
    FLAG(seen_open),
    {"seen", T_INT, offsetof(Request, seen), 0, NULL},
    {"mark_count", T_INT, offsetof(Request, mark_count), READONLY, NULL},
    {"unit_peak", T_INT, offsetof(Request, unit_peak), READONLY, NULL},
    {"handler", T_LONGLONG, offsetof(Request, handler), 0, NULL},
    {"detached_ns", T_LONGLONG, offsetof(Request, detached_ns), 0, NULL},
    {"blocked_others_ns", T_LONGLONG, offsetof(Request, blocked_others_ns), 0, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Request, weak_references), READONLY, NULL},
    {NULL}};
static PyGetSetDef request_getset[] = {
    {"marks", (getter)request_get_marks, NULL, NULL, NULL},
    {"units", (getter)request_get_units, (setter)request_set_units, NULL, NULL},
    {"operation", (getter)request_operation, NULL, NULL, NULL},
    TIMES,
    {NULL}};
static PyMethodDef request_methods[] = {
    {"add_mark", (PyCFunction)request_add_mark, METH_O, NULL},
    {"set_unit", (PyCFunction)request_set_unit, METH_VARARGS, NULL},
    {"drop_unit", (PyCFunction)request_drop_unit, METH_O, NULL},
    {"clear_marks", (PyCFunction)request_clear_marks, METH_NOARGS, NULL},
    {"end_at", (PyCFunction)request_end_at, METH_O, NULL},
    {"small_steps", (PyCFunction)request_small_steps, METH_NOARGS, NULL},
    {"memory", (PyCFunction)request_memory, METH_NOARGS, NULL},
    {"keep_memory", (PyCFunction)request_keep_memory, METH_NOARGS,
     "A bare request that has the account of this one, which has ended, from now on: what\n"
     "the probe itself hung on this one is no longer held by it."},
    {NULL}};
static PyType_Slot request_slots[] = {
    {Py_tp_new, request_new},         {Py_tp_traverse, request_traverse},
    {Py_tp_clear, request_clear},     {Py_tp_dealloc, request_dealloc},
    {Py_tp_members, request_members}, {Py_tp_getset, request_getset},
    {Py_tp_methods, request_methods}, {0, NULL}};
static PyType_Spec request_spec = {"mcp_probe.native._core.Request", sizeof(Request), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
                                   request_slots};
