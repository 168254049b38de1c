/* ---- Awaited: passes on whatever another awaitable does, and knows when it is over ----
 *
 * It opens a request and ends it (made by Claims), notes that an answer is flushed (Send), enters an exchange and leaves
 * it (Entrance), or sees to a request's span (around).
 */

/* What `await awaitable` iterates: a coroutine is its own. A new reference. */
static PyObject *iterator_of(PyObject *awaitable)
{
    if (Py_TYPE(awaitable) == &PyCoro_Type)
        return Py_NewRef(awaitable);
    PyObject *found = call_method(awaitable, str_await);
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
    if (PyDict_CheckExact(value)) { /* an answer: no exception, and no tuple */
        PyErr_SetObject(PyExc_StopIteration, value);
        return;
    }
    PyObject *error = call_with_one(PyExc_StopIteration, value);
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

enum { OPENS_REQUEST, FLUSHES_ANSWER, ENTERS_EXCHANGE, SEES_TO_SPAN };

typedef struct {
    PyObject_HEAD
    PyObject *iterator;
    PyObject *source;        /* a middleware or the gate: who is told of a fault of ours */
    PyObject *called, *args; /* what is called at the first step for what is then awaited, with a tuple */
    PyObject *session, *token; /* token: what undoes what the first step did */
    Desk *desk;
    Exchange *exchange;
    Request *raw;
    Steps *steps;
    Py_ssize_t size; /* of the body that is flushed */
    char kind, over, joined; /* joined: token is a span of the SDK's */
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
        done = call_with_two(note_exception, (PyObject *)raw, error == NULL ? Py_None : error);
    else {
        int doubtful = may_have_failed(raw, result);
        if (doubtful <= 0)
            return doubtful;
        done = call_with_two(note_result, (PyObject *)raw, result);
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

/* Twin of the first half of PythonSpans.around. */
static int begin_span(Awaited *self)
{
    KnownSpan *known = known_to((Spans *)self->source);
    PyObject *ctx = PyTuple_GetItem(self->args, 0);
    if (known != NULL) {
        self->token = join_span(known, self->raw, ctx);
        self->joined = self->token != NULL;
        if (self->joined || PyErr_Occurred())
            return self->joined ? 0 : -1;
    }
    PyObject *args[] = {self->source, (PyObject *)self->raw, ctx};
    self->token = PyObject_VectorcallMethod(str_begin, args, 3, NULL);
    return self->token == NULL ? -1 : 0;
}

/* Twin of its second half. */
static int end_span(Awaited *self, PyObject *result, PyObject *error)
{
    if (!is_set(self->token))
        return 0;
    PyObject *ctx = PyTuple_GetItem(self->args, 0), *came = result == NULL ? Py_None : result,
             *raised = error == NULL ? Py_None : error, *done;
    if (self->joined) {
        int finished = finish_span((Spans *)self->source, self->raw, ctx, self->token, result);
        if (finished)
            return finished < 0 ? -1 : 0;
        PyObject *args[] = {self->source, (PyObject *)self->raw, ctx, self->token, came, raised};
        done = PyObject_VectorcallMethod(str_end_joined, args, 6, NULL);
    }
    else {
        PyObject *args[] = {self->source, self->token, came, raised};
        done = PyObject_VectorcallMethod(str_end, args, 4, NULL);
    }
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
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
    else if (self->kind == SEES_TO_SPAN)
        failed = end_span(self, result, error);
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
    int failed = self->kind == OPENS_REQUEST  ? enter_request(self)
                 : self->kind == SEES_TO_SPAN ? begin_span(self)
                                              : enter_exchange(self);
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

/* `silent`: None may end it without an exception, as of an iterator's next(). */
static PyObject *awaited_step(PyObject *self, PyObject *value, int silent)
{
    PyObject *result;
    if (awaited_send_to(self, value, &result) == PYGEN_RETURN) {
        if (!silent || result != Py_None)
            stop_with(result);
        Py_CLEAR(result);
    }
    return result;
}

static PyObject *awaited_send(PyObject *self, PyObject *value)
{
    return awaited_step(self, value, 0);
}

static PyObject *awaited_next(PyObject *self)
{
    return awaited_step(self, Py_None, 1);
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
        done = call_method(self->iterator, str_close);
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
        self->desk = (Desk *)Py_XNewRef((PyObject *)desk);
        self->exchange = (Exchange *)Py_XNewRef((PyObject *)exchange);
    }
    return self;
}

static PyObject *around(Spans *spans, Request *raw, PyObject *ctx, PyObject *call_next)
{
    Awaited *self = awaited_of(SEES_TO_SPAN, (PyObject *)spans, NULL, NULL);
    if (self != NULL) {
        self->raw = (Request *)Py_NewRef((PyObject *)raw);
        self->called = Py_NewRef(call_next);
        if ((self->args = PyTuple_New(1)) == NULL)
            Py_CLEAR(self);
        else
            PyTuple_SetItem(self->args, 0, Py_NewRef(ctx));
    }
    return (PyObject *)self;
}
