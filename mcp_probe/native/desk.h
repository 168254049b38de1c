/* ---- Desk: every live request (twin: capture/queueing.py) ---- */

/* What capture/queueing.py knows of messages (see messages). */
static PyObject *kinds, *kind_request, *kind_notification, *kind_result, *kind_error, *named_methods, *exchange_var,
    *find_kind, *find_name, *note_error, *note_result;
static long long max_live;
static Py_ssize_t max_name;

typedef struct {
    PyObject_HEAD
    PyObject *live;
    ns_t number, peak, unwritten, unwritten_peak, unclaimed, overflow;
    char closed;
} Desk;

static PyTypeObject *desk_type;

static PyObject *desk_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    Desk *self = (Desk *)PyType_GenericAlloc(type, 0);
    if (self != NULL && (self->live = PyDict_New()) == NULL)
        Py_CLEAR(self);
    return (PyObject *)self;
}

#define DESK_OBJECTS(EACH) EACH(live)
TRAVERSE_AND_CLEAR(Desk, desk, DESK_OBJECTS)
DEALLOCATE(Desk, desk, NOTHING_TO_FREE)

static PyObject *capped(PyObject *text, Py_ssize_t most)
{
    Py_ssize_t length = PyUnicode_Check(text) ? PyUnicode_GetLength(text) : 0;
    return length > most ? PyUnicode_Substring(text, 0, most) : Py_NewRef(text);
}

/* Tool or prompt name, a new reference; None for other methods. `message` is one, or the SDK's context of one. */
static PyObject *name_of(PyObject *message, PyObject *method)
{
    int named = PySet_Contains(named_methods, method);
    if (named <= 0) {
        PyErr_Clear();
        return Py_NewRef(Py_None);
    }
    PyObject *params = PyObject_GetAttr(message, str_params), *name = NULL;
    if (params == NULL)
        return NULL;
    if (PyDict_CheckExact(params)) {
        PyObject *given = PyDict_GetItemWithError(params, str_name);
        if (given != NULL || !PyErr_Occurred())
            name = given != NULL && PyUnicode_Check(given) ? capped(given, max_name) : Py_NewRef(Py_None);
    }
    else
        name = PyObject_CallFunctionObjArgs(find_name, method, params, NULL);
    Py_DECREF(params);
    return name;
}

static Request *desk_open(Desk *self, PyObject *kind, PyObject *method, PyObject *name, PyObject *transport)
{
    PyObject *number = PyLong_FromLongLong(++self->number), *short_method = capped(method, max_name), *made = NULL;
    if (number != NULL && short_method != NULL)
        made = (PyObject *)make_request(request_type, number, kind, short_method, name, transport);
    if (made != NULL) {
        if (PyDict_Size(self->live) >= max_live)
            self->overflow++;
        else if (PyDict_SetItem(self->live, number, made) < 0)
            Py_CLEAR(made);
    }
    Py_XDECREF(number);
    Py_XDECREF(short_method);
    return (Request *)made;
}

static void desk_finished(Desk *self, Request *raw, ns_t now)
{
    if (raw->result_ns != NO_NS)
        return;
    raw->result_ns = now;
    if (raw->write_seen && ++self->unwritten > self->unwritten_peak)
        self->unwritten_peak = self->unwritten;
}

static int desk_end(Desk *self, Request *raw, ns_t now, PyObject *outcome)
{
    if (raw->ended)
        return 0;
    if (memory_hooks != NULL)
        memory_hooks->end(raw);
    raw->ended = 1;
    raw->end_ns = now;
    int failed = 0;
    if (is_set(outcome))
        keep(&raw->outcome, outcome);
    if (raw->result_ns == NO_NS) {
        if (is_set(raw->channel))
            failed = call_one(raw->channel, str_forget, (PyObject *)raw) < 0;
    }
    else if (raw->write_seen)
        self->unwritten--;
    if (!failed && PyDict_DelItem(self->live, raw->id) < 0) {
        if (PyErr_ExceptionMatches(PyExc_KeyError))
            PyErr_Clear();
        else
            failed = 1;
    }
    if (failed)
        return -1;
    if (is_set(raw->session)) {
        PyObject *session = Py_NewRef(raw->session);
        failed = call_one(session, str_finish, (PyObject *)raw) < 0;
        Py_DECREF(session);
        return failed ? -1 : 0;
    }
    self->unclaimed++;
    return 0;
}

static Request *request_arg(PyObject *object)
{
    Request *request = as_request(object);
    if (request == NULL)
        PyErr_Format(PyExc_TypeError, "expected a request, not %R", object);
    return request;
}

static PyObject *desk_py_open(Desk *self, PyObject *args)
{
    PyObject *kind, *method, *name, *transport;
    if (!PyArg_ParseTuple(args, "OOOO", &kind, &method, &name, &transport))
        return NULL;
    return (PyObject *)desk_open(self, kind, method, name, transport);
}

static PyObject *desk_py_finished(Desk *self, PyObject *args)
{
    PyObject *object;
    ns_t now;
    Request *raw;
    if (!PyArg_ParseTuple(args, "OL", &object, &now) || (raw = request_arg(object)) == NULL)
        return NULL;
    desk_finished(self, raw, now);
    Py_RETURN_NONE;
}

static PyObject *desk_py_end(Desk *self, PyObject *args)
{
    PyObject *object, *outcome = NULL;
    ns_t now;
    Request *raw;
    if (!PyArg_ParseTuple(args, "OL|O", &object, &now, &outcome) || (raw = request_arg(object)) == NULL)
        return NULL;
    return none_unless(desk_end(self, raw, now, outcome));
}

static PyObject *desk_note_peak(Desk *self, PyObject *unread)
{
    ns_t outstanding = PyLong_AsLongLong(unread) + PyDict_Size(self->live);
    if (PyErr_Occurred())
        return NULL;
    if (outstanding > self->peak)
        self->peak = outstanding;
    Py_RETURN_NONE;
}

#define COUNT(field) {#field, T_LONGLONG, offsetof(Desk, field), 0, NULL}
static PyMemberDef desk_members[] = {{"live", T_OBJECT, offsetof(Desk, live), READONLY, NULL}, COUNT(peak),
                                     COUNT(unwritten), COUNT(unwritten_peak), COUNT(unclaimed), COUNT(overflow),
                                     {"number", T_LONGLONG, offsetof(Desk, number), READONLY, NULL}, {"closed", T_BOOL, offsetof(Desk, closed), 0, NULL}, {NULL}};
static PyMethodDef desk_methods[] = {{"open", (PyCFunction)desk_py_open, METH_VARARGS, NULL},
                                     {"finished", (PyCFunction)desk_py_finished, METH_VARARGS, NULL},
                                     {"end", (PyCFunction)desk_py_end, METH_VARARGS, NULL},
                                     {"note_peak", (PyCFunction)desk_note_peak, METH_O, NULL},
                                     {NULL}};
static PyType_Slot desk_slots[] = {{Py_tp_new, desk_new},         {Py_tp_traverse, desk_traverse},
                                   {Py_tp_clear, desk_clear},     {Py_tp_dealloc, desk_dealloc},
                                   {Py_tp_members, desk_members}, {Py_tp_methods, desk_methods},
                                   {0, NULL}};
static PyType_Spec desk_spec = {"mcp_probe.native._core.Desk", sizeof(Desk), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, desk_slots};
