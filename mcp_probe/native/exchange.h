/* ---- Exchange, Awaited, Claims, Entrance and Send: one HTTP exchange (twins: capture/current.py, adapters/asgi.py, mcp2.py) ---- */

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
    *str_protocol_version, *str_claim, *str_hooked, *str_follow, *str_enter, *str_headers, *str_through_spans,
    *str_session, *str_request_outbound, *str_inner;
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
        earliest = PyUnicode_Compare(quality, str_exact) == 0 ? steps->prev_poll_end : steps->poll_end;
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

/* ---- an awaitable that passes on whatever another one does, and knows when it is over ---- */

/* What `await awaitable` iterates: a coroutine is its own. A new reference. */
static PyObject *iterator_of(PyObject *awaitable)
{
    if (Py_TYPE(awaitable) == &PyCoro_Type)
        return Py_NewRef(awaitable);
    PyObject *found = PyObject_CallMethodObjArgs(awaitable, str_await, NULL);
    if (found == NULL && PyIter_Check(awaitable) && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        return Py_NewRef(awaitable); /* a generator made a coroutine by types.coroutine */
    }
    return found;
}

/* The value in a StopIteration that is set, which it clears; NULL where something else was raised. */
static PyObject *returned_value(void)
{
    if (!PyErr_ExceptionMatches(PyExc_StopIteration))
        return NULL;
    PyObject *type, *error, *traceback, *value = NULL;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (error != NULL)
        value = PyObject_GetAttrString(error, "value");
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
    return value;
}

static void stop_with(PyObject *value)
{
    PyObject *error = PyObject_CallFunctionObjArgs(PyExc_StopIteration, value, NULL);
    if (error != NULL)
        PyErr_SetObject(PyExc_StopIteration, error); /* an instance: a tuple would be taken for its arguments */
    Py_XDECREF(error);
}

/* A fault of ours is told to target.method(exception); -1 where it is none, and goes on. */
static int tell_fault(PyObject *target, PyObject *method)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    PyObject *error = caught();
    int failed = error == NULL || call_one(target, method, error) < 0;
    Py_XDECREF(error);
    if (failed && PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    PyErr_Clear();
    return 0;
}

enum { OPENS_REQUEST, FLUSHES_ANSWER, ENTERS_EXCHANGE };

typedef struct {
    PyObject_HEAD
    PyObject *iterator;
    PyObject *source;        /* the middleware or the gate: who is told of a fault of ours */
    PyObject *called, *args; /* what is called at the first step for what is then awaited, with a tuple */
    PyObject *session, *token;
    Desk *desk;
    Exchange *exchange;
    Request *raw;
    Steps *steps;
    Py_ssize_t size; /* of the body that is flushed */
    char kind, over;
} Awaited;

static PyTypeObject *awaited_type;

static ns_t task_number(void)
{
    PyObject *task = PyObject_CallNoArgs(current_task);
    ns_t number = (ns_t)(Py_ssize_t)task;
    Py_XDECREF(task);
    return task == NULL ? -1 : number;
}

static int split_here(Steps *steps, PyObject *owner, ns_t now)
{
    ns_t unit = task_number();
    if (unit < 0)
        return -1;
    steps->unit = unit;
    return steps_split(steps, owner, now);
}

/* The SDK lists tools itself to check headers before it dispatches: part of this request's queue. */
static int end_listing(Awaited *self, ns_t now)
{
    Request *previous = as_request(self->exchange->raw);
    if (previous == NULL || previous->ended || PyUnicode_Compare(previous->method, str_tools_list) != 0)
        return PyErr_Occurred() ? -1 : 0;
    keep(&previous->session, Py_None);
    return desk_end(self->desk, previous, now, NULL);
}

/* Twin of ClaimingMiddleware._enter. */
static int enter_request(Awaited *self)
{
    Exchange *exchange = self->exchange;
    PyObject *ctx = PyTuple_GetItem(self->args, 0), *id = PyObject_GetAttr(ctx, str_request_id),
             *method = PyObject_GetAttr(ctx, str_method), *version = PyObject_GetAttr(ctx, str_protocol_version),
             *name = NULL, *parent = NULL;
    int failed = id == NULL || method == NULL || version == NULL || (name = name_of(ctx, method)) == NULL;
    Request *raw = failed ? NULL
                          : desk_open(self->desk, id == Py_None ? kind_notification : kind_request, method, name, str_http);
    failed = raw == NULL || PyContextVar_Get(current_var, NULL, &parent) < 0;
    if (!failed) {
        Request *outer = as_request(parent);
        ns_t now = now_ns(), outstanding = PyDict_Size(self->desk->live);
        keep(&raw->session, self->session);
        if (outer != NULL && !outer->ended)
            keep(&raw->parent, parent);
        if (outstanding > self->desk->peak)
            self->desk->peak = outstanding;
        keep(&raw->request_id, id);
        keep(&raw->protocol_version, version);
        keep(&raw->arrival_ns, exchange->arrival_ns);
        keep(&raw->arrival_earliest_ns, exchange->arrival_earliest_ns);
        keep(&raw->request_bytes, exchange->body_bytes);
        raw->write_seen = 1;
        failed = end_listing(self, now) < 0 || replace_with_int(&raw->taken_ns, now) < 0;
        keep(&exchange->raw, (PyObject *)raw);
        failed = failed || split_here(self->steps, (PyObject *)raw, now_ns()) < 0;
        if (!failed)
            failed = (self->token = PyContextVar_Set(current_var, (PyObject *)raw)) == NULL;
        self->raw = (Request *)Py_NewRef((PyObject *)raw);
    }
    Py_XDECREF((PyObject *)raw);
    Py_XDECREF(id);
    Py_XDECREF(method);
    Py_XDECREF(version);
    Py_XDECREF(name);
    Py_XDECREF(parent);
    return failed ? -1 : 0;
}

/* Reads off the answer whether it failed; keeps nothing of it. */
static int note_end(Request *raw, PyObject *result, PyObject *error)
{
    PyObject *done;
    if (result == NULL)
        done = PyObject_CallFunctionObjArgs(note_exception, (PyObject *)raw, error == NULL ? Py_None : error, NULL);
    else {
        if (PyUnicode_Compare(raw->method, str_tools_call) != 0)
            return 0;
        PyObject *failed = PyDict_CheckExact(result) ? PyDict_GetItemWithError(result, str_is_error) : Py_True;
        if (failed != Py_True)
            return failed == NULL && PyErr_Occurred() ? -1 : 0;
        done = PyObject_CallFunctionObjArgs(note_result, (PyObject *)raw, result, NULL);
    }
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* Twin of ClaimingMiddleware._leave. */
static int leave_request(Awaited *self, PyObject *result, PyObject *error)
{
    Request *raw = self->raw;
    if (raw == NULL)
        return 0;
    if (self->token != NULL) {
        PyObject *outer = is_set(raw->parent) ? raw->parent : Py_None;
        if (split_here(self->steps, outer, now_ns()) < 0 || PyContextVar_Reset(current_var, self->token) < 0)
            return -1;
    }
    ns_t now = now_ns();
    if (note_end(raw, result, error) < 0 || desk_finished(self->desk, raw, now) < 0)
        return -1;
    if (raw->write_seen && PyUnicode_Compare(raw->outcome, cancelled_outcome) != 0)
        return 0;
    return desk_end(self->desk, raw, now, NULL);
}

/* Twin of Gate._flushed. */
static int note_flushed(Awaited *self)
{
    Request *raw = self->raw;
    if (raw->ended)
        return 0;
    ns_t now = now_ns(), size = is_set(raw->response_bytes) ? PyLong_AsLongLong(raw->response_bytes) : 0;
    if (replace_with_int(&raw->response_bytes, size + self->size) < 0 || replace_with_int(&raw->flushed_ns, now) < 0)
        return -1;
    return desk_end(self->desk, raw, now, NULL);
}

static PyObject *send_of(PyObject *gate, Desk *desk, Exchange *exchange, PyObject *send);

/* Twin of Gate.open and what ProbedApp does with it: args end with the scope, receive and send of an ASGI call. */
static int enter_exchange(Awaited *self)
{
    Py_ssize_t count = PyTuple_Size(self->args);
    PyObject *headers = PyDict_GetItemWithError(PyTuple_GetItem(self->args, count - 3), str_headers);
    if (headers == NULL && PyErr_Occurred())
        return -1;
    if ((self->exchange = exchange_of(headers == NULL ? empty_tuple : headers, self->steps)) == NULL)
        return -1;
    PyObject *args = PyTuple_New(count),
             *send = send_of(self->source, self->desk, self->exchange, PyTuple_GetItem(self->args, count - 1));
    for (Py_ssize_t i = 0; args != NULL && i < count - 1; i++)
        PyTuple_SetItem(args, i, Py_NewRef(PyTuple_GetItem(self->args, i)));
    if (args == NULL || send == NULL || (self->token = PyContextVar_Set(exchange_var, (PyObject *)self->exchange)) == NULL) {
        Py_XDECREF(args);
        Py_XDECREF(send);
        return -1;
    }
    PyTuple_SetItem(args, count - 1, send);
    keep(&self->args, args);
    Py_DECREF(args);
    return 0;
}

static int leave_exchange(Awaited *self)
{
    if (self->token == NULL)
        return 0;
    Request *raw = as_request(self->exchange->raw);
    int failed = PyContextVar_Reset(exchange_var, self->token) < 0;
    if (!failed && raw != NULL && !raw->ended)
        failed = call_one(self->source, str_close, (PyObject *)raw) < 0;
    return failed ? -1 : 0;
}

/* It is over: result, or the exception that is set, which stays so. -1: our own work was interrupted, by what is set. */
static int awaited_over(Awaited *self, PyObject *result)
{
    PyObject *type, *error, *traceback;
    int failed = 0;
    self->over = 1;
    PyErr_Fetch(&type, &error, &traceback);
    if (result == NULL)
        PyErr_NormalizeException(&type, &error, &traceback);
    if (self->kind == OPENS_REQUEST)
        failed = leave_request(self, result, error);
    else if (self->kind == ENTERS_EXCHANGE)
        failed = leave_exchange(self);
    else if (result != NULL)
        failed = note_flushed(self);
    if (failed < 0)
        failed = tell_fault(self->source, str_failed);
    if (failed < 0) {
        Py_XDECREF(type);
        Py_XDECREF(error);
        Py_XDECREF(traceback);
        return -1;
    }
    PyErr_Restore(type, error, traceback);
    return 0;
}

static int awaited_start(Awaited *self)
{
    int failed = self->kind == OPENS_REQUEST ? enter_request(self) : enter_exchange(self);
    if (failed < 0 && tell_fault(self->source, str_failed) < 0)
        return -1;
    PyObject *awaitable = PyObject_Call(self->called, self->args, NULL);
    if (awaitable != NULL)
        self->iterator = iterator_of(awaitable);
    Py_XDECREF(awaitable);
    return self->iterator == NULL ? -1 : 0;
}

static PySendResult awaited_send_to(PyObject *object, PyObject *value, PyObject **result)
{
    Awaited *self = (Awaited *)object;
    *result = NULL;
    if (self->over) {
        PyErr_SetString(PyExc_RuntimeError, "cannot reuse already awaited coroutine");
        return PYGEN_ERROR;
    }
    if (self->iterator == NULL && awaited_start(self) < 0) {
        awaited_over(self, NULL);
        return PYGEN_ERROR;
    }
    PyObject *iterator = Py_NewRef(self->iterator);
    PySendResult sent = PyIter_Send(iterator, value, result);
    Py_DECREF(iterator);
    if (sent == PYGEN_RETURN && awaited_over(self, *result) < 0) {
        Py_CLEAR(*result);
        return PYGEN_ERROR;
    }
    if (sent == PYGEN_ERROR)
        awaited_over(self, NULL);
    return sent;
}

static PyObject *awaited_send(PyObject *self, PyObject *value)
{
    PyObject *result;
    PySendResult sent = awaited_send_to(self, value, &result);
    if (sent == PYGEN_RETURN) {
        stop_with(result);
        Py_CLEAR(result);
    }
    return result;
}

static PyObject *awaited_next(PyObject *self)
{
    return awaited_send(self, Py_None);
}

static void raise_thrown(PyObject *args)
{
    PyObject *type = PyTuple_Size(args) > 0 ? PyTuple_GetItem(args, 0) : NULL;
    if (type == NULL)
        PyErr_SetString(PyExc_TypeError, "throw expected at least 1 argument, got 0");
    else if (PyExceptionInstance_Check(type))
        PyErr_SetObject((PyObject *)Py_TYPE(type), type);
    else
        PyErr_SetObject(type, PyTuple_Size(args) > 1 ? PyTuple_GetItem(args, 1) : Py_None);
}

static PyObject *awaited_throw(Awaited *self, PyObject *args)
{
    if (self->over || self->iterator == NULL) {
        self->over = 1;
        raise_thrown(args);
        return NULL;
    }
    PyObject *iterator = Py_NewRef(self->iterator), *throw = PyObject_GetAttr(iterator, str_throw), *result = NULL;
    if (throw != NULL)
        result = PyObject_Call(throw, args, NULL);
    else if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        raise_thrown(args);
    }
    Py_XDECREF(throw);
    Py_DECREF(iterator);
    if (result != NULL)
        return result;
    PyObject *value = returned_value();
    if (value == NULL) {
        awaited_over(self, NULL);
        return NULL;
    }
    if (awaited_over(self, value) == 0)
        stop_with(value);
    Py_DECREF(value);
    return NULL;
}

/* As if GeneratorExit had been raised where it waits. */
static void awaited_abandon(Awaited *self)
{
    if (self->over || self->iterator == NULL)
        return;
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_SetNone(PyExc_GeneratorExit);
    awaited_over(self, NULL);
    PyErr_Restore(type, error, traceback);
}

static PyObject *awaited_close(Awaited *self, PyObject *ignored)
{
    PyObject *done = Py_NewRef(Py_None);
    if (!self->over && self->iterator != NULL && PyObject_HasAttr(self->iterator, str_close)) {
        Py_DECREF(done);
        done = PyObject_CallMethodObjArgs(self->iterator, str_close, NULL);
        if (done == NULL)
            awaited_over(self, NULL);
    }
    awaited_abandon(self);
    self->over = 1;
    return done;
}

#define AWAITED_OBJECTS(EACH) \
    EACH(iterator) EACH(source) EACH(called) EACH(args) EACH(session) EACH(token) \
    EACH(desk) EACH(exchange) EACH(raw) EACH(steps)
TRAVERSE_AND_CLEAR(Awaited, awaited, AWAITED_OBJECTS)
DEALLOCATE(Awaited, awaited, awaited_abandon)

static PyMethodDef awaited_methods[] = {{"send", (PyCFunction)awaited_send, METH_O, NULL},
                                        {"throw", (PyCFunction)awaited_throw, METH_VARARGS, NULL},
                                        {"close", (PyCFunction)awaited_close, METH_NOARGS, NULL},
                                        {NULL}};
static PyType_Slot awaited_slots[] = {{Py_am_await, PyObject_SelfIter},   {Py_am_send, awaited_send_to},
                                      {Py_tp_iter, PyObject_SelfIter},    {Py_tp_iternext, awaited_next},
                                      {Py_tp_traverse, awaited_traverse}, {Py_tp_clear, awaited_clear},
                                      {Py_tp_dealloc, awaited_dealloc},   {Py_tp_finalize, awaited_abandon},
                                      {Py_tp_methods, awaited_methods},   {0, NULL}};
static PyType_Spec awaited_spec = {"mcp_probe.native._core.Awaited", sizeof(Awaited), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                   awaited_slots};

static Awaited *awaited_of(int kind, PyObject *source, Desk *desk, Exchange *exchange)
{
    Awaited *self = (Awaited *)PyType_GenericAlloc(awaited_type, 0);
    if (self != NULL) {
        self->kind = (char)kind;
        self->source = Py_NewRef(source);
        self->desk = (Desk *)Py_NewRef((PyObject *)desk);
        self->exchange = (Exchange *)Py_XNewRef((PyObject *)exchange);
    }
    return self;
}

/* ---- Claims: the server middleware, as far as it needs no Python (twin: mcp2.py ClaimingMiddleware.claim) ---- */

typedef struct {
    PyObject_HEAD
    PyObject *session, *loops, *spans;
    Desk *desk;
    ns_t deaf_until_ns;
    char active;
} Claims;

#define CLAIMS_OBJECTS(EACH) EACH(session) EACH(loops) EACH(spans) EACH(desk)
TRAVERSE_AND_CLEAR(Claims, claims, CLAIMS_OBJECTS)
DEALLOCATE(Claims, claims, NOTHING_TO_FREE)

static PyObject *claims_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *desk, *loops, *session;
    if (!PyArg_ParseTuple(args, "O!OO", desk_type, &desk, &loops, &session))
        return NULL;
    Claims *self = (Claims *)PyType_GenericAlloc(type, 0);
    if (self != NULL) {
        self->desk = (Desk *)Py_NewRef(desk);
        self->loops = Py_NewRef(loops);
        self->session = Py_NewRef(session);
        self->spans = Py_NewRef(Py_None);
        self->active = 1;
    }
    return (PyObject *)self;
}

/* The loop that the exchange is served on, where it is this thread's and closes the steps of whoever began in them. */
static Steps *steps_of(Exchange *exchange)
{
    if (exchange == NULL || Py_TYPE((PyObject *)exchange) != exchange_type || exchange->track == NULL ||
        !PyObject_TypeCheck(exchange->track, steps_type))
        return NULL;
    Steps *steps = (Steps *)exchange->track;
    if (!steps->alive || steps->thread_id != PyThread_get_thread_ident())
        return NULL;
    PyObject *closes = PyObject_GetAttr(exchange->track, str_closes_steps);
    Py_XDECREF(closes);
    return closes == Py_True ? steps : NULL;
}

/* 1: nothing about it needs Python: no argument is sized, no client says when it sent it. */
static int is_usual(Claims *self, PyObject *ctx)
{
    PyObject *sizer = PyObject_GetAttr((PyObject *)self->desk, str_sizer), *meta = NULL;
    int usual = sizer == NULL ? -1 : sizer == Py_None;
    if (usual == 1 && (meta = PyObject_GetAttr(ctx, str_meta)) == NULL)
        usual = -1;
    if (usual == 1 && meta != Py_None) {
        int timed = PySequence_Contains(meta, str_sent);
        usual = timed < 0 ? -1 : !timed;
    }
    Py_XDECREF(sizer);
    Py_XDECREF(meta);
    return usual;
}

/* 1: the message came as `raw`, which nobody has claimed, and now it is claimed; 0: Python must see to it. */
static int claim_this(Claims *self, PyObject *ctx, Request *raw)
{
    if (raw->session != self->session || is_set(raw->protocol_version))
        return 0;
    int usual = is_usual(self, ctx), hooked = usual == 1 ? truth_of(self->loops, str_hooked) : usual;
    PyObject *version = hooked == 1 ? PyObject_GetAttr(ctx, str_protocol_version) : NULL;
    if (version != NULL)
        keep(&raw->protocol_version, version);
    Py_XDECREF(version);
    return hooked == 1 && version == NULL ? -1 : hooked;
}

/* A new reference: the transport of a message that no transport hook has seen (twin: mcp2._transport_of). */
static PyObject *transport_of(PyObject *ctx)
{
    PyObject *session = PyObject_GetAttr(ctx, str_session), *known = Py_None;
    PyObject *outbound = session == NULL ? NULL : PyObject_GetAttr(session, str_request_outbound);
    while (outbound != NULL && known == Py_None &&
           (known = PyDict_GetItemWithError(transports, (PyObject *)Py_TYPE(outbound))) == Py_None) {
        PyObject *inner = PyObject_GetAttr(outbound, str_inner);
        Py_DECREF(outbound);
        outbound = inner;
    }
    Py_XDECREF(session);
    Py_XDECREF(outbound);
    if (outbound != NULL && known != NULL)
        return Py_NewRef(known);
    PyErr_Clear();
    return PyObject_CallFunctionObjArgs(find_transport, ctx, NULL);
}

/* What opens the request of the exchange when it is awaited; NULL without an exception where Python must do it. */
static PyObject *opened(Claims *self, PyObject *ctx, PyObject *call_next)
{
    PyObject *exchange = NULL, *transport = NULL;
    Awaited *made = NULL;
    if (PyContextVar_Get(exchange_var, NULL, &exchange) < 0)
        return NULL;
    Steps *steps = steps_of((Exchange *)exchange);
    if (steps != NULL && is_usual(self, ctx) == 1 &&
        (transport = transport_of(ctx)) != NULL && PyUnicode_Check(transport) &&
        PyUnicode_Compare(transport, str_memory) != 0 &&
        (made = awaited_of(OPENS_REQUEST, (PyObject *)self, self->desk, (Exchange *)exchange)) != NULL) {
        made->session = Py_NewRef(self->session);
        made->called = Py_NewRef(call_next);
        made->steps = (Steps *)Py_NewRef((PyObject *)steps);
        if ((made->args = PyTuple_New(1)) == NULL)
            Py_CLEAR(made);
        else
            PyTuple_SetItem(made->args, 0, Py_NewRef(ctx));
    }
    Py_XDECREF(transport);
    Py_XDECREF(exchange);
    return (PyObject *)made;
}

/* 1: claimed, and only passed on. Otherwise *made is what stands for it, or NULL where Python must see to it. */
static int claim_or_open(Claims *self, PyObject *ctx, PyObject *call_next, PyObject **made)
{
    PyObject *current = NULL, *id = NULL;
    *made = NULL;
    if (find_transport == NULL || PyContextVar_Get(current_var, NULL, &current) < 0) /* NULL: http() has told nothing yet */
        return find_transport == NULL ? 0 : -1;
    Request *raw = as_request(current);
    int same = 0, claimed = 0;
    if (raw != NULL && !raw->ended && is_set(raw->channel)) {
        id = PyObject_GetAttr(ctx, str_request_id);
        same = id == NULL ? -1 : PyObject_RichCompareBool(raw->request_id == NULL ? Py_None : raw->request_id, id, Py_EQ);
    }
    if (same == 1)
        claimed = claim_this(self, ctx, raw);
    else if (same == 0 && (*made = opened(self, ctx, call_next)) == NULL && PyErr_Occurred())
        claimed = -1;
    Py_XDECREF(id);
    Py_XDECREF(current);
    return same < 0 ? -1 : claimed;
}

/* What to call in place of call_next, a new reference: Python knows what spans there are, and says how long it need not. */
static PyObject *through_spans(Claims *self, PyObject *call_next)
{
    if (self->spans == Py_None || now_ns() < self->deaf_until_ns)
        return Py_NewRef(call_next);
    return PyObject_CallMethodObjArgs((PyObject *)self, str_through_spans, call_next, NULL);
}

/* claims(ctx, call_next): an awaitable. */
static PyObject *claims_call(Claims *self, PyObject *args, PyObject *kwargs)
{
    PyObject *made = NULL;
    if (PyTuple_Size(args) == 2 && (kwargs == NULL || PyDict_Size(kwargs) == 0) && self->active) {
        PyObject *ctx = PyTuple_GetItem(args, 0), *next = through_spans(self, PyTuple_GetItem(args, 1));
        int claimed = next == NULL ? -1 : claim_or_open(self, ctx, next, &made);
        int failed = claimed < 0 && tell_fault((PyObject *)self, str_failed) < 0;
        if (claimed == 1)
            made = PyObject_CallFunctionObjArgs(next, ctx, NULL);
        Py_XDECREF(next);
        if (made != NULL || failed || claimed == 1)
            return made;
    }
    PyObject *claim = PyObject_GetAttr((PyObject *)self, str_claim);
    made = claim == NULL ? NULL : PyObject_Call(claim, args, kwargs);
    Py_XDECREF(claim);
    return made;
}

static PyMemberDef claims_members[] = {{"spans", T_OBJECT, offsetof(Claims, spans), 0, NULL},
                                       {"deaf_until_ns", T_LONGLONG, offsetof(Claims, deaf_until_ns), 0, NULL},
                                       {"active", T_BOOL, offsetof(Claims, active), 0, NULL},
                                       {NULL}};
static PyType_Slot claims_slots[] = {{Py_tp_new, claims_new},           {Py_tp_call, claims_call},
                                     {Py_tp_traverse, claims_traverse}, {Py_tp_clear, claims_clear},
                                     {Py_tp_dealloc, claims_dealloc},   {Py_tp_members, claims_members},
                                     {0, NULL}};
static PyType_Spec claims_spec = {"mcp_probe.native._core.Claims", sizeof(Claims), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, claims_slots};

/* ---- Entrance: an ASGI app, or a method that is one, whose exchanges are followed (twin: adapters/asgi.py ProbedApp) ---- */

typedef struct {
    PyObject_HEAD
    vectorcall_t vectorcall;
    PyObject *app, *gate;
    Desk *desk;
    Steps *steps; /* the loop followed last */
} Entrance;

#define ENTRANCE_OBJECTS(EACH) EACH(app) EACH(gate) EACH(desk) EACH(steps)
TRAVERSE_AND_CLEAR(Entrance, entrance, ENTRANCE_OBJECTS)
DEALLOCATE(Entrance, entrance, NOTHING_TO_FREE)

/* The loop that runs here, followed: a new reference; NULL without an exception where there is none that is known. */
static Steps *steps_here(Entrance *self)
{
    Steps *known = self->steps;
    if (known != NULL && known->alive && known->turn != NULL && known->thread_id == PyThread_get_thread_ident())
        return (Steps *)Py_NewRef((PyObject *)known);
    PyObject *track = PyObject_CallMethodObjArgs(self->gate, str_follow, NULL);
    if (track != NULL && !PyObject_TypeCheck(track, steps_type))
        Py_CLEAR(track);
    if (track != NULL)
        keep((PyObject **)&self->steps, track);
    return (Steps *)track;
}

/* 1: an HTTP request that nobody further out has opened. */
static int is_first_sight(Entrance *self, PyObject *scope)
{
    if (!PyDict_Check(scope))
        return 0;
    PyObject *type = PyDict_GetItemWithError(scope, str_type), *outer = NULL;
    int active = truth_of(self->gate, str_active);
    if (active < 1 || type == NULL || !PyUnicode_Check(type) || PyUnicode_Compare(type, str_http) != 0)
        return active < 0 || PyErr_Occurred() ? -1 : 0;
    if (PyContextVar_Get(exchange_var, NULL, &outer) < 0)
        return -1;
    int opened = outer != Py_None && Py_TYPE(outer) == exchange_type && !is_set(((Exchange *)outer)->raw);
    Py_DECREF(outer);
    return !opened;
}

/* What enters the exchange when it is awaited; NULL with an exception. */
static PyObject *entered(Entrance *self, PyObject *const *args, Py_ssize_t nargs)
{
    Steps *steps = steps_here(self);
    if (steps == NULL) {
        if (PyErr_Occurred())
            return NULL;
        PyObject *enter = PyObject_GetAttr(self->gate, str_enter), *found = NULL, *rest = arguments_from(args, 0, nargs);
        PyObject *first = Py_BuildValue("(O)", self->app), *all = NULL;
        if (enter != NULL && rest != NULL && first != NULL && (all = PySequence_Concat(first, rest)) != NULL)
            found = PyObject_Call(enter, all, NULL);
        Py_XDECREF(enter);
        Py_XDECREF(rest);
        Py_XDECREF(first);
        Py_XDECREF(all);
        return found;
    }
    Awaited *made = awaited_of(ENTERS_EXCHANGE, self->gate, self->desk, NULL);
    if (made != NULL) {
        made->called = Py_NewRef(self->app);
        made->steps = (Steps *)Py_NewRef((PyObject *)steps);
        if ((made->args = arguments_from(args, 0, nargs)) == NULL)
            Py_CLEAR(made);
    }
    Py_DECREF((PyObject *)steps);
    return (PyObject *)made;
}

static PyObject *entrance_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Entrance *self = (Entrance *)callable;
    Py_ssize_t nargs = NARGS(nargsf);
    if (nargs >= 3 && (kwnames == NULL || PyTuple_Size(kwnames) == 0)) {
        int ours = is_first_sight(self, args[nargs - 3]);
        PyObject *made = ours == 1 ? entered(self, args, nargs) : NULL;
        if (made != NULL)
            return made;
        if (ours && tell_fault(self->gate, str_failed) < 0)
            return NULL;
    }
    return pass_on(self->app, args, nargs, kwnames);
}

static PyObject *entrance_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *app, *gate, *desk;
    if (!PyArg_ParseTuple(args, "OOO!", &app, &gate, desk_type, &desk))
        return NULL;
    Entrance *self = (Entrance *)PyType_GenericAlloc(type, 0);
    if (self != NULL) {
        self->vectorcall = entrance_call;
        self->app = Py_NewRef(app);
        self->gate = Py_NewRef(gate);
        self->desk = (Desk *)Py_NewRef(desk);
    }
    return (PyObject *)self;
}

static PyObject *entrance_getattr(PyObject *self, PyObject *name)
{
    return attribute_of(self, ((Entrance *)self)->app, name);
}

static PyMemberDef entrance_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Entrance, vectorcall), READONLY, NULL},
    {"app", T_OBJECT, offsetof(Entrance, app), 0, NULL},
    {"__wrapped__", T_OBJECT, offsetof(Entrance, app), READONLY, NULL},
    {NULL}};
static PyType_Slot entrance_slots[] = {{Py_tp_new, entrance_new},           {Py_tp_call, PyVectorcall_Call},
                                       {Py_tp_descr_get, schedule_get},     {Py_tp_getattro, entrance_getattr},
                                       {Py_tp_traverse, entrance_traverse}, {Py_tp_clear, entrance_clear},
                                       {Py_tp_dealloc, entrance_dealloc},   {Py_tp_members, entrance_members},
                                       {0, NULL}};
static PyType_Spec entrance_spec = {"mcp_probe.native._core.Entrance", sizeof(Entrance), 0,
                                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | HAVE_VECTORCALL, entrance_slots};

/* ---- Send: an ASGI send that notes when the answer is taken and flushed (twin: adapters/asgi.py Gate.sender) ---- */

typedef struct {
    PyObject_HEAD
    vectorcall_t vectorcall;
    PyObject *gate, *send;
    Desk *desk;
    Exchange *exchange;
} Send;

#define SEND_OBJECTS(EACH) EACH(gate) EACH(send) EACH(desk) EACH(exchange)
TRAVERSE_AND_CLEAR(Send, send, SEND_OBJECTS)
DEALLOCATE(Send, send, NOTHING_TO_FREE)

static PyObject *item_of(PyObject *message, PyObject *key)
{
    if (PyDict_Check(message)) {
        PyObject *found = PyDict_GetItemWithError(message, key);
        return found == NULL && PyErr_Occurred() ? NULL : Py_NewRef(found == NULL ? Py_None : found);
    }
    return PyObject_CallMethodObjArgs(message, str_get, key, NULL);
}

/* Bytes of the answer that the message holds; -1 with an exception. */
static Py_ssize_t body_size(PyObject *message)
{
    PyObject *type = item_of(message, str_type), *body = NULL;
    Py_ssize_t size = type == NULL ? -1 : 0;
    if (type != NULL && PyUnicode_Check(type) && PyUnicode_Compare(type, str_body_event) == 0) {
        body = item_of(message, str_body);
        size = body == NULL ? -1 : body == Py_None ? 0 : PyObject_Size(body);
    }
    Py_XDECREF(type);
    Py_XDECREF(body);
    return size;
}

/* Stamps that the answer is taken. Returns the size of its body in this message, or 0 where nothing is to be noted. */
static Py_ssize_t note_taken(Send *self, Request *raw, PyObject *message)
{
    PyObject *active = PyObject_GetAttr(self->gate, str_active);
    Py_XDECREF(active);
    if (active != Py_True)
        return active == NULL ? -1 : 0;
    if (!is_set(raw->write_taken_ns) && replace_with_int(&raw->write_taken_ns, now_ns()) < 0)
        return -1;
    return raw->ended ? 0 : body_size(message);
}

static PyObject *send_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Send *self = (Send *)callable;
    Request *raw = as_request(self->exchange->raw);
    Py_ssize_t size = 0;
    if (NARGS(nargsf) != 1 || (kwnames != NULL && PyTuple_Size(kwnames)))
        return pass_on(self->send, args, NARGS(nargsf), kwnames);
    if (raw != NULL && is_set(raw->result_ns)) {
        Py_INCREF((PyObject *)raw);
        size = note_taken(self, raw, args[0]);
        if (size < 0 && tell_fault(self->gate, str_failed) < 0) {
            Py_DECREF((PyObject *)raw);
            return NULL;
        }
        if (size <= 0) {
            Py_DECREF((PyObject *)raw);
            raw = NULL;
        }
    }
    else
        raw = NULL;
    PyObject *awaitable = PyObject_CallFunctionObjArgs(self->send, args[0], NULL);
    if (raw == NULL || awaitable == NULL) {
        Py_XDECREF((PyObject *)raw);
        return awaitable;
    }
    Awaited *made = awaited_of(FLUSHES_ANSWER, self->gate, self->desk, self->exchange);
    if (made != NULL) {
        made->raw = (Request *)Py_NewRef((PyObject *)raw);
        made->size = size;
        if ((made->iterator = iterator_of(awaitable)) == NULL)
            Py_CLEAR(made);
    }
    Py_DECREF((PyObject *)raw);
    Py_DECREF(awaitable);
    return (PyObject *)made;
}

static PyObject *send_of(PyObject *gate, Desk *desk, Exchange *exchange, PyObject *send)
{
    Send *self = (Send *)PyType_GenericAlloc(send_type, 0);
    if (self != NULL) {
        self->vectorcall = send_call;
        self->gate = Py_NewRef(gate);
        self->desk = (Desk *)Py_NewRef((PyObject *)desk);
        self->exchange = (Exchange *)Py_NewRef((PyObject *)exchange);
        self->send = Py_NewRef(send);
    }
    return (PyObject *)self;
}

static PyObject *send_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *gate, *desk, *exchange, *send;
    if (!PyArg_ParseTuple(args, "OO!O!O", &gate, desk_type, &desk, exchange_type, &exchange, &send))
        return NULL;
    return send_of(gate, (Desk *)desk, (Exchange *)exchange, send);
}

static PyMemberDef send_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Send, vectorcall), READONLY, NULL},
    {"__wrapped__", T_OBJECT, offsetof(Send, send), READONLY, NULL},
    {NULL}};
static PyType_Slot send_slots[] = {{Py_tp_new, send_new},           {Py_tp_call, PyVectorcall_Call},
                                   {Py_tp_traverse, send_traverse}, {Py_tp_clear, send_clear},
                                   {Py_tp_dealloc, send_dealloc},   {Py_tp_members, send_members},
                                   {0, NULL}};
static PyType_Spec send_spec = {"mcp_probe.native._core.Send", sizeof(Send), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | HAVE_VECTORCALL, send_slots};

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
                 {&str_through_spans, "through_spans"}, {&str_session, "session"},
                 {&str_request_outbound, "_request_outbound"}, {&str_inner, "_inner"}};
    return INTERN(names);
}
