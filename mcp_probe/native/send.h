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
    return call_method_with(message, str_get, key);
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
    PyObject *awaitable = call_with_one(self->send, args[0]);
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
