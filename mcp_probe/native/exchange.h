/* ---- Exchange: one HTTP exchange (twins: capture/current.py, exchange_of in adapters/asgi.py) ---- */

typedef struct {
    PyObject_HEAD
    PyObject *arrival_ns, *arrival_earliest_ns, *body_bytes, *raw, *track;
} Exchange;

#define EXCHANGE_OBJECTS(EACH) EACH(arrival_ns) EACH(arrival_earliest_ns) EACH(body_bytes) EACH(raw) EACH(track)
TRAVERSE_AND_CLEAR(Exchange, exchange, EXCHANGE_OBJECTS)
DEALLOCATE(Exchange, exchange, NOTHING_TO_FREE)

/* What the Python side knows of loops and of the SDK (see http). */
static PyObject *current_task, *transports, *find_transport, *note_exception, *str_type, *str_body, *str_body_event, *str_http,
    *str_quality, *str_exact, *str_active, *str_failed, *str_throw, *str_close, *str_await, *str_tools_list,
    *str_tools_call, *str_memory, *str_meta, *str_sizer, *str_sent, *str_closes_steps, *str_request_id,
    *str_protocol_version, *str_claim, *str_hooked, *str_follow, *str_enter, *str_headers, *str_through_spans, *str_through_outer,
    *str_session, *str_request_outbound, *str_inner, *str_traceparent;
static PyTypeObject *exchange_type, *send_type;

static PyObject *exchange_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *arrival, *earliest, *size, *track = Py_None;
    if (!PyArg_UnpackTuple(args, "Exchange", 3, 4, &arrival, &earliest, &size, &track))
        return NULL;
    Exchange *self = (Exchange *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->arrival_ns = Py_NewRef(arrival);
    self->arrival_earliest_ns = Py_NewRef(earliest);
    self->body_bytes = Py_NewRef(size);
    self->raw = Py_NewRef(Py_None);
    self->track = Py_NewRef(track);
    return (PyObject *)self;
}

/* The number in a content-length header; None where there is none, or what a client made up. A new reference. */
static PyObject *content_length(PyObject *headers)
{
    PyObject *found = Py_NewRef(Py_None), *rows = PySequence_Fast(headers, "headers are no sequence");
    Py_ssize_t count = rows == NULL ? 0 : PySequence_Size(rows);
    for (Py_ssize_t i = 0; found != NULL && i < count; i++) {
        PyObject *row = PySequence_GetItem(rows, i);
        PyObject *name = row == NULL ? NULL : PySequence_GetItem(row, 0);
        if (name != NULL && PyBytes_Check(name) && PyBytes_Size(name) == 14 &&
            memcmp(PyBytes_AsString(name), "content-length", 14) == 0) {
            PyObject *value = PySequence_GetItem(row, 1);
            Py_ssize_t length = value != NULL && PyBytes_Check(value) ? PyBytes_Size(value) : 0;
            long long number = 0;
            int digits = length > 0 && length < 19;
            for (Py_ssize_t at = 0; digits && at < length; at++) {
                char digit = PyBytes_AsString(value)[at];
                digits = digit >= '0' && digit <= '9';
                number = number * 10 + (digit - '0');
            }
            if (value == NULL)
                Py_CLEAR(found);
            else if (digits) {
                Py_DECREF(found);
                found = PyLong_FromLongLong(number);
            }
            Py_XDECREF(value);
        }
        if (name == NULL)
            Py_CLEAR(found);
        Py_XDECREF(name);
        Py_XDECREF(row);
    }
    if (rows == NULL)
        Py_CLEAR(found);
    Py_XDECREF(rows);
    return found;
}

/* Its arrival is bounded as adapters/asgi.py says. */
static Exchange *exchange_of(PyObject *headers, Steps *steps)
{
    ns_t arrival = now_ns(), earliest;
    if (steps->since && steps->wake == WAKE_SOCKET) {
        earliest = steps->earliest;
        if (steps->ready < arrival)
            arrival = steps->ready;
    }
    else {
        PyObject *quality = PyObject_GetAttr((PyObject *)steps, str_quality);
        if (quality == NULL)
            return NULL;
        earliest = PyUnicode_Compare(quality, str_exact) == 0 ? steps->event_earliest : steps->poll_end;
        Py_DECREF(quality);
    }
    Exchange *self = (Exchange *)PyType_GenericAlloc(exchange_type, 0);
    if (self == NULL)
        return NULL;
    self->arrival_ns = PyLong_FromLongLong(arrival);
    self->arrival_earliest_ns = PyLong_FromLongLong(earliest);
    self->body_bytes = content_length(headers);
    self->raw = Py_NewRef(Py_None);
    self->track = Py_NewRef((PyObject *)steps);
    if (self->arrival_ns == NULL || self->arrival_earliest_ns == NULL || self->body_bytes == NULL)
        Py_CLEAR(self);
    return self;
}

static PyObject *core_exchange_of(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2 || !PyObject_TypeCheck(args[1], steps_type)) {
        PyErr_SetString(PyExc_TypeError, "exchange_of(headers, track)");
        return NULL;
    }
    return (PyObject *)exchange_of(args[0], (Steps *)args[1]);
}

static PyMemberDef exchange_members[] = {
    {"arrival_ns", T_OBJECT, offsetof(Exchange, arrival_ns), 0, NULL},
    {"arrival_earliest_ns", T_OBJECT, offsetof(Exchange, arrival_earliest_ns), 0, NULL},
    {"body_bytes", T_OBJECT, offsetof(Exchange, body_bytes), 0, NULL},
    {"raw", T_OBJECT, offsetof(Exchange, raw), 0, NULL},
    {"track", T_OBJECT, offsetof(Exchange, track), 0, NULL},
    {NULL}};
static PyType_Slot exchange_slots[] = {{Py_tp_new, exchange_new},         {Py_tp_traverse, exchange_traverse},
                                       {Py_tp_clear, exchange_clear},     {Py_tp_dealloc, exchange_dealloc},
                                       {Py_tp_members, exchange_members}, {0, NULL}};
static PyType_Spec exchange_spec = {"mcp_probe.native._core.Exchange", sizeof(Exchange), 0,
                                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, exchange_slots};

/* 1: the SDK's context is of the message that opened raw. -1: an exception. */
static int is_message_of(Request *raw, PyObject *ctx)
{
    PyObject *id = PyObject_GetAttr(ctx, str_request_id);
    int same = id == NULL ? -1 : PyObject_RichCompareBool(raw->request_id == NULL ? Py_None : raw->request_id, id, Py_EQ);
    Py_XDECREF(id);
    return same;
}

/* 1: an answer that says so, or is of no kind that is known here. -1: an exception. */
static int may_have_failed(Request *raw, PyObject *result)
{
    if (PyUnicode_Compare(raw->method, str_tools_call) != 0)
        return PyErr_Occurred() ? -1 : 0;
    PyObject *failed = PyDict_CheckExact(result) ? PyDict_GetItemWithError(result, str_is_error) : Py_True;
    return failed == NULL && PyErr_Occurred() ? -1 : failed == Py_True;
}

/* http(current_task, transports, find_transport, note_exception, sent): what adapters/mcp2.py knows. */
static PyObject *core_http(PyObject *module, PyObject *args)
{
    PyObject *task, *known, *transport, *exception, *sent;
    if (!PyArg_ParseTuple(args, "OO!OOU", &task, &PyDict_Type, &known, &transport, &exception, &sent))
        return NULL;
    keep(&str_sent, sent);
    keep(&current_task, task);
    keep(&transports, known);
    keep(&find_transport, transport);
    keep(&note_exception, exception);
    Py_RETURN_NONE;
}

static int make_http_names(void)
{
    static const name_t names[] = {{&str_type, "type"}, {&str_body, "body"}, {&str_body_event, "http.response.body"}, {&str_http, "http"},
                 {&str_quality, "quality"}, {&str_exact, "exact"}, {&str_active, "active"}, {&str_failed, "failed"},
                 {&str_throw, "throw"}, {&str_close, "close"}, {&str_await, "__await__"},
                 {&str_tools_list, "tools/list"}, {&str_tools_call, "tools/call"}, {&str_memory, "memory"},
                 {&str_meta, "meta"}, {&str_sizer, "sizer"},
                 {&str_closes_steps, "closes_steps"}, {&str_request_id, "request_id"},
                 {&str_protocol_version, "protocol_version"}, {&str_claim, "claim"}, {&str_hooked, "hooked"},
                 {&str_follow, "follow"}, {&str_enter, "enter"}, {&str_headers, "headers"},
                 {&str_through_spans, "through_spans"}, {&str_through_outer, "through_outer"},
                 {&str_traceparent, "traceparent"}, {&str_session, "session"},
                 {&str_request_outbound, "_request_outbound"}, {&str_inner, "_inner"}};
    return INTERN(names);
}
