/* ---- Spans: what is done around a handler for its span, as far as it needs no Python ----
 *
 * KnownSpan: what is known of spans that the SDK opens (Python: export/inside.py). Spans: the middleware inside of whoever
 * opens them (twin: adapters/tracing.py PythonSpans).
 */

/* Indices into names[]: attributes besides those of attributes.h. */
enum { N_SESSION, N_ADDRESS, N_PORT, N_COUNT };
#define MOST_ATTRIBUTES (ATTRIBUTES + N_COUNT + 4) /* that are put on a span at once */
#define MAX_SESSION 128                            /* capture/tracing.py MAX_TEXT */

typedef struct {
    PyObject_HEAD
    PyObject *type, *scope, *kind; /* of the span */
    PyObject *variable, *key;      /* where the current one is */
    PyObject *home, *place, *textmap, *telling; /* home[place] is still textmap: meta with none of `telling` says no more */
    PyObject *plain, *networks, *names;
} KnownSpan;

#define KNOWN_SPAN_OBJECTS(EACH) \
    EACH(type) EACH(scope) EACH(kind) EACH(variable) EACH(key) EACH(home) EACH(place) EACH(textmap) EACH(telling) \
    EACH(plain) EACH(networks) EACH(names)
TRAVERSE_AND_CLEAR(KnownSpan, known_span, KNOWN_SPAN_OBJECTS)
DEALLOCATE(KnownSpan, known_span, NOTHING_TO_FREE)

static PyObject *str_end_time, *str_span_kind, *str_span_scope, *str_span_context, *str_attributes, *str_dict, *str_maxlen,
    *str_max_value_len, *str_connection, *str_session_id, *str_request, *str_scope, *str_client, *str_tracks,
    *str_memory_of_hub, *str_native_since_ns, *str_resources, *str_app, *str_asked, *str_end_joined, *str_begin,
    *str_end;
static PyTypeObject *known_span_type, *spans_type;

static PyObject *known_span_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *of, *scope, *kind, *variable, *key, *home, *place, *textmap, *telling, *plain, *networks, *names;
    if (!PyArg_ParseTuple(args, "OOOOOO!UOO!O!O!O!", &of, &scope, &kind, &variable, &key, &PyDict_Type, &home, &place,
                          &textmap, &PyTuple_Type, &telling, &PyTuple_Type, &plain, &PyDict_Type, &networks, &PyTuple_Type,
                          &names))
        return NULL;
    if (!are_names(plain) || PyTuple_Size(names) != N_COUNT) {
        PyErr_SetString(PyExc_TypeError, "KnownSpan() takes the names of as many attributes as it puts on a span");
        return NULL;
    }
    KnownSpan *self = (KnownSpan *)PyType_GenericAlloc(type, 0);
    if (self != NULL) {
        PyObject **slots[] = {&self->type, &self->scope, &self->kind, &self->variable, &self->key, &self->home, &self->place,
                              &self->textmap, &self->telling, &self->plain, &self->networks, &self->names};
        PyObject *given[] = {of, scope, kind, variable, key, home, place, textmap, telling, plain, networks, names};
        for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); i++)
            *slots[i] = Py_NewRef(given[i]);
    }
    return (PyObject *)self;
}

typedef struct {
    PyObject_HEAD
    PyObject *hub, *known; /* known: None until Python has seen one */
    Steps *steps;          /* the loop that ran here last */
    ns_t hears_until_ns;
} Spans;

#define SPANS_OBJECTS(EACH) EACH(hub) EACH(known) EACH(steps)
TRAVERSE_AND_CLEAR(Spans, spans, SPANS_OBJECTS)
DEALLOCATE(Spans, spans, NOTHING_TO_FREE)

static PyObject *spans_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *hub = PyTuple_Size(args) > 0 ? PyTuple_GetItem(args, 0) : NULL;
    Spans *self = hub == NULL ? NULL : (Spans *)PyType_GenericAlloc(type, 0);
    if (self != NULL) {
        self->hub = Py_NewRef(hub);
        self->known = Py_NewRef(Py_None);
    }
    else if (hub == NULL)
        PyErr_SetString(PyExc_TypeError, "Spans() takes a hub");
    return (PyObject *)self;
}

static KnownSpan *known_to(Spans *self)
{
    return Py_TYPE(self->known) == known_span_type ? (KnownSpan *)self->known : NULL;
}

/* A new reference; NULL with an exception, but none where there is no such attribute: Python must see to it. */
static PyObject *attribute_if_any(PyObject *owner, PyObject *name)
{
    if (owner == NULL)
        return NULL;
    PyObject *found = PyObject_GetAttr(owner, name);
    if (found == NULL && PyErr_ExceptionMatches(PyExc_AttributeError))
        PyErr_Clear();
    return found;
}

static int has_attribute(PyObject *owner, PyObject *name, PyObject *expected)
{
    PyObject *found = attribute_if_any(owner, name);
    Py_XDECREF(found);
    return found == expected;
}

/* 1: a caller or a propagator may have put something into the message's meta, or that cannot be told here. */
static int tells_more(KnownSpan *known, PyObject *ctx)
{
    PyObject *meta = attribute_if_any(ctx, str_meta);
    int told = meta == NULL || (meta != Py_None && !PyDict_CheckExact(meta)) ||
               PyDict_GetItemWithError(known->home, known->place) != known->textmap;
    for (Py_ssize_t i = 0; !told && meta != Py_None && i < PyTuple_Size(known->telling); i++)
        told = PyDict_Contains(meta, PyTuple_GetItem(known->telling, i)) != 0;
    Py_XDECREF(meta);
    return told;
}

/* 1: raw has the session that its connection is of, if any. */
static int note_session(Request *raw, PyObject *ctx)
{
    if (PyUnicode_Compare(raw->transport, str_http) != 0)
        return !PyErr_Occurred();
    PyObject *session = attribute_if_any(ctx, str_session), *connection = attribute_if_any(session, str_connection),
             *id = attribute_if_any(connection, str_session_id);
    int text = id != NULL && PyUnicode_Check(id) && PyUnicode_GetLength(id) > 0;
    PyObject *kept = text ? capped(id, MAX_SESSION) : NULL;
    if (kept != NULL)
        keep(&raw->session_id, kept);
    Py_XDECREF(kept);
    Py_XDECREF(id);
    Py_XDECREF(connection);
    Py_XDECREF(session);
    return !text || kept != NULL;
}

/* The SERVER span that is open around raw, a new reference, its ids noted (Python: ServerSpans.begin). NULL where Python
 * must see to it, perhaps with an exception. */
static PyObject *join_span(KnownSpan *known, Request *raw, PyObject *ctx)
{
    PyObject *context = NULL, *span = NULL, *ids = NULL;
    if (is_set(raw->span_id) || PyContextVar_Get(known->variable, NULL, &context) < 0)
        return NULL;
    if (context != NULL && PyDict_Check(context))
        span = Py_XNewRef(PyDict_GetItemWithError(context, known->key));
    int ours = span != NULL && (PyObject *)Py_TYPE(span) == known->type && has_attribute(span, str_end_time, Py_None) &&
               has_attribute(span, str_span_scope, known->scope) && has_attribute(span, str_span_kind, known->kind) &&
               !tells_more(known, ctx) && (ids = attribute_if_any(span, str_span_context)) != NULL &&
               PyTuple_Check(ids) && PyTuple_Size(ids) == 6 && PyTuple_GetItem(ids, 5) == Py_True &&
               note_session(raw, ctx);
    if (ours) {
        keep(&raw->trace_id, PyTuple_GetItem(ids, 0));
        keep(&raw->span_id, PyTuple_GetItem(ids, 1));
        keep(&raw->trace_flags, PyTuple_GetItem(ids, 3));
        keep(&raw->server_span, str_app);
    }
    else
        Py_CLEAR(span);
    Py_XDECREF(ids);
    Py_XDECREF(context);
    return span;
}

/* The loop that runs here, if it is on a step of raw: a new reference; NULL perhaps with an exception. */
static Steps *steps_on(Spans *self, Request *raw)
{
    Steps *steps = self->steps;
    if (steps == NULL || !runs_here(steps)) {
        PyObject *tracks = attribute_if_any(self->hub, str_tracks), *thread = PyLong_FromUnsignedLong(PyThread_get_thread_ident());
        PyObject *found = tracks != NULL && thread != NULL && PyDict_Check(tracks) ? PyDict_GetItemWithError(tracks, thread) : NULL;
        steps = found != NULL && PyObject_TypeCheck(found, steps_type) ? (Steps *)found : NULL;
        if (steps != NULL)
            keep((PyObject **)&self->steps, found);
        Py_XDECREF(tracks);
        Py_XDECREF(thread);
    }
    return steps != NULL && steps->owner == (PyObject *)raw && steps->since ? (Steps *)Py_NewRef((PyObject *)steps) : NULL;
}

/* 1: it succeeded, as far as that can be told here. */
static int has_succeeded(Request *raw, PyObject *result)
{
    return result != NULL && PyDict_CheckExact(result) && may_have_failed(raw, result) == 0;
}

/* The dictionary of the span's attributes, where there is room for all of ours: a new reference; NULL as attribute_if_any.
 * Older SDKs keep them in an OrderedDict. */
static PyObject *room_on(PyObject *span)
{
    PyObject *kept = attribute_if_any(span, str_attributes), *dict = NULL, *most = NULL;
    if (kept != NULL && has_attribute(kept, str_max_value_len, Py_None) &&
        (most = attribute_if_any(kept, str_maxlen)) != NULL)
        dict = attribute_if_any(kept, str_dict);
    if (dict != NULL && (!PyDict_CheckExact(dict) ||
                         (most != Py_None && PyLong_AsSsize_t(most) < PyDict_Size(dict) + MOST_ATTRIBUTES)))
        Py_CLEAR(dict);
    Py_XDECREF(kept);
    Py_XDECREF(most);
    return dict;
}

/* Address and port of an HTTP request's peer (Python: client_of in adapters/tracing.py). */
static int put_client(PyObject *found, PyObject *names, PyObject *ctx)
{
    PyObject *request = attribute_if_any(ctx, str_request), *scope = request == Py_None ? NULL : attribute_if_any(request, str_scope);
    PyObject *client = scope != NULL && PyDict_Check(scope) ? PyDict_GetItemWithError(scope, str_client) : NULL;
    int failed = 0;
    if (client != NULL && PySequence_Check(client) && !PyUnicode_Check(client) && PySequence_Size(client) == 2) {
        PyObject *host = PySequence_GetItem(client, 0), *port = PySequence_GetItem(client, 1);
        if (host != NULL && port != NULL && PyUnicode_Check(host) && PyLong_Check(port))
            failed = put_attribute(found, names, N_ADDRESS, Py_NewRef(host)) || put_attribute(found, names, N_PORT, Py_NewRef(port));
        Py_XDECREF(host);
        Py_XDECREF(port);
    }
    Py_XDECREF(scope);
    Py_XDECREF(request);
    return failed || PyErr_Occurred() ? -1 : 0;
}

static int put_peer(KnownSpan *known, PyObject *found, Request *raw, PyObject *ctx)
{
    PyObject *network = PyDict_GetItemWithError(known->networks, raw->transport);
    if (network != NULL && PyDict_Update(found, network) < 0)
        return -1;
    if (is_set(raw->session_id) && put_attribute(found, known->names, N_SESSION, Py_NewRef(raw->session_id)))
        return -1;
    return PyUnicode_Compare(raw->transport, str_http) == 0 ? put_client(found, known->names, ctx) : 0;
}

/* Since when memory is measured; -1 where it is not, or with an exception. */
static ns_t measured_since(Spans *self)
{
    PyObject *memory_of_hub = attribute_if_any(self->hub, str_memory_of_hub),
             *since = attribute_if_any(memory_of_hub, str_native_since_ns);
    ns_t found = is_set(since) ? PyLong_AsLongLong(since) : -1;
    Py_XDECREF(memory_of_hub);
    Py_XDECREF(since);
    return found;
}

static int is_about_resources(PyObject *method)
{
    return PyUnicode_Tailmatch(method, str_resources, 0, PY_SSIZE_T_MAX, -1) != 0;
}

/* 1: what is known now is on the span (Python: ServerSpans.end), or it has ended. 0: Python must see to it; -1: an exception.
 *
 * Without the span's locks: with strings for keys nothing lets go of the GIL before all of it is there. */
static int finish_span(Spans *self, Request *raw, PyObject *ctx, PyObject *span, PyObject *result)
{
    KnownSpan *known = known_to(self);
    if (known == NULL || raw->blocked_others_ns || !has_succeeded(raw, result) || is_about_resources(raw->method))
        return PyErr_Occurred() ? -1 : 0;
    if (!has_attribute(span, str_end_time, Py_None))
        return PyErr_Occurred() ? -1 : 1;
    PyObject *found = room_on(span);
    Steps *steps = found == NULL ? NULL : steps_on(self, raw);
    so_far_t so;
    int plain = steps == NULL ? (PyErr_Occurred() ? -1 : 0) : so_far(raw, steps, now_ns(), &so);
    if (plain == 1) {
        held_t held;
        ns_t since = measured_since(self);
        int measured = since >= 0 && so.first >= since && memory_of(raw, &held);
        paused_t paused = pause_charge();
        if (PyErr_Occurred() || put_all(found, known->plain, raw, &so, measured ? &held : NULL) < 0 ||
            put_peer(known, found, raw, ctx) < 0)
            plain = -1;
        resume_charge(paused);
    }
    Py_XDECREF((PyObject *)steps);
    Py_XDECREF(found);
    return plain;
}

/* awaited.h */
static PyObject *around(Spans *self, Request *raw, PyObject *ctx, PyObject *call_next);
static int tell_fault(PyObject *target, PyObject *method);

/* spans.around(raw, ctx, call_next): an awaitable. */
static PyObject *spans_around(Spans *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 3 || !PyObject_TypeCheck(args[0], request_type)) {
        PyErr_SetString(PyExc_TypeError, "around(raw, ctx, call_next)");
        return NULL;
    }
    return around(self, (Request *)args[0], args[1], args[2]);
}

/* What stands for call_next(ctx) where a request is live here, with its span; NULL without an exception where none is. */
static PyObject *around_current(Spans *self, PyObject *ctx, PyObject *call_next)
{
    PyObject *current = NULL, *made = NULL;
    if (current_var == NULL || PyContextVar_Get(current_var, NULL, &current) < 0)
        return NULL;
    Request *raw = as_request(current);
    if (raw != NULL && !raw->ended && is_message_of(raw, ctx) == 1)
        made = around(self, raw, ctx, call_next);
    Py_XDECREF(current);
    return made;
}

/* spans(ctx, call_next): an awaitable. */
static PyObject *spans_call(Spans *self, PyObject *args, PyObject *kwargs)
{
    if (PyTuple_Size(args) == 2 && (kwargs == NULL || PyDict_Size(kwargs) == 0) && now_ns() < self->hears_until_ns) {
        PyObject *ctx = PyTuple_GetItem(args, 0), *call_next = PyTuple_GetItem(args, 1),
                 *made = around_current(self, ctx, call_next);
        if (made != NULL)
            return made;
        if (PyErr_Occurred() && tell_fault((PyObject *)self, str_failed) < 0)
            return NULL;
        return call_with_one(call_next, ctx);
    }
    PyObject *asked = PyObject_GetAttr((PyObject *)self, str_asked);
    PyObject *made = asked == NULL ? NULL : PyObject_Call(asked, args, kwargs);
    Py_XDECREF(asked);
    return made;
}

static PyMemberDef spans_members[] = {{"known", T_OBJECT, offsetof(Spans, known), 0, NULL},
                                      {"hears_until_ns", T_LONGLONG, offsetof(Spans, hears_until_ns), 0, NULL},
                                      {NULL}};
static PyMethodDef spans_methods[] = {{"around", (PyCFunction)spans_around, METH_FASTCALL,
                                       "around(raw, ctx, call_next): call_next(ctx), with what is done for its span."},
                                      {NULL}};
static PyType_Slot spans_slots[] = {{Py_tp_new, spans_new},           {Py_tp_call, spans_call},
                                    {Py_tp_traverse, spans_traverse}, {Py_tp_clear, spans_clear},
                                    {Py_tp_dealloc, spans_dealloc},   {Py_tp_members, spans_members},
                                    {Py_tp_methods, spans_methods},   {0, NULL}};
static PyType_Spec spans_spec = {"mcp_probe.native._core.Spans", sizeof(Spans), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, spans_slots};
static PyType_Slot known_span_slots[] = {{Py_tp_new, known_span_new},     {Py_tp_traverse, known_span_traverse},
                                         {Py_tp_clear, known_span_clear}, {Py_tp_dealloc, known_span_dealloc},
                                         {0, NULL}};
static PyType_Spec known_span_spec = {"mcp_probe.native._core.KnownSpan", sizeof(KnownSpan), 0,
                                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, known_span_slots};

static int make_span_names(void)
{
    static const name_t names[] = {{&str_end_time, "_end_time"},
                                   {&str_span_kind, "_kind"},
                                   {&str_span_scope, "_instrumentation_scope"},
                                   {&str_span_context, "_context"},
                                   {&str_attributes, "_attributes"},
                                   {&str_dict, "_dict"},
                                   {&str_maxlen, "maxlen"},
                                   {&str_max_value_len, "max_value_len"},
                                   {&str_connection, "_connection"},
                                   {&str_session_id, "session_id"},
                                   {&str_request, "request"},
                                   {&str_scope, "scope"},
                                   {&str_client, "client"},
                                   {&str_tracks, "tracks"},
                                   {&str_memory_of_hub, "memory"},
                                   {&str_native_since_ns, "native_since_ns"},
                                   {&str_resources, "resources/"},
                                   {&str_app, "app"},
                                   {&str_asked, "asked"},
                                   {&str_end_joined, "end_joined"},
                                   {&str_begin, "begin"},
                                   {&str_end, "end"}};
    return INTERN(names);
}
