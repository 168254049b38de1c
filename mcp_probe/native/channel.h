/* ---- Channel: what happens to every message of a stream pair (twin: capture/queueing.py) ---- */

typedef struct {
    PyObject_HEAD
    Desk *desk;
    PyObject *transport, *session, *stamps, *pending, *sent, *writing, *ready;
    Steps *steps;
    char writer_seen;
} Channel;

static PyObject *channel_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *desk, *transport, *ready;
    if (!PyArg_ParseTuple(args, "O!OO", desk_type, &desk, &transport, &ready))
        return NULL;
    Channel *self = (Channel *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->desk = (Desk *)Py_NewRef(desk);
    self->transport = Py_NewRef(transport);
    self->ready = Py_NewRef(ready);
    self->pending = PyDict_New();
    self->sent = PyDict_New();
    if (self->pending == NULL || self->sent == NULL)
        Py_CLEAR(self);
    return (PyObject *)self;
}

#define CHANNEL_OBJECTS(EACH) \
    EACH(desk) EACH(transport) EACH(session) EACH(stamps) EACH(pending) \
    EACH(sent) EACH(writing) EACH(ready) EACH(steps)
TRAVERSE_AND_CLEAR(Channel, channel, CHANNEL_OBJECTS)
DEALLOCATE(Channel, channel, NOTHING_TO_FREE)

/* The message of an item and its kind; both new references. The message is NULL where the item has none. */
static int message_of(PyObject *item, PyObject **message, PyObject **kind)
{
    *kind = NULL;
    *message = PyObject_GetAttr(item, str_message);
    if (*message == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError))
            return -1;
        PyErr_Clear();
        return 0;
    }
    PyObject *known = PyDict_GetItemWithError(kinds, (PyObject *)Py_TYPE(*message));
    if (known != NULL)
        *kind = Py_NewRef(known);
    else if (!PyErr_Occurred())
        *kind = PyObject_CallOneArg(find_kind, *message);
    if (*kind == NULL) {
        Py_CLEAR(*message);
        return -1;
    }
    return 0;
}

/* (earliest, ready, since) of the step that runs now. */
static int running_step(Channel *self, ns_t now, ns_t *ready, ns_t *since)
{
    Steps *steps = self->steps;
    if (steps != NULL && runs_here(steps)) {
        *ready = steps->since ? steps->ready : now;
        *since = steps->since ? steps->since : now;
        return 0;
    }
    ns_t earliest;
    PyObject *found = PyObject_CallNoArgs(self->ready);
    int failed = found == NULL || !PyArg_ParseTuple(found, "LLL", &earliest, ready, since);
    Py_XDECREF(found);
    return failed ? -1 : 0;
}

static int set_current(PyObject *context, PyObject *raw)
{
    if (PyContext_Enter(context) < 0)
        return -1;
    PyObject *token = PyContextVar_Set(current_var, raw);
    Py_XDECREF(token);
    int failed = PyContext_Exit(context) < 0;
    return token == NULL || failed ? -1 : 0;
}

static int note_arrival(Channel *self, Request *raw, PyObject *context, ns_t now)
{
    PyObject *stamp = NULL;
    if (is_set(self->stamps)) {
        stamp = call_method(self->stamps, str_consumed);
        if (stamp == NULL)
            return -1;
    }
    if (stamp != NULL && stamp != Py_None) {
        ns_t ready, since, arrival = PyLong_AsLongLong(PyTuple_GetItem(stamp, 0));
        int failed = PyErr_Occurred() || running_step(self, now, &ready, &since) < 0;
        if (!failed) {
            raw->arrival_ns = arrival;
            raw->arrival_earliest_ns = PyLong_AsLongLong(PyTuple_GetItem(stamp, 1));
            raw->request_bytes = PyLong_AsLongLong(PyTuple_GetItem(stamp, 2));
            raw->decode_ns = now - (since > arrival ? since : arrival);
        }
        Py_DECREF(stamp);
        return failed || PyErr_Occurred() ? -1 : 0;
    }
    Py_XDECREF(stamp);
    if (context != Py_None) {
        PyObject *exchange = call_method_with(context, str_get, exchange_var), *taken = NULL;
        if (exchange == NULL)
            return -1;
        int arrived = 0;
        if (exchange != Py_None) {
            taken = PyObject_CallMethodObjArgs((PyObject *)self, str_arrived_by, exchange, (PyObject *)raw, NULL);
            arrived = taken == NULL ? -1 : PyObject_IsTrue(taken);
            Py_XDECREF(taken);
        }
        Py_DECREF(exchange);
        if (arrived)
            return arrived < 0 ? -1 : 0;
    }
    raw->transport_seen = 0;
    raw->arrival_ns = now;
    return 0;
}

static int admit(Channel *self, PyObject *message, PyObject *kind, PyObject *context)
{
    int failed = -1;
    Request *raw = NULL;
    PyObject *method = PyObject_GetAttr(message, str_method), *name = NULL, *id = NULL;
    if (method == NULL || (name = name_of(message, method)) == NULL)
        goto done;
    raw = desk_open(self->desk, kind, method, name, self->transport);
    if (raw == NULL)
        goto done;
    ns_t now = now_ns();
    raw->session = Py_NewRef(self->session == NULL ? Py_None : self->session);
    raw->channel = Py_NewRef((PyObject *)self);
    raw->settles = 1;
    raw->taken_ns = now;
    if (note_arrival(self, raw, context, now) < 0)
        goto done;
    if (context != Py_None && set_current(context, (PyObject *)raw) < 0)
        goto done;
    if (kind == kind_request) {
        if ((id = PyObject_GetAttr(message, str_id)) == NULL)
            goto done;
        raw->request_id = Py_NewRef(id);
        if (PyDict_SetItem(self->pending, id, (PyObject *)raw) < 0)
            goto done;
        if (self->writer_seen)
            raw->write_seen = 1;
    }
    ns_t outstanding = PyDict_Size(self->desk->live);
    if (is_set(self->stamps)) {
        PyObject *waiting = PyObject_GetAttr(self->stamps, str_waiting);
        if (waiting == NULL)
            goto done;
        outstanding += PyObject_Size(waiting);
        Py_DECREF(waiting);
    }
    if (outstanding > self->desk->peak)
        self->desk->peak = outstanding;
    failed = 0;
done:
    Py_XDECREF(method);
    Py_XDECREF(name);
    Py_XDECREF(id);
    Py_XDECREF((PyObject *)raw);
    return failed;
}

static PyObject *channel_received(Channel *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "received(item, context)");
        return NULL;
    }
    PyObject *message, *kind;
    if (message_of(args[0], &message, &kind) < 0)
        return NULL;
    int failed = 0;
    if (kind == kind_request || kind == kind_notification)
        failed = admit(self, message, kind, args[1]) < 0;
    else {
        if (is_set(self->stamps)) { /* the line is consumed, whatever it was */
            PyObject *stamp = call_method(self->stamps, str_consumed);
            failed = stamp == NULL;
            Py_XDECREF(stamp);
        }
        if (message != NULL && !failed)
            failed = call_one((PyObject *)self, str_answered, message) < 0;
    }
    int admitted = kind == kind_request || kind == kind_notification;
    Py_XDECREF(message);
    Py_XDECREF(kind);
    if (failed)
        return NULL;
    return Py_NewRef(admitted ? args[1] : Py_None);
}

/* Reads off an answer whether it failed; never keeps anything of its content. */
static int note_answer(Request *raw, PyObject *message, PyObject *kind)
{
    PyObject *part = NULL, *done = NULL;
    if (kind == kind_error) {
        if ((part = PyObject_GetAttr(message, str_error)) != NULL)
            done = call_with_two(note_error, (PyObject *)raw, part);
    }
    else {
        int named = PySet_Contains(named_methods, raw->method);
        if (named <= 0) {
            PyErr_Clear();
            return 0;
        }
        if ((part = PyObject_GetAttr(message, str_result)) != NULL) {
            PyObject *failed = PyDict_CheckExact(part) ? PyDict_GetItemWithError(part, str_is_error) : Py_True;
            if (failed == NULL && PyErr_Occurred())
                done = NULL;
            else if (failed != Py_True)
                done = Py_NewRef(Py_None);
            else
                done = call_with_two(note_result, (PyObject *)raw, part);
        }
    }
    Py_XDECREF(part);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static PyObject *channel_sending(Channel *self, PyObject *item)
{
    PyObject *message, *kind, *id = NULL, *found = NULL;
    if (message_of(item, &message, &kind) < 0)
        return NULL;
    int failed = 0;
    if (kind == kind_result || kind == kind_error) {
        id = PyObject_GetAttr(message, str_id);
        found = id == NULL ? NULL : PyDict_GetItemWithError(self->pending, id);
        failed = found == NULL && PyErr_Occurred();
        Py_XINCREF(found);
        if (found != NULL)
            failed = PyDict_DelItem(self->pending, id) < 0;
        Request *raw = as_request(found);
        if (!failed && raw != NULL && !raw->ended) {
            failed = note_answer(raw, message, kind) < 0;
            if (!failed)
                desk_finished(self->desk, raw, now_ns());
            if (!failed && self->writer_seen) {
                PyObject *key = PyLong_FromVoidPtr(item);
                failed = key == NULL || PyDict_SetItem(self->sent, key, found) < 0;
                Py_XDECREF(key);
            }
        }
        else
            Py_CLEAR(found);
    }
    else if (kind == kind_request)
        failed = call_one((PyObject *)self, str_asking, message) < 0;
    Py_XDECREF(message);
    Py_XDECREF(kind);
    Py_XDECREF(id);
    if (failed) {
        Py_XDECREF(found);
        return NULL;
    }
    return found == NULL ? Py_NewRef(Py_None) : found;
}

static PyObject *channel_handed_over(Channel *self, PyObject *object)
{
    Request *raw = request_arg(object);
    if (raw == NULL)
        return NULL;
    if (raw->write_seen)
        Py_RETURN_NONE;
    ns_t ready, since, taken = raw->result_ns != NO_NS ? raw->result_ns : 0;
    if (running_step(self, now_ns(), &ready, &since) < 0)
        return NULL;
    if (ready > taken)
        taken = ready;
    raw->write_taken_ns = taken;
    return none_unless(desk_end(self->desk, raw, taken, NULL));
}

/* The request of a message that is on its way to the writer; a new reference, NULL without an exception: none. */
static PyObject *pop_sent(Channel *self, PyObject *item)
{
    PyObject *key = PyLong_FromVoidPtr(item);
    PyObject *found = key == NULL ? NULL : PyDict_GetItemWithError(self->sent, key);
    Py_XINCREF(found);
    if (found != NULL && PyDict_DelItem(self->sent, key) < 0)
        Py_CLEAR(found);
    Py_XDECREF(key);
    return found;
}

static PyObject *channel_not_sent(Channel *self, PyObject *args)
{
    PyObject *item, *object;
    if (!PyArg_ParseTuple(args, "OO", &item, &object))
        return NULL;
    Request *raw = request_arg(object);
    PyObject *was_sent = raw == NULL ? NULL : pop_sent(self, item);
    if (PyErr_Occurred())
        return NULL;
    int ends = was_sent != NULL || !raw->write_seen;
    Py_XDECREF(was_sent);
    return none_unless(ends && desk_end(self->desk, raw, now_ns(), cancelled_outcome) < 0);
}

static PyObject *channel_taken(Channel *self, PyObject *item)
{
    ns_t now = now_ns();
    PyObject *taken = pop_sent(self, item);
    if (taken == NULL && PyErr_Occurred())
        return NULL;
    PyObject *previous = self->writing;
    self->writing = taken == NULL ? Py_NewRef(Py_None) : taken;
    Request *before = as_request(previous), *raw = as_request(taken);
    int failed = before != NULL && desk_end(self->desk, before, now, NULL) < 0;
    Py_XDECREF(previous);
    if (raw != NULL)
        raw->write_taken_ns = now;
    return none_unless(failed);
}

static int channel_flush(Channel *self)
{
    PyObject *writing = self->writing;
    self->writing = Py_NewRef(Py_None);
    Request *raw = as_request(writing);
    int failed = 0;
    if (raw != NULL) {
        raw->flushed_ns = now_ns();
        failed = desk_end(self->desk, raw, raw->flushed_ns, NULL) < 0;
    }
    Py_XDECREF(writing);
    return failed ? -1 : 0;
}

static PyObject *channel_flushed(Channel *self, PyObject *ignored)
{
    return none_unless(channel_flush(self) < 0);
}

static PyObject *channel_forget(Channel *self, PyObject *object)
{
    Request *raw = request_arg(object);
    if (raw == NULL)
        return NULL;
    PyObject *id = raw->request_id == NULL ? Py_None : raw->request_id;
    PyObject *found = PyDict_GetItemWithError(self->pending, id);
    if (found == object && PyDict_DelItem(self->pending, id) < 0)
        return NULL;
    if (found == NULL && PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

static PyMemberDef channel_members[] = {
    {"desk", T_OBJECT, offsetof(Channel, desk), READONLY, NULL},
    {"transport", T_OBJECT, offsetof(Channel, transport), 0, NULL},
    {"session", T_OBJECT, offsetof(Channel, session), 0, NULL},
    {"stamps", T_OBJECT, offsetof(Channel, stamps), 0, NULL},
    {"pending", T_OBJECT, offsetof(Channel, pending), READONLY, NULL},
    {"sent", T_OBJECT, offsetof(Channel, sent), READONLY, NULL},
    {"writing", T_OBJECT, offsetof(Channel, writing), 0, NULL},
    {"writer_seen", T_BOOL, offsetof(Channel, writer_seen), 0, NULL},
    {NULL}};

static int channel_set_track(Channel *self, PyObject *track, void *closure)
{
    PyObject *before = (PyObject *)self->steps;
    if (track != NULL && track != Py_None && !PyObject_TypeCheck(track, steps_type)) {
        PyErr_SetString(PyExc_TypeError, "a channel's track is a Steps");
        return -1;
    }
    self->steps = track == NULL || track == Py_None ? NULL : (Steps *)Py_NewRef(track);
    Py_XDECREF(before);
    return 0;
}

static PyObject *channel_get_track(Channel *self, void *closure)
{
    return Py_NewRef(self->steps == NULL ? Py_None : (PyObject *)self->steps);
}

static PyGetSetDef channel_getset[] = {{"track", (getter)channel_get_track, (setter)channel_set_track, NULL, NULL},
                                       {NULL}};
static PyMethodDef channel_methods[] = {
    {"received", (PyCFunction)(void (*)(void))channel_received, METH_FASTCALL, NULL},
    {"sending", (PyCFunction)channel_sending, METH_O, NULL},
    {"handed_over", (PyCFunction)channel_handed_over, METH_O, NULL},
    {"not_sent", (PyCFunction)channel_not_sent, METH_VARARGS, NULL},
    {"taken", (PyCFunction)channel_taken, METH_O, NULL},
    {"flushed", (PyCFunction)channel_flushed, METH_NOARGS, NULL},
    {"forget", (PyCFunction)channel_forget, METH_O, NULL},
    {NULL}};
static PyType_Slot channel_slots[] = {{Py_tp_new, channel_new},         {Py_tp_traverse, channel_traverse},
                                      {Py_tp_clear, channel_clear},     {Py_tp_dealloc, channel_dealloc},
                                      {Py_tp_members, channel_members}, {Py_tp_getset, channel_getset},
                                      {Py_tp_methods, channel_methods}, {0, NULL}};
static PyType_Spec channel_spec = {"mcp_probe.native._core.Channel", sizeof(Channel), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, channel_slots};
