/* ---- Claims: the server middleware, as far as it needs no Python (twin: mcp2.py ClaimingMiddleware.claim) ---- */

typedef struct {
    PyObject_HEAD
    PyObject *session, *loops, *spans, *outer;
    Desk *desk;
    ns_t deaf_until_ns;
    char active;
} Claims;

#define CLAIMS_OBJECTS(EACH) EACH(session) EACH(loops) EACH(spans) EACH(outer) EACH(desk)
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
        self->outer = Py_NewRef(Py_None);
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
    if (!runs_here(steps))
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
    return call_with_one(find_transport, ctx);
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
    PyObject *current = NULL;
    *made = NULL;
    if (find_transport == NULL || PyContextVar_Get(current_var, NULL, &current) < 0) /* NULL: http() has told nothing yet */
        return find_transport == NULL ? 0 : -1;
    Request *raw = as_request(current);
    int same = raw != NULL && !raw->ended && is_set(raw->channel) ? is_message_of(raw, ctx) : 0, claimed = 0;
    if (same == 1)
        claimed = claim_this(self, ctx, raw);
    else if (same == 0 && (*made = opened(self, ctx, call_next)) == NULL && PyErr_Occurred())
        claimed = -1;
    Py_XDECREF(current);
    return same < 0 ? -1 : claimed;
}

/* 1: the message names its caller's span. -1: an exception. */
static int names_caller(PyObject *ctx)
{
    PyObject *meta = PyObject_GetAttr(ctx, str_meta);
    int named = meta == NULL ? -1 : meta == Py_None ? 0 : PySequence_Contains(meta, str_traceparent);
    Py_XDECREF(meta);
    return named;
}

/* What to call in place of call_next, a new reference: Python knows what spans there are, and says how long it need not. */
static PyObject *through_spans(Claims *self, PyObject *ctx, PyObject *call_next)
{
    if (self->outer != Py_None) {
        int named = names_caller(ctx);
        if (named == 0)
            return Py_NewRef(call_next);
        return named < 0 ? NULL : call_method_with((PyObject *)self, str_through_outer, call_next);
    }
    if (self->spans == Py_None || now_ns() < self->deaf_until_ns)
        return Py_NewRef(call_next);
    return call_method_with((PyObject *)self, str_through_spans, call_next);
}

/* claims(ctx, call_next): an awaitable. */
static PyObject *claims_call(Claims *self, PyObject *args, PyObject *kwargs)
{
    PyObject *made = NULL;
    if (PyTuple_Size(args) == 2 && (kwargs == NULL || PyDict_Size(kwargs) == 0) && self->active) {
        PyObject *ctx = PyTuple_GetItem(args, 0), *next = through_spans(self, ctx, PyTuple_GetItem(args, 1));
        int claimed = next == NULL ? -1 : claim_or_open(self, ctx, next, &made);
        int failed = claimed < 0 && tell_fault((PyObject *)self, str_failed) < 0;
        if (claimed == 1)
            made = call_with_one(next, ctx);
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
                                       {"outer", T_OBJECT, offsetof(Claims, outer), 0, NULL},
                                       {"deaf_until_ns", T_LONGLONG, offsetof(Claims, deaf_until_ns), 0, NULL},
                                       {"active", T_BOOL, offsetof(Claims, active), 0, NULL},
                                       {NULL}};
static PyType_Slot claims_slots[] = {{Py_tp_new, claims_new},           {Py_tp_call, claims_call},
                                     {Py_tp_traverse, claims_traverse}, {Py_tp_clear, claims_clear},
                                     {Py_tp_dealloc, claims_dealloc},   {Py_tp_members, claims_members},
                                     {0, NULL}};
static PyType_Spec claims_spec = {"mcp_probe.native._core.Claims", sizeof(Claims), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, claims_slots};
